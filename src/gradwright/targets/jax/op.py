"""Ops on JAX arrays: arguments in, results out."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import tree
from ...errors import GradwrightError, SignatureError
from ...function import Function
from ...op import Meta, Op, number_meta
from ...precision import check_widened
from ...signature import Layout, is_number
from .autodiff import bound

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
).split()
_NARROW = jnp.bfloat16  # NumPy has no such dtype: computed in float32, rounded once


# --- calling -----------------------------------------------------------------------------------
def call(op: Op[Any], leaves: Sequence[Any], layout: Layout) -> Any:
    """Run an op on JAX arrays and tracers, with numbers and NumPy arrays among them."""
    if op.engine == "fused":
        raise SignatureError(
            f'{op.name} with engine="fused" on JAX\'s arrays, which no kernel reads',
            'engine="auto", or NumPy arrays',
        )
    values = [_value(leaf, op.name) for leaf in leaves]
    made = op.traced([_meta(x) for x in values], layout)
    outs = bound(made.function)(*map(_widened, values))
    return tree.unflatten(made.out, _results(outs, made.function, values))


def _value(leaf: Any, name: str) -> Any:
    """An argument as JAX has it; a Python number as it is."""
    if is_number(leaf):
        return leaf
    if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.name in DTYPES:
        return jnp.asarray(leaf)
    if isinstance(leaf, Array) and leaf.dtype.name in DTYPES:
        return leaf
    what = getattr(leaf, "dtype", type(leaf).__name__)
    raise SignatureError(f"{name} was called with {what}", "arrays of real numbers")


def _meta(x: Any) -> Meta:
    """What is known of an argument before its values."""
    if is_number(x):
        return number_meta(x)
    dtype = "float32" if x.dtype == _NARROW else x.dtype.name
    if _is_weak(x):
        dtype = "float" if "float" in dtype else "int"
    sizes = tuple(n if isinstance(n, int) else None for n in x.shape)
    # what a body may read: a number that went through JAX, unless JAX is tracing
    readable = dtype in ("int", "bool") and not x.shape and not isinstance(x, jax.core.Tracer)
    return Meta(sizes, dtype, x.item() if readable else None)


def _is_weak(x: Any) -> bool:
    """Whether it is a Python number, maybe one that went through JAX."""
    return is_number(x) or (x.weak_type and not x.ndim)


def _is_narrow(x: Any) -> bool:
    return not is_number(x) and x.dtype == _NARROW


def _widened(x: Any) -> Any:
    return x.astype(jnp.float32) if _is_narrow(x) else x


def _results(outs: Sequence[Array], function: Function, values: Sequence[Any]) -> Sequence[Array]:
    """The results; in bfloat16, where that is the widest float among the arrays."""
    arrays = [x.dtype for x in values if not _is_weak(x)]
    if {d.name for d in arrays if jnp.issubdtype(d, jnp.floating)} != {_NARROW.dtype.name}:
        return outs
    check_widened(function.primal)
    dtypes = [n.dtype for n in function.outs]
    return [x.astype(_NARROW) if d == "float32" else x for x, d in zip(outs, dtypes, strict=True)]


# --- gw.eager() --------------------------------------------------------------------------------
def eager(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the plain NumPy function on the arrays' values, without a gradient."""
    leaves, spec = tree.flatten((args, kwargs))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise GradwrightError(
            f"{function.__name__} inside gw.eager() and in a function that JAX transforms, where "
            "arrays have no values",
            "jax.disable_jit(), and the call outside of jax.grad and jax.vmap",
        )
    args, kwargs = tree.unflatten(spec, [_as_numpy(leaf) for leaf in leaves])
    outs, out = tree.flatten(function(*args, **kwargs))
    return tree.unflatten(out, [jnp.asarray(x) for x in outs])


def _as_numpy(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, Array) else leaf
