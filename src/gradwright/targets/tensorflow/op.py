"""Ops on tensors: native in eager mode, in `tf.function`, in XLA and in graphs of TensorFlow 1."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ... import emit, tree
from ...errors import GradwrightError, SignatureError
from ...function import Function
from ...op import Meta, Op, number_meta
from ...precision import check_widened, is_narrow
from ...signature import Layout, is_number
from . import SPELLING, saved

_DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
).split()
_COMPOSITE = (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)


# --- arguments ---------------------------------------------------------------------------------
def _tensor(value: Any, name: str) -> Any:
    """An argument as a dense tensor of real numbers; Python numbers become 64-bit, as in NumPy."""
    if is_number(value):
        return tf.constant(value, _number_dtype(value))
    if isinstance(value, _COMPOSITE):
        raise SignatureError(
            f"{name} was called with a {type(value).__name__}",
            "a dense tensor: tf.sparse.to_dense(x), x.to_tensor(), tf.convert_to_tensor(x)",
        )
    x = value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)
    if x.dtype.name not in _DTYPES:
        raise SignatureError(f"{name} was called with {x.dtype.name}", "tensors of real numbers")
    return x


def _number_dtype(value: Any) -> Any:
    if isinstance(value, float):
        return tf.float64
    return tf.bool if isinstance(value, bool) else tf.int64


def _meta(value: Any, x: Any, name: str) -> Meta:
    """What is known of an argument before its values."""
    if is_number(value):
        return number_meta(value)
    if x.shape.rank is None:
        raise SignatureError(
            f"{name} was called with a tensor of unknown rank",
            "x.set_shape([None, …]) or tf.ensure_shape(x, [None, …]) before the call",
        )
    return Meta(tuple(x.shape), "float32" if x.dtype == tf.bfloat16 else x.dtype.name)


def _cast(x: Any, of: Any, to: Any) -> Any:
    return tf.cast(x, to) if x.dtype == of else x


# --- calling -----------------------------------------------------------------------------------
def call(op: Op[Any], leaves: Sequence[Any], layout: Layout) -> Any:
    """Run an op on tensors, variables, NumPy arrays and numbers."""
    if op.engine == "fused":
        raise SignatureError(
            f'{op.name} with engine="fused" on TensorFlow\'s arrays, which no kernel reads',
            'engine="auto", or NumPy arrays',
        )
    xs = [_tensor(leaf, op.name) for leaf in leaves]
    metas = [_meta(leaf, x, op.name) for leaf, x in zip(leaves, xs, strict=True)]
    made = op.traced(metas, layout)
    outs = bound(made.function)(*[_cast(x, tf.bfloat16, tf.float32) for x in xs])
    if is_narrow(x.dtype.name for x, leaf in zip(xs, leaves, strict=True) if not is_number(leaf)):
        check_widened(made.function.primal)
        outs = [_cast(out, tf.float32, tf.bfloat16) for out in outs]
    return tree.unflatten(made.out, outs)


def bound(function: Function) -> Callable[..., Sequence[Any]]:
    """The function as a callable of tensors, which TensorFlow differentiates by its own rules."""
    made: dict[str, Callable[..., Sequence[Any]]] = function.primal.programs
    key = f"tensorflow {function.key}"
    if key not in made:
        made[key] = _bind(function)
    return made[key]


def _bind(function: Function) -> Callable[..., Sequence[Any]]:
    run = emit.program(function.primal, function.name, SPELLING)
    if not function.smooth or not (function.wrt or function.refused):
        return run
    shield = _shield(function)

    def forward(*xs: Any) -> Any:
        outs = run(*shield(xs))

        def grad(*cts: Any) -> list[Any]:
            return _pulled(function, xs, outs, cts)

        return outs, grad

    # TensorFlow drops the rule of a call by keyword, so this is called with positional arguments
    differentiable: Callable[..., Sequence[Any]] = tf.custom_gradient(forward)
    return _refusing(function, differentiable) if function.refused else differentiable


def _refusing(
    function: Function, differentiable: Callable[..., Sequence[Any]]
) -> Callable[..., Sequence[Any]]:
    """The same, but a derivative by an input that has none raises in place of being zero."""
    messages = {
        k: f"{why.what}; instead: {why.instead}"
        for k, why in function.refused.items()
        if function.ins[k].dtype != "float"  # a Python number
    }

    def call(*xs: Any) -> Sequence[Any]:
        refusing = list(xs)
        for k, message in messages.items():
            refusing[k] = tf.raw_ops.PreventGradient(input=xs[k], message=message)
        return differentiable(*refusing)

    return call


def _shield(function: Function) -> Callable[[Sequence[Any]], list[Any]]:
    """Keep TensorFlow from differentiating the body, which forward mode would do.

    In eager mode a ForwardAccumulator then uses our vjp, twice, which is right for a linear one.
    In a graph, and for a vjp that is not linear, there is no such way, and it raises.
    """
    linear = functools.cache(lambda: _is_linear(function))
    graph = function.primal
    shielded = [k for k in function.wrt if graph.reads(graph.inputs[k])]

    def shield(xs: Sequence[Any]) -> list[Any]:
        quiet, safe = tf.executing_eagerly() and linear(), list(xs)
        for k in shielded:
            safe[k] = _hidden(xs[k], quiet, function.name)
        return safe

    return shield


def _hidden(x: Any, quiet: bool, name: str) -> Any:
    """x, of which TensorFlow sees no derivative, or raises when it looks for one."""
    if quiet:
        return tf.stop_gradient(x)
    message = (
        f"TensorFlow would not use the derivative of {name} here: forward mode in a graph, or of "
        f"a rule that is not linear; instead: gw.jvp({name}, primals, tangents), or reverse mode"
    )
    return tf.raw_ops.PreventGradient(input=x, message=message)


def _is_linear(function: Function) -> bool:
    """Whether the vjp is linear in the cotangent: only then there is a jvp."""
    try:
        return function.jvp is not None
    except GradwrightError:
        return False


def _pulled(
    function: Function, xs: Sequence[Any], outs: Sequence[Any], cts: Sequence[Any]
) -> list[Any]:
    """The cotangents of all inputs, from those of all outputs."""
    smooth = [_filled(cts[k], outs[k]) for k in function.smooth]
    pulled: Sequence[Any] = ()
    if not function.wrt:  # nobody knows a derivative, and PreventGradient will say so
        pass
    elif saved.is_saving():
        pulled = saved.pulled(function, xs, smooth)
    else:
        pulled = bound(function.vjp)(*xs, *_differentiable(function, xs, outs), *smooth)
    back = dict(zip(function.wrt, pulled, strict=True))
    back |= {k: tf.zeros_like(xs[k]) for k in function.refused}  # not None, which refuses nothing
    return [back.get(k) for k in range(len(xs))]


def _differentiable(function: Function, xs: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
    """The outputs for the vjp, which carry no gradient inside a custom gradient.

    Where the rule reads them, they are computed again; where it does not, a second derivative
    must not ask them for one.
    """
    if saved.reads_outputs(function):
        return _kept(function, xs, outs) if function.is_on_host else bound(function)(*xs)
    return [tf.stop_gradient(out) for out in outs]


def _kept(function: Function, xs: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
    """The outputs as they are, with their derivative: Python on the host need not run again."""
    quiet = tf.executing_eagerly() and _is_linear(function)

    def forward(*values: Any) -> Any:
        inputs, kept = values[: len(xs)], values[len(xs) :]

        def grad(*cts: Any) -> list[Any]:
            return [*_pulled(function, inputs, kept, cts), *[None] * len(kept)]

        return [_hidden(x, quiet, function.name) for x in kept], grad

    again: Callable[..., Sequence[Any]] = tf.custom_gradient(forward)
    return again(*xs, *outs)


def _filled(ct: Any, out: Any) -> Any:
    return tf.zeros_like(out) if ct is None else tf.convert_to_tensor(ct)


# --- without tracing ---------------------------------------------------------------------------
def eager(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the plain NumPy function on the values of tensors; asking for its gradient raises."""
    if not tf.executing_eagerly():
        raise GradwrightError(
            f"{function.__name__} inside gw.eager() and in a graph, where tensors have no values",
            "tf.config.run_functions_eagerly(True)",
        )
    leaves, spec = tree.flatten((args, kwargs))
    shape: list[tree.Spec] = []

    def on_the_host(*xs: Any) -> Any:
        arrays = iter([x.numpy() for x in xs])
        values = [next(arrays) if tf.is_tensor(leaf) else leaf for leaf in leaves]
        positional, named = tree.unflatten(spec, values)
        outs, out = tree.flatten(function(*positional, **named))
        shape[:] = [out]
        return tuple(map(tf.convert_to_tensor, outs)), _no_gradient(function.__name__)

    tensors = [tf.convert_to_tensor(leaf) for leaf in leaves if tf.is_tensor(leaf)]
    outs = tf.custom_gradient(on_the_host)(*tensors)
    return tree.unflatten(shape[0], outs)


def _no_gradient(name: str) -> Callable[..., Any]:
    def grad(*cts: Any) -> Any:
        raise GradwrightError(
            f"a gradient through {name}, which ran as plain NumPy inside gw.eager()",
            "the call outside of gw.eager()",
        )

    return grad
