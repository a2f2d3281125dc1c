"""Optimizers of torch parameters: a rule as a `torch.optim.Optimizer`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.autograd.graph import increment_version

from ... import tree
from ...equation import Given, initial
from ...op import is_eager
from ...optimizer import (
    Entry,
    SlotError,
    SwappedError,
    check_shapes,
    check_step,
    compute,
    is_by_element,
    prepare,
)
from ...plan import Result
from ...quiet import quietly
from ...rule import Rule
from . import fused, sparse
from .checkpoint import MARKS, STEP, SUMMED, Saved, check_rules, check_slots, restored
from .collection import Collection, Parameter
from .parameters import gradient
from .runner import RUNNER, like, runner_of_a_step, view

__all__ = ["RUNNER", "Optimizer", "bind"]


class Live(NamedTuple):
    """A parameter that a step updates."""

    parameter: Parameter
    g: Tensor
    slots: dict[str, Tensor]
    steps: int


class Optimizer(Collection):
    """The optimizer of a rule for torch parameters; `step` changes them in place.

    `params` are tensors, ``(name, tensor)`` pairs as ``model.named_parameters()`` gives them, or
    groups ``{"params": …, keyword: …}``. A step that fails changes nothing; a parameter without a
    gradient is left alone.
    """

    # --- stepping ---
    @_disable_dynamo  # torch.compile leaves a step to eager mode
    def step(self, closure: Callable[[], Any] | None = None, **now: Any) -> Any:
        """Update every parameter that has a gradient; returns what `closure` returns.

        A keyword holds for this step: a number, or one value for each parameter (a dict by name,
        or a list where params has no names). The result of `closure` is the keyword `value`, if
        the rule asks for one.
        """
        if self._swapped is not None:
            raise SwappedError(self._swapped)
        if closure is None and not now and self._repeated():
            return None
        check_step(self._preset, now)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            if isinstance(self._preset.hyperparams.get("value"), Given) and loss is not None:
                now = {"value": loss, **now}
        with torch.no_grad(), np.errstate(all="ignore"):
            self._step(now)
        return loss

    def _step(self, now: Mapping[str, Any]) -> None:
        settings = self._preset.settings
        if not now and self._repeated():
            return
        parameters = list(self._parameters())
        gradients = [gradient(p.w) for p in parameters]
        if settings.sparse == "dense":
            gradients = [None if g is None else sparse.dense(g) for g in gradients]
        if settings.skip_nonfinite and not _all_finite(gradients):
            return
        if settings.accumulate > 1:
            sums = sparse.summed([self._state(p).get(SUMMED) for p in parameters], gradients)
            if self._micro + 1 < settings.accumulate:
                self._keep(parameters, sums)
                return
            gradients = [None if s is None else s / settings.accumulate for s in sums]
        self._update(parameters, gradients, now)
        self._micro = 0

    def _state(self, p: Parameter) -> dict[str, Any]:
        """A parameter's state, which is made at its first update."""
        state: dict[str, Any] = self.state.get(p.w, {})
        return state

    def _keep(self, parameters: Sequence[Parameter], sums: Sequence[Tensor | None]) -> None:
        for p, s in zip(parameters, sums, strict=True):
            if s is not None:
                state = self.state[p.w]
                state[SUMMED] = s if SUMMED in state else s.clone()  # not the gradient itself
        self._micro += 1

    def _update(
        self,
        parameters: Sequence[Parameter],
        gradients: Sequence[Tensor | None],
        now: Mapping[str, Any],
    ) -> None:
        self._again = None
        self._show()
        values = {name: self._each(name, value) for name, value in now.items()}
        live = [
            Live(p, g, self._slots(p), self._state(p).get(STEP, 0))
            for p, g in zip(parameters, gradients, strict=True)
            if g is not None
        ]
        entries = [_entry(x, self._now(x.parameter, values)) for x in live]
        rows = {k: self._lazy(e) for k, e in enumerate(entries) if e.g.layout is not torch.strided}
        entries = [rows[k].entry if k in rows else e for k, e in enumerate(entries)]
        update, shared = self._ready(entries)
        self._commit(live, update, rows)
        self._shared = {slot: float(value) for slot, value in shared.items()}
        self.steps += 1
        # a single step needs no preparation; of rows there are others each time
        if self.steps > 1 and not now and not is_eager() and not rows:
            mine = [x.parameter for x in live]
            self._again = fused.after(update, parameters, mine, self.state, self.param_groups)

    def _lazy(self, e: Entry) -> sparse.Lazy:
        return sparse.lazy(
            e, lambda e: is_by_element(e, self.steps, self._seed, self._shared, RUNNER)
        )

    def _ready(self, entries: Sequence[Entry]) -> Any:
        """The step, computed as far as it can fail, and the new shared slots."""
        runner, known = runner_of_a_step(), (self.steps, self._seed, self._shared)
        if not is_eager():
            readies, shared = prepare(entries, *known, runner)
            return fused.update(entries, readies, runner.run), shared
        results, shared = compute(entries, *known, runner)
        for e, result in zip(entries, results, strict=True):
            check_shapes(e.name, e.rule, [e.w, *e.slots], result)
        return fused.Update(dict(enumerate(results)), [], [], []), shared

    def _repeated(self) -> bool:
        """Step as the last time, by one call, if only numbers and gradients have changed since."""
        again, settings = self._again, self._preset.settings
        if again is None or is_eager() or settings.skip_nonfinite or settings.accumulate > 1:
            return False
        self._show()
        source = _Source(self, again.parameters)
        groups, state = self.param_groups, self.state
        if not quietly(again.step, groups, state, source, self.steps, self._seed):
            return False
        self._recorded = {}
        self.steps += 1
        return True

    def _show(self) -> None:
        """Read the numbers of the param groups, and write those of this step."""
        for group, options in zip(self._groups, self.param_groups, strict=True):
            group.follow_and_show(options, self.steps)

    def _now(self, p: Parameter, values: Mapping[str, Mapping[int, Any]]) -> Mapping[str, Any]:
        """What a step was given for one parameter, by the names of its rule."""
        mine = {name: each[p.position] for name, each in values.items()}
        return self._preset.given_to(p.group.rule, mine) if mine else mine

    def _slots(self, p: Parameter) -> dict[str, Tensor]:
        """A parameter's slots; before its first update, as they will start."""
        state = self._state(p)
        if STEP in state:
            return {slot: state[slot] for slot in p.group.rule.own_slots}
        return {slot: _start(value, p.w.detach()) for slot, value in p.group.starts().items()}

    def _commit(
        self, live: Sequence[Live], update: fused.Update, rows: Mapping[int, sparse.Lazy]
    ) -> None:
        """Write what was computed: nothing here can fail."""
        self._recorded = {}
        increment_version([live[k].parameter.w for k in update.places])
        records = update.run()
        for k, (p, _, slots, steps) in enumerate(live):
            held = list(slots.values())
            if k in update.results:
                w, kept = (rows[k].entry.w, rows[k].entry.slots) if k in rows else (p.w, held)
                records[k] = _write_result(update.results[k], w, kept)
            if k in rows:
                rows[k].write(p.w, held)
            self.state[p.w].update({**slots, STEP: steps + 1})
            for name, value in records[k].items():
                self._recorded.setdefault(name, {})[p.position] = _as_tensor(value, p.w)
        for state in self.state.values():
            state.pop(SUMMED, None)

    @property
    def recorded(self) -> dict[str, Any]:
        """The last value of each `gw.record`: by name, or a list where params has no names."""
        positions, spec = tree.flatten(self._structure)
        return {
            name: tree.unflatten(spec, [found.get(k) for k in positions])
            for name, found in self._recorded.items()
        }

    # --- looking at slots ---
    @contextmanager
    def swapped(self, slot: str) -> Iterator[None]:
        """Inside, the parameters hold a slot's values (an average, say); after it, their own."""
        holders = [p for p in self._parameters() if slot in p.group.rule.own_slots]
        if not holders:
            raise SlotError(slot, self._preset)
        values = [self._slots(p)[slot] for p in holders]
        kept = [p.w.detach().clone() for p in holders]
        _write(holders, values)
        before, self._swapped = self._swapped, slot
        try:
            yield
        finally:
            _write(holders, kept)
            self._swapped = before

    # --- checkpoints ---
    def state_dict(self) -> dict[str, Any]:
        """torch's form; names, counters and the seed are in the param groups, as plain data.

        The tensors are the optimizer's own, as torch has it: copy them to keep them.
        """
        state = super().state_dict()
        state["state"] = {k: dict(v) for k, v in state["state"].items()}
        for group, saved in zip(self._groups, state["param_groups"], strict=True):
            saved[MARKS] = {
                "rule": group.rule.name,
                "names": [self._labels[k] for k in group.positions] if self._named else None,
                "identities": list(group.identities),
                "driven": group.driven(),
                "steps": self.steps,
                "seed": self._seed,
                "micro": self._micro,
                "shared": dict(self._shared),
            }
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state; parameters are matched by name where there are names.

        Its numbers replace those of the param groups, as torch has it; a schedule or
        `gw.per_param` of this optimizer goes on where the saved one had such a thing too. Raises,
        and changes nothing, if the state belongs to another rule or does not fit.
        """
        saved = Saved(state_dict, self._named)
        check_rules(saved.marks, [group.rule for group in self._groups])
        parameters = list(self._parameters())
        keys = (
            [self._labels[p.position] for p in parameters]
            if saved.named
            else range(len(parameters))
        )
        saved.check(keys)
        states = [saved.states[key] for key in keys]
        for p, state in zip(parameters, states, strict=True):
            check_slots(p.name, state, self._like(p))
        self._again = None
        super().load_state_dict(self._arranged(state_dict, states))
        for p, state in zip(parameters, states, strict=True):
            if state:
                self.state[p.w] = restored(state, p.w.device)
        identities = iter([saved.identities[key] for key in keys])
        for group, marks, options in zip(self._groups, saved.marks, self.param_groups, strict=True):
            group.identities = [next(identities) for _ in group.positions]
            group.settle(options, marks["driven"])
        first = saved.marks[0]
        self.steps, self._micro, self._seed = first["steps"], first["micro"], first["seed"]
        self._shared |= first["shared"]

    def _like(self, p: Parameter) -> dict[str, Tensor | None]:
        """What a parameter's slots look like, as far as it is known before its first update."""
        if STEP in self._state(p):
            return dict(self._slots(p))
        return {s: _like(value, p.w) for s, value in p.group.starts().items()}

    def _arranged(self, saved: Mapping[str, Any], states: Sequence[Any]) -> dict[str, Any]:
        """A saved state in the order of this optimizer's parameters."""
        indices, groups = iter(range(len(states))), []
        for options, group in zip(self.param_groups, saved["param_groups"], strict=True):
            found = {**options, **group}
            del found[MARKS]
            if "param_names" in options:
                found["param_names"] = options["param_names"]
            found["params"] = [next(indices) for _ in options["params"]]
            groups.append(found)
        return {
            **saved,
            "state": {k: state for k, state in enumerate(states) if state},
            "param_groups": groups,
        }


class _Source:
    """What is known of the parameters of an optimizer, by place."""

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Parameter]) -> None:
        self._of, self._parameters = optimizer, parameters

    def values(self, k: int) -> Mapping[str, Any]:
        return _values(self._parameters[k])

    def steps(self, k: int) -> int:
        count: int = self._of.state[self._parameters[k].w][STEP]
        return count

    def entry(self, k: int, g: Tensor) -> Entry:
        p = self._parameters[k]
        return _entry(Live(p, g, self._of._slots(p), self.steps(k)), {})


def _values(p: Parameter) -> Mapping[str, Any]:
    return {**p.options, **p.group.sources} if p.group.sources else p.options


def _entry(x: Live, now: Mapping[str, Any]) -> Entry:
    p = x.parameter
    w, g = p.w.detach(), x.g
    here = {name: _beside(value, w) for name, value in now.items()}
    slots = list(x.slots.values())
    return Entry(p.group.rule, p.name, w, g, slots, p.identity, x.steps, _values(p), here)


def _beside(value: Any, w: Tensor) -> Any:
    return like(value, w) if isinstance(value, np.ndarray) and value.ndim else value


def _start(value: Any, w: Tensor) -> Tensor:
    """A slot's first value for one parameter."""
    if isinstance(value, (bool, int, float)):
        return torch.full_like(w, value, dtype=_wide(w))
    return like(initial(value, view(w)), w)


def _wide(w: Tensor) -> torch.dtype:
    """The dtype in which a slot of w collects."""
    return torch.promote_types(w.dtype, torch.float32)


def _like(value: Any, w: Tensor) -> Tensor | None:
    return None if callable(value) else w.to(_wide(w))


def _as_tensor(value: Any, w: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value, device=w.device)


def _write_result(result: Result, w: Tensor, slots: Sequence[Tensor]) -> Mapping[str, Any]:
    """Write new values; what was recorded."""
    new, *rest = (_as_tensor(x, w) for x in result.values)
    w.copy_(new)
    for slot, value in zip(slots, rest, strict=False):
        slot.copy_(value)
    return dict(zip(result.records, rest[len(slots) :], strict=True))


@torch.no_grad()
def _write(parameters: Sequence[Parameter], values: Sequence[Tensor]) -> None:
    for p, value in zip(parameters, values, strict=True):
        p.w.copy_(value)


def _all_finite(gradients: Sequence[Tensor | None]) -> bool:
    return all(bool(torch.isfinite(sparse.values(g)).all()) for g in gradients if g is not None)


def bind(rule: Rule[Any]) -> type[Optimizer]:
    """The optimizer class of a rule."""
    return type(rule.name, (Optimizer,), {"rule": rule, "__doc__": rule.__doc__})
