"""What an optimizer of Keras does in another way on TensorFlow."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...errors import GradwrightError, StateError
from ...op import is_eager
from ...optimizer import Runner
from ..tensorflow.runner import RUNNER as RUNNER
from ..tensorflow.runner import number as number
from ..tensorflow.runner import scheduled as scheduled
from ..tensorflow.runner import tensor as tensor
from ..tensorflow.sparse import is_there
from ..tensorflow.variables import gradient as gradient_of
from ..tensorflow.variables import name_of
from ..tensorflow.variables import read as read_variable

COUNT, NUMBER = "int64", "float64"  # the dtypes of counts and of hyperparameters


def name(v: Any) -> str:
    """The path of a variable in its model; of TensorFlow's own variables the name."""
    return str(getattr(v, "path", None) or name_of(v))


def read(v: Any) -> Any:
    """The value of a variable as of now, which no later assignment changes."""
    return read_variable(v.value if isinstance(v, keras.Variable) else v)


def gradient(g: Any, v: Any) -> Any:
    """A gradient as a dense tensor; rows that repeat are summed."""
    return gradient_of(g, v.value if isinstance(v, keras.Variable) else v)


def rows(g: Any, v: Any) -> Any:
    """Which rows a sparse gradient has; ``True`` where it has all."""
    return is_there(g.indices, tuple(v.shape)) if isinstance(g, tf.IndexedSlices) else True


def runner() -> Runner:
    """How tensors run the parts of a rule."""
    return RUNNER


def hyperparameter(v: Any, declared: float) -> Any:
    """The number in a variable, with all the digits that it was declared with."""
    x = read(v)
    same = tf.equal(x, tf.cast(declared, x.dtype))
    return number(tf.where(same, tf.constant(declared, tf.float64), tf.cast(x, tf.float64)))


def seed(v: Any) -> Any:
    """The seed in a variable, which holds it in two halves of 28 bits."""
    low, high = tf.unstack(read(v))
    return number(low + high * 2**28)


def counts(v: Any) -> Any:
    """The counts in a variable, one by one."""
    return v.numpy().tolist() if is_eager() else tf.unstack(read(v))


def decide(condition: Any) -> Any:
    """A truth value: Python's, where it can be known."""
    return bool(condition) if tf.executing_eagerly() else condition


def is_concrete(entries: Any) -> bool:
    """Whether tensors have values that mean something after the step."""
    return bool(tf.executing_eagerly())


def array(x: Any) -> np.ndarray[Any, Any]:
    """The values of a variable where slots are made, outside of any graph."""
    return np.asarray(x.numpy())


def making() -> AbstractContextManager[Any]:
    """Where variables are made: not in the function that is being traced."""
    scope: AbstractContextManager[Any] = tf.init_scope()
    return scope


def update(strategy: Any, step: Callable[..., None], gradients: Sequence[Any], first: Any) -> None:
    """Run a step on gradients that are summed over all replicas, once on each device."""
    if is_eager() and not tf.executing_eagerly():
        raise GradwrightError(
            "a step inside gw.eager() and in a graph, where tensors have no values",
            "tf.config.run_functions_eagerly(True)",
        )
    replica = tf.distribute.get_replica_context()
    if replica is not None and replica.strategy is not strategy:
        raise StateError(
            f"a step under {type(replica.strategy).__name__} of an optimizer that was made under "
            f"{type(strategy).__name__}",
            "with strategy.scope(): around the model and the optimizer",
        )
    if replica is None or replica.num_replicas_in_sync == 1:
        step(list(gradients))
        return
    summed = replica.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))
    first = first.value if isinstance(first, keras.Variable) else first

    def merged(strategy: Any, summed: Any) -> None:
        strategy.extended.update(first, _without_first(step), args=(summed,), group=False)

    tf.__internal__.distribute.interim.maybe_merge_call(merged, strategy, summed)


def _without_first(step: Callable[..., None]) -> Callable[..., None]:
    return lambda first, gradients: step(gradients)
