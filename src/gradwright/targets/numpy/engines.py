"""How new values are computed and written: by NumPy's operations, or by one kernel in place."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...errors import SignatureError
from ...optimizer import Entry, Runner, check_shapes
from ...plan import Ready, Result, finish
from ..fused import update as fused

Array = np.ndarray[Any, Any]
Records = dict[str, Any]
Kernels: TypeAlias = Sequence[tuple[list[int], list[Ready]]]  # the parameters of each program


@dataclass(frozen=True)
class Update:
    """A step that is ready: `write` cannot fail, and gives what each parameter recorded."""

    entries: Sequence[Entry]
    results: Mapping[int, Result]  # by NumPy: new arrays
    kernels: Kernels  # by machine code

    def write(self) -> list[Records]:
        records: list[Records] = [{} for _ in self.entries]
        for k, result in self.results.items():
            old = (self.entries[k].w, *self.entries[k].slots)
            for array, value in zip(old, result.values, strict=False):
                np.copyto(array, value)
            records[k] = dict(zip(result.records, result.values[len(old) :], strict=True))
        for k, found in run(self.entries, self.kernels):
            records[k] = found
        return records


def run(
    entries: Sequence[Entry], kernels: Kernels, others: int | None = None
) -> Iterator[tuple[int, Records]]:
    """Update what kernels update, in place; gives what each parameter records.

    `others` is a framework's own number of threads.
    """
    for places, readies in kernels:
        names = readies[0].part.plan.final.records
        slots = len(entries[places[0]].slots)
        for k, kept in zip(places, fused.write(readies, slots, others), strict=True):
            yield k, dict(zip(names, kept, strict=True))


def computed(entries: Sequence[Entry], results: Sequence[Result]) -> Update:
    """The update whose new values are there already."""
    for e, result in zip(entries, results, strict=True):
        check_shapes(e.name, e.rule, [e.w, *e.slots], result)
    return Update(entries, dict(enumerate(results)), [])


def update(entries: Sequence[Entry], readies: Sequence[Ready], runner: Runner) -> Update:
    """Choose for each parameter what updates it, and compute all that can fail."""
    rest: dict[int, Result] = {}
    chosen = by_kernel(entries, readies)
    for k, (entry, ready) in enumerate(zip(entries, readies, strict=True)):
        if k not in chosen:
            rest[k] = result = finish(ready, runner.run)
            check_shapes(entry.name, entry.rule, [entry.w, *entry.slots], result)
    return Update(entries, rest, kernels(entries, readies, chosen))


def kernels(
    entries: Sequence[Entry], readies: Sequence[Ready], chosen: Mapping[int, Any]
) -> Kernels:
    """The chosen parameters by program: those of one program are updated by one call."""
    if not chosen:
        return []
    shared = _sharing(entries)
    found: dict[Any, tuple[list[int], list[Ready]]] = {}
    for k, program in chosen.items():
        names = tuple(readies[k].part.plan.final.records)
        places, mine = found.setdefault((program.code, names), ([], []))
        places.append(k)
        mine.append(_apart(readies[k], 2 + len(entries[k].slots), shared[k]))
    return list(found.values())


def by_kernel(
    entries: Sequence[Entry], readies: Sequence[Ready], always: bool = False
) -> dict[int, Any]:
    """Which parameters are updated by machine code, as their rules' `engine` asks, and by which.

    `always` says that nothing is so small that it is faster without.
    """
    auto = [r for e, r in zip(entries, readies, strict=True) if e.rule.settings.engine == "auto"]
    worth_it = always or fused.worth_it(auto)
    found = {}
    for k, (entry, ready) in enumerate(zip(entries, readies, strict=True)):
        engine = entry.rule.settings.engine
        if engine == "numpy" or (engine == "auto" and not worth_it):
            continue
        reason = fused.misfit(ready)
        if reason is None:
            found[k] = fused.program(ready.part.plan.final, "update")
        elif engine == "fused":
            raise unfit(entry, reason)
    return found


def unfit(entry: Entry, reason: str) -> SignatureError:
    """That a kernel was asked for, and why there is none."""
    return SignatureError(
        f'{entry.rule.name} with engine="fused" cannot update {entry.name}: {reason}',
        'engine="auto", which lets the array library do what is not one loop over the elements',
    )


def _apart(ready: Ready, kept: int, shared: bool) -> Ready:
    """The same, with copies of what is read and may share memory with what is written.

    That is the gradient, if it does, and what was given for this step (behind the `kept` arrays).
    """
    w, g, *rest = ready.part.arrays
    if not shared and len(rest) + 2 == kept:
        return ready
    slots, given = rest[: kept - 2], rest[kept - 2 :]
    arrays = (w, np.array(g), *slots, *(np.array(a) for a in given))
    return ready._replace(part=ready.part._replace(arrays=arrays))


def _sharing(entries: Sequence[Entry]) -> Sequence[bool]:
    """Whether each gradient shares memory with a parameter or a slot that is written.

    A kernel writes in place, one parameter after the other. That a gradient is its own parameter
    does no harm: an element is read before it is written.
    """
    if len(entries) == 1:
        return [_shares(entries[0])]
    own = np.array([_span(e.w) for e in entries])
    slots = [_span(s) for e in entries for s in e.slots]
    written = np.concatenate([own, np.array(slots).reshape(-1, 2)])
    written = written[np.argsort(written[:, 0])]
    reach = np.maximum.accumulate(written[:, 1])  # how far what starts up to here goes
    read = np.array([_span(e.g) for e in entries])
    before = np.searchsorted(written[:, 0], read[:, 1]) - 1
    touched = (before >= 0) & (reach[before] > read[:, 0])
    return [bool(t) for t in touched & (read != own).any(axis=1)]


def _shares(e: Entry) -> bool:
    start, stop = span = _span(e.g)
    written = [_span(e.w), *[_span(s) for s in e.slots]]
    touched = any(first < stop and start < last for first, last in written)
    return touched and span != written[0]


def _span(array: Array) -> tuple[int, int]:
    """The memory from an array's first byte to its last."""
    if array.flags.c_contiguous:
        start = array.__array_interface__["data"][0]
        return start, start + array.nbytes
    return np.lib.array_utils.byte_bounds(array)
