"""How tensors run the parts of a plan, and what a hyperparameter is there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ... import emit
from ...errors import SignatureError
from ...op import Meta, is_eager, number_meta
from ...optimizer import Runner, schedule_graph
from ...schedules import Schedule
from ...signature import is_number
from . import SPELLING, compiled


@dataclass(frozen=True, eq=False)
class Scalar:
    """A number that is known when the graph runs: an int64, a float64 or a bool.

    It is as weak as a Python number, and never one of the rule's arrays.
    """

    tensor: Any

    @property
    def meta(self) -> Meta:
        return Meta((), {"int64": "int", "float64": "float"}.get(self.tensor.dtype.name, "bool"))


def number(x: Any) -> Any:
    """A tensor or a variable without dimensions as a number; its value inside `gw.eager`."""
    if is_eager():
        return np.asarray(x).item()
    x = tf.convert_to_tensor(x)
    wide = tf.float64 if x.dtype.is_floating else tf.bool if x.dtype == tf.bool else tf.int64
    return Scalar(tf.cast(x, wide))


def tensor(x: Any) -> Any:
    """What a program takes: every value of it is a tensor."""
    if isinstance(x, Scalar):
        return x.tensor
    if is_number(x):
        return tf.constant(x, {"int": tf.int64, "float": tf.float64}.get(number_meta(x).dtype))
    return tf.convert_to_tensor(x)


def _meta(value: Any) -> Meta:
    if isinstance(value, Scalar):
        return value.meta
    if is_number(value):
        return number_meta(value)
    x = tf.convert_to_tensor(value)
    if x.shape.rank is None:
        raise SignatureError("a tensor of unknown rank", "x.set_shape([None, …]) before the call")
    return Meta(tuple(x.shape), x.dtype.name)


def _on_tensors(program: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: program(*map(tensor, xs))


def _view(w: Any) -> Any:
    """The values of a tensor; NaN where it has none yet."""
    x = tf.convert_to_tensor(w)
    if tf.executing_eagerly():
        return x.numpy()
    if not x.shape.is_fully_defined():
        raise SignatureError("slots for a tensor of unknown shape", "the slots, after w and g")
    return np.broadcast_to(np.array(np.nan, x.dtype.as_numpy_dtype), tuple(x.shape))


RUNNER = Runner(
    meta=_meta,
    run=lambda graph: _on_tensors(compiled.program(graph)),
    numbers=lambda graph: _on_tensors(emit.program(graph, "numbers", SPELLING)),
    add=lambda a, b: a + b,
    view=_view,
    like=lambda a, w: tf.constant(a),
)


# --- hyperparameters -----------------------------------------------------------------------------
class Now:
    """The hyperparameters of one step, each made once for all variables that read it."""

    def __init__(self, count: Any) -> None:
        self._count = count
        # by the id of what a value was made from, which is kept so that the id stays its own
        self._made: dict[int, tuple[Any, Any]] = {}

    def value(self, raw: Any, default: Any) -> Any:
        """A keyword's value: a Python number, a `Scalar`, a tensor, or what is static.

        A function gives the value, as TensorFlow's own optimizers have it, unless the rule's
        default is a function, too.
        """
        is_thunk = callable(raw) and not callable(default)
        if not is_thunk and not isinstance(raw, (tf.Tensor, tf.Variable)):
            return raw
        if id(raw) not in self._made:
            self._made[id(raw)] = raw, self._make(raw)
        return self._made[id(raw)][1]

    def _make(self, raw: Any) -> Any:
        if isinstance(raw, Schedule):
            return scheduled(raw, self._count)
        x = raw() if callable(raw) else raw
        if is_number(x):
            return x
        x = tf.convert_to_tensor(x)
        return number(x) if x.shape.rank == 0 else x


def scheduled(schedule: Schedule, count: Any) -> Any:
    """A schedule's value at a count: by NumPy where there is a number, else as operations."""
    if tf.executing_eagerly():
        return float(schedule(int(count)))
    value = emit.program(schedule_graph(schedule), "schedule", SPELLING)(count)[0]
    return Scalar(tf.cast(value, tf.float64))
