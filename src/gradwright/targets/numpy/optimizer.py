"""Optimizers of NumPy arrays: groups, clocks, checkpoints; the arrays are changed in place."""

import copy
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from ...rule import Rule
from ...trace.tracer import is_float
from . import SPELLING, checkpoint, engines
from .engines import Update
from .op import meta
from .ready import Prepared, prepared

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


@dataclass(eq=False)
class Parameter:
    """One array that is optimized, with all that belongs to it."""

    name: str
    array: Array
    identity: int
    rule: Rule[Any]
    group: int
    steps: int = 0
    slots: dict[str, Array] = field(default_factory=dict)
    summed: Array | None = None  # gradients so far, under accumulate
    prepared: Prepared | None = None

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take over what a state has for this parameter."""
        self.identity, self.steps = int(entry["identity"]), int(entry["steps"])
        for slot, value in entry["slots"].items():
            np.copyto(self.slots[slot], value)
        self.summed = None if entry["summed"] is None else np.array(entry["summed"])


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
        self._recorded: dict[str, Any] = {}
        self._grouped = _are_groups(params)
        for group in params if self._grouped else [{"params": params}]:
            self.add_param_group(group)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Optimizer":
        """A copy with arrays of its own; what the rule says and what was traced serves both."""
        for value in (*self._preset.hyperparams.values(), *(p.prepared for p in self._parameters)):
            memo[id(value)] = value
        made = memo[id(self)] = type(self).__new__(type(self))
        vars(made).update(copy.deepcopy(vars(self), memo))
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
            array = _writable(leaf, name)
            _apart(array, name, [*self._parameters, *new])
            rule = self._preset.assign(name)
            parameter = Parameter(name, array, first + k, rule, at)
            starts = self._preset.given_to(rule, own)
            for slot in rule.own_slots:
                parameter.slots[slot] = initial(starts.get(slot, rule.initial(slot)), array)
            new.append(parameter)
        self.param_groups.append({"params": leaves, **self._preset.hyperparams, **own})
        self._specs.append(spec)
        self._parameters += new

    # --- stepping ---
    def step(self, grads: Any, **now: Any) -> None:
        """Update every parameter whose gradient is not ``None``.

        `grads` has the structure of `params`; a keyword holds for this step: a number, or one
        value for each parameter in the same structure.
        """
        if self._swapped is not None:
            raise SwappedError(self._swapped)
        check_step(self._preset, now)
        for group in self.param_groups:
            if not group.keys() <= self._known:
                self._preset.check_names(group.keys() - _PARAMS)
        gradients = self._matched(grads)
        if self._preset.settings.skip_nonfinite and not all(
            np.isfinite(g).all() for g in gradients if g is not None
        ):
            return
        if self._preset.settings.accumulate > 1:
            total = self._accumulated(gradients)
            if total is None:
                return
            gradients = total
        self._update(gradients, now)
        if self._preset.settings.accumulate > 1:
            self._micro = 0
            for parameter in self._parameters:
                parameter.summed = None

    def _update(self, gradients: Sequence[Array | None], now: Mapping[str, Any]) -> None:
        if not now and not is_eager() and self._by_numpy(gradients):
            return
        live = [(p, g) for p, g in zip(self._parameters, gradients, strict=True) if g is not None]
        values = {k: self._each(k, v) for k, v in now.items()}
        entries = [
            Entry(
                p.rule,
                p.name,
                p.array,
                g,
                list(p.slots.values()),
                p.identity,
                p.steps,
                self._of_group(p),
                self._preset.given_to(p.rule, {k: v[id(p)] for k, v in values.items()}),
            )
            for p, g in live
        ]
        with np.errstate(all="ignore"):
            records = self._ready(live, entries, now).write()
        self._recorded = {}
        for (p, _), found in zip(live, records, strict=True):
            p.steps += 1
            for name, value in found.items():
                self._recorded.setdefault(name, {})[id(p)] = value
        self.steps += 1

    def _by_numpy(self, gradients: Sequence[Array | None]) -> bool:
        """Step as an earlier step prepared it, by NumPy, if only numbers have changed since."""
        live = [(p, g) for p, g in zip(self._parameters, gradients, strict=True) if g is not None]
        for p, g in live:
            p.rule.renew()
            if p.prepared is None or p.prepared.final is None or not p.prepared.is_for(p.rule, g):
                return False
        found = []
        with np.errstate(all="ignore"):
            for p, g in live:
                arrays, keywords = (p.array, g, *p.slots.values()), self._of_group(p)
                assert p.prepared is not None
                new = p.prepared.by_numpy(arrays, p.identity, p.steps, keywords, self._seed or 0)
                if new is None:
                    return False
                found.append((p, new))
        for p, new in found:
            for array, value in zip((p.array, *p.slots.values()), new, strict=True):
                np.copyto(array, value)
            p.steps += 1
        self._recorded = {}
        self.steps += 1
        return True

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
            for (p, _), e in zip(live, entries, strict=True):
                if p.prepared is None or not p.prepared.is_for(e.rule, e.g):
                    p.prepared = prepared(e, RUNNER)
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

    def _matched(self, grads: Any) -> list[Array | None]:
        leaves = self._flat(grads, "grads")
        return [
            None if g is None else _gradient(g, p)
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


def bind(rule: Rule[Any]) -> type[Optimizer]:
    """The optimizer class of a rule."""
    return type(rule.name, (Optimizer,), {"rule": rule, "__doc__": rule.__doc__})


def _are_groups(params: Any) -> bool:
    return (
        isinstance(params, (list, tuple))
        and bool(params)
        and all(isinstance(g, dict) and "params" in g for g in params)
    )


def _writable(leaf: Any, name: str) -> Array:
    if not _is_plain(leaf):
        raise StateError(
            f"the parameter {name} is a {type(leaf).__name__}", "a NumPy array of floats"
        )
    if not is_float(leaf.dtype.name):
        raise StateError(f"the parameter {name} is {leaf.dtype}", "float32 or float64")
    if not leaf.flags.writeable:
        raise StateError(f"the parameter {name} is read-only", "a copy: np.array(w)")
    if _overlaps_itself(leaf):
        raise StateError(
            f"the parameter {name} is a view whose elements share memory (broadcast, or windows)",
            "a copy: np.array(w)",
        )
    found: Array = leaf
    return found


def _is_plain(x: Any) -> bool:
    """Whether x is an array whose arithmetic is NumPy's own: no masked array, no np.matrix."""
    return type(x) in (np.ndarray, np.memmap) or isinstance(x, np.generic)


def _overlaps_itself(x: Array) -> bool:
    """Whether an axis steps less far than the axes inside it reach."""
    reach = x.itemsize
    for stride, size in sorted(zip(map(abs, x.strides), x.shape, strict=True)):
        if size > 1 and stride < reach:
            return x.size > 0
        reach += stride * (size - 1)
    return False


def _apart(array: Array, name: str, others: Sequence[Parameter]) -> None:
    for other in others:
        if other.name == name:
            raise StateError(
                f"two parameters have the name {name}", "keys that make different names"
            )
        if np.may_share_memory(array, other.array) and np.shares_memory(array, other.array):
            raise StateError(
                f"the parameters {other.name} and {name} share memory: it would be updated twice",
                "each array once, or copies",
            )


def _gradient(g: Any, p: Parameter) -> Array:
    if not _is_plain(g):
        raise StateError(
            f"the gradient of {p.name} is a {type(g).__name__}", "a NumPy array, or None"
        )
    if g.shape != p.array.shape:
        raise StateError(
            f"the gradient of {p.name} has shape {g.shape}, the parameter {p.array.shape}",
            "the gradient of this parameter",
        )
    if not is_float(g.dtype.name):
        raise StateError(f"the gradient of {p.name} is {g.dtype}", "a float array")
    return np.asarray(g)
