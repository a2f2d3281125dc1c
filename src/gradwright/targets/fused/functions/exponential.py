"""exp and its relatives: a power of two times a polynomial of what is left.

x = n·ln 2 + r, |r| ≤ ½ ln 2. The polynomials are our own near-minimax fits.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..ir import Lanes, select
from .exact import INF, absolute
from .formats import of, whole

Coefficients = Mapping[str, Sequence[float]]

# (exp(r) - 1 - r) / r²
_EXP: Coefficients = {
    "float32": (
        0.000198910798644647, 0.0013933731243014336, 0.00833331048488617, 0.041666463017463684,
        0.1666666716337204, 0.5,
    ),
    "float64": (
        2.09147553258932e-09, 2.5105312729622103e-08, 2.755727347871858e-07, 2.755725517000089e-06,
        2.480158732567746e-05, 0.0001984126987500228, 0.0013888888888883711, 0.008333333333326084,
        0.04166666666666667, 0.1666666666666667, 0.5,
    ),
}  # fmt: skip
# (2**r - 1) / r
_EXP2: Coefficients = {
    "float32": (
        1.529734072391875e-05, 0.00015461468137800694, 0.0013333501992747188, 0.009618056938052177,
        0.05550410971045494, 0.24022650718688965, 0.6931471824645996,
    ),
    "float64": (
        1.3716972592177838e-12, 2.57335903859786e-11, 4.445530302729252e-10, 7.054894372547497e-09,
        1.0178086021199822e-07, 1.3215486816031034e-06, 1.5252733804051115e-05,
        0.00015403530393362725, 0.0013333558146428445, 0.009618129107628484, 0.05550410866482158,
        0.24022650695910072, 0.6931471805599453,
    ),
}  # fmt: skip


def split(value: float, dtype: str) -> tuple[float, float]:
    """A constant as the sum of two numbers of a dtype; those of float64 are given as pairs."""
    high = float(np.dtype(dtype).type(value))
    return high, value - high


LN2 = {"float32": split(math.log(2), "float32"), "float64": (math.log(2), 2.3190468138462996e-17)}


def _within(x: Lanes, low: float, high: float) -> Lanes:
    """x cut off to an interval; NaN becomes its upper end."""
    y = select(x < high, x, high)
    return select(y > low, y, low)


def parts(x: Lanes, low: float, high: float) -> tuple[Lanes, Lanes]:
    """(p, t) with exp(x) = (1 + p)·2**n, where t holds n as `whole` reads it."""
    b, form = x.builder, of(x)
    inside = _within(x, low, high)
    t = b.fma(inside, 1 / math.log(2), form.magic)
    n = t - form.magic
    ln2, rest = LN2[x.dtype]
    r = b.fma(n, -rest, b.fma(n, -ln2, inside))
    return b.fma(b.polynomial(r, _EXP[x.dtype]), r * r, r), t


def scaled(y: Lanes, t: Lanes) -> Lanes:
    """y·2**n by its bits, where that is a normal number."""
    return (y.bits(of(y).ints) + whole(t)).bits(y.dtype)


def _edges(x: Lanes, y: Lanes) -> Lanes:
    """exp(x) = y outside of its range too: 0, infinity, NaN."""
    low, high = of(x).exp_range
    return select(x <= high, select(x >= low, y, 0.0), x * INF)


def exp(x: Lanes) -> Lanes:
    p, t = parts(x, *of(x).exp_range)
    return _edges(x, scaled(p + 1, t))


def expm1(x: Lanes) -> Lanes:
    """p·2**n + (2**n - 1), the larger part last."""
    b = x.builder
    p, t = parts(x, *of(x).exp_range)
    power = scaled(b.splat(1, x.dtype), t)
    y = b.fma(p, power, power - 1)
    large = 60.0 if x.dtype == "float32" else 600.0  # from where on 1 is nothing
    y = select(x < large, y, _edges(x, scaled(p + 1, t)))
    small = -18.0 if x.dtype == "float32" else -38.0
    return select(x.equals(0), x, select(x < small, -1.0, y))


def exp2(x: Lanes) -> Lanes:
    b, form = x.builder, of(x)
    low, high = float(1 - form.bias), float(form.bias + 1)
    inside = _within(x, low, high - (2.0**-16 if x.dtype == "float32" else 2.0**-42))
    t = inside + form.magic
    r = inside - (t - form.magic)
    y = scaled(b.fma(b.polynomial(r, _EXP2[x.dtype]), r, 1.0), t)
    return select(x < high, select(x >= low, y, 0.0), x * INF)


def exp2_of(high: Lanes, low: Lanes, dtype: str) -> Lanes:
    """2**(high + low) in double precision, with the digits that a dtype has."""
    b, form = high.builder, of(high)
    inside = _within(high, -1022.0, 1024.0)
    t = inside + form.magic
    r = (inside - (t - form.magic)) + select(inside.equals(high), low, 0.0)
    y = scaled(b.fma(b.polynomial(r, _EXP2[dtype]), r, 1.0), t)
    finite = (high < 1024) | (high.equals(1024) & (low < 0))  # as the largest number is
    return select(finite, select(high >= -1022, y, 0.0), high * INF)


def expit(x: Lanes) -> Lanes:
    """1 / (1 + exp(-x)), from the side where nothing overflows."""
    e = exp(-absolute(x))
    return select(x < 0, e, e.like(1)) / (e + 1)


# --- hyperbolic --------------------------------------------------------------------------------
def tanh(x: Lanes) -> Lanes:
    """t / (t + 2) with t = exp(2|x|) - 1, which is 1 from 10 (20) on."""
    size = absolute(x)
    last = 10.0 if x.dtype == "float32" else 20.0
    p, t = parts(2 * size, 0.0, 2 * last)
    b = x.builder
    power = scaled(b.splat(1, x.dtype), t)
    m = b.fma(p, power, power - 1)
    y = b.intrinsic("copysign", m / (m + 2), x)
    return select(x.equals(x), y, x)


def sinh(x: Lanes) -> Lanes:
    """(m + m/(m + 1)) / 2 with m = exp(|x|) - 1; exp(|x|/2)² / 2 where exp(|x|) overflows."""
    size = absolute(x)
    m = expm1(size)
    y = 0.5 * (m + m / (m + 1))
    e = exp(0.5 * size)
    y = select(size < of(x).exp_range[1] - 0.5, y, (0.5 * e) * e)
    return x.builder.intrinsic("copysign", y, x)


def cosh(x: Lanes) -> Lanes:
    size = absolute(x)
    e = exp(size)
    half = exp(0.5 * size)
    return select(size < of(x).exp_range[1] - 0.5, 0.5 * e + 0.5 / e, (0.5 * half) * half)
