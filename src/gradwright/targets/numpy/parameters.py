"""What an array must be to be optimized, and what its gradient must be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import StateError
from ...rule import Rule
from ...trace.tracer import is_float
from .ready import Prepared

Array = np.ndarray[Any, Any]


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


def are_groups(params: Any) -> bool:
    return (
        isinstance(params, (list, tuple))
        and bool(params)
        and all(isinstance(g, dict) and "params" in g for g in params)
    )


def writable(leaf: Any, name: str) -> Array:
    if not _is_plain(leaf):
        raise StateError(
            f"the parameter {name} is a {type(leaf).__name__}", "a NumPy array of floats"
        )
    if not is_float(leaf.dtype.name):
        raise StateError(f"the parameter {name} is {leaf.dtype}", "float32 or float64")
    _check_open(leaf, name)
    if _overlaps_itself(leaf):
        raise StateError(
            f"the parameter {name} is a view whose elements share memory (broadcast, or windows)",
            "a copy: np.array(w)",
        )
    found: Array = leaf
    return found


def _check_open(w: Array, name: str) -> None:
    if not w.flags.writeable:
        raise StateError(f"the parameter {name} is read-only", "a copy: np.array(w)")


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


def apart(array: Array, name: str, others: Sequence[Parameter]) -> None:
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


def gradient(g: Any, p: Parameter) -> Array:
    """A gradient that fits its parameter; of most, its dtype and shape say that it does."""
    w = p.array
    if type(g) is np.ndarray and g.dtype is w.dtype and g.shape == w.shape and w.flags.writeable:
        return g
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
    _check_open(p.array, p.name)
    return np.asarray(g)
