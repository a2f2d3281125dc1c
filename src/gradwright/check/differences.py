"""Derivatives measured from values alone: what a gradient is compared with.

Central differences at steps s/8, s/16, … s/2¹⁸ are extrapolated (Richardson), and of the whole
table the entry with the smallest error bound is taken (Ridders). One-sided differences of the same
values say whether there is a kink. How the bounds come about is in docs/checking.md.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Vector: TypeAlias = np.ndarray[Any, Any]  # all arrays of a call, end to end, float64
VectorFunction: TypeAlias = Callable[[Vector], Vector]

EPS = float(np.finfo(np.float64).eps)
STEPS = 2.0 ** -np.arange(3, 19)
ORDER = 6  # how many powers of the step are removed at most
NOISE_STEP = 2.0**-44  # small enough that all but a straight line is rounding
IMAGINARY_STEP = 2.0**-300


class Slopes(NamedTuple):
    """The derivatives of all outputs (columns) in some directions (rows)."""

    value: Array
    error: Array  # a bound; infinite where the differences do not settle
    left: Array  # from one side and from the other: not equal at a kink
    right: Array
    is_kink: Array  # of bools

    @property
    def is_known(self) -> Array:
        """Where a gradient can be compared with the value: three digits of it are certain."""
        finite = np.where(np.isfinite(self.value), np.abs(self.value), 0)
        nothing = 2.0**-20 * np.max(finite, axis=1, keepdims=True, initial=0) + 2.0**-40
        known: Array = self.error <= 2.0**-10 * np.abs(self.value) + nothing
        # 0 · NaN is NaN: a gradient says nothing where any output is not finite
        finite_all: Array = np.all(np.isfinite(self.value), axis=1, keepdims=True)
        known &= ~self.is_kink & finite_all
        return known


def noise(f: VectorFunction, x: Vector, scale: Vector, seed: int) -> Vector:
    """How much rounding moves each output: from third differences, as Moré and Wild (2011) do."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], x.shape)
    with np.errstate(all="ignore"):
        rows = np.array([f(x + k * NOISE_STEP * scale * signs) for k in range(8)])
        third = np.diff(rows, 3, axis=0)
        sigma = np.sqrt(np.mean(third**2, axis=0) / 20)  # (3!)²/6! of the mean square
    measured: Vector = 8 * sigma + 4 * EPS * np.abs(rows[0])
    return measured


def slopes(
    f: VectorFunction, x: Vector, directions: Array, rounding: Vector, analytic: bool = False
) -> Slopes:
    """The derivatives of f at x; a direction is as long as eight times its largest step."""
    h = np.array([_moved(x, d) for d in directions]).T[:, :, None]
    with np.errstate(all="ignore"):
        here = f(x)
        ahead = np.array([[f(x + k * d) for d in directions] for k in STEPS])
        behind = np.array([[f(x - k * d) for d in directions] for k in STEPS])
        value, error = _extrapolated((ahead - behind) / (2 * h), 4, rounding / h)
        right, right_error = _extrapolated((ahead - here) / h, 2, 2 * rounding / h)
        left, left_error = _extrapolated((here - behind) / h, 2, 2 * rounding / h)
        least = 8 * (left_error + right_error) + 2.0**-20 * (np.abs(right) + np.abs(left))
        is_kink = np.abs(right - left) > least
        if analytic:
            value, error = _by_complex_step(f, x, directions, value, error)
    return Slopes(value, error, left, right, is_kink)


def _moved(x: Vector, direction: Vector) -> Vector:
    """The steps as they were taken: x + h is rounded, so they are exact if one element moves alone.

    Of many, each is rounded otherwise; that is in the noise.
    """
    if np.count_nonzero(direction) != 1:
        return STEPS
    k = int(np.argmax(np.abs(direction)))
    steps = STEPS * direction[k]
    taken: Vector = ((x[k] + steps) - (x[k] - steps)) / (2 * direction[k])
    return taken


def _extrapolated(rows: Array, base: int, rounding: Array) -> tuple[Array, Array]:
    """Neville's scheme, and the entry of it whose error bound is the smallest.

    Large steps may all miss what an oscillating function does between them, and agree: what they
    say holds if the smaller half of the steps does not contradict it.
    """
    best, error = _best(rows, base, rounding)
    half = len(rows) // 2
    fine, fine_error = _best(rows[half:], base, rounding[half:])
    agree = np.abs(best - fine) <= 2 * (error + fine_error)
    best, error = np.where(agree, best, fine), np.where(agree, error, fine_error)
    return np.where(np.isfinite(error), best, np.nan), error


def _best(rows: Array, base: int, rounding: Array) -> tuple[Array, Array]:
    """The entry with the smallest bound.

    Each column removes one more power of the step (every second one, for base 4). The bound is
    the distance to the two entries it was made of, and the rounding that it carries.
    """
    best = np.zeros_like(rows[0])
    error = np.full_like(rows[0], np.inf)
    before: list[Array] = []
    for j, first in enumerate(rows):
        row = [first]
        for k in range(1, min(j, ORDER) + 1):
            weight = float(base**k)
            row.append((weight * row[k - 1] - before[k - 1]) / (weight - 1))
            apart = np.maximum(np.abs(row[k] - row[k - 1]), np.abs(row[k] - before[k - 1]))
            bound = apart + 4 * rounding[j]
            better = bound < error
            best, error = np.where(better, row[k], best), np.where(better, bound, error)
        before = row
    return best, error


def _by_complex_step(
    f: VectorFunction, x: Vector, directions: Array, value: Array, error: Array
) -> tuple[Array, Array]:
    """The imaginary part of f(x + ih)/h, free of cancellation, where it confirms the other."""
    try:
        steps = [f(x + 1j * IMAGINARY_STEP * d) for d in directions]
    except (
        Exception
    ):  # the function was not written for complex numbers, and may say so as it likes
        return value, error
    exact = np.imag(np.array(steps)).reshape(value.shape) / IMAGINARY_STEP
    size = 2.0**-40 * np.abs(exact)
    better = (np.abs(exact - value) <= error) & (size < error)
    return np.where(better, exact, value), np.where(better, np.maximum(size, EPS * error), error)


def scales(arrays: Sequence[Array]) -> Vector:
    """The size that steps are measured by: of the element, if it is not small in its array."""
    parts = []
    for a in arrays:
        sizes = np.abs(np.ravel(a))
        finite = sizes[np.isfinite(sizes) & (sizes > 0)]
        typical = float(np.median(finite)) if finite.size else 1.0
        parts.append(np.maximum(sizes, typical / 64))
    return np.concatenate(parts) if parts else np.zeros(0)
