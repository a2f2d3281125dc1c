"""What the tests of the JAX target share: x64 on, and the ways in which JAX runs a function."""

import numpy as np
import pytest

import gradwright as gw

jax = pytest.importorskip("jax")
jnp = jax.numpy

KINDS = ["partials", "vjp", "jvp", "surrogate"]


@pytest.fixture
def x64():
    """64-bit numbers, which JAX has only when asked."""
    with jax.enable_x64(True):
        yield


def sine(kind, factor=1):
    """An op with a rule of each kind, `factor` times the true derivative."""

    @gw.op
    def f(x, y):
        return np.sin(x) * y

    rules = {
        "partials": lambda x, y: (factor * np.cos(x) * y, factor * np.sin(x)),
        "vjp": lambda g, x, y: (factor * g * np.cos(x) * y, factor * g * np.sin(x)),
        "jvp": lambda dx, dy, x, y: factor * (np.cos(x) * y * dx + np.sin(x) * dy),
        "surrogate": lambda x, y: factor * np.sin(x) * y,
    }
    if kind:
        getattr(f, kind)(rules[kind])
    return f


def fwd_fwd(f):
    return jax.jacfwd(jax.jacfwd(f))


def fwd_rev(f):
    return jax.jacfwd(jax.jacrev(f))


def rev_fwd(f):
    return jax.jacrev(jax.jacfwd(f))


def rev_rev(f):
    return jax.jacrev(jax.jacrev(f))


SECOND = [fwd_fwd, fwd_rev, rev_fwd, rev_rev]
