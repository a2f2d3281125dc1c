"""JAX: `jax.vjp` and `jax.jvp`, plain and under `jax.jit`; in 64 bits where an example is."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..subject import Arrays, Flat
from . import Seeds, Seen


class Eager:
    """Without compilation."""

    framework, name, has_strides = "jax", "jax", False
    dtypes = ("float32", "bfloat16")

    def __init__(self, function: Flat, wrt: Sequence[int]) -> None:
        self.function, self.wrt = function, wrt

    def value(self, xs: Arrays) -> list[Seen]:
        return self._run(self._value, list(xs))

    def pull(self, xs: Arrays, cts: Seeds) -> list[Seen]:
        return self._run(self._pull, list(xs), _smooth(cts))

    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]:
        return self._run(self._push, list(xs), list(ts))

    def pull_twice(self, xs: Arrays, cts: Seeds, ws: Arrays) -> list[Seen]:
        return self._run(self._pull_twice, list(xs), _smooth(cts), list(ws))

    def impurity(self, xs: Arrays, cts: Seeds) -> tuple[str, str] | None:
        return None  # arrays cannot be written

    def batched(self, xs: Arrays) -> list[Seen]:
        """`jax.vmap` over the first axis of all arrays."""
        return self._run(jax.vmap(self._value), list(xs))

    def _run(self, program: Callable[..., Any], *groups: Any) -> list[Any]:
        with jax.enable_x64(True):
            arrays = [[jnp.asarray(x) for x in group] for group in groups]
            found: list[Any] = jax.tree.map(_seen, list(self._compiled(program)(*arrays)))
            return found

    def _compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        return program

    def once(self, xs: Arrays, cts: Seeds) -> "Once":
        """Values and gradients of one program: half as much is compiled."""
        return Once(self, xs, cts, *self._run(self._both, list(xs), _smooth(cts)))

    # --- programs on lists of arrays ---
    @cached_property
    def _value(self) -> Callable[..., Any]:
        return lambda xs: list(self.function(xs))

    def _of_wrt(self, xs: Any) -> tuple[Callable[..., Any], list[Any]]:
        def function(*some: Any) -> list[Any]:
            full = list(xs)
            for k, x in zip(self.wrt, some, strict=True):
                full[k] = x
            return [y for y in self.function(full) if jnp.issubdtype(y.dtype, jnp.floating)]

        return function, [xs[k] for k in self.wrt]

    @cached_property
    def _pull(self) -> Callable[..., Any]:
        def pull(xs: Any, cts: Any) -> Any:
            function, some = self._of_wrt(xs)
            return jax.vjp(function, *some)[1](cts)

        return pull

    @cached_property
    def _both(self) -> Callable[..., Any]:
        return lambda xs, cts: (self._value(xs), self._pull(xs, cts))

    @cached_property
    def _push(self) -> Callable[..., Any]:
        def push(xs: Any, ts: Any) -> Any:
            function, some = self._of_wrt(xs)
            return jax.jvp(function, some, ts)[1]

        return push

    @cached_property
    def _pull_twice(self) -> Callable[..., Any]:
        def pull_twice(xs: Any, cts: Any, ws: Any) -> Any:
            function, some = self._of_wrt(xs)
            back = jax.vjp(lambda *some: jax.vjp(function, *some)[1](cts), *some)[1]
            return back(tuple(ws))

        return pull_twice


class Jit(Eager):
    """Compiled."""

    name = "jax.jit"

    def _compiled(self, program: Callable[..., Any]) -> Callable[..., Any]:
        if program not in self._programs:
            self._programs[program] = jax.jit(program)
        return self._programs[program]

    @cached_property
    def _programs(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        return {}


class Once(Eager):
    """A mode at one point, where its values and its gradient are known already."""

    def __init__(
        self, mode: Eager, xs: Arrays, cts: Seeds, outs: Sequence[Seen], back: Sequence[Seen]
    ) -> None:
        super().__init__(mode.function, mode.wrt)
        self.name, self.mode, self.xs, self.cts = mode.name, mode, xs, cts
        self.outs, self.back = list(outs), list(back)

    def value(self, xs: Arrays) -> list[Seen]:
        return self.outs if xs is self.xs else self.mode.value(xs)

    def pull(self, xs: Arrays, cts: Seeds) -> list[Seen]:
        is_known = xs is self.xs and all(map(np.array_equal, _smooth(cts), _smooth(self.cts)))
        return self.back if is_known else self.mode.pull(xs, cts)


def _smooth(cts: Seeds) -> list[Any]:
    return [ct for ct in cts if ct is not None]


def _seen(x: Any) -> Seen:
    array = np.asarray(x)
    wide = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    return Seen(wide, array.dtype.name)


# --- complex numbers as pairs of real ones -----------------------------------------------------
def joined(x: Any) -> Any:
    """Pairs along the last axis as complex numbers."""
    return jax.lax.complex(x[..., 0], x[..., 1])


def parted(x: Any) -> Any:
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1)


MODES: dict[str, list[type[Eager]]] = {
    "quick": [Jit],  # without it, every operation is compiled for every shape
    "normal": [Jit, Eager],
    "thorough": [Jit, Eager],
    "gradient": [Jit, Eager],
}
