"""Logarithms: x = (1 + f)·2**e with 1 + f in [√½, √2), and a polynomial of f."""

import math
from collections.abc import Mapping, Sequence

from ..ir import Lanes, select
from .exact import INF, absolute
from .exponential import LN2, exp, split
from .formats import of, power_of_two

# (log(1 + f) - f + f²/2) / f³
_LOG_32 = (
    0.06971611827611923, -0.11479733884334564, 0.11685419827699661, -0.12425687164068222,
    0.14249058067798615, -0.1666780263185501, 0.20000715553760529, -0.2499999701976776,
    0.3333333134651184,
)  # fmt: skip
# with s = f/(2 + f): (log(1 + f) - 2s) / s³, in s²
_LOG_64 = (
    0.14617807153417325, 0.15331611722055008, 0.1818289243253687, 0.22222211089379496,
    0.28571428626253836, 0.3999999999989889, 0.666666666666667,
)  # fmt: skip
_PER_LN2: Mapping[str, tuple[float, float]] = {
    "float32": split(1 / math.log(2), "float32"),
    "float64": (1 / math.log(2), 2.0355273740931033e-17),
}
_PER_LN10: Mapping[str, tuple[float, float]] = {
    "float32": split(1 / math.log(10), "float32"),
    "float64": (1 / math.log(10), 1.098319650216765e-17),
}
_LOG10_2: Mapping[str, tuple[float, float]] = {
    "float32": split(math.log10(2), "float32"),
    "float64": (math.log10(2), -2.8037281277851704e-18),
}
Pair = Sequence[float]


def parts(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(f, e, 2**-e), e as a float."""
    form = of(x)
    small = x < form.tiny
    f, whole = _parts_of_normal(select(small, x * 2.0**form.mantissa, x))
    e = select(small, whole - form.mantissa, whole)
    down = select(e < form.bias - 1, -e, 1 - form.bias)  # a normal power; there is none for more
    return f, e.to(x.dtype), power_of_two(down)


def _parts_of_normal(x: Lanes) -> tuple[Lanes, Lanes]:
    """(f, e), e as an integer."""
    form = of(x)
    t = x.bits(form.ints) - form.root_half
    f = ((t & (2**form.mantissa - 1)) + form.root_half).bits(x.dtype) - 1
    return f, t >> form.mantissa


def _of_one_plus(f: Lanes) -> tuple[Lanes, Lanes]:
    """(f²/2, y) with log(1 + f) = f - (f²/2 - y)."""
    b = f.builder
    half = 0.5 * f * f
    if f.dtype == "float32":
        return half, b.polynomial(f, _LOG_32) * f * (f * f)
    s = f / (f + 2)
    z = s * s
    return half, s * (half + z * b.polynomial(z, _LOG_64))


def edges(x: Lanes, y: Lanes) -> Lanes:
    """log(x) = y at 0, infinity, NaN and below 0 too."""
    y = select(x < INF, y, x)
    y = select(x > 0, y, math.nan)
    return select(x.equals(0), -INF, y)


def _from(f: Lanes, e: Lanes) -> Lanes:
    b = f.builder
    high, low = LN2[f.dtype]
    half, y = _of_one_plus(f)
    # e·ln 2 in two parts: the first is exact enough beside f only once it is rounded itself
    large = e * high
    rest = b.fma(e, high, -large) + e * low
    return large + (f - (half - (y + rest)))


def log(x: Lanes) -> Lanes:
    f, e, _ = parts(x)
    return edges(x, _from(f, e))


def log_of_normal(x: Lanes) -> Lanes:
    """log(x), the same bits, for numbers that are positive, finite and not subnormal."""
    f, e = _parts_of_normal(x)
    return _from(f, e.to(x.dtype))


def log1p(x: Lanes) -> Lanes:
    """The logarithm of u = 1 + x, whose rounding error is added to f."""
    u = x + 1
    back = u - 1
    lost = (1 - (u - back)) + (x - back)
    f, e, scale = parts(u)
    y = _from(f + lost * scale, e)
    y = select(x.equals(0) | x.equals(INF), x, y)
    y = select(x >= -1, y, math.nan)
    return select(x.equals(-1), -INF, y)


def _to_base(x: Lanes, per: Pair, unit: Pair) -> Lanes:
    """log(x)·per + e·unit, each a sum of two numbers."""
    b = x.builder
    f, e, _ = parts(x)
    half, y = _of_one_plus(f)
    high = f - half
    low = ((f - high) - half) + y
    main = high * per[0]
    rest = b.fma(high, per[0], -main) + b.fma(low, per[0], high * per[1])
    whole = e * unit[0]
    rest = rest + (b.fma(e, unit[0], -whole) + e * unit[1])
    total = whole + main
    return edges(x, total + (rest + (main - (total - whole))))


def log2(x: Lanes) -> Lanes:
    return _to_base(x, _PER_LN2[x.dtype], (1.0, 0.0))


def log10(x: Lanes) -> Lanes:
    return _to_base(x, _PER_LN10[x.dtype], _LOG10_2[x.dtype])


def logaddexp(x: Lanes, y: Lanes) -> Lanes:
    """log(exp(x) + exp(y)): the larger, and what the smaller adds."""
    high = select(x > y, x, y)
    sum_ = high + log1p(exp(-absolute(x - y)))
    return select(x.equals(y), x + LN2[x.dtype][0], select(x.is_nan() | y.is_nan(), x + y, sum_))


# --- inverse hyperbolic ------------------------------------------------------------------------
def arcsinh(x: Lanes) -> Lanes:
    size = absolute(x)
    square = size * size
    root = x.builder.intrinsic("sqrt", square + 1)
    y = log1p(size + square / (root + 1))
    large = 1e9 if x.dtype == "float32" else 1e18
    y = select(size < large, y, log(size) + math.log(2))
    return x.builder.intrinsic("copysign", select(x.is_nan(), x, y), x)


def arccosh(x: Lanes) -> Lanes:
    t = x - 1
    y = log1p(t + x.builder.intrinsic("sqrt", 2 * t + t * t))
    y = select(x < (1e9 if x.dtype == "float32" else 1e18), y, log(x) + math.log(2))
    return select(x >= 1, y, math.nan)


def arctanh(x: Lanes) -> Lanes:
    size = absolute(x)
    y = 0.5 * log1p(2 * size / (1 - size))
    return x.builder.intrinsic("copysign", select(x.is_nan(), x, y), x)
