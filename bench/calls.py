"""What a call of a small op costs, in torch and TensorFlow: ours, and one written by hand.

A product, since both run the same kernels for it and its gradient.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

import gradwright as gw

from .runner import OURS, Contest

CALLS = 500
X, Y = np.float32([1.0, 1.3, 1.7, 2.0]), np.float32([0.3, 0.4, 0.6, 0.7])
Run = Callable[[], Any]


@gw.op
def times(x: Any, y: Any) -> Any:
    return x * y


@times.partials
def _(x: Any, y: Any) -> Any:
    return y, x


def contests(data: str | None = None) -> Iterator[Contest]:
    """Values, and values with their gradient, of four floats."""
    if find_spec("torch"):
        yield from _torch()
    if find_spec("tensorflow"):
        yield from _tensorflow()


def _contest(where: str, ours: Run, peer: str, by_hand: Run, limit: float) -> Contest:
    name = f"x times y of {X.size} floats, {CALLS} calls {where}"
    return Contest(name, {OURS: _times(ours), peer: _times(by_hand)}, {peer: limit})


def _times(call: Run) -> Run:
    def run() -> None:
        for _ in range(CALLS):
            call()

    return run


# --- torch ---------------------------------------------------------------------------------------
def _torch() -> Iterator[Contest]:
    import torch

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y, g * x

    by_hand, peer = Times.apply, "autograd.Function"
    x, y = torch.tensor(X), torch.tensor(Y)
    u, v = x.clone().requires_grad_(), y.clone().requires_grad_()
    g = torch.ones(X.size)
    yield _contest("in torch", lambda: times(x, y), peer, lambda: by_hand(x, y), 1.6)
    yield _contest("in torch, recorded", lambda: times(u, v), peer, lambda: by_hand(u, v), 1.6)
    yield _contest("in torch, by name", lambda: times(x=x, y=y), peer, lambda: by_hand(x, y), 1.6)
    yield _contest(
        "in torch, forward and backward",
        lambda: torch.autograd.grad(times(u, v), (u, v), g),
        peer,
        lambda: torch.autograd.grad(by_hand(u, v), (u, v), g),
        1.6,
    )


# --- TensorFlow ----------------------------------------------------------------------------------
def _tensorflow() -> Iterator[Contest]:
    import tensorflow as tf

    @tf.custom_gradient
    def by_hand(x: Any, y: Any) -> Any:
        return x * y, lambda g: (g * y, g * x)

    def with_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
        def both(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch((x, y))
                out = f(x, y)
            return tape.gradient(out, (x, y))

        return both

    peer = "tf.custom_gradient"
    x, y = tf.constant(X), tf.constant(Y)
    for what, made in {"": lambda f: f, ", with the gradient": with_gradient}.items():
        ours, theirs = made(times), made(by_hand)
        yield _contest(f"in eager TF{what}", _on(ours, x, y), peer, _on(theirs, x, y), 2.0)
        ours, theirs = tf.function(ours), tf.function(theirs)
        yield _contest(f"in tf.function{what}", _on(ours, x, y), peer, _on(theirs, x, y), 1.1)


def _on(f: Callable[..., Any], *xs: Any) -> Run:
    return lambda: f(*xs)
