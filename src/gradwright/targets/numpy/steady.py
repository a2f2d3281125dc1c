"""A step like the one before it: where only numbers and gradients are new, one call does it all."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...equation import PerParam
from ...optimizer import Entry, Runner, prepare
from ...plan import Plan, Ready
from ...rule import Rule
from ..fused.gather import Addresses, spans
from ..fused.headers import Reader
from .engines import Kernels
from .ready import Prepared, prepared

Array = np.ndarray[Any, Any]


class Source(Protocol):
    """What an optimizer knows of a parameter, by its place."""

    def values(self, k: int) -> Mapping[str, Any]:
        """The keywords of its group."""

    def steps(self, k: int) -> int:
        """The updates it has had."""

    def entry(self, k: int, g: Any) -> Entry:
        """All that it brings to a step."""


class Kin(NamedTuple):
    """Parameters that read the same numbers: of one rule, group and count of updates."""

    first: int  # one of them, by its place in the optimizer
    rule: Rule[Any]
    plans: set[Plan]  # one for each rank and dtype
    rows: Any  # of the table
    prepared: Prepared | None  # for the first


class Called(NamedTuple):
    """The parameters of one program, which are updated by one call."""

    places: list[int]
    kept: list[Any]  # every w, then each slot of all: the objects that are read
    table: Any
    columns: list[Array]  # of the numbers, the identity apart
    addresses: Addresses
    kin: list[Kin]


class Steady:
    """What stays as it is from step to step."""

    def __init__(self, calls: Sequence[Called], count: int) -> None:
        self.calls = calls
        self.places = [k for call in calls for k in call.places]
        alive = set(self.places)
        self._without = [k for k in range(count) if k not in alive]
        self._all = len(calls) == 1 and not self._without
        self._lock = threading.Lock()  # the tables serve one step at a time

    def step(
        self,
        gradients: list[Any],
        source: Source,
        runner: Runner,
        count: int,
        seed: Any,
        others: int | None = None,
    ) -> bool:
        """Update the parameters, or none if more than numbers and gradients has changed.

        `gradients` are one for each parameter and unchecked; `others` is a framework's own number
        of threads.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            ready = self._take(gradients) and self._count(gradients, source, runner, count, seed)
            if ready:
                for call in self.calls:
                    call.table.run(others)
            return ready
        finally:
            self._lock.release()

    def _take(self, gradients: list[Any]) -> bool:
        """Take the addresses of the gradients, if all arrays are as they should be."""
        if self._all:
            call = self.calls[0]
            return call.addresses.take(call.kept, gradients)
        return all(gradients[k] is None for k in self._without) and all(
            call.addresses.take(call.kept, [gradients[k] for k in call.places])
            for call in self.calls
        )

    def _count(
        self, gradients: list[Any], source: Source, runner: Runner, count: int, seed: Any
    ) -> bool:
        """Compute the numbers of this step, if they are numbers of the same plans."""
        for call in self.calls:
            for kin in call.kin:
                read = _at_once(kin, source, seed)
                if read is None:
                    e = source.entry(kin.first, gradients[kin.first])
                    if _differs_by_parameter(e):
                        return False
                    (ready,), _ = prepare([e], count, seed, {}, runner)
                    if ready.part.plan not in kin.plans:
                        return False
                    read = ready.read
                for column, number in zip(call.columns, read, strict=True):
                    column[kin.rows] = number
        return True


def _at_once(kin: Kin, source: Source, seed: Any) -> Any:
    """The numbers, where all keywords are floats and nothing was traced anew."""
    known, rule = kin.prepared, kin.rule
    rule.renew()
    if known is None or known.plans is not rule._plans:
        return None
    return known.read(source.values(kin.first), source.steps(kin.first), seed or 0)


class Brought(NamedTuple):
    """What is known of a parameter when it was updated, beside its entry."""

    place: int  # in the optimizer
    group: int
    kept: Sequence[Any]  # w and slots, the objects that a reader reads


def steady(
    entries: Sequence[Entry],
    kernels: Kernels,
    brought: Sequence[Brought],
    count: int,
    reader: Reader | None,
    runner: Runner,
) -> Steady | None:
    """How to take the steps after this one; ``None`` where each needs to be looked at.

    `count` is the number of all parameters; those that were updated are `entries`.
    """
    rows = [r for _, readies in kernels for r in readies]
    if len(rows) < len(entries) or reader is None or any(map(_differs_by_parameter, entries)):
        return None
    written = spans(a for r in rows for a in (r.part.arrays[0], *r.part.arrays[2:]))
    if written is None or not all(map(_is_simple, rows)):
        return None
    calls = []
    for mine, readies in kernels:
        call = [entries[k] for k in mine], [brought[k] for k in mine]
        calls.append(_called(*call, readies, written, reader, runner))
    return Steady(calls, count)


def _differs_by_parameter(e: Entry) -> bool:
    return any(isinstance(e.values.get(k, v), PerParam) for k, v in e.rule.hyperparams.items())


def _is_simple(r: Ready) -> bool:
    plan = r.part.plan
    return len(plan.stages) == 1 and not plan.shared and not plan.final.records


def _called(
    entries: Sequence[Entry],
    brought: Sequence[Brought],
    readies: Sequence[Ready],
    written: Array,
    reader: Reader,
    runner: Runner,
) -> Called:
    from ..fused.table import Table  # which loads LLVM

    arrays = [r.part.arrays for r in readies]
    table = Table(readies[0].part.plan.final.programs["fused"], tuple([a[0].size for a in arrays]))
    table.addresses[:] = [
        [x.__array_interface__["data"][0] for x in (*a, a[0], *a[2:])] for a in arrays
    ]
    identity, *columns = [table.numbers[name] for name in table.numbers.dtype.names or ()]
    identity[:] = [e.identity for e in entries]
    return Called(
        [b.place for b in brought],
        [x for column in zip(*[b.kept for b in brought], strict=True) for x in column],
        table,
        columns,
        Addresses(reader, arrays, table.whole, written),
        _kin(entries, brought, readies, runner),
    )


def _kin(
    entries: Sequence[Entry], brought: Sequence[Brought], readies: Sequence[Ready], runner: Runner
) -> list[Kin]:
    found: dict[Any, tuple[list[int], set[Plan]]] = {}
    for row, (e, b, ready) in enumerate(zip(entries, brought, readies, strict=True)):
        rows, plans = found.setdefault((id(e.rule), b.group, e.steps), ([], set()))
        rows.append(row)
        plans.add(ready.part.plan)
    alone = len(found) == 1
    return [
        Kin(
            brought[rows[0]].place,
            entries[rows[0]].rule,
            plans,
            slice(None) if alone else np.array(rows),
            prepared(entries[rows[0]], runner, numpys=False),
        )
        for rows, plans in found.values()
    ]
