"""Remainders and floor division, exact as NumPy's."""

from ..ir import Lanes, select
from ..outline import guarded
from .exact import absolute, copysign, isfinite, isinf, signbit


def fmod(x: Lanes, y: Lanes) -> Lanes:
    """C's: exact by one fused multiply-add where the quotient is small, by the library above."""
    return guarded("fmod", _fast_fmod, _frem, x, y)


def _fast_fmod(x: Lanes, y: Lanes) -> tuple[Lanes, Lanes]:
    b = x.builder
    quotient = x / y
    rest = b.fma(-b.intrinsic("trunc", quotient), y, x)
    # the quotient is right, or one too large in size where it rounded up to an integer
    over = rest.differs(0) & (signbit(rest) ^ signbit(x))
    rest = b.select(over, rest + copysign(absolute(y), x), rest)
    infinite = isinf(y) & isfinite(x)
    rest = copysign(b.select(infinite, x, rest), x)
    limit = 2.0**23 if x.dtype == "float32" else 2.0**52
    return (absolute(quotient) < limit) | infinite, rest


def _frem(x: Lanes, y: Lanes) -> Lanes:
    return x.builder.emit(f"frem {x.type} {x.text}, {y.text}", x.dtype)


def remainder(x: Lanes, y: Lanes) -> Lanes:
    """NumPy's floor modulo: of the sign of y."""
    if not x.is_float:
        return _int_divided(x, y)[1]
    return guarded("remainder", _from_nearest, _from_frem, x, y, 1 / y)


def _from_nearest(x: Lanes, y: Lanes, inverse: Lanes) -> tuple[Lanes, Lanes]:
    """From the multiple of y next to x, or one beside it: what is left is below y, and exact.

    The product with 1/y is off by less than 0.4 where it is allowed.
    """
    b = x.builder
    multiple = b.intrinsic("rint", x * inverse)
    rest = b.fma(-multiple, y, x)
    limit = 2.0**42 if x.dtype == "float32" else 2.0**100
    return (multiple * multiple < limit) & ~rest.is_nan(), _of_the_sign(rest, y)


def _from_frem(x: Lanes, y: Lanes, inverse: Lanes) -> Lanes:
    return _of_the_sign(_frem(x, y), y)


def _of_the_sign(rest: Lanes, y: Lanes) -> Lanes:
    """A remainder of any sign, moved to the sign of y."""
    ints = "int32" if rest.dtype == "float32" else "int64"
    sign = y.bits(ints) & (-(2**31) if ints == "int32" else -(2**63))
    return select((rest.bits(ints) ^ sign).bits(rest.dtype) < 0, rest + y, rest)


def floor_divide(x: Lanes, y: Lanes) -> Lanes:
    """NumPy's algorithm, exact where ``floor(x / y)`` rounds up to the next integer."""
    if not x.is_float:
        return _int_divided(x, y)[0]
    rest = fmod(x, y)
    quotient = (x - rest) / y
    down = rest.differs(0) & ((y < 0) ^ (rest < 0))
    quotient = select(down, quotient - 1, quotient)
    whole = x.builder.intrinsic("floor", quotient)
    whole = select((quotient - whole) > 0.5, whole + 1, whole)
    return select(y.equals(0), x / y, whole)


def _int_divided(x: Lanes, y: Lanes) -> tuple[Lanes, Lanes]:
    """Floor division and modulo of integers; by zero both are 0, as in NumPy."""
    b, unsigned = x.builder, x.dtype.startswith("u")
    # the one overflow, MIN / -1, is NumPy's MIN, remainder 0
    safe = select(y.equals(0), b.splat(1, x.dtype), y)
    negated = None
    if not unsigned:
        negated = y.equals(-1)
        safe = select(negated, b.splat(1, x.dtype), safe)
    d, r = ("udiv", "urem") if unsigned else ("sdiv", "srem")
    quotient = b.emit(f"{d} {x.type} {x.text}, {safe.text}", x.dtype)
    rest = b.emit(f"{r} {x.type} {x.text}, {safe.text}", x.dtype)
    if negated is not None:
        down = rest.differs(0) & ((rest < 0) ^ (safe < 0))
        quotient = select(down, quotient - 1, quotient)
        rest = select(down, rest + safe, rest)
        quotient = select(negated, -x, quotient)
        rest = select(negated, b.splat(0, x.dtype), rest)
    zero = y.equals(0)
    return select(zero, b.splat(0, x.dtype), quotient), select(zero, b.splat(0, x.dtype), rest)
