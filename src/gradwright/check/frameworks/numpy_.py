"""NumPy: `gw.vjp` and `gw.jvp` of a function."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...op import Op
from ...transforms import jvp, vjp
from ..subject import Arrays, Flat
from . import Seeds, Seen


class Plain:
    """A function on NumPy arrays, differentiated by gradwright's own transforms."""

    framework, name, has_strides = "numpy", "numpy", True
    dtypes = ("float32",)

    def __init__(self, function: Flat, wrt: Sequence[int]) -> None:
        self.function, self.wrt = function, wrt

    def value(self, xs: Arrays) -> list[Seen]:
        return _seen(self.function(xs))

    def pull(self, xs: Arrays, cts: Seeds) -> list[Seen]:
        return _seen(self._pull(list(xs), list(cts)))

    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]:
        return _seen(self._push(list(xs), list(ts)))

    def pull_twice(self, xs: Arrays, cts: Seeds, ws: Arrays) -> list[Seen]:
        return _seen(self._pull_twice(list(xs), list(cts), list(ws)))

    def impurity(self, xs: Arrays, cts: Seeds) -> tuple[str, str] | None:
        before = [x.copy() for x in xs]
        outs = self.function(xs)
        if any(not np.array_equal(x, b, equal_nan=True) for x, b in zip(xs, before, strict=True)):
            return "mutation", "a call changes its argument"
        if any(np.shares_memory(out, x) for out in outs for x in xs):
            return "alias", "the result shares memory with an argument"
        if any(np.shares_memory(a, b) for k, a in enumerate(outs) for b in outs[:k]):
            return "alias", "two results share memory"
        return None

    def _of_wrt(self, xs: Sequence[Any]) -> tuple[Flat, list[Any]]:
        """The function of those arrays alone that have a derivative, and these."""

        def function(*some: Any) -> list[Any]:
            full = list(xs)
            for k, x in zip(self.wrt, some, strict=True):
                full[k] = x
            return self.function(full)

        return function, [xs[k] for k in self.wrt]

    @cached_property
    def _pull(self) -> Op[Any]:
        def pull(xs: Any, cts: Any) -> Any:
            function, some = self._of_wrt(xs)
            return list(vjp(function, *some)[1](cts))

        return Op(pull)

    @cached_property
    def _push(self) -> Op[Any]:
        def push(xs: Any, ts: Any) -> Any:
            function, some = self._of_wrt(xs)
            return [t for t in jvp(function, some, ts)[1] if t is not None]

        return Op(push)

    @cached_property
    def _pull_twice(self) -> Op[Any]:
        def pull_twice(xs: Any, cts: Any, ws: Any) -> Any:
            function, some = self._of_wrt(xs)
            back = vjp(lambda *some: vjp(function, *some)[1](cts), *some)[1]
            return list(back(tuple(ws)))

        return Op(pull_twice)


def _seen(values: Sequence[Any]) -> list[Seen]:
    return [Seen(np.asarray(x), np.asarray(x).dtype.name) for x in values]


MODES = dict.fromkeys(("quick", "normal", "thorough"), [Plain])
