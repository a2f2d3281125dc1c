"""The page on performance, made of results: ``python -m bench --read FILE --document FOLDER``."""

import os
import platform
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from . import runner
from .runner import Result

PEERS = ("numpy", "llvmlite", "torch", "jax", "optax", "tensorflow", "keras")
# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#999999", "#56B4E9", "#D55E00", "#E69F00", "#CC79A7")
PAGE, PICTURE = "performance.md", "performance.png"

_TEXT = """# Performance

This page is made by `python -m bench` from what it measured; nothing in it is written by hand.

{machine}

Each table is one job, done by gradwright and by its peers in the same process. Every run is timed
once in each round, and each round begins with another one, so what slows the machine down slows
all of them. A time is the median of the rounds, beside the times between which half of them were.
"Ours, of it" is our time over the peer's, and "limit" the most that it may be. The run called
*limit* reads and writes the same bytes as ours, and computes next to nothing: no program of the
same traffic is much faster.

To reproduce it:

```sh
make bench      # prints every table, and says which limits were kept
python -m bench fused ops --json results.json --document docs
```

`--rounds` sets the number of rounds; a machine that does nothing else gives the narrowest times.
{plot}
## Tables

{tables}"""

_PLOT = """
## Bandwidth by size

![AdamW on one array: bytes read and written a second, by the number of elements]({picture})

AdamW on one array, the Python step included: w, the gradient and two slots are read, all but the
gradient written.
"""


def machine() -> dict[str, Any]:
    """What the numbers belong to."""
    return {
        "cpu": _cpu(),
        "count": _count(),
        "python": platform.python_version(),
        "versions": {name: found for name in PEERS if (found := _version(name))},
    }


def _count() -> int | None:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def write(results: Sequence[Result], of: Mapping[str, Any], folder: Path) -> None:
    """Write the page, and the picture that it shows."""
    folder.mkdir(parents=True, exist_ok=True)
    by_size = [r for r in results if r.size]
    if by_size:
        draw(by_size, folder / PICTURE)
    text = _TEXT.format(
        machine=_sentence(of),
        plot=_PLOT.format(picture=PICTURE) if by_size else "",
        tables=runner.markdown([r for r in results if not r.size]),
    )
    (folder / PAGE).write_text(text.rstrip() + "\n")


def _sentence(of: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {found}" for name, found in of["versions"].items())
    on = f"Measured on {of['cpu']}, {of['count']} processors, with Python {of['python']}"
    return textwrap.fill(f"{on}, {versions}.", 98)


def bandwidths(results: Sequence[Result]) -> dict[str, list[tuple[int, float]]]:
    """For each run, (elements, bytes a second / 1e9)."""
    found: dict[str, list[tuple[int, float]]] = {}
    for result in sorted(results, key=lambda r: r.size):
        for name, seconds in result.seconds.items():
            found.setdefault(name, []).append((result.size, result.traffic / seconds / 1e9))
    return found


def draw(results: Sequence[Result], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6), dpi=130, layout="constrained")
    axes = figure.subplots()
    for k, (name, points) in enumerate(bandwidths(results).items()):
        style = "--" if name == "limit" else "-"
        axes.plot(*zip(*points, strict=True), style, label=name, color=COLOURS[k % len(COLOURS)],
                  marker="o", markersize=3.5, linewidth=1.6)  # fmt: skip
    axes.set(xscale="log", xlabel="elements", ylabel="GB/s read and written", ylim=(0, None))
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path)
