"""Functions that NumPy rounds exactly, by instructions that do too."""

import math

import numpy as np

from ..ir import Lanes, select

INF = math.inf


def absolute(x: Lanes) -> Lanes:
    if x.is_float:
        return x.builder.intrinsic("fabs", x)
    return x if x.dtype.startswith(("u", "b")) else select(x < 0, -x, x)


def sign(x: Lanes) -> Lanes:
    one = select(x > 0, x.builder.splat(1, x.dtype), 0)
    if x.dtype.startswith("u"):
        return one
    one = select(x < 0, -1, one)
    return select(x.is_nan(), x, one) if x.is_float else one


def maximum(x: Lanes, y: Lanes) -> Lanes:
    """NaN if either is."""
    if x.is_float:
        return select(y.is_nan(), y, select(y > x, y, x))
    return select(x >= y, x, y)


def minimum(x: Lanes, y: Lanes) -> Lanes:
    if x.is_float:
        return select(y.is_nan(), y, select(y < x, y, x))
    return select(x <= y, x, y)


def fmax(x: Lanes, y: Lanes) -> Lanes:
    return select(y.is_nan(), x, select(x > y, x, y))


def fmin(x: Lanes, y: Lanes) -> Lanes:
    return select(y.is_nan(), x, select(x < y, x, y))


def copysign(x: Lanes, y: Lanes) -> Lanes:
    return x.builder.intrinsic("copysign", x, y)


def signbit(x: Lanes) -> Lanes:
    return x.bits(ints(x)) < 0


def ints(x: Lanes) -> str:
    return "int32" if x.dtype == "float32" else "int64"


def isfinite(x: Lanes) -> Lanes:
    return absolute(x) < INF


def isinf(x: Lanes) -> Lanes:
    return absolute(x).equals(INF)


def isnan(x: Lanes) -> Lanes:
    return x.is_nan()


def nextafter(x: Lanes, y: Lanes) -> Lanes:
    """The neighbour of x towards y: one step in the integers that order the floats."""
    kind = ints(x)
    tiny = x.builder.splat(np.nextafter(np.zeros(1, x.dtype), 1)[0], x.dtype)
    up = select((y > x), x.builder.splat(1, "bool"), False)
    away = select(x > 0, up, ~up)
    step = select(away, x.builder.splat(1, kind), -1)
    moved = (x.bits(kind) + step).bits(x.dtype)
    moved = select(x.equals(0), copysign(tiny, y), moved)
    return select(x.is_nan(), x, select(y.is_nan(), y, select(x.equals(y), y, moved)))
