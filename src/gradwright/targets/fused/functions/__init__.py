"""NumPy's functions on vectors: exact ones by instructions, the others by own polynomials.

What is not here is left to the array library.
"""

import math
from collections.abc import Callable

import numpy as np

from ..ir import Lanes, select
from . import division, error, exact, exponential, inverse, logarithm, power, trigonometric

Function = Callable[..., Lanes]


def _ratio(a: float, b: float, x: Lanes) -> float:
    """a / b as NumPy has it: divided in the dtype of x."""
    number = np.dtype(x.dtype).type
    return float(number(a) / number(b))


def _root(name: str) -> Function:
    return lambda x: x.builder.intrinsic(name, x)


# exact: NumPy's bits
FUNCTIONS: dict[str, Function] = {
    **{
        name: getattr(exact, name)
        for name in (
            "absolute sign maximum minimum fmax fmin copysign isfinite isinf isnan nextafter "
            "signbit"
        ).split()
    },
    **{name: getattr(division, name) for name in ("remainder", "floor_divide", "fmod")},
    **{name: _root(name) for name in ("sqrt", "floor", "ceil", "trunc", "rint")},
    "add": lambda x, y: x + y if x.dtype != "bool" else x | y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y if x.dtype != "bool" else x & y,
    "divide": lambda x, y: x / y,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "fabs": exact.absolute,
    "heaviside": lambda x, y: select(
        x.is_nan(), x, select(x.equals(0), y, select(x > 0, x.like(1), 0.0))
    ),
    "equal": lambda x, y: x.equals(y),
    "not_equal": lambda x, y: x.differs(y),
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "logical_and": lambda x, y: x.to("bool") & y.to("bool"),
    "logical_or": lambda x, y: x.to("bool") | y.to("bool"),
    "logical_xor": lambda x, y: x.to("bool") ^ y.to("bool"),
    "logical_not": lambda x: ~x.to("bool"),
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "invert": lambda x: ~x,
    "left_shift": lambda x, y: x << y,
    "right_shift": lambda x, y: x >> y,
    "where": lambda c, x, y: c.builder.select(c, x, y),
    "deg2rad": lambda x: x * _ratio(math.pi, 180, x),
    "radians": lambda x: x * _ratio(math.pi, 180, x),
    "rad2deg": lambda x: x * _ratio(180, math.pi, x),
    "degrees": lambda x: x * _ratio(180, math.pi, x),
}

# What these do for integers and for booleans too; the rest is for floats.
ON_INTEGERS = frozenset(
    (
        "absolute sign maximum minimum remainder floor_divide add subtract multiply negative "
        "positive square equal not_equal less less_equal greater greater_equal logical_and "
        "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor invert left_shift "
        "right_shift where"
    ).split()
)
ON_BOOLEANS = frozenset(
    (
        "add multiply equal not_equal less less_equal greater greater_equal logical_and logical_or "
        "logical_xor logical_not bitwise_and bitwise_or bitwise_xor invert where maximum minimum"
    ).split()
)

# for floats, within four units in the last place
POLYNOMIALS: dict[str, Function] = {
    **{name: getattr(exponential, name) for name in "exp expm1 exp2 expit tanh sinh cosh".split()},
    **{
        name: getattr(logarithm, name)
        for name in "log log1p log2 log10 logaddexp arcsinh arccosh arctanh".split()
    },
    **{name: getattr(trigonometric, name) for name in ("sin", "cos", "tan")},
    **{name: getattr(inverse, name) for name in ("arctan", "arctan2", "arcsin", "arccos")},
    "power": power.power,
    "cbrt": power.cbrt,
    "hypot": power.hypot,
    "erf": error.erf,
    "erfc": error.erfc,
}

# by the C library for some arguments, whose last bits depend on the machine
LIBRARY = frozenset(("sin", "cos", "tan"))  # above 2**20 (float64) and 2**28 (float32)
