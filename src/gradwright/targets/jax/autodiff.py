"""A gradwright Function as a function of JAX arrays that JAX differentiates by our rules.

The derivative of a Function is a Function again, and is bound in the same way: second and higher
derivatives use an op's own rule too. JAX transposes our forward derivative itself where it goes
backward.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from ... import emit
from ...errors import TraceError
from ...function import Function

Bound: TypeAlias = Callable[..., Sequence[Array]]


def bound(function: Function) -> Bound:
    """The function as a callable of arrays; it lives as long as the function's graph."""
    made = function.primal.programs
    if "jax function" not in made:
        made["jax function"] = _bind(function)
    return made["jax function"]  # type: ignore[no-any-return]  # kept in a dict of Any


def _bind(function: Function) -> Bound:
    from . import SPELLING

    run = emit.program(function.primal, function.name, SPELLING)
    if not function.smooth or not (function.wrt or function.refused):
        return run
    return _in_reverse(function, run) if _has_no_jvp(function) else _in_both_modes(function, run)


def _has_no_jvp(function: Function) -> bool:
    """Whether a user's vjp is in it that is not linear in the cotangent."""
    prims = {function.primal.nodes[i].prim for i in function.primal.live()}
    if function.own is None and "call" not in prims:
        return False
    try:
        return function.jvp is None
    except TraceError:
        return True


# --- both modes ----------------------------------------------------------------------------------
def _in_both_modes(function: Function, run: Bound) -> Bound:
    differentiable: Any = jax.custom_jvp(run)
    pushes: dict[tuple[int, ...], tuple[Bound, list[int]]] = {}

    def rule(xs: Sequence[Array], ts: Sequence[Any]) -> tuple[Sequence[Array], Sequence[Any]]:
        outs = differentiable(*xs)
        asked = tuple(k for k, t in enumerate(ts) if not _is_zero(t))
        if asked not in pushes:
            pushes[asked] = _push_by(function, asked)
        push, wrt = pushes[asked]
        seeds = [ts[k] if k in asked else jnp.zeros_like(xs[k]) for k in wrt]
        moved: list[Any] = [SymbolicZero.from_primal_value(out) for out in outs]  # of integers
        for k, t in zip(function.smooth, push(*xs, *outs, *seeds), strict=True):
            moved[k] = t
        return outs, tuple(moved)

    differentiable.defjvp(rule, symbolic_zeros=True)
    return differentiable  # type: ignore[no-any-return]  # what it wraps is Any


def _is_zero(t: Any) -> bool:
    return isinstance(t, SymbolicZero) or getattr(t, "dtype", None) == jax.dtypes.float0


def _push_by(function: Function, asked: Sequence[int]) -> tuple[Bound, list[int]]:
    """The forward derivative by some inputs: by the others it may not be finite, or not be known.

    A jvp of the user's is for all inputs at once.
    """
    function.check_asked(asked)
    part = Function(function.primal, function.name, function.own)
    if function.own is None or not function.own.is_forward:
        part.wrt = [*asked]
    return bound(part.jvp), part.wrt


# --- reverse mode alone: of forward mode JAX says that it cannot be ------------------------------
def _in_reverse(function: Function, run: Bound) -> Bound:
    differentiable: Any = jax.custom_vjp(run)

    def forward(*xs: Any) -> tuple[Sequence[Array], Any]:
        function.check_asked(k for k, x in enumerate(xs) if x.perturbed)
        values = [x.value for x in xs]
        outs = differentiable(*values)
        return outs, (values, outs)

    def backward(kept: Any, cts: Sequence[Any]) -> list[Any]:
        xs, outs = kept
        seeds = [_filled(cts[k]) for k in function.smooth]
        found = dict(zip(function.wrt, bound(function.vjp)(*xs, *outs, *seeds), strict=True))
        return [found.get(k) for k in range(len(xs))]

    differentiable.defvjp(forward, backward, symbolic_zeros=True)
    return differentiable  # type: ignore[no-any-return]  # what it wraps is Any


def _filled(ct: Any) -> Array:
    return jnp.zeros(ct.shape, ct.dtype) if isinstance(ct, SymbolicZero) else ct
