"""Machine code on the memory of tensors, where they lie on the CPU as it reads them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from ...optimizer import Entry, check_shapes
from ...plan import Ready, Result, finish
from ..fused.headers import dlpacks
from ..fused.update import refused
from ..numpy import engines
from ..numpy.optimizer import RUNNER as HOST
from ..numpy.steady import Brought, Called, Source, Steady, steady
from .checkpoint import STEP
from .collection import Parameter
from .groups import Options, same
from .runner import RUNNER, view

READ = torch.Tensor, torch.nn.Parameter  # not what overrides their operations


class Update(NamedTuple):
    """A step that is ready: what torch computed, and what kernels will write."""

    results: Mapping[int, Result]  # by place
    places: Sequence[int]  # of the entries that kernels update
    entries: Sequence[Entry]  # those, as NumPy's arrays on the same memory
    kernels: engines.Kernels

    def run(self) -> dict[int, Mapping[str, Any]]:
        """Let the kernels write; what was recorded, by place."""
        found = engines.run(self.entries, self.kernels, torch.get_num_threads())
        return {self.places[k]: records for k, records in found}


def update(entries: Sequence[Entry], readies: Sequence[Ready], run: Any) -> Update:
    """Choose for each parameter what updates it, and compute all that can fail."""
    places, viewed = [], []  # type: list[int], list[tuple[Entry, Ready]]
    for k, (e, ready) in enumerate(zip(entries, readies, strict=True)):
        if (reason := _unread(ready)) is None:
            places.append(k)
            viewed.append(_as_numpy(e, ready))
        elif e.rule.settings.engine == "fused":
            raise engines.unfit(e, reason)
    own = [e for e, _ in viewed]
    chosen = engines.by_kernel(own, [r for _, r in viewed], always=True)
    results = {}
    for k in set(range(len(entries))) - {places[i] for i in chosen}:
        e = entries[k]
        results[k] = finish(readies[k], run)
        check_shapes(e.name, e.rule, [e.w, *e.slots], results[k])
    return Update(results, places, own, engines.kernels(own, [r for _, r in viewed], chosen))


def _unread(ready: Ready) -> str | None:
    """Why the memory of a parameter's tensors cannot be read by machine code, or `None`."""
    if reason := refused(ready.part.plan.final):
        return reason
    for x in ready.part.arrays:
        if x.device.type != "cpu":
            return f"a tensor on {x.device}"
        if type(x) not in READ or x.layout is not torch.strided or x.is_neg() or x.is_conj():
            return f"a tensor that is no plain memory ({type(x).__name__})"
    return None


def _as_numpy(e: Entry, ready: Ready) -> tuple[Entry, Ready]:
    arrays = tuple([view(x) for x in ready.part.arrays])
    w, g, *slots = arrays[: 2 + len(e.slots)]
    entry = e._replace(w=w, g=g, slots=slots)
    return entry, ready._replace(part=ready.part._replace(arrays=arrays))


class Call:
    """The tensors of one call, and the states that hold them."""

    def __init__(self, call: Called, parameters: Sequence[Parameter], state: Any) -> None:
        mine = [parameters[k] for k in call.places]
        self.tensors, self.states = [p.w for p in mine], [state[p.w] for p in mine]
        self.counts = [own[STEP] for own in self.states]
        self._slots, self._kept = mine[0].group.rule.own_slots, call.kept[len(mine) :]

    def holds(self) -> bool:
        """Whether every slot is the tensor that it was, and every count the same."""
        try:
            slots = [own[slot] for slot in self._slots for own in self.states]
            return same(slots, self._kept) and self.counts == [own[STEP] for own in self.states]
        except KeyError:
            return False


class Again:
    """The steps after one that kernels did, while all tensors stay the same objects."""

    def __init__(
        self, step: Steady, parameters: Sequence[Parameter], groups: Sequence[Options], state: Any
    ) -> None:
        self._steady, self.parameters = step, parameters
        self._groups, self._tensors = [*groups], [p.w for p in parameters]
        self._states = [*state.values()]
        self._calls = [Call(call, parameters, state) for call in step.calls]

    def step(
        self, groups: Sequence[Options], state: Any, source: Source, count: int, seed: Any
    ) -> bool:
        """Update all, or none if something is not as it was."""
        tensors = [w for options in groups for w in options["params"]]
        if not (
            same(groups, self._groups)
            and same(tensors, self._tensors)
            and same([*state.values()], self._states)
            and all(call.holds() for call in self._calls)
        ):
            return False
        gradients = [w.grad for w in tensors]
        # the memory of a tensor that is negative by a bit has the other sign
        if True in map(Tensor.is_neg, [g for g in gradients if g is not None]):
            return False
        if not self._steady.step(gradients, source, RUNNER, count, seed, torch.get_num_threads()):
            return False
        for call in self._calls:
            increment_version(call.tensors)
            call.counts = [count + 1 for count in call.counts]
            for own, count in zip(call.states, call.counts, strict=True):
                own[STEP] = count
        return True


def after(
    update: Update,
    parameters: Sequence[Parameter],
    live: Sequence[Parameter],
    state: Any,
    groups: Any,
) -> Again | None:
    """How to take the next steps, if only numbers and gradients will be others."""
    if update.results or any(type(p.w) not in READ for p in live):
        return None
    places = {id(p.w): k for k, p in enumerate(parameters)}
    where = {id(options): k for k, options in enumerate(groups)}
    brought = [
        Brought(
            places[id(p.w)],
            where[id(p.options)],
            (p.w, *[state[p.w][slot] for slot in p.group.rule.own_slots]),
        )
        for p in live
    ]
    found = steady(update.entries, update.kernels, brought, len(parameters), dlpacks(*READ), HOST)
    return None if found is None else Again(found, parameters, groups, state)
