"""Sizes, shapes, indexing, reductions and random bits, where TensorFlow is not like NumPy.

All arguments are tensors; sizes are ints where they are known, else scalar int64 tensors.
"""

import math as _math
from collections.abc import Callable as _Callable
from collections.abc import Sequence as _Sequence
from typing import Any
from typing import TypeAlias as _TypeAlias

import tensorflow as tf

from ...adjoint import check_summable as _check_summable
from ...philox import LOW as _LOW

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


# --- arrays ------------------------------------------------------------------------------------
def where(condition: Any, x: Any, y: Any) -> Any:
    """Of equal shapes, by the older operation, which takes a sixth of the time."""
    if condition.shape.is_fully_defined() and condition.shape == x.shape == y.shape:
        return tf.raw_ops.Select(condition=condition, x=x, y=y)
    return tf.where(condition, x, y)


def _with_nan(reduced: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """A reduction that is NaN where any element is, which TensorFlow's own mostly is not."""
    nan = tf.math.reduce_any(tf.math.is_nan(x), axis=axis, keepdims=keepdims)
    return tf.where(nan, tf.cast(_math.nan, x.dtype), reduced)


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
    is_known = all(isinstance(d, int) for d in shape)
    if is_known and x.shape.as_list() == list(shape):
        return x
    if is_known and x.shape.is_fully_defined():
        _check_summable(x.shape.as_list(), shape)
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
    if lane == "place":
        return tf.reshape(tf.cast(tf.range(n), tf.uint32) & 1, shape)
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
    "odd": lambda pair: tf.bitwise.right_shift(pair, tf.constant(32, tf.uint64)) * _TWICE,
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
