"""What the body of a rule may call beside NumPy: `gw.record` and `gw.global_sum`."""

from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from .trace import Tracer, cast, lift
from .trace.tracer import node

collected: ContextVar[dict[str, Any] | None] = ContextVar("gradwright_records", default=None)
totals_known: ContextVar[Iterator[Any] | None] = ContextVar("gradwrighttotals_known", default=None)


class TotalNeeded(Exception):
    """A rule run as plain NumPy asks for a sum over all parameters: this one's part of it."""

    def __init__(self, summand: Any) -> None:
        super().__init__()
        self.summand = summand


def record(name: str, value: Any, /) -> Any:
    """Return the value, and keep its last one in ``optimizer.recorded[name]``.

    >>> import numpy as np, gradwright as gw
    >>> @gw.rule
    ... def sgd(w, g, *, lr=0.1):
    ...     return w - gw.record("step size", lr * g)
    >>> w = np.ones(2)
    >>> optimizer = sgd.numpy(w)
    >>> optimizer.step(np.ones(2))
    >>> optimizer.recorded["step size"]
    array([0.1, 0.1])
    """
    if isinstance(value, Tracer):
        value.graph.records[name] = value.i
    elif (found := collected.get()) is not None:
        found[name] = value
    return value


def global_sum(x: Any, /) -> Any:
    """Sum x over all its elements and over all parameters that the rule sees.

    A number in double precision. All groups count, parameters without a gradient do not. Called
    on arrays outside an optimizer, it is the sum over that one array.
    """
    if isinstance(x, Tracer):
        # summed in x's dtype within a parameter, in double precision over parameters
        return node(x.graph, "global_sum", [cast(lift(x.graph, np.sum(x)), "float64")])
    totals = totals_known.get()
    if totals is None:
        return np.sum(x)
    try:
        return next(totals)
    except StopIteration:
        raise TotalNeeded(np.float64(np.sum(x))) from None
