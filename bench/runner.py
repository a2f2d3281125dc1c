"""Interleaved medians, and ratios against peers that were timed in the same run."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = "gradwright"
Clock = Callable[[], float]


@dataclass(frozen=True)
class Contest:
    """One job, done by gradwright and by its peers."""

    name: str
    runs: Mapping[str, Callable[[], Any]]  # OURS among them
    limits: Mapping[str, float] = field(default_factory=dict)  # of our time / a peer's
    bounds: Sequence[str] = ()  # runs that no program is faster than, and
    of_bounds: float = 0.0  # the limit of our time / the largest of them
    size: int = 0  # elements, where the same job is done at several sizes
    traffic: int = 0  # bytes that one run reads and writes


@dataclass(frozen=True)
class Result:
    """Medians in seconds, and our time over each peer's."""

    name: str
    seconds: Mapping[str, float]
    limits: Mapping[str, float]
    quartiles: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # the first and last
    bounds: Sequence[str] = ()
    of_bounds: float = 0.0
    size: int = 0
    traffic: int = 0

    def ratio(self, peer: str) -> float:
        return self.seconds[OURS] / self.seconds[peer]

    def keeps(self, peer: str) -> bool:
        return peer not in self.limits or self.ratio(peer) <= self.limits[peer]

    @property
    def over_bounds(self) -> float:
        """Our time over the largest of the bounds."""
        return self.seconds[OURS] / max(self.seconds[name] for name in self.bounds)

    @property
    def kept(self) -> bool:
        within = not self.bounds or self.over_bounds <= self.of_bounds
        return within and all(self.keeps(peer) for peer in self.seconds)


def measure(contest: Contest, rounds: int = 7, clock: Clock = time.perf_counter) -> Result:
    """Time every run once in each round: what slows the machine down slows all of them."""
    for run in contest.runs.values():
        run()  # the first call compiles
    times: dict[str, list[float]] = {name: [] for name in contest.runs}
    for k in range(rounds):
        for name in _rotated(list(contest.runs), k):
            begun = clock()
            contest.runs[name]()
            times[name].append(clock() - begun)
    medians = {name: statistics.median(found) for name, found in times.items()}
    c, quartiles = contest, {k: _outer(t) for k, t in times.items()}
    return Result(c.name, medians, c.limits, quartiles, c.bounds, c.of_bounds, c.size, c.traffic)


def _outer(times: Sequence[float]) -> tuple[float, float]:
    """The first and the last quartile."""
    if len(times) < 2:
        return times[0], times[0]
    first, _, last = statistics.quantiles(times, n=4, method="inclusive")
    return first, last


def _rotated(names: Sequence[str], k: int) -> Sequence[str]:
    """Each round begins with another one: being first is no advantage."""
    k %= len(names)
    return [*names[k:], *names[:k]]


def table(results: Iterable[Result]) -> str:
    """The results as text."""
    lines = []
    for result in results:
        lines.append(result.name)
        lines += [_line(result, name, t) for name, t in result.seconds.items()]
        lines += [f"  {_of_bounds(result)}"] if result.bounds else []
    return "\n".join(lines)


def _of_bounds(result: Result) -> str:
    ratio, limit = result.over_bounds, result.of_bounds
    kept = "kept" if ratio <= limit else "MISSED"
    return f"ours is {ratio:.2f} of the largest bound (limit {limit:g}: {kept})"


def _line(result: Result, name: str, seconds: float) -> str:
    line = f"  {name:<24} {seconds * 1e3:10.3f} ms{_spread(result, name)}"
    if name == OURS:
        return line
    line += f"   ours is {result.ratio(name):.2f} of it"
    if name in result.limits:
        line += f" (limit {result.limits[name]:g}: {'kept' if result.keeps(name) else 'MISSED'})"
    return line


def _spread(result: Result, name: str) -> str:
    if name not in result.quartiles:
        return ""
    first, last = result.quartiles[name]
    return f" ({first * 1e3:.3f} to {last * 1e3:.3f})"


def markdown(results: Iterable[Result]) -> str:
    """The results as tables: medians, and between which times half of the runs were."""
    lines = []
    for result in results:
        lines += [f"### {result.name}", "", "| | ms | half of the runs | ours, of it | limit |"]
        lines.append("|---|---:|---:|---:|---:|")
        for name, t in result.seconds.items():
            spread = _spread(result, name).strip(" ()")
            ratio = "" if name == OURS else f"{result.ratio(name):.2f}"
            limit = f"{result.limits[name]:g}" if name in result.limits else ""
            lines.append(f"| {name} | {t * 1e3:.3f} | {spread} | {ratio} | {limit} |")
        lines += ["", f"{_of_bounds(result).capitalize()}."] if result.bounds else []
        lines.append("")
    return "\n".join(lines)


def as_dict(result: Result) -> dict[str, Any]:
    """The result as plain data."""
    ratios = {name: result.ratio(name) for name in result.seconds if name != OURS}
    return {
        "name": result.name,
        "seconds": dict(result.seconds),
        "quartiles": {name: list(found) for name, found in result.quartiles.items()},
        "ratios": ratios,
        "limits": dict(result.limits),
        "kept": result.kept,
        "bounds": list(result.bounds),
        "of_bounds": result.of_bounds,
        "size": result.size,
        "traffic": result.traffic,
    }


def from_dict(data: Mapping[str, Any]) -> Result:
    """The result that `as_dict` took apart."""
    quartiles = {name: (first, last) for name, (first, last) in data["quartiles"].items()}
    rest = {name: data[name] for name in ("bounds", "of_bounds", "size", "traffic")}
    return Result(data["name"], data["seconds"], data["limits"], quartiles, **rest)
