"""Schedules: a hyperparameter as a function of the optimizer's count of updates, 0, 1, ….

Every schedule is a NumPy expression of the count, so it is traced like everything else. After its
last step a schedule keeps its final value. `warmup` steps rise linearly from 0 to the start; the
schedule itself begins after them.
"""

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from .errors import SignatureError


class Schedule:
    """A number that depends on the count of updates."""

    def __init__(self, function: Callable[[Any], Any], text: str, again: "_Making") -> None:
        self.function, self.text, self._again = function, text, again

    def __call__(self, count: Any) -> Any:
        return self.function(count)

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> Any:
        return self._again, ()


_Making: TypeAlias = Callable[[], Schedule]  # how to make an equal one


def _warm(
    function: Callable[[Any], Any], start: float, warmup: int, text: str, again: _Making
) -> Schedule:
    def with_warmup(count: Any) -> Any:
        rising = start * (count + 1) / warmup
        return np.where(count < warmup, rising, function(np.maximum(count - warmup, 0)))

    return Schedule(with_warmup if warmup else function, text, again)


def _check(name: str, **values: Any) -> None:
    """Raise unless a schedule is made of numbers, over at least one step."""
    for argument, value in values.items():
        if not (isinstance(value, Real) or getattr(value, "ndim", None) == 0):
            raise SignatureError(
                f"schedules.{name}: {argument} is {value!r}, where a number is expected",
                f"a number for {argument}",
            )
        if argument in ("steps", "every") and value <= 0:
            raise SignatureError(f"a schedule over {value} steps", "at least one step")


def constant(value: float) -> Schedule:
    """``value``.

    >>> constant(0.1)(5)
    0.1
    """
    _check("constant", value=value)
    return Schedule(lambda count: value, f"constant({value})", partial(constant, value))


def linear(start: float, end: float, steps: int, *, warmup: int = 0) -> Schedule:
    """``start + (end − start) · min(count / steps, 1)``.

    >>> [float(linear(1.0, 0.0, 4)(k)) for k in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    _check("linear", start=start, end=end, steps=steps, warmup=warmup)
    text = f"linear({start}, {end}, {steps}{_option(warmup=warmup)})"
    part = lambda count: start + (end - start) * np.minimum(count / steps, 1.0)
    return _warm(part, start, warmup, text, partial(linear, start, end, steps, warmup=warmup))


def cosine(start: float, steps: int, *, end: float = 0.0, warmup: int = 0) -> Schedule:
    """``end + (start − end) · (1 + cos(π · min(count / steps, 1))) / 2``.

    I. Loshchilov, F. Hutter: SGDR: stochastic gradient descent with warm restarts. ICLR 2017.

    >>> round(float(cosine(1.0, 10)(5)), 6)
    0.5
    """
    _check("cosine", start=start, steps=steps, end=end, warmup=warmup)
    text = f"cosine({start}, {steps}{_option(end=end, warmup=warmup)})"
    part = lambda count: (
        end + (start - end) * (0.5 + 0.5 * np.cos(np.pi * np.minimum(count / steps, 1.0)))
    )
    again = partial(cosine, start, steps, end=end, warmup=warmup)
    return _warm(part, start, warmup, text, again)


def exponential(start: float, rate: float, *, every: int = 1, warmup: int = 0) -> Schedule:
    """``start · rate^(count / every)``.

    >>> float(exponential(1.0, 0.5)(3))
    0.125
    """
    _check("exponential", start=start, rate=rate, every=every, warmup=warmup)
    text = f"exponential({start}, {rate}{_option(every=every, warmup=warmup)})"
    again = partial(exponential, start, rate, every=every, warmup=warmup)
    return _warm(lambda count: start * rate ** (count / every), start, warmup, text, again)


def piecewise(start: float, at: dict[int, float]) -> Schedule:
    """``start``, and from each count in `at` on its value.

    >>> [float(piecewise(0.1, {2: 0.01})(k)) for k in (0, 1, 2, 3)]
    [0.1, 0.1, 0.01, 0.01]
    """
    if not isinstance(at, Mapping):
        raise SignatureError(
            f"schedules.piecewise: at is {at!r}, where a dict is expected",
            "{count: value, …}, the counts from which values hold",
        )
    _check("piecewise", start=start, **{f"at[{k!r}]": v for k, v in at.items()})
    _check("piecewise", **{f"the count {k!r}": k for k in at})

    def function(count: Any) -> Any:
        value: Any = start
        for first, then in sorted(at.items()):
            value = np.where(count >= first, then, value)
        return value

    return Schedule(function, f"piecewise({start}, {at})", partial(piecewise, start, at))


def of(function: Callable[[Any], Any], /) -> Schedule:
    """Make a NumPy function of the count a schedule.

    >>> float(of(lambda count: 0.1 / np.sqrt(count + 1))(3))
    0.05
    """
    if not callable(function):
        raise SignatureError(
            f"schedules.of({function!r}): that is no function",
            "a function of the count; a number as it is, or constant(number)",
        )
    return Schedule(function, f"of({getattr(function, '__name__', 'f')})", partial(of, function))


def parse(text: str, /) -> Schedule:
    """Read a schedule from its text: a name of this module with plain values, nothing else.

    >>> float(parse("exponential(1.0, 0.5)")(3))
    0.125
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        make = WRITTEN[call.func.id]
        args = [ast.literal_eval(a) for a in call.args]
        keywords = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AssertionError, KeyError):
        raise SignatureError(
            f"{text!r} is no schedule", f"one of {', '.join(WRITTEN)}, with plain numbers"
        ) from None
    try:
        inspect.signature(make).bind(*args, **keywords)
    except TypeError as error:
        raise SignatureError(f"{text}: {error}", f"{call.func.id}{_without_types(make)}") from None
    return make(*args, **keywords)


def _without_types(function: Callable[..., Any]) -> str:
    empty = inspect.Parameter.empty
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=empty))


WRITTEN: dict[str, Callable[..., Schedule]] = {
    f.__name__: f for f in (constant, linear, cosine, exponential, piecewise)
}


def _option(**options: float) -> str:
    defaults = {"warmup": 0, "end": 0.0, "every": 1}
    return "".join(f", {k}={v}" for k, v in options.items() if v != defaults[k])
