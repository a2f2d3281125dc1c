"""Optimizers of NumPy arrays: groups, clocks, checkpoints; the arrays are changed in place."""

import copy
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ... import emit, tree
from ...equation import Shared, initial
from ...errors import StateError
from ...op import Meta, is_eager
from ...optimizer import (
    Entry,
    Runner,
    SlotError,
    SwappedError,
    check_group,
    check_step,
    checked_seed,
    compute,
    prepare,
    summed,
)
from ...plan import Ready
from ...quiet import quietly
from ...rule import Rule
from ..fused.headers import numpys
from . import SPELLING, checkpoint, engines
from .engines import Update
from .op import meta
from .parameters import Parameter, apart, are_groups, gradient, writable
from .ready import prepared
from .steady import Brought, Steady, steady

Array = np.ndarray[Any, Any]


def _array_meta(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.name == "bfloat16":
        return Meta(value.shape, "bfloat16")
    return meta(value, "the rule")


def _run(graph: Any) -> Any:
    return emit.program(graph, "update", SPELLING)


_NUMBERS = replace(SPELLING, name="numbers", copy="")  # numbers share no memory


def _numbers(graph: Any) -> Any:
    """Numbers as NumPy scalars, which overflow to inf where Python's raise."""
    run = emit.program(graph, "numbers", _NUMBERS)
    return lambda *xs: run(*[np.float64(x) if isinstance(x, float) else x for x in xs])


RUNNER = Runner(
    meta=_array_meta,
    run=_run,
    numbers=_numbers,
    add=lambda a, b: a + b,
    view=np.asarray,
    like=lambda a, w: a,
)


_PARAMS = frozenset({"params"})  # what a group has beside keywords of the rule
Live: TypeAlias = Sequence[tuple[Parameter, Array]]


class Optimizer:
    """The optimizer of a rule for NumPy arrays; `step` changes the arrays in place.

    `params` is an array, a tree of arrays, or a list of groups ``{"params": …, keyword: …}``.
    A step that fails changes nothing.
    """

    rule: Rule[Any]

    def __init__(self, params: Any, /, **keywords: Any) -> None:
        preset = self.rule.preset(keywords)
        preset.check_numbers(preset.hyperparams)
        self._preset = preset
        self._gathers = preset.settings.skip_nonfinite or preset.settings.accumulate > 1
        self._seed = checked_seed(preset, preset.seed)
        self.steps = 0
        self.param_groups: list[dict[str, Any]] = []
        self._parameters: list[Parameter] = []
        self._specs: list[tree.Spec] = []
        self._shared = {
            s: value.initial for s in preset.slots if isinstance(value := preset.initial(s), Shared)
        }
        self._known = {*_PARAMS, *preset.hyperparams}  # keys of a group that need no second look
        self._micro = 0
        self._swapped: str | None = None
        self._steady: Steady | None = None
        self._recorded: dict[str, Any] = {}
        self._grouped = are_groups(params)
        for group in params if self._grouped else [{"params": params}]:
            self.add_param_group(group)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Optimizer":
        """A copy with arrays of its own; what the rule says and what was traced serves both."""
        for value in (*self._preset.hyperparams.values(), *(p.prepared for p in self._parameters)):
            memo[id(value)] = value
        made = memo[id(self)] = type(self).__new__(type(self))
        vars(made).update(copy.deepcopy({**vars(self), "_steady": None}, memo))
        return made

    # --- parameters ---
    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add parameters with keywords of their own; they start at their first step."""
        own = {k: v for k, v in group.items() if k != "params"}
        check_group(self._preset, own)
        leaves, spec = tree.flatten(group["params"])
        names = list(tree.paths(group["params"]))
        first = 1 + max((p.identity for p in self._parameters), default=-1)
        at = len(self.param_groups)
        new: list[Parameter] = []
        for k, (leaf, name) in enumerate(zip(leaves, names, strict=True)):
            name = name or "w"
            taken = any(p.name == name for p in self._parameters)
            if self.param_groups and (self._grouped or taken):
                name = f"{at}.{name}"
            array = writable(leaf, name)
            apart(array, name, [*self._parameters, *new])
            rule = self._preset.assign(name)
            parameter = Parameter(name, array, first + k, rule, at)
            starts = self._preset.given_to(rule, own)
            for slot in rule.own_slots:
                parameter.slots[slot] = initial(starts.get(slot, rule.initial(slot)), array)
            new.append(parameter)
        self._steady = None
        self.param_groups.append({"params": leaves, **self._preset.hyperparams, **own})
        self._specs.append(spec)
        alone = not self._grouped and len(self._specs) == 1
        self._read = tree.flat_reader(spec) if alone else None
        self._parameters += new

    # --- stepping ---
    def step(self, grads: Any, **now: Any) -> None:
        """Update every parameter whose gradient is not ``None``.

        `grads` has the structure of `params`; a keyword holds for this step: a number, or one
        value for each parameter in the same structure.
        """
        if self._swapped is not None:
            raise SwappedError(self._swapped)
        if now:
            check_step(self._preset, now)
        for group in self.param_groups:
            if not group.keys() <= self._known:
                self._preset.check_names(group.keys() - _PARAMS)
        leaves = self._leaves(grads)
        if not self._gathers:
            if now or not self._again(leaves):
                self._update(self._matched(leaves), now)
        elif (gathered := self._gathered(self._matched(leaves))) is not None:
            if now or not self._again(gathered):
                self._update(gathered, now)
            self._micro = 0
            for parameter in self._parameters:
                parameter.summed = None

    def _gathered(self, gradients: list[Array | None]) -> list[Array | None] | None:
        """What is stepped with, if anything: finite gradients, the mean of enough of them."""
        settings = self._preset.settings
        if settings.skip_nonfinite and not all(
            np.isfinite(g).all() for g in gradients if g is not None
        ):
            return None
        return self._accumulated(gradients) if settings.accumulate > 1 else gradients

    def _leaves(self, grads: Any) -> list[Any]:
        """The leaves of the gradients; whether they are arrays is seen later."""
        found = None if self._read is None else self._read(grads)
        return self._flat(grads, "grads") if found is None else found

    def _update(self, gradients: Sequence[Array | None], now: Mapping[str, Any]) -> None:
        if not now and not is_eager() and self._by_numpy(gradients):
            return
        live = [(p, g) for p, g in zip(self._parameters, gradients, strict=True) if g is not None]
        values = {k: self._each(k, v) for k, v in now.items()}
        entries = [self._entry(p, g, {k: v[id(p)] for k, v in values.items()}) for p, g in live]
        with np.errstate(all="ignore"):
            update = self._ready(live, entries, now)
            records = update.write()
        self._recorded = {}
        for (p, _), found in zip(live, records, strict=True):
            p.steps += 1
            for name, value in found.items():
                self._recorded.setdefault(name, {})[id(p)] = value
        self.steps += 1
        self._steady = None if now or is_eager() else self._after(live, update)

    def _entry(self, p: Parameter, g: Array, now: Mapping[str, Any]) -> Entry:
        slots, given = list(p.slots.values()), self._preset.given_to(p.rule, now)
        values = self._of_group(p)
        return Entry(p.rule, p.name, p.array, g, slots, p.identity, p.steps, values, given)

    def _after(self, live: Live, update: Update) -> Steady | None:
        """How to take the next steps, if only numbers and gradients will be others."""
        if self.steps < 2:  # a single step needs no preparation
            return None
        places = {id(p): k for k, p in enumerate(self._parameters)}
        brought = [Brought(places[id(p)], p.group, (p.array, *p.slots.values())) for p, _ in live]
        return steady(update.entries, update.kernels, brought, len(places), numpys(), RUNNER)

    def _again(self, leaves: list[Any]) -> bool:
        """Step as the last time, by one call, if only numbers and gradients have changed since."""
        if self._steady is None or is_eager():
            return False
        source = _Source(self)
        if not quietly(self._steady.step, leaves, source, RUNNER, self.steps, self._seed):
            return False
        for p in [self._parameters[k] for k in self._steady.places]:
            p.steps += 1
        self._recorded = {}
        self.steps += 1
        return True

    def _by_numpy(self, gradients: Sequence[Array | None]) -> bool:
        """Step as an earlier step prepared it, by NumPy, if only numbers have changed since."""
        found = quietly(self._prepared, gradients)
        if found is None:
            return False
        for p, new in found:
            for array, value in zip((p.array, *p.slots.values()), new, strict=True):
                np.copyto(array, value)
            p.steps += 1
        self._recorded = {}
        self.steps += 1
        return True

    def _prepared(self, gradients: Sequence[Array | None]) -> list[tuple[Parameter, Any]] | None:
        """The new values of what has a gradient; ``None`` if more than numbers is different now."""
        found = []
        for p, g in zip(self._parameters, gradients, strict=True):
            if g is None:
                continue
            p.rule.renew()
            known = p.prepared
            if known is None or known.final is None or not known.is_for(p.rule, g):
                return None
            read = known.read(self._of_group(p), p.steps, self._seed or 0)
            if read is None:
                return None
            found.append((p, known.final(p.array, g, *p.slots.values(), p.identity, *read)))
        return found

    def _ready(self, live: Live, entries: Sequence[Entry], now: Mapping[str, Any]) -> Update:
        """The step, computed as far as it can fail."""
        if is_eager():
            results, shared = compute(entries, self.steps, self._seed, self._shared, RUNNER)
            found = engines.computed(entries, results)
        else:
            readies = None if now else self._at_once(live, entries)
            shared = self._shared
            if readies is None:
                readies, shared = prepare(entries, self.steps, self._seed, self._shared, RUNNER)
            found = engines.update(entries, readies, RUNNER)
            for k, ((p, _), e) in enumerate(zip(live, entries, strict=True)):
                if p.prepared is None or not p.prepared.is_for(e.rule, e.g):
                    p.prepared = prepared(e, RUNNER, k in found.results)
        self._shared = {k: float(v) for k, v in shared.items()}
        return found

    def _at_once(self, live: Live, entries: Sequence[Entry]) -> list[Ready] | None:
        """A step by what an earlier one prepared, if only numbers have changed since."""
        found: list[Ready] = []
        known: dict[Any, Any] = {}
        rule = None
        for (p, _), e in zip(live, entries, strict=True):
            if e.rule is not rule:
                rule = e.rule
                rule.renew()
            ready = None if p.prepared is None else p.prepared(e, self._seed or 0, known)
            if ready is None:
                return None
            found.append(ready)
        return found

    def _of_group(self, parameter: Parameter) -> Mapping[str, Any]:
        """The group's keywords; a preset of a partition's rule stays with that rule."""
        group = self.param_groups[parameter.group]
        if parameter.rule is self._preset:
            return group
        changed = {k: v for k, v in group.items() if k != "params"}
        default = self._preset.hyperparams
        own = {k: v for k, v in changed.items() if k not in default or v is not default[k]}
        return self._preset.given_to(parameter.rule, own)

    @property
    def recorded(self) -> dict[str, Any]:
        """The last value of each `gw.record`, in the structure of `params`."""
        return {name: self._tree(found) for name, found in self._recorded.items()}

    def _tree(self, by_id: Mapping[int, Any]) -> Any:
        leaves = iter([by_id.get(id(p)) for p in self._parameters])
        trees = [
            tree.unflatten(spec, [next(leaves) for _ in range(tree.leaves_of(spec))])
            for spec in self._specs
        ]
        return trees if self._grouped or len(trees) > 1 else trees[0]

    def _each(self, name: str, value: Any) -> dict[int, Any]:
        """A keyword's value for every parameter: one each where it has the structure of params."""
        per_parameter = isinstance(value, (list, dict)) or (
            isinstance(value, np.ndarray) and value.ndim > 0
        )
        if not per_parameter:
            return {id(p): value for p in self._parameters}
        leaves = self._flat(value, name)
        return {id(p): leaf for p, leaf in zip(self._parameters, leaves, strict=True)}

    def _flat(self, values: Any, what: str) -> list[Any]:
        """The leaves of a tree that has the structure of the parameters."""

        def mismatch(text: str) -> StateError:
            return StateError(f"{what} has {text}", "the structure of params, None for no gradient")

        if len(self._specs) == 1 and not self._grouped:
            return tree.flatten_like(self._specs[0], values, mismatch)
        if not isinstance(values, (list, tuple)) or len(values) != len(self._specs):
            raise mismatch(f"no list of {len(self._specs)}, one entry for each group")
        return [
            leaf
            for spec, value in zip(self._specs, values, strict=True)
            for leaf in tree.flatten_like(spec, value, mismatch)
        ]

    def _matched(self, leaves: Sequence[Any]) -> list[Array | None]:
        return [
            None if g is None else gradient(g, p)
            for g, p in zip(leaves, self._parameters, strict=True)
        ]

    def _accumulated(self, gradients: Sequence[Array | None]) -> list[Array | None] | None:
        """The mean of the last gradients when there are enough of them, else `None`."""
        k = self._preset.settings.accumulate
        sums = summed([p.summed for p in self._parameters], gradients)
        if self._micro + 1 == k:
            return [None if s is None else np.asarray(s / k, s.dtype) for s in sums]
        for p, s in zip(self._parameters, sums, strict=True):
            p.summed = None if s is None else np.array(s)
        self._micro += 1
        return None

    # --- looking at slots ---
    @contextmanager
    def swapped(self, slot: str) -> Iterator[None]:
        """Inside, the parameters hold a slot's values (an average, say); after it, their own."""
        holders = [p for p in self._parameters if slot in p.slots]
        if not holders:
            raise SlotError(slot, self._preset)
        for p in holders:
            if p.slots[slot].shape != p.array.shape:
                raise StateError(
                    f"the slot {slot} of {p.name} has shape {p.slots[slot].shape}, the parameter "
                    f"{p.array.shape}",
                    "a slot of the parameter's shape",
                )
        kept = [p.array.copy() for p in holders]
        for p in holders:
            np.copyto(p.array, p.slots[slot])
        before, self._swapped = self._swapped, slot
        try:
            yield
        finally:
            for p, own in zip(holders, kept, strict=True):
                np.copyto(p.array, own)
            self._swapped = before

    # --- checkpoints ---
    def state_dict(self) -> dict[str, Any]:
        """All that the optimizer keeps, as arrays and plain numbers (the weights are not in it)."""
        return {
            "rule": self._preset.name,
            "steps": self.steps,
            "seed": self._seed,
            "micro": self._micro,
            "shared": dict(self._shared),
            "parameters": [
                {
                    "name": p.name,
                    "identity": p.identity,
                    "steps": p.steps,
                    "hyperparams": checkpoint.plain(self.param_groups[p.group]),
                    "slots": {k: v.copy() for k, v in p.slots.items()},
                    "summed": None if p.summed is None else p.summed.copy(),
                }
                for p in self._parameters
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Take over a state; parameters are matched by name, and its hyperparameters replace the
        numbers of their groups. Raises, and changes nothing, if it belongs to another rule or does
        not fit; with ``strict=False`` what is missing keeps its initial value, with a warning."""
        if not isinstance(state, Mapping):
            raise StateError(
                f"load_state_dict of {type(state).__name__}, where a dict is expected",
                "what .state_dict() gave; .load(path) for a file that .save wrote",
            )
        self._take(state, {}, strict)

    def _take(self, state: Mapping[str, Any], weights: Mapping[str, Array], strict: bool) -> None:
        if self._swapped is not None:
            raise SwappedError(self._swapped, "loading")
        checkpoint.check(state, self._preset.name)
        saved = {entry["name"]: entry for entry in state["parameters"]}
        for p in self._parameters:
            if p.name in saved:
                self._check_fit(p, saved[p.name], weights.get(p.name, p.array))
        self._missing(saved, strict)
        self._steady = None  # it has their identities
        unused = itertools.count(1 + max((e["identity"] for e in saved.values()), default=-1))
        for p in self._parameters:
            if p.name in saved:
                p.take(saved[p.name])
                here = checkpoint.plain(self.param_groups[p.group])
                found = saved[p.name]["hyperparams"].items()
                changed = {k: v for k, v in found if k in here and v != here[k]}
                self.param_groups[p.group].update(changed)
                np.copyto(p.array, weights.get(p.name, p.array))
            else:  # its own may belong to another parameter now, whose noise it would share
                p.identity = next(unused)
        self.steps, self._micro = int(state["steps"]), int(state["micro"])
        self._seed = None if state["seed"] is None else int(state["seed"])
        self._shared |= {k: float(v) for k, v in state["shared"].items() if k in self._shared}

    def _check_fit(self, p: Parameter, entry: Mapping[str, Any], weight: Array) -> None:
        checkpoint.check_array(p.name, weight, p.array)
        checkpoint.check_slots(p.name, entry["slots"], p.slots)
        if entry["summed"] is not None:
            checkpoint.check_array(f"{p.name}'s sum of gradients", entry["summed"], p.array)

    def _missing(self, saved: Mapping[str, Any], strict: bool) -> None:
        """Raise, or warn, where a state has too little or too much."""
        missing = [p.name for p in self._parameters if p.name not in saved]
        missing += [
            f"{p.name}.{slot}"
            for p in self._parameters
            if p.name in saved
            for slot in p.slots
            if slot not in saved[p.name]["slots"]
        ]
        extra = [name for name in saved if name not in {p.name for p in self._parameters}]
        text = checkpoint.difference(missing, extra)
        if text and strict:
            raise StateError(f"the state has {text}", "strict=False to load the rest")
        if text:
            warnings.warn(f"the state has {text}; the rest was loaded", stacklevel=4)

    def save(self, path: str) -> None:
        """Write weights and state to one ``.npz`` file, atomically; it holds data only."""
        if self._swapped is not None:
            raise SwappedError(self._swapped, "saving")
        checkpoint.write(path, self.state_dict(), {p.name: p.array for p in self._parameters})

    def load(self, path: str, *, strict: bool = True) -> None:
        """Read weights and state that `save` wrote; on an error nothing is changed."""
        state, weights = checkpoint.read(path)
        self._take(state, weights, strict)


class _Source:
    """What is known of the parameters of an optimizer, by place."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._of = optimizer

    def values(self, k: int) -> Mapping[str, Any]:
        return self._of._of_group(self._of._parameters[k])

    def steps(self, k: int) -> int:
        return self._of._parameters[k].steps

    def entry(self, k: int, g: Array) -> Entry:
        return self._of._entry(self._of._parameters[k], g, {})


def bind(rule: Rule[Any]) -> type[Optimizer]:
    """The optimizer class of a rule."""
    return type(rule.name, (Optimizer,), {"rule": rule, "__doc__": rule.__doc__})
