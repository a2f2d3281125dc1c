"""What JAX has no name for, or gives another value than NumPy and SciPy do."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import philox
from ...adjoint import check_summable
from ...errors import TraceError

__all__ = (
    "jnp held number array astype erfcinv exp10 cosm1 log_ndtr psi gammaln rel_entr nextafter "
    "reciprocal floor_divide power unbroadcast scatter scatter_add random_bits"
).split()


# --- dtypes: with x64 off, 64-bit ones are not asked for, which would warn ------------------------
def held(dtype: str) -> Any:
    """The dtype that holds a NumPy dtype."""
    return jax.dtypes.canonicalize_dtype(dtype)


def number(value: Any, dtype: str) -> Array:
    return jnp.asarray(value, held(dtype))


def astype(x: Any, dtype: str) -> Array:
    return jax.lax.convert_element_type(x, held(dtype))


def array(captured: np.ndarray[Any, Any]) -> Array:
    """A captured array; with x64 off JAX would drop the upper halves of large integers."""
    dtype = held(captured.dtype.name)
    if captured.dtype.kind in "iu" and not np.array_equal(captured.astype(dtype), captured):
        raise TraceError(
            f"a captured {captured.dtype} array with numbers that {dtype} does not hold",
            'jax.config.update("jax_enable_x64", True), or smaller numbers',
        )
    return jnp.asarray(captured, dtype)


# --- elementwise ---------------------------------------------------------------------------------
def erfcinv(x: Array) -> Array:
    return jax.scipy.special.ndtri(x * 0.5) * -math.sqrt(0.5)


def exp10(x: Array) -> Array:
    return jnp.power(10, x)


def cosm1(x: Array) -> Array:
    """``cos(x) - 1`` without cancellation."""
    return -2 * jnp.sin(0.5 * x) ** 2


def log_ndtr(x: Array) -> Array:
    """The logarithm of the normal distribution function, which is near 0 on the right."""
    right = jnp.log1p(-jax.scipy.special.ndtr(-jnp.maximum(x, 0)))
    return jnp.where(x > 0, right, jax.scipy.special.log_ndtr(jnp.minimum(x, 0)))


def psi(x: Array) -> Array:
    """The derivative of log Γ, with its pole at 0."""
    return jnp.where(x == 0, -jnp.copysign(math.inf, x), jax.scipy.special.digamma(x))


def gammaln(x: Array) -> Array:
    """``log |Γ(x)|``; at -inf SciPy gives -inf."""
    return jnp.where(x == -math.inf, x, jax.scipy.special.gammaln(x))


def rel_entr(x: Array, y: Array) -> Array:
    """``x log(x / y)``; 0 where x is 0, infinite outside the domain."""
    ratio = x / y
    safe = (ratio > 0) & (ratio < math.inf)
    log = jnp.where(safe, jnp.log(ratio), jnp.log(x) - jnp.log(y))
    inside = jnp.where((x > 0) & (y > 0), x * log, math.inf)
    value = jnp.where((x == 0) & (y >= 0), 0, inside)
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), math.nan, value)


def nextafter(x: Any, y: Any) -> Array:
    """The neighbour of x among the numbers that XLA computes with: it takes subnormals for 0.

    Those of float16 are normal in float32, where it computes with them.
    """
    near = jnp.nextafter(x, y)
    if near.dtype == jnp.float16:
        return near
    info: Any = jnp.finfo(near.dtype)  # type: ignore[no-untyped-call]  # jax leaves it so
    tiny, mantissa = info.tiny, info.nmant
    grown = jnp.where(x == 0, jnp.copysign(tiny, near), jnp.zeros_like(near))
    bits = jax.lax.bitcast_convert_type(near, f"uint{8 * near.dtype.itemsize}")
    is_subnormal = ((bits << 1) >> (mantissa + 1) == 0) & (bits << 1 != 0)
    return jnp.where(is_subnormal, grown, near)


# --- integers: where the divisor is 0, NumPy's quotient is ---------------------------------------
def _nonzero(y: Array) -> Array:
    return jnp.where(y == 0, jnp.ones_like(y), y)


def reciprocal(x: Array) -> Array:
    return jax.lax.div(jnp.ones_like(x), _nonzero(x))


def floor_divide(x: Array, y: Array) -> Array:
    return jnp.where(y == 0, jnp.zeros_like(x), x // _nonzero(y))


def power(x: Array, y: Array) -> Array:
    """By squaring, for as many bits as there are; JAX reads the last six of the exponent."""
    result = jnp.ones_like(x * y)
    for bit in range(8 * y.dtype.itemsize):
        result = jnp.where((y >> bit) & 1 == 1, result * x, result)
        x = x * x
    return result


# --- shapes, indexing ----------------------------------------------------------------------------
def unbroadcast(x: Array, shape: tuple[int, ...]) -> Array:
    """Sum x over what broadcasting repeated, back to a shape."""
    if x.shape == shape:
        return x
    check_summable(x.shape, shape)
    extra = x.ndim - len(shape)
    axes = (*range(extra), *(k + extra for k, d in enumerate(shape) if d == 1))
    return jnp.sum(x, axes).reshape(shape)


def scatter(x: Array, shape: tuple[int, ...], index: tuple[Any, ...]) -> Array:
    """Zeros, with x at an index."""
    return jnp.zeros(shape, x.dtype).at[index].set(x)


def scatter_add(x: Array, at: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """Zeros, with x added at indices along an axis; indices may repeat."""
    return jnp.zeros(shape, x.dtype).at[(*(slice(None),) * axis, at)].add(x)


# --- random bits: what `philox` defines, on 32 bits, since with x64 off JAX has no more ----------
def random_bits(
    step: Any, identity: Any, seed: Any, *, draw: int, lane: str, shape: Sequence[int]
) -> Array:
    """One word for each element; a number of more than 32 bits is a pair, the lower half first."""
    (step, step_high), (seed, seed_high) = _halves(step), _halves(seed)
    index = _index(shape)
    if lane == "place":
        return index & 1
    counter = (index >> 2, step_high << 16, step, _halves(identity)[0])
    words = _philox(counter, (seed, (seed_high << 8) | _word(draw)))
    if lane == "own":
        low, high = (jnp.where((index & 1) == 0, words[k], words[k + 1]) for k in (0, 2))
        return jnp.where((index & 2) == 0, low, high)
    if lane == "even":
        return jnp.where((index & 2) == 0, words[0], words[2])
    return jnp.where((index & 2) == 0, words[1], words[3])


def _word(x: Any) -> Array:
    return jnp.asarray(x, jnp.uint32)


def _halves(x: Any) -> tuple[Array, Array]:
    """The lower and the upper 32 bits of a number."""
    if isinstance(x, tuple):
        return x
    if isinstance(x, int):
        return _word(x & philox.LOW), _word(x >> 32)
    return x.astype(jnp.uint32), _word(0) if x.dtype.itemsize < 8 else (x >> 32).astype(jnp.uint32)


def _index(shape: Sequence[int]) -> Array:
    """The position of each element, made axis by axis, so that a sharding of the array is kept."""
    index, stride = jnp.zeros(shape, jnp.uint32), 1
    for axis in reversed(range(len(shape))):
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * _word(stride)
        stride *= shape[axis]
    return index


def _philox(counter: Sequence[Array], key: tuple[Array, Array]) -> tuple[Array, ...]:
    (c0, c1, c2, c3), (k0, k1) = counter, key
    m0, m1 = map(_word, philox.MULTIPLIERS)
    for _ in range(philox.ROUNDS):
        c0, c1, c2, c3 = (_high(c2, m1) ^ c1 ^ k0, c2 * m1, _high(c0, m0) ^ c3 ^ k1, c0 * m0)
        k0, k1 = k0 + _word(philox.KEY_STEPS[0]), k1 + _word(philox.KEY_STEPS[1])
    return c0, c1, c2, c3


def _high(x: Array, y: Array) -> Array:
    """The upper 32 bits of a product, from products of halves."""
    (x0, x1), (y0, y1) = ((z & 0xFFFF, z >> 16) for z in (x, y))
    middle = x1 * y0 + (x0 * y0 >> 16)
    other = x0 * y1 + (middle & 0xFFFF)
    return x1 * y1 + (middle >> 16) + (other >> 16)
