"""Sine, cosine, tangent: x = k·π/2 + t, |t| ≤ π/4, and polynomials of t."""

import math

from ..ir import Lanes, select
from ..outline import guarded
from .exact import absolute

# (sin(t)/t - 1)/t² and (cos(t) - 1 + t²/2)/t⁴, in t²; the short ones are exact enough for float32
_SINE = (
    1.5917848524808262e-10, -2.5051127944014188e-08, 2.755731608381636e-06,
    -0.00019841269836722418, 0.008333333333330925, -0.16666666666666666,
)  # fmt: skip
_COSINE = (
    -1.1382456778061306e-11, 2.0876143827993133e-09, -2.7557317260008837e-07,
    2.480158729874307e-05, -0.0013888888888887382, 0.041666666666666664,
)  # fmt: skip
_SINE_32 = (
    2.7249314054698804e-06, -0.00019840082012765537, 0.008333331865959415, -0.16666666663832763,
)  # fmt: skip
_COSINE_32 = (
    -2.7300448619488353e-07, 2.4800596435621998e-05, -0.0013888887664713619, 0.0416666666643024,
)  # fmt: skip
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_LARGEST = {"float32": 2.0**28, "float64": 2.0**20}  # above, the library has digits enough of π


def _quarters(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(k, t, and what is lost of t), in double precision."""
    b = x.builder
    wide = x.to("float64")
    n = b.intrinsic("rint", wide * (2 / math.pi))
    k = n.to("int64")
    if x.dtype == "float32":
        t = b.fma(n, -_HALF_PI[1], b.fma(n, -_HALF_PI[0], wide))
        return k, t, b.splat(0, "float64")
    product = n * _HALF_PI[0]
    high = wide - product  # exact: they are close
    first = high - b.fma(n, _HALF_PI[0], -product)
    lost = (high - first) - b.fma(n, _HALF_PI[0], -product)
    second = n * _HALF_PI[1]
    t = first - second
    lost = lost + ((first - t) - second) - b.fma(n, _HALF_PI[1], -second)
    return k, t, lost - n * _HALF_PI[2]


def _both(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """(k, sine, cosine) of t."""
    b = x.builder
    k, t, lost = _quarters(x)
    z = t * t
    short = x.dtype == "float32"
    sine = b.polynomial(z, _SINE_32 if short else _SINE)
    cosine = b.polynomial(z, _COSINE_32 if short else _COSINE)
    half = 0.5 * z
    base = 1 - half
    if short:
        return k, b.fma(sine * z, t, t), b.fma(cosine * z, z, base)
    sine = t + b.fma(sine * z, t, b.fma(half, -lost, lost))
    cosine = base + (((1 - base) - half) + b.fma(cosine * z, z, -(t * lost)))
    return k, sine, cosine


def _turned(x: Lanes, quarters: int) -> Lanes:
    k, sine, cosine = _both(x)
    k = k + quarters
    y = select((k & 1).differs(0), cosine, sine)
    return select((k & 2).differs(0), -y, y).to(x.dtype)


def _small(x: Lanes, y: Lanes) -> tuple[Lanes, Lanes]:
    return absolute(x) < _LARGEST[x.dtype], y


def _by_library(name: str, x: Lanes) -> Lanes:
    return x.builder.intrinsic(name, x)


def sin(x: Lanes) -> Lanes:
    return guarded(
        "sin",
        lambda x: _small(x, select(x.equals(0), x, _turned(x, 0))),
        lambda x: _by_library("sin", x),
        x,
    )


def cos(x: Lanes) -> Lanes:
    return guarded("cos", lambda x: _small(x, _turned(x, 1)), lambda x: _by_library("cos", x), x)


def tan(x: Lanes) -> Lanes:
    return guarded("tan", lambda x: _small(x, _tangent(x)), lambda x: _by_library("tan", x), x)


def _tangent(x: Lanes) -> Lanes:
    k, sine, cosine = _both(x)
    odd = (k & 1).differs(0)
    y = select(odd, -cosine, sine) / select(odd, sine, cosine)
    return select(x.equals(0), x, y.to(x.dtype))
