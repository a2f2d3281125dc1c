"""What is put before an update (transforms of g) and after it (projections of w)."""

from typing import Any

import numpy as np

from ..annotations import Array
from ..body import global_sum, record
from ..compose import rule


@rule
def clip(g: Array, *, low: float = -1.0, high: float = 1.0) -> Any:
    """Cut every element of the gradient off: g ← min(max(g, low), high)."""
    return np.clip(g, low, high)


@rule
def clip_by_global_norm(g: Array, *, max_norm: float = 1.0) -> Any:
    """Scale all gradients together so that their common norm is at most `max_norm`.

    g ← g · min(1, max_norm / ‖g‖), the norm over all parameters; it is recorded as ``grad_norm``.

    R. Pascanu, T. Mikolov, Y. Bengio: On the difficulty of training recurrent neural networks.
    ICML 2013.
    """
    norm = record("grad_norm", np.sqrt(global_sum(g * g)))
    return g * np.minimum(1.0, max_norm / norm)


@rule
def l2(g: Array, w: Array, *, weight: float = 1e-4) -> Any:
    """Add the gradient of ½·weight·‖w‖² : g ← g + weight·w."""
    return g + weight * w


@rule
def decay(w: Array, *, rate: float = 1e-4) -> Any:
    """Shrink the parameter, apart from its gradient: w ← w − rate·w."""
    return w - rate * w


@rule(domain="[low, high)")
def wrap(w: Array, *, low: float = 0.0, high: float = 1.0) -> Any:
    """Bring w back to the circle [low, high): w ← low + (w − low) mod (high − low)."""
    return low + np.mod(w - low, high - low)


@rule(domain="[low, high]")
def clamp(w: Array, *, low: float = -1.0, high: float = 1.0) -> Any:
    """Bring w back to the interval [low, high] by cutting it off."""
    return np.clip(w, low, high)


def _copy(w: Array) -> Array:
    return w


@rule
def ema(w: Array, avg: Array = _copy, *, decay: float = 0.999) -> Any:
    """Keep a running mean of the parameter: avg ← decay·avg + (1 − decay)·w; w stays.

    B. Polyak, A. Juditsky: Acceleration of stochastic approximation by averaging. 1992.
    """
    return w, decay * avg + (1 - decay) * w
