"""The hyperparameters of a transformation: what the state holds of them, and their values now."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import emit
from ...equation import PerParam
from ...op import is_eager
from ...optimizer import schedule_graph
from ...rule import Rule
from ...schedules import Schedule
from ...signature import is_number
from . import SPELLING
from .runner import Count, Number, changed, narrow, number
from .state import Leaf, leaves_of


@dataclass(frozen=True)
class Parameter:
    """One leaf of the parameters, its rule, and the rule's hyperparameters."""

    leaf: Leaf
    rule: Rule[Any]
    values: Mapping[str, Any]  # as they were declared, by the rule's own names
    names: Mapping[str, str]  # a name in the state, to the rule's own

    @property
    def w(self) -> Any:
        return self.leaf.w


def parameters_of(rule: Rule[Any], params: Any) -> tuple[list[Parameter], Any]:
    """The parameters of a tree with their rules, and the tree's structure."""
    leaves, spec = leaves_of(params)
    return [_parameter(rule, leaf) for leaf in leaves], spec


def _parameter(rule: Rule[Any], leaf: Leaf) -> Parameter:
    mine = rule.assign(leaf.name)
    names = {name: own for name in rule.hyperparams for own in rule.given_to(mine, {name: None})}
    values = {}
    for own in names.values():
        value = mine.hyperparams[own]
        if isinstance(value, PerParam):
            nan = np.array(np.nan, leaf.w.dtype)
            value = value.function(leaf.name, np.broadcast_to(nan, leaf.w.shape))
        values[own] = value
    return Parameter(leaf, mine, values, names)


def _is_held(value: Any) -> bool:
    """Whether the state holds it: floats, arrays, schedules; the rest is part of the program."""
    return isinstance(value, (float, np.ndarray, np.floating, Array, Schedule))


class Hyperparameters:
    """Their values at one step, each made once for all parameters that read it."""

    def __init__(
        self,
        found: Sequence[Parameter],
        spec: Any,
        held: Mapping[str, Any],
        count: Count,
        now: Mapping[str, Any],
    ) -> None:
        self.found, self.spec, self.count = found, spec, count
        self.made: dict[Any, Any] = {}
        self.held = {name: self._leaves(name, value) for name, value in held.items()}
        self.now = {name: self._each(value) for name, value in now.items() if value is not None}

    def _declared(self, name: str) -> list[Any]:
        """The values that parameters were declared with; ``None`` where the state holds none."""
        values = [p.values.get(p.names.get(name, "")) for p in self.found]
        return [value if _is_held(value) else None for value in values]

    def _is_one(self, name: str) -> bool:
        """Whether the state holds one value for all parameters."""
        first, *rest = self._declared(name) or [None]
        return all(value is first or (is_number(value) and value == first) for value in rest)

    def _leaves(self, name: str, value: Any) -> list[Any]:
        one = self._is_one(name)
        return [value] * len(self.found) if one else list(self.spec.flatten_up_to(value))

    def _each(self, value: Any) -> list[Any]:
        """A value of this step for each parameter: one for all, unless it is a tree of them."""
        leaves = jax.tree.leaves(value)
        is_tree = not (len(leaves) == 1 and leaves[0] is value)
        values = self.spec.flatten_up_to(value) if is_tree else [value] * len(self.found)
        return [self._once(x, partial(number, x)) if _is_scalar(x) else x for x in values]

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What is made of an object, which is kept so that its id stays its own."""
        if id(key) not in self.made:
            self.made[id(key)] = key, make()
        return self.made[id(key)][1]

    # --- values ----------------------------------------------------------------------------------
    def of(self, k: int) -> dict[str, Any]:
        """The keywords of parameter k by its rule's own names."""
        p = self.found[k]
        found = {own: self._value(k, name, p.values[own]) for name, own in p.names.items()}
        if not is_eager():
            return found
        return {own: x.value.item() if isinstance(x, Number) else x for own, x in found.items()}

    def _value(self, k: int, name: str, declared: Any) -> Any:
        if name in self.now:
            return self.now[name][k]
        if isinstance(declared, Schedule):
            return self._once(declared, lambda: scheduled(declared, self.count))
        if name not in self.held or not _is_held(declared):
            return declared
        held = self.held[name][k]
        if isinstance(declared, float):
            return self._once(held, lambda: changed(held, declared))
        return self._once(held, lambda: number(held)) if _is_scalar(held) else held

    def first(self) -> dict[str, Any]:
        """What the state holds in the beginning."""
        return self._stored(lambda k, name, value: value)

    def stored(self) -> dict[str, Any]:
        """What the state holds after the step: what it held, and the values of schedules."""
        return self._stored(lambda k, name, value: self.held[name][k])

    def _stored(self, held: Any) -> dict[str, Any]:
        names = dict.fromkeys(name for p in self.found for name in p.names)
        found = {}
        for name in names:
            declared = self._declared(name)
            if all(value is None for value in declared):
                continue
            leaves = [
                None if value is None else self._array(value, held, k, name)
                for k, value in enumerate(declared)
            ]
            found[name] = leaves[0] if self._is_one(name) else self.spec.unflatten(leaves)
        return found

    def _array(self, declared: Any, held: Any, k: int, name: str) -> Array:
        if isinstance(declared, Schedule):
            made: Number = self._once(declared, lambda: scheduled(declared, self.count))
            return narrow(made.value)
        x = jnp.asarray(held(k, name, declared))
        dtype = (
            jax.dtypes.canonicalize_dtype(np.float64) if isinstance(declared, float) else x.dtype
        )
        return jax.lax.convert_element_type(x, dtype)


def _is_scalar(x: Any) -> bool:
    """Whether a value is a number that JAX holds; Python's own are left as they are."""
    return isinstance(x, (np.generic, np.ndarray, Array)) and x.ndim == 0


def scheduled(schedule: Schedule, count: Count) -> Number:
    """A schedule's value at a count, as operations."""
    run = emit.program(schedule_graph(schedule), "schedule", SPELLING)
    with jax.enable_x64(True):
        return number(run(count.wide())[0])
