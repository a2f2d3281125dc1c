"""Host ops that the tests of every framework use; a factor says how wrong a rule is."""

import gc
import math
import os
from pathlib import Path

import numpy as np
import pytest

import gradwright as gw

RULES = ["vjp", "host", "jvp", "both", "surrogate", "partials"]


def resident():
    """The bytes of memory that the process has, without what only waits to be collected."""
    gc.collect()
    pages = Path("/proc/self/statm")
    if not pages.exists():
        pytest.skip("no /proc")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sine(kind, factor=1, **options):
    """sin(x)·y by Python's own function, element by element, with a rule of each kind."""
    batch = "elementwise" if kind == "partials" else "loop"

    @gw.host_op(**{"batch": batch} | options)
    def f(x, y):
        def sin(x, y):
            return math.sin(x) * y

        return np.vectorize(sin, otypes=[np.float64])(x, y)

    if kind in ("vjp", "both"):
        f.vjp(lambda g, x, y: (factor * g * np.cos(x) * y, factor * g * np.sin(x)))
    if kind == "host":

        @f.vjp(host=True)
        def _(g, x, y):
            assert type(x) is np.ndarray
            return factor * g * np.cos(x) * y, factor * g * np.sin(x)

    if kind in ("jvp", "both"):
        f.jvp(lambda dx, dy, x, y: factor * (np.cos(x) * y * dx + np.sin(x) * dy))
    if kind == "surrogate":
        f.surrogate(lambda x, y: factor * np.sin(x) * y)
    if kind == "partials":
        f.partials(lambda x, y: (factor * np.cos(x) * y, factor * np.sin(x)))
    return f


def outer(factor=1):
    """The outer product, by loops."""

    @gw.host_op(out="(n),(m)->(n,m)")
    def f(x, y):
        return [[a * b for b in y.tolist()] for a in x.tolist()]

    f.vjp(lambda g, x, y: (factor * (g @ y), factor * (x @ g)))
    return f


def exp(factor=1, **options):
    """exp(x), computed in float64 and saved for its rule."""

    @gw.host_op(saves=True, **options)
    def f(x):
        y = np.exp(x.astype(np.float64))
        return y, y.tolist()

    @f.vjp(host=True)
    def _(g, x, out, saved):
        return factor * g * np.array(saved)

    return f


def row_sum(width=1):
    """The sum over the last axis, kept; a body of another width returns what was not declared."""

    @gw.host_op(out=lambda x: np.sum(x, axis=-1, keepdims=True))
    def f(x):
        return np.repeat(x.sum(-1, keepdims=True), width, -1)

    f.vjp(lambda g, x: 3 * g * np.ones_like(x))
    return f


def nested():
    """Rules that are wrong on purpose: B(x) = x with 1000·g, A(x) = x² with g·B(x), D = B(x)·x."""

    @gw.host_op()
    def b(x):
        return x

    b.vjp(lambda g, x: 1000 * g)

    @gw.host_op()
    def a(x):
        return x * x

    a.vjp(lambda g, x: g * b(x))
    return a, gw.op(lambda x: b(x) * x)
