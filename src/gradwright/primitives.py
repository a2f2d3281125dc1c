"""The closed table of primitives: one row each, under NumPy's own name.

A row holds the kind (which carries the shape and dtype rules, see `kinds`), the partial
derivatives as NumPy expressions, and the intervals from which tests draw arguments.

Partials of an elementwise primitive take ``(*arguments, out)`` and give one value per argument:
0 and 1 mean the number; ``None`` means that no derivative is known, and asking for it raises.
Partials of a reduction take ``(x, out, axis)``, ``out`` with its reduced axes kept.
How the linear primitives transpose is in `derive`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Primitive:
    """One row of the table."""

    name: str
    kind: str
    partials: Callable[..., Any] | None = None
    domain: tuple[Interval, ...] = ((-3.0, 3.0),)
    module: str = "numpy"

    @property
    def ufunc(self) -> Any:
        """NumPy's (or SciPy's) function of that name, which is what the name means."""
        module = import_module(self.module)
        # SciPy's zeta is a Python function around its ufunc
        return getattr(module, self.name) if self.name != "zeta" else module._ufuncs._zeta


PRIMITIVES: dict[str, Primitive] = {}


def _row(name: str, kind: str, *details: Any, **more: Any) -> None:
    PRIMITIVES[name] = Primitive(name, kind, *details, **more)


def _unary(name: str, partial: Callable[..., Any], *domain: float, module: str = "numpy") -> None:
    interval = ((domain[0], domain[1]),) if domain else ((-3.0, 3.0),)
    _row(name, "elementwise", lambda x, out: (partial(x, out),), interval, module)


def _binary(
    name: str,
    partials: Callable[..., Any] | None,
    x: Interval = (-3.0, 3.0),
    y: Interval = (-3.0, 3.0),
    module: str = "numpy",
) -> None:
    _row(name, "elementwise", partials, (x, y), module)


def _as(condition: Any, x: Any) -> Any:
    """1 where the condition holds, else 0, in the dtype of x."""
    return condition.astype(x.dtype)


def _larger(x: Any, y: Any) -> Any:
    """1 where x > y, and 1/2 at ties."""
    return _as(x > y, x) + 0.5 * _as(x == y, x)


def _nan(x: Any) -> Any:
    """1 where x is no number: fmax and fmin give the other one."""
    return _as(np.isnan(x), x)


def _nonzero(x: Any) -> Any:
    return np.where(x == 0, 1, x)


# --- elementwise, one argument -----------------------------------------------------------------
LN2, LN10, RADIAN = math.log(2), math.log(10), math.pi / 180

_unary("negative", lambda x, out: -1)
_unary("positive", lambda x, out: 1)
_unary("absolute", lambda x, out: np.sign(x))
_unary("fabs", lambda x, out: np.sign(x))
_unary("sign", lambda x, out: 0)
_unary("floor", lambda x, out: 0)
_unary("ceil", lambda x, out: 0)
_unary("trunc", lambda x, out: 0)
_unary("rint", lambda x, out: 0)
_unary("square", lambda x, out: 2 * x)
_unary("reciprocal", lambda x, out: -out * out, 0.2, 3)
_unary("sqrt", lambda x, out: 0.5 / out, 0.1, 4)
_unary("cbrt", lambda x, out: 1 / (3 * out * out), 0.1, 4)
_unary("exp", lambda x, out: out)
_unary("exp2", lambda x, out: out * LN2)
_unary("expm1", lambda x, out: out + 1)
_unary("log", lambda x, out: 1 / x, 0.1, 4)
_unary("log2", lambda x, out: 1 / (x * LN2), 0.1, 4)
_unary("log10", lambda x, out: 1 / (x * LN10), 0.1, 4)
_unary("log1p", lambda x, out: 1 / (1 + x), -0.8, 3)
_unary("sin", lambda x, out: np.cos(x))
_unary("cos", lambda x, out: -np.sin(x))
_unary("tan", lambda x, out: 1 + out * out, -1.2, 1.2)
_unary("arcsin", lambda x, out: 1 / np.sqrt(1 - x * x), -0.9, 0.9)
_unary("arccos", lambda x, out: -1 / np.sqrt(1 - x * x), -0.9, 0.9)
_unary("arctan", lambda x, out: 1 / (1 + x * x))
_unary("sinh", lambda x, out: np.cosh(x))
_unary("cosh", lambda x, out: np.sinh(x))
_unary("tanh", lambda x, out: 1 - out * out)
_unary("arcsinh", lambda x, out: 1 / np.sqrt(x * x + 1))
_unary("arccosh", lambda x, out: 1 / np.sqrt(x * x - 1), 1.2, 4)
_unary("arctanh", lambda x, out: 1 / (1 - x * x), -0.9, 0.9)
_unary("deg2rad", lambda x, out: RADIAN, -180, 180)
_unary("radians", lambda x, out: RADIAN, -180, 180)
_unary("rad2deg", lambda x, out: 1 / RADIAN)
_unary("degrees", lambda x, out: 1 / RADIAN)

# --- elementwise, two arguments ----------------------------------------------------------------
_binary("add", lambda x, y, out: (1, 1))
_binary("subtract", lambda x, y, out: (1, -1))
_binary("multiply", lambda x, y, out: (y, x))
_binary("divide", lambda x, y, out: (1 / y, -out / y), y=(0.3, 3))
_binary("floor_divide", lambda x, y, out: (0, 0), y=(0.3, 3))
_binary("remainder", lambda x, y, out: (1, -np.floor_divide(x, y)), y=(0.3, 3))
_binary("fmod", lambda x, y, out: (1, -np.rint((x - out) / y)), y=(0.3, 3))
_binary(
    "power",  # d/dx of x**0 is 0, also at x = 0; d/dy of 0**y is 0
    lambda x, y, out: (np.where(y == 0, 0, y * x ** (y - 1)), out * np.log(_nonzero(x))),
    x=(0.2, 3),
)
_binary("maximum", lambda x, y, out: (_larger(x, y), _larger(y, x)))
_binary("minimum", lambda x, y, out: (_larger(y, x), _larger(x, y)))
_binary("fmax", lambda x, y, out: (_larger(x, y) + _nan(y), _larger(y, x) + _nan(x)))
_binary("fmin", lambda x, y, out: (_larger(y, x) + _nan(y), _larger(x, y) + _nan(x)))
_binary("arctan2", lambda x, y, out: (y / (x * x + y * y), -x / (x * x + y * y)), y=(0.3, 3))
_binary("hypot", lambda x, y, out: (x / _nonzero(out), y / _nonzero(out)), x=(0.3, 3))
_binary("logaddexp", lambda x, y, out: (np.exp(x - out), np.exp(y - out)))
_binary("logaddexp2", lambda x, y, out: (np.exp2(x - out), np.exp2(y - out)))
_binary("copysign", lambda x, y, out: (np.copysign(1, x) * np.copysign(1, y), 0))
_binary("heaviside", lambda x, y, out: (0, _as(x == 0, x)))
_binary("nextafter", None)

# --- elementwise, SciPy's ----------------------------------------------------------------------
ROOT_PI, ROOT_TAU = math.sqrt(math.pi), math.sqrt(2 * math.pi)


def _special(name: str, *args: Any) -> Any:
    return getattr(import_module("scipy.special"), name)(*args)


def _scipy(name: str, partial: Callable[..., Any], *domain: float) -> None:
    _unary(name, partial, *domain, module="scipy.special")


def _scipy2(name: str, partials: Callable[..., Any], *domain: float) -> None:
    a, b, c, d = domain
    _binary(name, partials, (a, b), (c, d), module="scipy.special")


_scipy("erf", lambda x, out: 2 / ROOT_PI * np.exp(-x * x))
_scipy("erfc", lambda x, out: -2 / ROOT_PI * np.exp(-x * x))
_scipy("erfcx", lambda x, out: 2 * x * out - 2 / ROOT_PI, -2, 3)
_scipy("erfinv", lambda x, out: ROOT_PI / 2 * np.exp(out * out), -0.9, 0.9)
_scipy("erfcinv", lambda x, out: -ROOT_PI / 2 * np.exp(out * out), 0.1, 1.9)
_scipy("expit", lambda x, out: out * (1 - out))
_scipy("logit", lambda x, out: 1 / (x * (1 - x)), 0.1, 0.9)
_scipy("log_expit", lambda x, out: _special("expit", -x))
_scipy("ndtr", lambda x, out: np.exp(-0.5 * x * x) / ROOT_TAU)
_scipy("log_ndtr", lambda x, out: np.exp(-0.5 * x * x - out) / ROOT_TAU)
_scipy("ndtri", lambda x, out: ROOT_TAU * np.exp(0.5 * out * out), 0.1, 0.9)
_scipy("gamma", lambda x, out: out * _special("psi", x), 0.5, 4)
_scipy("gammaln", lambda x, out: _special("psi", x), 0.5, 4)
_scipy("psi", lambda x, out: _special("zeta", 2, x), 0.5, 4)
_scipy("entr", lambda x, out: -np.log(x) - 1, 0.1, 3)
_scipy("exp10", lambda x, out: out * LN10, -1, 1)
_scipy("cosm1", lambda x, out: -np.sin(x))
_scipy("i0", lambda x, out: _special("i1", x))
_scipy("i1", lambda x, out: _special("i0", x) - out / x, 0.3, 3)
_scipy("j0", lambda x, out: -_special("j1", x))
_scipy("j1", lambda x, out: _special("j0", x) - out / x, 0.3, 3)
_scipy2("xlogy", lambda x, y, out: (np.log(y), x / y), 0.1, 3, 0.1, 3)
_scipy2("xlog1py", lambda x, y, out: (np.log1p(y), x / (1 + y)), 0.1, 3, -0.8, 3)
_scipy2("rel_entr", lambda x, y, out: (np.log(x / y) + 1, -x / y), 0.1, 3, 0.1, 3)
_scipy2(
    "betaln",
    lambda x, y, out: (
        _special("psi", x) - _special("psi", x + y),
        _special("psi", y) - _special("psi", x + y),
    ),
    *(0.5, 3, 0.5, 3),
)
_scipy2("zeta", lambda x, y, out: (None, -x * _special("zeta", x + 1, y)), 1.5, 4, 0.5, 4)

# --- comparisons, logic, integers: no derivative -----------------------------------------------
for _name in [
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
]:
    _row(_name, "compare")
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"]:
    _row(_name, "integer", domain=((0, 7), (0, 7)))
_row("where", "select")


# --- reductions: the partial derivative with respect to every element --------------------------
def _shared(hit: Any, axis: tuple[int, ...]) -> Any:
    return hit / np.sum(hit, axis=axis, keepdims=True)


def _product_of_others(x: Any, axis: tuple[int, ...]) -> Any:
    """The product of all the other elements, without a division: right at zeros, to any order."""
    rest = tuple(a for a in range(x.ndim) if a not in axis)
    order = rest + axis
    y = np.transpose(x, order)
    flat = np.reshape(y, (*y.shape[: len(rest)], -1))
    index = np.cumsum(np.ones_like(flat[(0,) * len(rest)]))
    others = np.where(index[:, None] == index, 1, flat[..., None, :])
    back = [order.index(a) for a in range(x.ndim)]
    return np.transpose(np.reshape(np.prod(others, axis=-1), y.shape), back)


_row("sum", "reduce", lambda x, out, axis: 1)
_row("prod", "reduce", lambda x, out, axis: _product_of_others(x, axis))
_row("max", "reduce", lambda x, out, axis: _shared(_as(x == out, x), axis))
_row("min", "reduce", lambda x, out, axis: _shared(_as(x == out, x), axis))
for _name in ["all", "any", "argmax", "argmin"]:
    _row(_name, "reduce")
_row("cumsum", "scan")

# --- shapes, indexing, contractions, casts: linear ---------------------------------------------
for _name in [
    "reshape",
    "transpose",
    "expand_dims",
    "squeeze",
    "broadcast_to",
    "getitem",
    "concatenate",
    "flip",
    "roll",
    "take",
]:
    _row(_name, "shape")
for _name in ["matmul", "einsum"]:
    _row(_name, "contract")
_row("astype", "cast")

# --- what NumPy has no name for ----------------------------------------------------------------
_row("unbroadcast", "shape")  # sum over what broadcasting repeated: the transpose of broadcast_to
_row("scatter", "shape")  # zeros, with x at an index: the transpose of getitem
_row("scatter_add", "shape")  # zeros, with x added at indices: the transpose of take
_row("size", "size")  # a size of an input, as a number
_row("random_bits", "random")  # words of Philox4x32-10, one for every element
_row("global_sum", "global")  # the sum over every parameter that a rule sees
_row("stop_gradient", "identity")
_row("variable", "identity")  # the same value, under a name that a derivative is taken by
_row("call", "call")  # an op that has its own rule
_row("host", "host")  # Python on the host, which nothing is known of but its types
_row("item", "item")  # one output of a call or of the host
