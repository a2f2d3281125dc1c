"""The TensorFlow target: `tf.math` where that means what NumPy means, `functions` elsewhere.

Every value of a program is a tensor: Python numbers enter as tensors without dimensions.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...emit import Spelling
from . import arrays, functions

# Primitives that TensorFlow cannot compute, and why: printing one of them raises.
UNSUPPORTED = {
    "erfcx": "it has no scaled erfc, and exp(x*x) * erfc(x) is inf * 0 from x = 9.4 in float32",
    "log_ndtr": "it has no log_ndtr, and log(ndtr(x)) is -inf from x = -14 in float32",
    "global_sum": "a sum over all parameters belongs to an optimizer, not to an op",
    "nextafter float16": "it has kernels for float32 and float64",
}

_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_INTS = (*_SIGNED, *_UNSIGNED, "int")


def _for(dtypes: Iterable[str], **forms: str) -> dict[str, str]:
    """Forms of their own for arguments of some dtypes."""
    return {f"{prim} {dtype}": form for prim, form in forms.items() for dtype in dtypes}


_RENAMES = (
    "absolute:abs fabs:abs rint:round remainder:floormod arcsin:asin arccos:acos arctan:atan "
    "arctan2:atan2 arcsinh:asinh arccosh:acosh arctanh:atanh isnan:is_nan isinf:is_inf "
    "isfinite:is_finite expit:sigmoid log_expit:log_sigmoid j0:special.bessel_j0 "
    "j1:special.bessel_j1"
).split()
# SciPy's, and in a graph of TensorFlow 1, == asks whether two tensors are the same object.
_SAME = "erfc erfinv erfcinv ndtri zeta nextafter equal not_equal".split()
_RENAMED = dict(pair.split(":") for pair in _RENAMES) | {name: name for name in _SAME}
# Compositions, written in `functions` under NumPy's name.
_COMPOSED = (
    "trunc cbrt exp2 log2 log10 deg2rad radians rad2deg degrees floor_divide fmod fmax fmin "
    "hypot logaddexp logaddexp2 copysign heaviside signbit logit ndtr gamma entr exp10 cosm1 "
    "rel_entr betaln erf gammaln psi i0 i1 xlogy xlog1py left_shift right_shift"
).split()
# In a graph, a Python number before a tensor would not get its dtype from it.
_TWO_TENSORS = "maximum minimum arctan2 remainder nextafter zeta equal not_equal where".split()
_LOGIC = {
    name: f"tf.math.{name}(tf.cast({{0}}, tf.bool), tf.cast({{1}}, tf.bool))"
    for name in ("logical_and", "logical_or", "logical_xor")
}
_NUMBER = "tf.constant({value}, {dtype})"
_REDUCE = "tf.math.reduce_%s({0}, axis={axis}, keepdims={keepdims})"


def _namespace() -> dict[str, Any]:
    from .host import host

    names = vars(arrays) | vars(functions)
    return {"np": np, "host": host} | {
        name: f for name, f in names.items() if not name.startswith("_")
    }


SPELLING = Spelling(
    name="tensorflow",
    library="tf.math",
    dtype=lambda dtype: f"tf.{ {'int': 'int64', 'float': 'float64'}.get(dtype, dtype) }",
    namespace=_namespace,
    # a tensor made here would belong to the graph that happens to be built now
    constant=lambda array: array,
    frozen="tf.constant({name})",
    scalar=_NUMBER,
    weak=_NUMBER,
    strict=[*_COMPOSED, *_TWO_TENSORS],
    size="size({0}, {1})",
    shape="[{dims}]",
    unsupported=UNSUPPORTED,
    forms={
        **{prim: f"tf.math.{name}({{args}})" for prim, name in _RENAMED.items()},
        **{prim: f"{prim}({{args}})" for prim in _COMPOSED},
        **{prim: _REDUCE % prim for prim in ("sum", "prod", "all", "any")},
        **{prim: prim + "({0}, {axis}, {keepdims})" for prim in ("max", "min")},
        **{prim: prim + "({0}, {only}, {keepdims})" for prim in ("argmax", "argmin")},
        **dict.fromkeys(("positive", "stop_gradient", "variable"), "{0}"),
        **_LOGIC,
        "logical_not": "tf.math.logical_not(tf.cast({0}, tf.bool))",
        "where": "where({0}, {1}, {2})",
        "cumsum": "tf.math.cumsum({0}, axis={axis})",
        "astype": "tf.cast({0}, {out})",
        "reshape": "tf.reshape({0}, {shape})",
        "transpose": "tf.transpose({0}, {axes})",
        "expand_dims": "{0}[{newaxes}]",
        "squeeze": "tf.squeeze({0}, axis={axis})",
        "broadcast_to": "tf.broadcast_to({0}, {shape})",
        "getitem": "{0}[{index}]",
        "concatenate": "tf.concat([{args}], axis={axis})",
        "flip": "tf.reverse({0}, axis={axis})",
        "roll": "tf.roll({0}, {shift}, axis={axis})",
        "take": "take({0}, {1}, {axis})",
        "einsum": "tf.einsum({subscripts}, {args})",
        "unbroadcast": "unbroadcast({0}, {shape})",
        "scatter": "scatter({0}, {shape}, np.index_exp[{index}])",
        "scatter_add": "scatter_add({0}, {1}, {axis}, {shape})",
        "host": "host({function}, {args})",
        "size": "tf.cast({dim}, {out})",
        "random_bits": "random_bits({args}, draw={draw}, lane={lane}, shape={shape})",
        # what TensorFlow has no kernels for, or NumPy another meaning
        **_for(
            [*_INTS, "bool"],
            floor="{0}",
            ceil="{0}",
            trunc="{0}",
            isnan="tf.zeros_like({0}, tf.bool)",
            isinf="tf.zeros_like({0}, tf.bool)",
            isfinite="tf.ones_like({0}, tf.bool)",
        ),
        **_for(
            _INTS,
            max=_REDUCE % "max",
            min=_REDUCE % "min",
            remainder="int_remainder({0}, {1})",
            floor_divide="int_floor_divide({0}, {1})",
            fmod="int_fmod({0}, {1})",
            reciprocal="int_reciprocal({0})",
            fmax="tf.math.maximum({0}, {1})",
            fmin="tf.math.minimum({0}, {1})",
        ),
        **_for(
            _UNSIGNED,
            absolute="{0}",
            negative="uint_negative({0})",
            sign="tf.cast(tf.math.greater({0}, 0), {out})",
            power="tf.cast(tf.cast({0}, tf.int64) ** tf.cast({1}, tf.int64), {out})",
        ),
        **_for(
            [*_UNSIGNED, "int8", "int16", "bool"],
            matmul="tf.cast(tf.cast({0}, tf.int64) @ tf.cast({1}, tf.int64), {out})",
            einsum="tf.cast(int_einsum({subscripts}, {args}), {out})",
        ),
        **_for(
            ["bool"],
            absolute="{0}",
            add="tf.math.logical_or({0}, {1})",
            multiply="tf.math.logical_and({0}, {1})",
            **{prim: f"tf.math.{prim}({{args}})" for prim in (*_LOGIC, "logical_not")},
            **dict.fromkeys(["maximum", "fmax", "bitwise_or"], "tf.math.logical_or({0}, {1})"),
            **dict.fromkeys(["minimum", "fmin", "bitwise_and"], "tf.math.logical_and({0}, {1})"),
            bitwise_xor="tf.math.logical_xor({0}, {1})",
            invert="tf.math.logical_not({0})",
            **{
                prim: f"tf.math.{prim}(tf.cast({{0}}, tf.int8), tf.cast({{1}}, tf.int8))"
                for prim in ("less", "less_equal", "greater", "greater_equal")
            },
            max=_REDUCE % "any",
            min=_REDUCE % "all",
        ),
    },
)
