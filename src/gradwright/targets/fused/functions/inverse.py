"""Inverse trigonometric functions, on a part of the circle where a polynomial is short."""

import math

from ..ir import Lanes, select
from .exact import INF, absolute

# (arctan(t)/t - 1)/t², in t², |t| ≤ √2 - 1
_ARCTAN = {
    "float32": (
        -0.06449835002422333, 0.10743099451065063, -0.14263896644115448, 0.19999538362026215,
        -0.3333333134651184,
    ),
    "float64": (
        -0.013905374533113234, 0.030622995553735516, -0.04103887546862687, 0.04719259188242093,
        -0.05258020272656758, 0.058819230561140225, -0.06666641869131183, 0.07692306729194896,
        -0.0909090906681608, 0.11111111110751482, -0.1428571428571149, 0.19999999999999993,
        -0.3333333333333333,
    ),
}  # fmt: skip
# (arcsin(s)/s - 1)/s², in s², s ≤ ½
_ARCSIN = {
    "float32": (
        0.03370072692632675, 0.017143717035651207, 0.031101727858185768, 0.044599320739507675,
        0.07500094920396805, 0.1666666567325592,
    ),
    "float64": (
        0.028187667142318098, -0.010773195325585556, 0.01604912458494932, 0.0077986264075622334,
        0.011876344296279416, 0.013929545950485803, 0.01735526856395352, 0.022372047201808885,
        0.030381947379559158, 0.04464285710323956, 0.07500000000020869, 0.1666666666666665,
    ),
}  # fmt: skip
_PI = {"float32": (math.pi, -8.742277657347586e-08), "float64": (math.pi, 1.2246467991473532e-16)}


def _octant(y: Lanes, x: Lanes) -> Lanes:
    """The angle of (x, y) in [0, π/2], both at least 0 and not both 0 or infinite."""
    b = y.builder
    huge = 2.0 ** (126 if x.dtype == "float32" else 1022)
    scale = select((y > huge) | (x > huge), y.like(0.25), 1.0)  # so that their sum is finite
    low, high = scale * select(y < x, y, x), scale * select(y < x, x, y)
    beyond = low > high * (math.sqrt(2) - 1)  # nearer to the diagonal
    t = select(beyond, low - high, low) / select(beyond, low + high, high)
    z = t * t
    angle = b.fma(b.polynomial(z, _ARCTAN[y.dtype]) * z, t, t)
    quarter, rest = (part / 4 for part in _PI[y.dtype])
    angle = select(beyond, quarter + (angle + rest), angle)
    return select(y > x, 2 * quarter - (angle - 2 * rest), angle)


def arctan(x: Lanes) -> Lanes:
    size = absolute(x)
    y = select(size < INF, _octant(size, x.like(1)), math.pi / 2)
    return x.builder.intrinsic("copysign", select(x.is_nan(), x, y), x)


def arctan2(y: Lanes, x: Lanes) -> Lanes:
    """The angle of (x, y) in [-π, π]."""
    b = y.builder
    up, across = absolute(y), absolute(x)
    infinite = up.equals(INF) & across.equals(INF)
    up, across = select(infinite, 1.0, up), select(infinite, 1.0, across)
    angle = select(up.equals(0), up, _octant(up, across))
    pi, rest = _PI[y.dtype]
    negative = b.intrinsic("copysign", b.splat(1, x.dtype), x) < 0
    angle = select(negative, pi - (angle - rest), angle)
    angle = b.intrinsic("copysign", angle, y)
    return select(y.is_nan() | x.is_nan(), x + y, angle)


def _arc(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(whether |x| > ½, s, what arcsin(s) is more than s), s = |x| or √((1 - |x|)/2)."""
    b = x.builder
    size = absolute(x)
    large = size > 0.5
    z = select(large, 0.5 * (1 - size), size * size)
    s = select(large, b.intrinsic("sqrt", z), size)
    return large, s, b.polynomial(z, _ARCSIN[x.dtype]) * z * s


def arcsin(x: Lanes) -> Lanes:
    large, s, more = _arc(x)
    half, rest = (part / 2 for part in _PI[x.dtype])
    y = select(large, half - (2 * (s + more) - rest), s + more)
    return x.builder.intrinsic("copysign", y, x)


def arccos(x: Lanes) -> Lanes:
    large, s, more = _arc(x)
    pi, rest = _PI[x.dtype]
    angle = s + more
    near = select(x < 0, pi - (2 * angle - rest), 2 * angle)
    signed = x.builder.intrinsic("copysign", angle, x)
    return select(large, near, pi / 2 - (signed - rest / 2))
