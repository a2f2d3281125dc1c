"""The PyTorch target: what torch spells in another way than NumPy.

Every value of a program is a tensor: Python numbers enter as tensors without dimensions.
"""

from typing import Any

import torch

from ...emit import Spelling
from . import functions

# torch has hardly any arithmetic for these: they are held in signed integers, uint64 below 2**63.
HELD = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}


def dtype(name: str) -> str:
    """The dtype that holds a NumPy dtype, as source."""
    wide = {"int": "int64", "float": "float64", **HELD}
    return f"torch.{wide.get(name, name)}"


def held(name: str) -> torch.dtype:
    """The signed dtype that stands for one without arithmetic."""
    return getattr(torch, HELD[name])  # type: ignore[no-any-return]  # kept in a dict of Any


def constant(array: Any) -> torch.Tensor:
    """A captured array as a tensor, which the program moves to the device that it runs on."""
    return torch.tensor(array.astype(HELD.get(array.dtype.name, array.dtype)))


def _namespace() -> dict[str, Any]:
    from .host import host  # which names the dtypes of this file

    return {
        "torch": torch,
        "host": host,
        **{name: getattr(functions, name) for name in functions.__all__},
    }


_NUMBER = "torch.full((), {value}, dtype={dtype}, device={like}.device)"
_SPECIAL = ("erf erfc erfcx erfinv expit logit log_ndtr ndtri psi entr i0 i1 xlogy xlog1py").split()
_OWN = ("sign cbrt heaviside cosm1 gamma gammaln zeta ndtr rel_entr erfcinv").split()
_PAIRS = (
    "maximum minimum fmax fmin arctan2 hypot logaddexp logaddexp2 copysign heaviside "
    "nextafter fmod logical_and logical_or logical_xor xlogy xlog1py rel_entr zeta"
).split()

SPELLING = Spelling(
    name="torch",
    library="torch",
    dtype=dtype,
    namespace=_namespace,
    constant=constant,
    frozen="{name}.to({like}.device)",
    scalar=_NUMBER,
    weak=_NUMBER,
    literal="{exact}",
    copy="{0}.clone()",
    strict=_PAIRS,
    wraps={"uint16": "({0} & 0xFFFF)", "uint32": "({0} & 0xFFFFFFFF)"},
    unsupported={
        "global_sum": "a sum over all parameters belongs to a rule",
        "betaln": "torch has no logarithm of the beta function; gammaln(a) + gammaln(b) - "
        "gammaln(a + b) is accurate for moderate arguments",
        "j0 float64": "torch.special.bessel_j0 is right to 1e-9 only; float32 is fine",
        "j1 float64": "torch.special.bessel_j1 is right to 1e-8 only; float32 is fine",
    },
    integers={
        "floor_divide": "floor_divide({args})",
        "remainder": "remainder({args})",
        "fmod": "fmod({args})",
        "reciprocal": "reciprocal({0})",
        "matmul": "matmul({args})",
        "einsum": "einsum({subscripts}, {args})",
        "absolute": "absolute({0})",
        "argmax": "torch.argmax({0}.to(torch.int64), {only}, keepdim={keepdims})",
        "argmin": "torch.argmin({0}.to(torch.int64), {only}, keepdim={keepdims})",
    },
    forms={
        **{name: f"torch.special.{name}({{args}})" for name in _SPECIAL},
        **{name: f"{name}({{args}})" for name in _OWN},
        **{f"{name} bool": "{0}" for name in ("floor", "ceil", "trunc")},
        "positive": "{0}",
        "fabs": "torch.abs({0})",
        "rint": "torch.round({0})",
        "radians": "torch.deg2rad({0})",
        "degrees": "torch.rad2deg({0})",
        "log_expit": "torch.nn.functional.logsigmoid({0})",
        "exp10": "torch.pow(10, {0})",
        "j0": "torch.special.bessel_j0({0})",
        "j1": "torch.special.bessel_j1({0})",
        "size": "torch.full((), {dim}, dtype=torch.int64, device={like}.device)",
        "sum": "{0}.sum({axis}, keepdim={keepdims})",
        "prod": "prod({0}, {axis}, {keepdims})",
        "max": "{0}.amax({axis}, keepdim={keepdims})",
        "min": "{0}.amin({axis}, keepdim={keepdims})",
        "all": "torch.all({0}, {axis}, keepdim={keepdims})",
        "any": "torch.any({0}, {axis}, keepdim={keepdims})",
        "argmax": "torch.argmax({0}, {only}, keepdim={keepdims})",
        "argmin": "torch.argmin({0}, {only}, keepdim={keepdims})",
        "cumsum": "{0}.cumsum({axis})",
        "where": "torch.where({args})",
        "astype": "{0}.to({out})",
        "reshape": "{0}.reshape({shape})",
        "transpose": "{0}.permute({axes})",
        "expand_dims": "{0}[{newaxes}]",
        "squeeze": "{0}[{dropped}]",
        "broadcast_to": "{0}.expand({shape})",
        "getitem": "{0}[{index}]",
        "concatenate": "torch.cat(({args}), {axis})",
        "flip": "torch.flip({0}, {axis})",
        "roll": "torch.roll({0}, {shift}, {axis})",
        "take": "take({0}, {1}, {axis})",
        "einsum": "torch.einsum({subscripts}, {args})",
        "unbroadcast": "unbroadcast({0}, {shape})",
        "scatter": "scatter({0}, {shape}, np.index_exp[{index}])",
        "scatter_add": "scatter_add({0}, {1}, {axis}, {shape})",
        "random_bits": "random_bits({args}, draw={draw}, lane={lane}, shape={shape})",
        "host": "host({function}, {args})",
        "stop_gradient": "{0}",
        "variable": "{0}",
    },
)
