"""NumPy's elementwise functions where TensorFlow has none, or means another thing by the name.

All arguments are tensors.
"""

import math as _math
from collections.abc import Callable as _Callable
from typing import Any
from typing import TypeAlias as _TypeAlias

import tensorflow as tf

_Function: _TypeAlias = _Callable[..., Any]


# --- arithmetic --------------------------------------------------------------------------------
def _wide(f: _Function) -> _Function:
    """The function, computed in float32 for 16-bit floats: as NumPy does."""

    def wide(x: Any, y: Any) -> Any:
        if x.dtype.size > 2:
            return f(x, y)
        return tf.cast(f(tf.cast(x, tf.float32), tf.cast(y, tf.float32)), x.dtype)

    return wide


def _with(condition: Any, value: float, x: Any) -> Any:
    """x, and a value where a condition holds."""
    return tf.where(condition, tf.cast(value, x.dtype), x)


def fmod(x: Any, y: Any) -> Any:
    """The remainder with the sign of x: ``±mod(|x|, |y|)``, which is exact."""
    rest = tf.math.floormod(tf.abs(x), tf.abs(y))
    return tf.where(x < 0, -rest, rest)


@_wide
def floor_divide(x: Any, y: Any) -> Any:
    """NumPy's algorithm: exact, where ``floor(x / y)`` rounds up to the next integer."""
    rest = fmod(x, y)
    down = tf.not_equal(rest, 0) & tf.math.logical_xor(rest < 0, y < 0)
    quotient = (x - rest) / y - tf.cast(down, x.dtype)
    floor = tf.floor(quotient)
    floor = tf.where(quotient - floor > 0.5, floor + 1, floor)
    return tf.where(tf.equal(y, 0), x / y, floor)


def _where_divisible(f: _Function) -> _Function:
    """NumPy's integer division by zero gives zero; TensorFlow's raises, or gives -1 in XLA."""

    def division(x: Any, y: Any) -> Any:
        zero = tf.equal(y, 0)
        return tf.where(zero, tf.zeros_like(x), f(x, tf.where(zero, tf.ones_like(y), y)))

    return division


int_remainder = _where_divisible(tf.math.floormod)
int_floor_divide = _where_divisible(tf.math.floordiv)


@_where_divisible
def int_fmod(x: Any, y: Any) -> Any:
    return x - tf.truncatediv(x, y) * y


def uint_negative(x: Any) -> Any:
    """The complement and 1; Grappler makes of ``0 - x`` a Neg, which has no kernel for these."""
    return tf.bitwise.invert(x) + 1


def int_reciprocal(x: Any) -> Any:
    return _where_divisible(tf.truncatediv)(tf.ones_like(x), x)


def trunc(x: Any) -> Any:
    return tf.where(x < 0, tf.math.ceil(x), tf.math.floor(x))


def cbrt(x: Any) -> Any:
    """A power, and one step of Newton's, since 1/3 is rounded: ``y - (y - x/y²) / 3``."""
    y = tf.sign(x) * tf.abs(x) ** (1 / 3)
    better = y - (y - x / (y * y)) / 3
    return tf.where(tf.math.is_finite(better), better, y)


def exp2(x: Any) -> Any:
    return tf.pow(tf.cast(2, x.dtype), x)


def exp10(x: Any) -> Any:
    return tf.pow(tf.cast(10, x.dtype), x)


def log2(x: Any) -> Any:
    return tf.math.log(x) / _math.log(2)


def log10(x: Any) -> Any:
    return tf.math.log(x) / _math.log(10)


def deg2rad(x: Any) -> Any:
    return x * (_math.pi / 180)


def rad2deg(x: Any) -> Any:
    return x * (180 / _math.pi)


radians, degrees = deg2rad, rad2deg


def fmax(x: Any, y: Any) -> Any:
    """The larger, and the other one beside a NaN."""
    return tf.where(tf.math.is_nan(x), y, tf.where(tf.math.is_nan(y), x, tf.math.maximum(x, y)))


def fmin(x: Any, y: Any) -> Any:
    return tf.where(tf.math.is_nan(x), y, tf.where(tf.math.is_nan(y), x, tf.math.minimum(x, y)))


def hypot(x: Any, y: Any) -> Any:
    """Without overflow: ``big · sqrt(1 + (small/big)²)``; an infinity outweighs a NaN."""
    x, y = tf.abs(x), tf.abs(y)
    big, small = tf.maximum(x, y), tf.minimum(x, y)
    ratio = tf.math.divide_no_nan(small, big)
    infinite = tf.math.is_inf(x) | tf.math.is_inf(y)
    return _with(infinite, _math.inf, big * tf.sqrt(1 + ratio * ratio))


def _gap(x: Any, y: Any) -> Any:
    """``-|x - y|``, which is 0 for equal infinities."""
    return tf.where(tf.equal(x, y), tf.zeros_like(x - y), -tf.abs(x - y))


def logaddexp(x: Any, y: Any) -> Any:
    return tf.maximum(x, y) + tf.math.log1p(tf.exp(_gap(x, y)))


def logaddexp2(x: Any, y: Any) -> Any:
    return tf.maximum(x, y) + tf.math.log1p(exp2(_gap(x, y))) / _math.log(2)


def signbit(x: Any) -> Any:
    return tf.bitcast(x, {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]) < 0


def copysign(x: Any, y: Any) -> Any:
    return tf.where(tf.math.logical_xor(signbit(x), signbit(y)), -x, x)


def heaviside(x: Any, y: Any) -> Any:
    step = tf.where(tf.equal(x, 0), y, tf.cast(x > 0, x.dtype))
    return tf.where(tf.math.is_nan(x), x, step)


def left_shift(x: Any, y: Any) -> Any:
    """Shift in zeros, also by more than there are bits, which TensorFlow leaves open."""
    fits = (y >= 0) & (y < 8 * x.dtype.size)
    return tf.where(fits, tf.bitwise.left_shift(x, tf.where(fits, y, 0)), 0)


def right_shift(x: Any, y: Any) -> Any:
    """Shift in the sign, also by more than there are bits."""
    fits = (y >= 0) & (y < 8 * x.dtype.size)
    beyond = tf.where(x < 0, ~tf.zeros_like(x), 0)
    return tf.where(fits, tf.bitwise.right_shift(x, tf.where(fits, y, 0)), beyond)


# --- SciPy's -----------------------------------------------------------------------------------
def logit(x: Any) -> Any:
    """``log(x / (1 - x))``, and near 1/2, where that cancels, ``2 artanh(2x - 1)``."""
    near = tf.abs(x - 0.5) < 0.2
    return tf.where(near, 2 * tf.math.atanh(2 * x - 1), tf.math.log(x / (1 - x)))


def erf(x: Any) -> Any:
    """TensorFlow's is NaN at infinities in float64; it is 1 from 6 on."""
    return tf.math.erf(tf.clip_by_value(x, -10, 10))


def ndtr(x: Any) -> Any:
    return 0.5 * tf.math.erfc(x * -_math.sqrt(0.5))


def gamma(x: Any) -> Any:
    """``±exp(lgamma(x))``, in float64: the rounding of a large exponent would show."""
    wide = tf.cast(x, tf.float64)
    floor = tf.floor(wide)
    odd = (wide < 0) & tf.equal(tf.math.floormod(floor, 2), 1)
    size = tf.exp(tf.math.lgamma(wide))
    pole = (wide < 0) & tf.equal(floor, wide)
    return tf.cast(_with(pole, _math.nan, tf.where(odd, -size, size)), x.dtype)


def gammaln(x: Any) -> Any:
    return _with(tf.equal(x, -_math.inf), -_math.inf, tf.math.lgamma(x))


def psi(x: Any) -> Any:
    return _with(tf.equal(x, 0), -_math.inf, tf.math.digamma(x))


def i0(x: Any) -> Any:
    return _grown(tf.math.bessel_i0e(x), x)


def i1(x: Any) -> Any:
    return _grown(tf.math.bessel_i1e(x), x)


def _grown(scaled: Any, x: Any) -> Any:
    """``scaled · exp(|x|)``, in two steps that overflow only where it does. XLA has i0e alone."""
    half = tf.exp(0.5 * tf.abs(x))
    return scaled * half * half


def xlogy(x: Any, y: Any) -> Any:
    return _with(tf.math.is_nan(y), _math.nan, tf.math.xlogy(x, y))


def xlog1py(x: Any, y: Any) -> Any:
    return _with(tf.math.is_nan(y), _math.nan, tf.math.xlog1py(x, y))


def entr(x: Any) -> Any:
    return _with(x < 0, -_math.inf, -tf.math.xlogy(x, x))


def cosm1(x: Any) -> Any:
    """``-2 sin²(x/2)``, which does not cancel at 0."""
    half = tf.sin(0.5 * x)
    return -2 * half * half


def rel_entr(x: Any, y: Any) -> Any:
    """``x log(x/y)``; 0 at x = 0, and inf outside the domain."""
    inside = (x > 0) & (y > 0) | tf.math.is_nan(x) | tf.math.is_nan(y)
    outside = tf.where(tf.equal(x, 0) & (y >= 0), tf.zeros_like(x), tf.cast(_math.inf, x.dtype))
    return tf.where(inside, x * tf.math.log(x / y), outside)


def betaln(x: Any, y: Any) -> Any:
    """For positive numbers; in float64, because the terms nearly cancel where one is large."""
    p, q = tf.cast(x, tf.float64), tf.cast(y, tf.float64)
    inside = tf.math.lgamma(p) + tf.math.lgamma(q) - tf.math.lgamma(p + q)
    return tf.cast(_with(tf.equal(p, 0) | tf.equal(q, 0), _math.inf, inside), x.dtype)
