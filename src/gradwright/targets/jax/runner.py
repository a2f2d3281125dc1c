"""How JAX runs the parts of a rule: arrays as they are, numbers in float64 even with x64 off."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import emit
from ...errors import SignatureError
from ...graph import Graph
from ...op import Meta, number_meta
from ...optimizer import Runner
from ...signature import is_number
from ..numpy.optimizer import RUNNER as HOST
from . import SPELLING
from .op import DTYPES


@dataclass(frozen=True, eq=False)
class Number:
    """A number that is known when the program runs: a float64, an int64 or a bool.

    It is as weak as a Python number, and never one of the rule's arrays.
    """

    value: Array

    @property
    def meta(self) -> Meta:
        return Meta((), {"float64": "float", "int64": "int"}.get(self.value.dtype.name, "bool"))


@dataclass(frozen=True, eq=False)
class Count:
    """A count or a seed of 64 bits in two words of 32, which is what JAX has with x64 off."""

    low: Array
    high: Array

    def __add__(self, n: int) -> "Count":
        low = self.low + jnp.uint32(n)
        return Count(low, self.high + (low < self.low).astype(jnp.uint32))

    def words(self) -> Array:
        return jnp.stack([self.low, self.high])

    def __int__(self) -> int:
        return int(self.low) + (int(self.high) << 32)

    def wide(self) -> Array:
        """The number as an int64; inside `jax.enable_x64` only."""
        return self.low.astype(jnp.int64) + (self.high.astype(jnp.int64) << 32)


def count(words: Array) -> Count:
    return Count(words[0], words[1])


def words_of(n: int) -> Array:
    return jnp.asarray([n & 0xFFFFFFFF, n >> 32], jnp.uint32)


def number(x: Any) -> Number:
    """An array without dimensions as a number."""
    with jax.enable_x64(True):
        x = jnp.asarray(x)
        kind = jnp.issubdtype(x.dtype, jnp.floating), x.dtype == bool
        dtype = {(True, False): "float64", (False, True): "bool"}.get(kind, "int64")
        return Number(jax.lax.convert_element_type(x, dtype))


def changed(held: Any, declared: float) -> Number:
    """A hyperparameter that the state holds with fewer digits than it was declared with.

    It is what was declared, until the state is given another.
    """
    x = jnp.asarray(held)
    with jax.enable_x64(True):
        same = x == jax.lax.convert_element_type(declared, x.dtype)
        return Number(jnp.where(same, declared, jax.lax.convert_element_type(x, "float64")))


def narrow(x: Array) -> Array:
    """A number as it is held outside."""
    return jax.lax.convert_element_type(x, jax.dtypes.canonicalize_dtype(x.dtype))


# --- parts of a plan -----------------------------------------------------------------------------
def _meta(value: Any) -> Meta:
    if isinstance(value, Number):
        return value.meta
    if is_number(value):
        return number_meta(value)
    name = getattr(getattr(value, "dtype", None), "name", type(value).__name__)
    if name not in DTYPES:
        raise SignatureError(f"a rule was called with {name}", "arrays of real numbers")
    return Meta(tuple(n if isinstance(n, int) else None for n in value.shape), name)


def _numbers(graph: Graph) -> Callable[..., Any]:
    """A part of a plan that is numbers only: by NumPy, where all of them are known."""
    run, on_host = emit.program(graph, "numbers", SPELLING), HOST.numbers(graph)

    def numbers(*xs: Any) -> Any:
        if all(map(is_number, xs)):
            return on_host(*xs)
        with jax.enable_x64(True):
            found = [_split(x) for x in run(*map(_wide, xs))]
        return [x if isinstance(x, Count) else narrow(x) for x in found]

    return numbers


def _wide(x: Any) -> Any:
    """A number as an array; inside `jax.enable_x64` only."""
    if isinstance(x, Count):
        return x.wide()
    return (x if isinstance(x, Number) else number(x)).value


def _split(x: Array) -> Any:
    """A number; of integers all 64 bits. Inside `jax.enable_x64` only."""
    if x.dtype != jnp.int64:
        return x
    return Count(x.astype(jnp.uint32), (x >> 32).astype(jnp.uint32))


def _run(graph: Graph) -> Callable[..., Any]:
    """A part of a plan on arrays; integers reach the generator with all their bits."""
    program = emit.program(graph, "update", SPELLING)
    nodes = [graph.nodes[i] for i in graph.live()]
    in_words = {a for n in nodes if n.prim == "random_bits" for a in n.args}

    def update(*xs: Any) -> Any:
        counts = [k for k, x in enumerate(xs) if isinstance(x, Count)]
        values = [*xs]
        for k in counts:
            values[k] = _entering(xs[k], graph.inputs[k] in in_words)
        return program(*values)

    return update


def _entering(x: Count, in_words: bool) -> Any:
    if in_words:
        return x.low, x.high
    with jax.enable_x64(True):
        wide = x.wide()
    return narrow(wide)


# --- arrays --------------------------------------------------------------------------------------
def _view(x: Any) -> np.ndarray[Any, Any]:
    """The values of an array; NaN where it has none yet."""
    if isinstance(x, jax.core.Tracer):
        return np.broadcast_to(np.array(np.nan, x.dtype), x.shape)
    return np.asarray(x)


def _like(array: np.ndarray[Any, Any], w: Any) -> Array:
    if isinstance(w, jax.core.Tracer) and np.isnan(array.astype(np.float32)).any():
        raise SignatureError(
            "a slot starts from the values of a parameter that JAX is tracing",
            "the slots, after w and g",
        )
    return jnp.asarray(array)


RUNNER = Runner(
    meta=_meta, run=_run, numbers=_numbers, add=lambda a, b: a + b, view=_view, like=_like
)
