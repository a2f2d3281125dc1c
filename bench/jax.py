"""Ops and AdamW in JAX: ours against what is written by hand, and against optax."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

import gradwright as gw

from .runner import OURS, Contest

FLOATS, CALLS, MANY, STEPS = 4, 500, 4_000_000, 5
Run = Callable[[], Any]


def contests(data: str | None = None) -> Iterator[Contest]:
    """Calls of a small op with its gradient, under jit and eagerly; AdamW on 4M weights."""
    if not (find_spec("jax") and find_spec("optax")):
        return
    import jax

    ours, by_hand = _ours(), _by_hand(jax)
    for how, calls, limit in ((jax.jit, CALLS, 1.1), (lambda f: f, CALLS // 10, 2.0)):
        name = "under jit" if how is jax.jit else "eagerly"
        runs = {
            OURS: _called(jax, how(ours), calls),
            "custom_jvp": _called(jax, how(by_hand), calls),
        }
        yield Contest(
            f"x mod y on {FLOATS} floats, {calls} calls {name}", runs, {"custom_jvp": limit}
        )
        both = {OURS: ours, "custom_jvp": by_hand}
        runs = {k: _called(jax, how(jax.grad(_summed(f))), calls) for k, f in both.items()}
        yield Contest(f"its gradient, {calls} calls {name}", runs, {"custom_jvp": limit})
    yield Contest("AdamW, 4M weights, 5 steps under jit", _adamw(jax), {"optax.adamw": 1.05})


# --- a small op ----------------------------------------------------------------------------------
def _ours() -> Callable[..., Any]:
    @gw.op
    def mod(x: Any, y: Any) -> Any:
        return np.mod(x, y)

    @mod.partials
    def _(x: Any, y: Any) -> Any:
        return 1, -np.floor_divide(x, y)

    return mod


def _by_hand(jax: Any) -> Callable[..., Any]:
    jnp = jax.numpy
    mod = jax.custom_jvp(lambda x, y: jnp.mod(x, y))

    @mod.defjvp
    def _(xs: Any, ts: Any) -> Any:
        (x, y), (dx, dy) = xs, ts
        return mod(x, y), dx - jnp.floor_divide(x, y) * dy

    by_hand: Callable[..., Any] = mod
    return by_hand


def _summed(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: f(x, y).sum()


def _called(jax: Any, f: Callable[..., Any], times: int) -> Run:
    x, y = jax.numpy.linspace(1.0, 2.0, FLOATS), jax.numpy.linspace(0.3, 0.7, FLOATS)

    def run() -> None:
        for _ in range(times):
            out = f(x, y)
        out.block_until_ready()

    return run


# --- AdamW ---------------------------------------------------------------------------------------
def _adamw(jax: Any) -> dict[str, Run]:
    import optax

    theirs = optax.adamw(1e-3, weight_decay=1e-2)
    return {
        OURS: _updated(jax, optax, gw.rules.adamw.optax(lr=1e-3, weight_decay=1e-2)),
        "optax.adamw": _updated(jax, optax, theirs),
        "gradwright, step": _updated(
            jax, optax, gw.rules.adamw.optax(lr=1e-3, weight_decay=1e-2), True
        ),
    }


def _updated(jax: Any, optax: Any, transformation: Any, exact: bool = False) -> Run:
    """Steps that may use the memory of what they replace."""
    w, g = jax.numpy.zeros(MANY), jax.numpy.ones(MANY)

    def step(w: Any, state: Any, g: Any) -> Any:
        if exact:
            return transformation.step(g, state, w)
        moved, state = transformation.update(g, state, w)
        return optax.apply_updates(w, moved), state

    compiled = jax.jit(step, donate_argnums=(0, 1))
    now = [w, transformation.init(w)]

    def run() -> None:
        for _ in range(STEPS):
            now[:] = compiled(*now, g)
        now[0].block_until_ready()

    return run
