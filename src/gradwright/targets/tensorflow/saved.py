"""The derivative that goes into a SavedModel, which keeps one level of custom gradients.

So the first derivative is ours, as plain operations, and runs without gradwright. The second is
TensorFlow's own derivative of these: right, unless an own rule lies below. Then it raises when it
runs (in XLA, which has no such errors, it is NaN): a graph builds it, run or not.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ... import emit
from ...errors import GradwrightError
from ...function import Function
from . import SPELLING


def is_saving() -> bool:
    """Whether `tf.saved_model.save` is tracing gradients; TensorFlow has no public name for it."""
    from tensorflow.python.saved_model import save_context

    return bool(save_context.in_save_context())


def pulled(function: Function, xs: Sequence[Any], cts: Sequence[Any]) -> Sequence[Any]:
    """The cotangents of `wrt`, from those of the smooth outputs, as plain operations."""
    if function.is_on_host:
        raise GradwrightError(
            f"{function.name} runs Python on the host, which a SavedModel does not keep",
            "a traced op, or the weights alone",
        )
    vjp = function.vjp
    if _has_rules(vjp) or (reads_outputs(function) and (function.own or _has_rules(function))):
        xs, cts = (_once_differentiable(part, function.name) for part in (xs, cts))
    outs: Sequence[Any] = [None] * len(function.outs)
    if reads_outputs(function):
        outs = emit.program(function.primal, function.name, SPELLING)(*xs)
    # A program is a callable of Any: it is compiled from text.
    return emit.program(vjp.primal, vjp.name, SPELLING)(*xs, *outs, *cts)  # type: ignore[no-any-return]


def reads_outputs(function: Function) -> bool:
    """Whether the vjp is written with the function's outputs."""
    graph, first = function.vjp.primal, len(function.ins)
    return any(graph.reads(i) for i in graph.inputs[first : first + len(function.outs)])


def _has_rules(function: Function) -> bool:
    graph = function.primal
    return any(graph.nodes[i].prim == "call" for i in graph.live())


def _once_differentiable(xs: Sequence[Any], name: str) -> list[Any]:
    return [_refusing(x, name) if x.dtype.is_floating else x for x in xs]


def _refusing(x: Any, name: str) -> Any:
    """x, whose derivative is NaN (0 times that of log at 0), which CheckNumerics reports."""
    message = (
        f"the second derivative of {name}, which has a rule of its own that a SavedModel does not "
        "keep; instead: the op itself, with gradwright"
    )
    finite = tf.where(tf.math.is_finite(x), x, tf.zeros_like(x))
    finite = tf.debugging.check_numerics(finite, message)
    # not 0 * finite, of which Grappler makes 0, and of its derivative too
    pole = tf.math.log(finite - tf.stop_gradient(finite))
    return tf.where(tf.fill(tf.shape(x), True), tf.stop_gradient(x), pole)
