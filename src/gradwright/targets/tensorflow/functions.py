"""NumPy's functions where TensorFlow has none, or means another thing by the name.

All arguments are tensors; sizes are ints where they are known, else scalar int64 tensors.
"""

import math as _math
from collections.abc import Callable as _Callable
from collections.abc import Sequence as _Sequence
from typing import Any
from typing import TypeAlias as _TypeAlias

import tensorflow as tf

from ...philox import LOW as _LOW
from ...philox import QUARTER as _QUARTER

_Function: _TypeAlias = _Callable[..., Any]

_PHILOX = 1  # the number of the algorithm, among those of tf.random


# --- sizes -------------------------------------------------------------------------------------
def size(x: Any, axis: int) -> Any:
    known = x.shape[axis]
    return tf.shape(x, out_type=tf.int64)[axis] if known is None else known


def broadcast_size(*sizes: Any) -> Any:
    """What sizes broadcast to; one that is known and not 1 decides."""
    result: Any = 1
    for n in sizes:
        if isinstance(result, int):
            result = n if result == 1 else result
        elif not isinstance(n, int):
            result = tf.where(tf.equal(result, 1), n, result)
    return result


def slice_size(n: Any, start: int | None, stop: int | None, step: int | None) -> Any:
    """How many elements ``[start:stop:step]`` takes of n."""
    if isinstance(n, int):
        return len(range(*slice(start, stop, step).indices(n)))
    first = _bound(n, 0 if start is None else start)
    last = n if stop is None else _bound(n, stop)
    return tf.maximum((last - first + (step or 1) - 1) // (step or 1), 0)


def _bound(n: Any, at: int) -> Any:
    return tf.minimum(n, at) if at >= 0 else tf.maximum(n + at, 0)


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


# --- arrays ------------------------------------------------------------------------------------
def where(condition: Any, x: Any, y: Any) -> Any:
    """Of equal shapes, by the older operation, which takes a sixth of the time."""
    if condition.shape.is_fully_defined() and condition.shape == x.shape == y.shape:
        return tf.raw_ops.Select(condition=condition, x=x, y=y)
    return tf.where(condition, x, y)


def _with_nan(reduced: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """A reduction that is NaN where any element is, which TensorFlow's own mostly is not."""
    nan = tf.math.reduce_any(tf.math.is_nan(x), axis=axis, keepdims=keepdims)
    return _with(nan, _math.nan, reduced)


def max(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return _with_nan(tf.math.reduce_max(x, axis=axis, keepdims=keepdims), x, axis, keepdims)


def min(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return _with_nan(tf.math.reduce_min(x, axis=axis, keepdims=keepdims), x, axis, keepdims)


def argmax(x: Any, axis: int, keepdims: bool) -> Any:
    """The first of the largest; a NaN counts as larger than all."""
    x = tf.cast(x, tf.int8) if x.dtype == tf.bool else x
    at = tf.argmax(x, axis)
    if x.dtype.is_floating:
        nan = tf.cast(tf.math.is_nan(x), tf.int8)
        at = tf.where(tf.reduce_any(nan > 0, axis), tf.argmax(nan, axis), at)
    return tf.expand_dims(at, axis) if keepdims else at


def argmin(x: Any, axis: int, keepdims: bool) -> Any:
    """The first of the smallest; a NaN counts as smaller than all."""
    x = tf.cast(x, tf.int8) if x.dtype == tf.bool else x
    return argmax(-x if x.dtype.is_floating else tf.bitwise.invert(x), axis, keepdims)


def int_einsum(subscripts: str, *args: Any) -> Any:
    return tf.einsum(subscripts, *(tf.cast(x, tf.int64) for x in args))


def unbroadcast(x: Any, shape: _Sequence[Any]) -> Any:
    """Sum x over what broadcasting repeated, back to a shape."""
    if x.shape.as_list() == list(shape):
        return x
    wanted = tf.convert_to_tensor(shape, tf.int64)
    axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=wanted, s1=tf.shape(x, out_type=tf.int64))
    kept = tf.reduce_sum(x, axes, keepdims=True)
    lead = x.shape.rank - len(shape)
    # a size of 1 that was to be a larger one says that all along it are equal
    return tf.broadcast_to(tf.reshape(kept, tf.shape(kept)[lead:]), shape)


def scatter(x: Any, shape: _Sequence[Any], index: tuple[Any, ...]) -> Any:
    """Zeros, with x at an index: TensorFlow's own transpose of a slice."""
    begin, end, strides, masks = [], [], [], [0, 0, 0]
    for k, entry in enumerate(index):
        if not isinstance(entry, slice):
            entry, masks[2] = slice(entry, entry + 1), masks[2] | 1 << k
        masks[0] |= (entry.start is None) << k
        masks[1] |= (entry.stop is None) << k
        begin.append(0 if entry.start is None else entry.start)
        end.append(0 if entry.stop is None else entry.stop)
        strides.append(entry.step or 1)
    shape, begin, end, strides = (
        tf.convert_to_tensor(v, tf.int64) for v in (shape, begin, end, strides)
    )
    return tf.raw_ops.StridedSliceGrad(
        shape=shape,
        begin=begin,
        end=end,
        strides=strides,
        dy=x,
        begin_mask=masks[0],
        end_mask=masks[1],
        shrink_axis_mask=masks[2],
    )


def _from_the_front(indices: Any, n: Any) -> Any:
    """NumPy's indices may count from the end."""
    indices = tf.cast(indices, tf.int64)
    return tf.where(indices < 0, indices + tf.cast(n, tf.int64), indices)


def take(x: Any, indices: Any, axis: int) -> Any:
    return tf.gather(x, _from_the_front(indices, size(x, axis)), axis=axis)


def scatter_add(x: Any, indices: Any, axis: int, shape: _Sequence[Any]) -> Any:
    """Zeros, with x added at indices along an axis; indices may repeat."""
    n, rank = len(shape), indices.shape.rank
    rest = [k for k in range(x.shape.rank) if not axis <= k < axis + rank]
    front = tf.transpose(x, [*range(axis, axis + rank), *rest])
    at = _from_the_front(indices, shape[axis])
    summed = tf.math.unsorted_segment_sum(front, at, shape[axis])
    return tf.transpose(summed, [*range(1, axis + 1), 0, *range(axis + 1, n)])


# --- random bits -------------------------------------------------------------------------------
def random_bits(
    step: Any, identity: Any, seed: Any, *, draw: int, lane: str, shape: _Sequence[Any]
) -> Any:
    """The words that `philox` defines, by TensorFlow's own generator."""
    counter, key = _counter(_int64(step), _int64(identity)), _key(_int64(seed), draw)
    if lane == "own":
        return _words(counter, key, shape)
    n = _count(shape)
    words = tf.reshape(_words(counter, key, [n + n % 2]), [-1, 2])
    flat = tf.reshape(tf.bitcast(_PAIRS[lane](tf.bitcast(words, tf.uint64)), tf.uint32), [-1])
    return tf.reshape(flat if isinstance(n, int) and n % 2 == 0 else flat[:n], shape)


def _count(shape: _Sequence[Any]) -> Any:
    if all(isinstance(n, int) for n in shape):
        return _math.prod(shape)
    return tf.reduce_prod(tf.convert_to_tensor(shape, tf.int64))


# A pair of words in one of 64 bits, the first one below: stacking two arrays takes longer than
# the generator itself. The factor puts a word into both halves.
_TWICE = 2**32 + 1
_PAIRS: dict[str, _Function] = {
    "even": lambda pair: (pair & _LOW) * _TWICE,
    "turn": lambda pair: (
        tf.bitwise.right_shift(pair, tf.constant(32, tf.uint64)) * _TWICE
        - tf.constant(int(_QUARTER) << 32, tf.uint64)
    ),
}


def _words(counter: Any, key: Any, shape: _Sequence[Any]) -> Any:
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.convert_to_tensor(shape, tf.int64),
        key=tf.bitcast(key, tf.uint64),
        counter=tf.bitcast(counter, tf.uint64),
        alg=_PHILOX,
        dtype=tf.uint32,
    )


def _counter(step: Any, identity: Any) -> Any:
    """`philox.counter_of`, in the two words of 64 bits that TensorFlow wants."""
    return tf.stack([_up(_down(step, 32), 48), (step & _LOW) | _up(identity, 32)])


def _key(seed: Any, draw: int) -> Any:
    """`philox.key_of`, in one word of 64 bits."""
    return tf.stack([(seed & _LOW) | _up(_up(_down(seed, 32), 8) | draw, 32)])


def _int64(x: Any) -> Any:
    return tf.cast(x, tf.int64)


def _up(x: Any, bits: int) -> Any:
    return tf.bitwise.left_shift(x, _int64(bits))


def _down(x: Any, bits: int) -> Any:
    return tf.bitwise.right_shift(x, _int64(bits))
