"""Checking: one call tells whether an op or a rule is right, everywhere, and what is wrong."""

from collections.abc import Callable, Sequence
from typing import Any

from .report import Report

__all__ = ["Report", "check", "check_gradient"]


def check(
    f: Any,
    /,
    *examples: Any,
    frameworks: Sequence[str] | None = None,
    effort: str = "normal",
    seed: int = 0,
    **options: Any,
) -> Report:
    """Check an op's values and derivatives, and say what is wrong.

    Values are compared with the op's own NumPy function in float64, derivatives with differences
    of it: in reverse and forward mode and at second order, in NumPy and in every framework that is
    imported (or named by `frameworks`). Without `examples` arguments are drawn; other keywords are
    the op's options. ``effort="quick"`` and ``"thorough"`` do less and more. A kink is shown, and
    no failure. What is compared with what, and how closely, is in docs/checking.md.

    Raises `CheckFailure` with the diagnosis, and with all that was found as its `report`.

    >>> import numpy as np, gradwright as gw
    >>> @gw.op
    ... def times(x, y):
    ...     return x * y
    >>> @times.vjp
    ... def _(g, x, y):
    ...     return g * y, -g * x
    >>> gw.check(times, np.array([1.0, 2.0]), np.array([3.0, 4.0]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    gradwright.errors.CheckFailure: times: the gradient by y has the wrong sign, at y[1] = 4: ...
    """
    from .main import report

    return _right(report(f, examples, options, frameworks, effort, seed))


def check_gradient(
    function: Callable[..., Any],
    /,
    *examples: Any,
    framework: str | None = None,
    effort: str = "normal",
    seed: int = 0,
) -> Report:
    """Check the gradient of a framework's own function: a `torch.autograd.Function`'s `apply`, a
    `tf.custom_gradient`, a `jax.custom_vjp`.

    The function is called with arrays of the framework in float64, and its derivatives in every
    mode, called by position and by keyword, are compared with differences of its values. Complex
    examples are checked by their real and imaginary parts.

    Raises `CheckFailure` with the diagnosis.

    >>> import torch, gradwright as gw                                        # doctest: +SKIP
    >>> gw.check_gradient(MyFunction.apply, torch.ones(3))                     # doctest: +SKIP
    """
    from .gradient import report

    return _right(report(function, examples, framework, effort, seed))


def _right(found: Report) -> Report:
    if (failure := found.failure()) is not None:
        raise failure
    return found
