"""A step like the one before it: where only numbers and gradients are new, one call does it all."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...equation import PerParam
from ...optimizer import Entry, Runner, prepare
from ...plan import Plan, Ready
from ..fused import headers
from .engines import Update

Array = np.ndarray[Any, Any]
Making: TypeAlias = Callable[[int, Any], Entry]  # what a parameter brings, with its gradient


class Kin(NamedTuple):
    """Parameters that read the same numbers: of one rule, group and count of updates."""

    first: int  # one of them, by its place in the optimizer
    plans: set[Plan]  # one for each rank and dtype
    rows: Any  # of the table


class Called(NamedTuple):
    """The parameters of one program, which are updated by one call."""

    places: list[int]
    table: Any
    columns: list[Array]  # of the numbers, the identity apart
    addresses: headers.Addresses
    kin: list[Kin]


class Steady:
    """What stays as it is from step to step."""

    def __init__(self, calls: Sequence[Called], count: int) -> None:
        self._calls = calls
        self.places = [k for call in calls for k in call.places]
        alive = set(self.places)
        self._without = [k for k in range(count) if k not in alive]
        self._all = len(calls) == 1 and not self._without
        self._lock = threading.Lock()  # the tables serve one step at a time

    def step(self, gradients: list[Any], making: Making, runner: Runner, *clocks: Any) -> bool:
        """Update the parameters, or none if more than numbers and gradients has changed.

        `gradients` are one for each parameter and unchecked; `clocks` are count and seed.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            ready = self._take(gradients) and self._count(gradients, making, runner, *clocks)
            if ready:
                for call in self._calls:
                    call.table.run()
            return ready
        finally:
            self._lock.release()

    def _take(self, gradients: list[Any]) -> bool:
        """Take the addresses of the gradients, if all arrays are as they should be."""
        if self._all:
            return self._calls[0].addresses.take(gradients)
        return all(gradients[k] is None for k in self._without) and all(
            call.addresses.take([gradients[k] for k in call.places]) for call in self._calls
        )

    def _count(
        self, gradients: list[Any], making: Making, runner: Runner, count: int, seed: Any
    ) -> bool:
        """Compute the numbers of this step, if they are numbers of the same plans."""
        for call in self._calls:
            for kin in call.kin:
                e = making(kin.first, gradients[kin.first])
                if _differs_by_parameter(e):
                    return False
                (ready,), _ = prepare([e], count, seed, {}, runner)
                if ready.part.plan not in kin.plans:
                    return False
                for column, number in zip(call.columns, ready.read, strict=True):
                    column[kin.rows] = number
        return True


def steady(
    update: Update, places: Sequence[int], groups: Sequence[int], count: int
) -> Steady | None:
    """How to take the steps after this one; ``None`` where each needs to be looked at.

    `places` and `groups` are those of the update's parameters, of `count` in all.
    """
    if update.results or not headers.are_known() or any(map(_differs_by_parameter, update.entries)):
        return None
    rows = [r for _, readies in update.kernels for r in readies]
    written = headers.spans(a for r in rows for a in (r.part.arrays[0], *r.part.arrays[2:]))
    if written is None or any(not _is_simple(r) for r in rows):
        return None
    calls = [
        _called(update, mine, readies, places, groups, written) for mine, readies in update.kernels
    ]
    return Steady(calls, count)


def _differs_by_parameter(e: Entry) -> bool:
    return any(isinstance(e.values.get(k, v), PerParam) for k, v in e.rule.hyperparams.items())


def _is_simple(r: Ready) -> bool:
    plan = r.part.plan
    return len(plan.stages) == 1 and not plan.shared and not plan.final.records


def _called(
    update: Update,
    mine: Sequence[int],
    readies: Sequence[Ready],
    places: Sequence[int],
    groups: Sequence[int],
    written: Array,
) -> Called:
    from ..fused.program import Table

    arrays = [r.part.arrays for r in readies]
    table = Table(readies[0].part.plan.final.programs["fused"], tuple([a[0].size for a in arrays]))
    table.addresses[:] = [
        [x.__array_interface__["data"][0] for x in (*a, a[0], *a[2:])] for a in arrays
    ]
    kin: dict[Any, tuple[list[int], set[Plan]]] = {}
    for row, (k, ready) in enumerate(zip(mine, readies, strict=True)):
        e = update.entries[k]
        rows, plans = kin.setdefault((id(e.rule), groups[k], e.steps), ([], set()))
        rows.append(row)
        plans.add(ready.part.plan)
    found = [
        Kin(places[mine[rows[0]]], plans, slice(None) if len(kin) == 1 else np.array(rows))
        for rows, plans in kin.values()
    ]
    first, *columns = [table.numbers[name] for name in table.numbers.dtype.names or ()]
    first[:] = [update.entries[k].identity for k in mine]
    addresses = headers.Addresses(arrays, table.whole, written)
    return Called([places[k] for k in mine], table, columns, addresses, found)
