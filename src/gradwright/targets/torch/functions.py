"""What torch has no name for, or gives another value than NumPy and SciPy do."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import philox

__all__ = (
    "np sign cbrt heaviside gamma betaln rel_entr erfcinv cosm1 hypot absolute floor_divide "
    "remainder fmod power prod take unbroadcast scatter scatter_add random_bits"
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
    return torch.where(torch.isnan(x), x, torch.heaviside(*torch.broadcast_tensors(x, half)))


def hypot(x: Tensor, y: Tensor) -> Tensor:
    return torch.hypot(x, y)


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


def betaln(x: Tensor, y: Tensor) -> Tensor:
    a, b = x.to(torch.float64), y.to(torch.float64)
    return (torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)).to(x.dtype)


def rel_entr(x: Tensor, y: Tensor) -> Tensor:
    """``x log(x / y)``; 0 where x is 0, infinite outside the domain."""
    inside = torch.where((x > 0) & (y > 0), x * torch.log(x / y), math.inf)
    value = torch.where((x == 0) & (y >= 0), 0, inside)
    return torch.where(torch.isnan(x) | torch.isnan(y), math.nan, value)


def erfcinv(x: Tensor) -> Tensor:
    return torch.special.ndtri(0.5 * x) * -math.sqrt(0.5)


# --- integers, for which division by zero gives 0 in NumPy and raises in torch ------------------
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


def power(x: Tensor, y: Tensor) -> Tensor:
    return torch.pow(x, y)


# --- reductions, indexing ----------------------------------------------------------------------
def prod(x: Tensor, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    """The product over axes, one after the other."""
    for k in reversed(axis):
        x = x.prod(k, keepdim=keepdims)
    return x


def take(x: Tensor, at: Tensor, axis: int) -> Tensor:
    return x[(slice(None),) * axis + (at.to(torch.int64),)]


def unbroadcast(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum x over what broadcasting repeated, back to a shape."""
    if x.shape == shape:
        return x
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
