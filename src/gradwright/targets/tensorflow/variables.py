"""Variables: how they are read and assigned, what their slots start from, and their gradients."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...equation import initial
from ...errors import GradwrightError, StateError
from ...op import Op
from . import sparse

v1 = tf.compat.v1
_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def name_of(v: Any) -> str:
    return str(v.name).partition(":")[0]


def is_resource(v: Any) -> bool:
    return bool(v.dtype == v.dtype.base_dtype)  # the other kind has float32_ref


def read(v: Any) -> Any:
    """The value of a variable as of now, which no later assignment changes."""
    return v.read_value() if is_resource(v) else tf.raw_ops.DeepCopy(x=v)


def assign(v: Any, new: Any) -> Any:
    if not is_resource(v):
        return v1.assign(v, new).op
    return v.assign(new, read_value=False)


def shape_only(v: Any) -> Any:
    """An array of NaN as large as a variable, which takes no memory."""
    return np.broadcast_to(np.array(np.nan, v.dtype.base_dtype.as_numpy_dtype), tuple(v.shape))


def operations(done: Iterable[Any]) -> list[Any]:
    """Operations and tensors of a graph; nothing is left of them in eager mode."""
    return [getattr(x, "op", x) for x in done if x is not None and not tf.executing_eagerly()]


# --- gradients -----------------------------------------------------------------------------------
def with_gradients(
    pairs: Sequence[tuple[Any, Any]], lazy: bool = False
) -> list[tuple[int, Any, Any]]:
    """The position, the gradient and the variable of each pair that has a gradient.

    A sparse gradient is made dense, unless it is `lazy`: then its rows that repeat are summed.
    """
    there = [(k, g, _checked(v)) for k, (g, v) in enumerate(pairs) if g is not None]
    live = [(k, gradient(g, v, lazy), v) for k, g, v in there]
    if not live:
        raise StateError(
            f"no gradients for any of {[name_of(v) for _, v in pairs]}",
            "variables that the loss depends on",
        )
    names = [name_of(v) for _, _, v in live]
    if len({id(v) for _, _, v in live}) < len(live):
        raise StateError(f"a variable twice among {names}", "the sum of its gradients, once")
    return live


def _checked(v: Any) -> Any:
    if not isinstance(v, tf.Variable):
        raise StateError(f"a {type(v).__name__} is optimized", "a tf.Variable")
    if v.dtype.base_dtype not in _FLOATS or not v.shape.is_fully_defined():
        raise StateError(
            f"the variable {name_of(v)} is {v.dtype.base_dtype.name}{v.shape}",
            "a float dtype, and a shape that is known",
        )
    return v


def gradient(g: Any, v: Any, lazy: bool = False) -> Any:
    """A gradient that fits its variable; a sparse one has every row once, or is made dense."""
    if lazy and isinstance(g, tf.IndexedSlices):
        _check_fits(g, [v.shape[0], *g.values.shape[1:]], v)
        return sparse.summed(g)
    g = sparse.dense(g, v)
    _check_fits(g, g.shape, v)
    return g if g.shape.is_fully_defined() else tf.ensure_shape(g, v.shape)


def _check_fits(g: Any, shape: Any, v: Any) -> None:
    if not v.shape.is_compatible_with(shape) or not g.dtype.is_floating:
        raise StateError(
            f"the gradient of {name_of(v)} is {g.dtype.name}{tf.TensorShape(shape)}, the variable "
            f"{v.shape}",
            "the gradient of this variable, or None",
        )


# --- slots ---------------------------------------------------------------------------------------
def first_value(value: Any, v: Any) -> Any:
    """The first value of a slot."""
    if not callable(value):
        narrow = v.dtype.base_dtype in (tf.float16, tf.bfloat16)
        return tf.fill(v.shape, tf.constant(value, tf.float32 if narrow else v.dtype.base_dtype))
    if v1.executing_eagerly_outside_functions():
        return tf.constant(initial(value, v.numpy()))
    return tf.convert_to_tensor(Op(value)(tf.ensure_shape(_start(v), v.shape)))


def _start(v: Any) -> Any:
    """The value of a graph's variable, also while it is being initialized."""
    if is_resource(v):
        known = v1.is_variable_initialized(v)
        return tf.cond(known, v.read_value, lambda: v.initial_value)
    if v1.control_flow_v2_enabled():
        raise GradwrightError(
            f"a slot starts from {name_of(v)}, a reference variable, which the control flow of "
            "TensorFlow 2 cannot initialize",
            "use_resource=True, or tf.compat.v1.disable_control_flow_v2()",
        )
    return v.read_value()  # TensorFlow itself waits for it to be initialized
