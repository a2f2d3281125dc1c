"""The NumPy target: the reference's own functions, printed as readable source."""

from typing import Any

import numpy as np

from ...adjoint import check_summable
from ...emit import Spelling
from ...philox import random_bits
from ...sink import sunk
from .checkpoint import narrow_dtype

Array = np.ndarray[Any, Any]


def unbroadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """Sum x over what broadcasting repeated, back to a shape."""
    if x.shape == shape:
        return x
    check_summable(x.shape, shape)
    extra = np.ndim(x) - len(shape)
    axes = (*range(extra), *(k + extra for k, d in enumerate(shape) if d == 1))
    return np.reshape(np.sum(x, axis=axes), shape)


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Repeat x up to a shape, which it mostly has; a constant is a bare number."""
    return x if getattr(x, "shape", ()) == shape else np.broadcast_to(x, shape)


def scatter(x: Any, shape: tuple[int, ...], index: tuple[Any, ...]) -> Array:
    """Zeros, with x at an index."""
    out = np.zeros(shape, x.dtype)
    out[index] = x
    return out


def scatter_add(x: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Array:
    """Zeros, with x added at indices along an axis; indices may repeat."""
    out = np.zeros(shape, x.dtype)
    np.add.at(out, (*(slice(None),) * axis, indices), x)
    return out


def _as_it_is(call: Any, body: Any) -> Any:
    return body()


def host(call: Any, *xs: Any) -> list[Any]:
    """Run Python on the host; a result without dimensions is a scalar, as NumPy's are."""
    return [out if out.ndim else out[()] for out in call.run(xs, _as_it_is)]


def _namespace() -> dict[str, Any]:
    return {
        "np": np,
        "pow": pow,
        "unbroadcast": unbroadcast,
        "broadcast_to": broadcast_to,
        "scatter": scatter,
        "scatter_add": scatter_add,
        "random_bits": random_bits,
        "host": host,
        "scipy": _Scipy(),
        "bfloat16": bfloat16,
    }


def bfloat16(x: Any) -> Any:
    """x in a dtype that is not NumPy's own."""
    return np.asarray(x).astype(narrow_dtype())


class _Scipy:
    """SciPy where a graph uses it, which it can only if the user's function did."""

    @property
    def special(self) -> Any:
        import scipy.special

        return scipy.special


_ONE_AXIS = "np.%s({0}, axis={only}, keepdims={keepdims})"
_KEEP = "{0}.%s(axis={axis}, keepdims={keepdims})"

SPELLING = Spelling(
    name="numpy",
    prepared=sunk,
    library="np",
    dtype=lambda dtype: (
        "bfloat16"
        if dtype == "bfloat16"
        else f"np.{ {'int': 'int64', 'float': 'float64', 'bool': 'bool_'}.get(dtype, dtype) }"
    ),
    namespace=_namespace,
    constant=lambda array: array,
    copy="np.array({0})",
    forms={
        **{name: _KEEP % name for name in ("sum", "prod", "max", "min", "all", "any")},
        **{name: _ONE_AXIS % name for name in ("argmax", "argmin")},
        "cumsum": "{0}.cumsum(axis={axis})",
        "power": "np.power({0}, {1})",  # the operator ** has short cuts, which are nodes already
        "power operator": "pow({0}, {1})",  # and that is this operator, as Python spells it
        "square operator": "pow({0}, 2)",
        "sqrt operator": "pow({0}, 0.5)",
        "reciprocal operator": "pow({0}, -1)",
        "astype": "{out}({0})",
        "reshape": "{0}.reshape({shape})",
        "transpose": "{0}.transpose({axes})",
        "expand_dims": "{0}[{newaxes}]",
        "squeeze": "{0}[{dropped}]",
        "broadcast_to": "broadcast_to({0}, {shape})",
        "getitem": "{0}[{index}]",
        "concatenate": "np.concatenate(({args}), axis={axis})",
        "flip": "np.flip({0}, axis={axis})",
        "roll": "np.roll({0}, {shift}, axis={axis})",
        "take": "np.take({0}, {1}, axis={axis})",
        "einsum": "np.einsum({subscripts}, {args}, optimize=True)",
        "unbroadcast": "unbroadcast({0}, {shape})",
        "scatter": "scatter({0}, {shape}, np.index_exp[{index}])",
        "scatter_add": "scatter_add({0}, {1}, {axis}, {shape})",
        "random_bits": "random_bits({args}, draw={draw}, lane={lane}, shape={shape})",
        "host": "host({function}, {args})",
        "stop_gradient": "{0}",
        "variable": "{0}",
    },
)
