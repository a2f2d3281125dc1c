"""What torch has no name for, or gives another value than NumPy and SciPy do."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import philox
from ...adjoint import check_summable

__all__ = (
    "np sign cbrt heaviside cosm1 gamma gammaln zeta ndtr rel_entr erfcinv absolute "
    "floor_divide remainder fmod reciprocal matmul einsum prod take unbroadcast scatter "
    "scatter_add random_bits"
).split()


# --- elementwise -------------------------------------------------------------------------------
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; NaN stays NaN."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


def cbrt(x: Tensor) -> Tensor:
    """The power 1/3, and a step of Newton's for what is lost by rounding 1/3."""
    size = torch.abs(x)
    root = size ** (1 / 3)
    step = torch.where((root == 0) | torch.isinf(root), 0, (size / (root * root) - root) / 3)
    return torch.copysign(root + step, x)


def heaviside(x: Tensor, half: Tensor) -> Tensor:
    return torch.where(torch.isnan(x), x, torch.heaviside(x, half))


def cosm1(x: Tensor) -> Tensor:
    """``cos(x) - 1`` without cancellation."""
    return -2 * torch.sin(0.5 * x) ** 2


def gamma(x: Tensor) -> Tensor:
    """Γ, from log |Γ| in float64 and the sign, which alternates below zero."""
    wide = x.to(torch.float64)
    whole = torch.floor(wide)
    negative = (wide < 0) & (torch.remainder(whole, 2) != 0)
    value = torch.exp(torch.lgamma(wide)) * torch.where(negative, -1.0, 1.0)
    value = torch.where((wide < 0) & (whole == wide), math.nan, value)
    return torch.where(wide == 0, torch.copysign(value, wide), value).to(x.dtype)


def gammaln(x: Tensor) -> Tensor:
    """``log |Γ(x)|``; at -inf SciPy gives -inf."""
    return torch.where(x == -math.inf, x, torch.lgamma(x))


def zeta(x: Tensor, q: Tensor) -> Tensor:
    """Hurwitz' zeta function, which vanishes where its first term underflows."""
    value = torch.special.zeta(x, q)
    return torch.where(torch.isnan(value) & (x > 1) & (q > 1e8), 0, value)


def ndtr(x: Tensor) -> Tensor:
    """The normal distribution function, accurate in its lower tail too."""
    return torch.mul(torch.special.erfc(x * -math.sqrt(0.5)), 0.5)


def rel_entr(x: Tensor, y: Tensor) -> Tensor:
    """``x log(x / y)``; 0 where x is 0, infinite outside the domain."""
    ratio = x / y
    safe = (ratio > 0) & (ratio < math.inf)
    log = torch.where(safe, torch.log(ratio), torch.log(x) - torch.log(y))
    inside = torch.where((x > 0) & (y > 0), x * log, math.inf)
    value = torch.where((x == 0) & (y >= 0), 0, inside)
    return torch.where(torch.isnan(x) | torch.isnan(y), math.nan, value)


def erfcinv(x: Tensor) -> Tensor:
    return torch.mul(torch.special.ndtri(x * 0.5), -math.sqrt(0.5))


# --- integers and booleans: division by zero gives 0 in NumPy and raises in torch ---------------
def absolute(x: Tensor) -> Tensor:
    return x.clone() if x.dtype is torch.bool else torch.abs(x)


def _nonzero(y: Tensor) -> Tensor:
    return torch.where(y == 0, 1, y)


def floor_divide(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(y == 0, 0, x // _nonzero(y))


def remainder(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(y == 0, 0, x % _nonzero(y))


def fmod(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(y == 0, 0, torch.fmod(x, _nonzero(y)))


def reciprocal(x: Tensor) -> Tensor:
    return torch.div(torch.ones_like(x), _nonzero(x), rounding_mode="trunc")


def _product(product: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """A product of matrices in the dtype of its factors; booleans are counted, then compared."""
    if xs[0].dtype is torch.bool:
        return product(*(x.to(torch.float32) for x in xs)) != 0
    return product(*xs).to(xs[0].dtype)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    return _product(torch.matmul, x, y)


def einsum(subscripts: str, *xs: Tensor) -> Tensor:
    return _product(partial(torch.einsum, subscripts), *xs)


# --- reductions, indexing ----------------------------------------------------------------------
def prod(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    """The product over axes, one after the other."""
    for k in reversed(axis):
        x = x.prod(k, keepdim=keepdims)
    return x


def take(x: Tensor, at: Tensor, axis: int) -> Tensor:
    before: Any = (slice(None),) * axis
    at = at.to(torch.int64)
    if at.dim() == 0:  # torch would read its value: a GPU waits for that, and vmap refuses
        return x[(*before, at.reshape(1))].squeeze(axis)
    return x[(*before, at)]


def unbroadcast(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum x over what broadcasting repeated, back to a shape."""
    if x.shape == shape:
        return x
    check_summable(x.shape, shape)
    extra = x.dim() - len(shape)
    axes = [*range(extra), *(k + extra for k, d in enumerate(shape) if d == 1)]
    return x.sum(axes).reshape(shape) if axes else x


def scatter(x: Tensor, shape: tuple[int, ...], index: tuple[Any, ...]) -> Tensor:
    """Zeros, with x at an index."""
    out = x.new_zeros(shape)
    out[index] = x
    return out


def scatter_add(x: Tensor, at: Tensor, axis: int, shape: tuple[int, ...]) -> Tensor:
    """Zeros, with x added at indices along an axis; indices may repeat."""
    source = range(axis, axis + at.dim())
    values = x.movedim(tuple(source), tuple(range(at.dim())))
    out = x.new_zeros(shape).movedim(axis, 0)
    return out.index_put((at.to(torch.int64),), values, accumulate=True).movedim(0, axis)


# --- random bits -------------------------------------------------------------------------------
def random_bits(
    step: Tensor, identity: Tensor, seed: Tensor, *, draw: int, lane: str, shape: tuple[int, ...]
) -> Tensor:
    """The words of `philox`, computed by NumPy on the host and held in int64."""
    at = int(step), int(identity), int(seed)
    words = philox.random_bits(*at, draw=draw, lane=lane, shape=tuple(shape))
    return torch.from_numpy(words.astype(np.int64)).to(step.device)
