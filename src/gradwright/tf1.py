"""For code of TensorFlow 1: `py_func` with a gradient.

TensorFlow is imported when `py_func` is called.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .errors import SignatureError
from .op import Meta, Op

_numbers = itertools.count()


class Call:
    """A call of `py_func`, in the place of a `tf.Operation`: its tensors."""

    def __init__(self, name: str, inputs: Sequence[Any]) -> None:
        self.name, self.inputs = name, tuple(inputs)
        self.outputs: tuple[Any, ...] = ()


def py_func(
    func: Callable[..., Any],
    inp: Sequence[Any],
    Tout: Any,
    stateful: bool = True,
    name: str | None = None,
    grad: Callable[..., Any] | None = None,
    shape: Any = None,
) -> Any:
    """Run a Python function of NumPy arrays in a graph, with a gradient and a static shape.

    What `tf.compat.v1.py_func` does, and the recipe that is often copied to give it a gradient:
    in graphs of TensorFlow 1, in `tf.function` and in eager mode. `Tout` is a dtype, or a list of
    them; the result is a tensor, or a list. ``grad(op, *grads)`` gives one cotangent for each of
    ``op.inputs``, in TensorFlow; in a graph of TensorFlow 1 `op` is the `tf.Operation`. `shape` is
    the shape of the result (a list of them for a list); without it, a function that consists of
    NumPy's operations is traced for it. A result of another dtype than `Tout` is an error.

    >>> import numpy as np, tensorflow as tf, gradwright as gw
    >>> def grad(op, g):
    ...     return g * tf.cos(op.inputs[0])
    >>> y = gw.tf1.py_func(np.sin, [tf.constant([0.0, 1.0])], tf.float32, grad=grad)
    """
    import tensorflow as tf

    single = not isinstance(Tout, (list, tuple))
    dtypes = [tf.as_dtype(d) for d in ([Tout] if single else Tout)]
    label = str(name or getattr(func, "__name__", "py_func"))
    xs = [tf.convert_to_tensor(x) for x in inp]
    host = _checked(func, dtypes, label)
    shapes = None if tf.executing_eagerly() else _shapes(func, xs, single, shape, len(dtypes))

    def run(*xs: Any) -> list[Any]:
        outs = tf.numpy_function(host, xs, dtypes, stateful=stateful, name=name)
        outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        for out, known in zip(outs, shapes or [], strict=False):
            out.set_shape(known)
        return outs

    outs = run(*xs) if grad is None else _with_gradient(run, grad, label, xs)
    return outs[0] if single else list(outs)


# AutoGraph reads this attribute, and leaves the function as it is.
py_func.autograph_info__ = {}  # type: ignore[attr-defined]  # an attribute for others to read


def _with_gradient(
    run: Callable[..., list[Any]], grad: Callable[..., Any], label: str, xs: Sequence[Any]
) -> Sequence[Any]:
    import tensorflow as tf

    if tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function:
        return _in_eager_or_function(run, grad, label, xs)
    return _in_graph(run, grad, label, xs)


def _in_graph(
    run: Callable[..., list[Any]], grad: Callable[..., Any], label: str, xs: Sequence[Any]
) -> Sequence[Any]:
    """A graph of TensorFlow 1 has a registry of gradients; one name for each call."""
    import tensorflow as tf

    registered = f"gradwright.{label}.{next(_numbers)}"

    def gradient(op: Any, *grads: Any) -> list[Any]:
        return _fitting(grad(op, *grads), op.inputs, label)

    tf.RegisterGradient(registered)(gradient)
    kinds = {"PyFunc": registered, "PyFuncStateless": registered}
    with tf.compat.v1.get_default_graph().gradient_override_map(kinds):
        return run(*xs)


def _in_eager_or_function(
    run: Callable[..., list[Any]], grad: Callable[..., Any], label: str, xs: Sequence[Any]
) -> Sequence[Any]:
    import tensorflow as tf

    call = Call(label, xs)

    def forward(*inner: Any) -> Any:
        message = f"forward mode of py_func {label}, which has only a reverse rule"
        shielded = [
            tf.raw_ops.PreventGradient(input=x, message=message) if x.dtype.is_floating else x
            for x in inner
        ]
        return tuple(run(*shielded)), lambda *grads: _fitting(grad(call, *grads), xs, label)

    # the tensors outside, so that a gradient of the gradient finds its way through them
    call.outputs = tuple(tf.custom_gradient(forward)(*xs))
    return call.outputs


def _fitting(cts: Any, xs: Sequence[Any], label: str) -> list[Any]:
    """The cotangents, one for each input and of its shape."""
    found: list[Any] = [*cts] if isinstance(cts, (list, tuple)) else [cts]
    if len(found) != len(xs):
        raise SignatureError(
            f"the grad of py_func {label} gives {len(found)} values for {len(xs)} inputs",
            "one for each of op.inputs, None where there is no gradient",
        )
    for k, (ct, x) in enumerate(zip(found, xs, strict=True)):
        if ct is not None and not x.shape.is_compatible_with(ct.shape):
            raise SignatureError(
                f"the grad of py_func {label} gives shape {ct.shape} for input {k} of shape "
                f"{x.shape}",
                "the gradient summed over what broadcasting repeated",
            )
    return found


def _checked(func: Callable[..., Any], dtypes: Sequence[Any], label: str) -> Callable[..., Any]:
    """The function, which raises where it returns something else than was declared."""

    code = getattr(func, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else ""

    def host(*arrays: Any) -> list[Any]:
        result = func(*arrays)
        parts = result if isinstance(result, (list, tuple)) else [result]
        if len(parts) != len(dtypes):
            raise SignatureError(
                f"py_func {label} returned {len(parts)} arrays where Tout names {len(dtypes)}",
                "one dtype in Tout for each array",
                where,
            )
        return [_of_dtype(part, d, label, where) for part, d in zip(parts, dtypes, strict=True)]

    return host


def _of_dtype(value: Any, dtype: Any, label: str, where: str) -> Any:
    array = np.asarray(value)
    wanted = dtype.as_numpy_dtype
    if array.dtype != wanted and not (array.dtype.kind in "SU" and dtype.name == "string"):
        raise SignatureError(
            f"py_func {label} returned {array.dtype} where Tout says {dtype.name}",
            f"result.astype(np.{dtype.name}), or Tout=tf.{array.dtype}",
            where,
        )
    return array


# --- static shapes -----------------------------------------------------------------------------
def _shapes(
    func: Callable[..., Any], xs: Sequence[Any], single: bool, shape: Any, count: int
) -> Sequence[Any] | None:
    if shape is not None:
        return [shape] if single or count == 1 and not _is_list_of_shapes(shape) else shape
    return _traced_shapes(func, xs)


def _is_list_of_shapes(shape: Any) -> bool:
    return isinstance(shape, (list, tuple)) and any(
        isinstance(part, (list, tuple)) or hasattr(part, "rank") for part in shape
    )


def _traced_shapes(func: Callable[..., Any], xs: Sequence[Any]) -> list[Any] | None:
    """The shapes that a function of NumPy's operations gives; None for any other function."""
    op = Op(lambda *arrays: func(*arrays))
    _, layout = op.signature.layout(xs, {})
    if any(x.shape.rank is None for x in xs):
        return None
    metas = [Meta(tuple(x.shape), x.dtype.name) for x in xs]
    try:
        function = op.traced(metas, layout).function
    except Exception:  # whatever a function does that was not written to be traced
        return None
    return [list(shape) for shape, _ in function.known_types([m.shape for m in metas])]
