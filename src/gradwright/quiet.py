"""NumPy's floating-point warnings, switched off for one call."""

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def _ignoring() -> tuple[ContextVar[Any], Any] | None:
    """The context variable that `np.errstate` sets, and what it is set to."""
    with np.errstate(all="ignore"):
        settings = copy_context().items()
    return next(((var, value) for var, value in settings if var.name.startswith("numpy.")), None)


_IGNORING = _ignoring()


def quietly(function: Callable[..., T], *args: Any) -> T:
    """``function(*args)`` as inside ``np.errstate(all="ignore")``.

    Both branches of a ``np.where`` are computed, so warnings would tell of values that nobody
    sees. `np.errstate` makes its setting anew each time, for half the price of a small program;
    here it is made once.
    """
    if _IGNORING is None:  # a NumPy that keeps its setting elsewhere
        with np.errstate(all="ignore"):
            return function(*args)
    variable, value = _IGNORING
    token = variable.set(value)
    try:
        return function(*args)
    finally:
        variable.reset(token)
