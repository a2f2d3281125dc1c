"""Powers and cube roots."""

import math
from collections.abc import Callable

import numpy as np

from ..ir import Lanes, select
from ..outline import outlined
from . import logarithm
from .exact import INF, absolute, signbit
from .exponential import exp2_of
from .formats import power_of_two

# with s = f/(2 + f): (log(1 + f)/s - 2)/s² - 2/3, over s², in s²
_LOG = (
    0.11724327060846747, 0.11706126464563398, 0.1333480879881234, 0.1538459488700718,
    0.18181818336099848, 0.22222222221652765, 0.2857142857142937, 0.4,
)  # fmt: skip
_TWO_THIRDS = (2 / 3, 3.700743415417188e-17)
_PER_LN2 = (1 / math.log(2), 2.0355273740931033e-17)

Pair = tuple[Lanes, Lanes]  # a number as a sum: what is lost of the first is in the second


def power(x: Lanes, y: Lanes) -> Lanes:
    """2**(y·log₂|x|) with the sign that whole powers have, float32 in double precision."""
    return outlined("power", _power, x, y)


# NumPy 2.3 and before give infinity, as C does; then np.power(x, 0.5) is np.sqrt(x).
with np.errstate(invalid="ignore"):
    _ROOT_OF_LESS = float(np.power(np.array([-np.inf]), 0.5)[0])

_BY_NUMBER: dict[float, Callable[[Lanes], Lanes]] = {
    -1: lambda x: 1 / x,
    0: lambda x: x.like(1),
    0.5: lambda x: select(x.equals(-INF), _ROOT_OF_LESS, x.builder.intrinsic("sqrt", x)),
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    4: lambda x: (x * x) * (x * x),
}


def by_number(x: Lanes, exponent: float) -> Lanes | None:
    """x to a power that is a product, a quotient or a root; `None` if it is none of these."""
    known = _BY_NUMBER.get(exponent)
    return None if known is None else known(x)


def _power(x: Lanes, y: Lanes) -> Lanes:
    wide = y.to("float64")
    size = absolute(x).to("float64")
    high, low = _log2(size) if x.dtype == "float64" else _short_log2(size)
    product = wide * high
    lost = x.builder.fma(wide, high, -product) + wide * low
    value = exp2_of(product, lost, x.dtype)
    return _signed(x, y, value.to(x.dtype))


def _log2(x: Lanes) -> Pair:
    """log₂ of x ≥ 0 with 65 digits."""
    b = x.builder
    f, e, _ = logarithm.parts(x)
    s = _divided(f)
    z = _times(s, s)
    q = z[0] * b.polynomial(z[0], _LOG)
    w = _sum(b.splat(_TWO_THIRDS[0], x.dtype), q, _TWO_THIRDS[1])
    v = _sum(b.splat(2, x.dtype), *_times(z, w))
    per = b.splat(_PER_LN2[0], x.dtype), b.splat(_PER_LN2[1], x.dtype)
    return _edges(x, *_sum(e, *_times(_times(s, v), per)))


def _short_log2(x: Lanes) -> Pair:
    """log₂ of x ≥ 0 with 45 digits, which are enough for float32."""
    f, e, _ = logarithm.parts(x)
    s = f / (f + 2)
    z = s * s
    log = s * (z * (z * x.builder.polynomial(z, _LOG[2:]) + 2 / 3) + 2)
    return _edges(x, e + log * _PER_LN2[0], x.builder.splat(0, x.dtype))


def _edges(x: Lanes, high: Lanes, low: Lanes) -> Pair:
    inside = (x > 0) & (x < INF)
    edge = select(x.equals(0), -INF, x)  # infinity and NaN as they are
    return select(inside, high, edge), select(inside, low, 0.0)


def _divided(f: Lanes) -> Pair:
    """f / (2 + f)."""
    b = f.builder
    d, rest = _sum(b.splat(2, f.dtype), f, 0.0)
    s = f / d
    return s, (b.fma(-s, d, f) - s * rest) / d


def _times(x: Pair, y: Pair) -> Pair:
    b = x[0].builder
    high = x[0] * y[0]
    return high, b.fma(x[0], y[0], -high) + (x[0] * y[1] + x[1] * y[0])


def _sum(x: Lanes, y: Lanes, rest: Lanes | float) -> Pair:
    """x + y + rest, |x| ≥ |y| (or x = 0)."""
    high = x + y
    return high, ((x - high) + y) + rest


def _signed(x: Lanes, y: Lanes, value: Lanes) -> Lanes:
    b = x.builder
    whole = b.intrinsic("rint", y).equals(y)
    half = 0.5 * y
    odd = whole & b.intrinsic("rint", half).differs(half)
    value = select(signbit(x) & odd, -value, value)
    value = select((x < 0) & (x > -INF) & ~whole, math.nan, value)
    one = absolute(x).equals(1) & absolute(y).equals(INF)
    value = select(x.is_nan() | y.is_nan(), x + y, value)
    return select(one | y.equals(0) | x.equals(1), 1.0, value)


def hypot(x: Lanes, y: Lanes) -> Lanes:
    """√(x² + y²), without squares that overflow."""
    b = x.builder
    x, y = absolute(x), absolute(y)
    low, high = select(x < y, x, y), select(x < y, y, x)
    if x.dtype == "float32":
        wide = low.to("float64"), high.to("float64")
        root = b.intrinsic("sqrt", wide[0] * wide[0] + wide[1] * wide[1]).to("float32")
    else:
        ratio = low / high
        root = high * b.intrinsic("sqrt", ratio * ratio + 1)
    root = select(high.equals(0), high, root)
    root = select(x.is_nan() | y.is_nan(), x + y, root)
    return select(x.equals(INF) | y.equals(INF), INF, root)


# --- cube root ---------------------------------------------------------------------------------
# m**(1/3) within 0.001 on [0.7, 5.7]
_START = (
    0.00028009907382515944, -0.0056234319544754, 0.04566856542994356, -0.199149579249151,
    0.6154865797629113, 0.5420062163485825,
)  # fmt: skip


def cbrt(x: Lanes) -> Lanes:
    return outlined("cbrt", _cbrt, x)


def _cbrt(x: Lanes) -> Lanes:
    """2**q times the root of m, x = m·8**q, by Halley's iteration."""
    b = x.builder
    size = absolute(x).to("float64")
    f, e, _ = logarithm.parts(size)
    q = b.intrinsic("floor", (e + 0.5) * (1 / 3))
    rest = e - 3 * q
    m = (f + 1) * select(rest.equals(0), 1.0, select(rest.equals(1), b.splat(2, "float64"), 4.0))
    t = b.polynomial(m, _START)
    for _ in range(1 if x.dtype == "float32" else 2):
        cube = t * t * t
        t = b.fma(t, (m - cube) / (2 * cube + m), t)
    y = (t * power_of_two(q.to("int64"))).to(x.dtype)
    y = b.intrinsic("copysign", y, x)
    return select(x.equals(0) | absolute(x).equals(INF) | x.is_nan(), x, y)
