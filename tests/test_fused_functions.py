"""The fused target's own functions: within four units in the last place, and what is special."""

import math
from pathlib import Path

import numpy as np
import pytest
from fused_graphs import fused, graph_of, run

from gradwright.primitives import PRIMITIVES
from gradwright.targets.fused.functions import POLYNOMIALS

FLOATS = ("float32", "float64")
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -2.5, 1e-30, -1e-30]
SPECIAL += [
    3e38,
    -3e38,
    88.7,
    89.0,
    -87.0,
    -103.9,
    709.0,
    710.0,
    -708.0,
    -746.0,
    1e-10,
    27.0,
    -27.0,
]
BY_PYTHON = {"erf": math.erf, "erfc": math.erfc}


def tables():
    from numpy._core import tests

    return Path(tests.__path__[0]) / "data"


def arguments(dtype, count, size):
    """Special values in every combination, any bits, and what is usual."""
    rng = np.random.default_rng(1)
    bits = 8 * np.dtype(dtype).itemsize
    grids = [a.ravel() for a in np.meshgrid(*[np.array(SPECIAL, dtype)] * count)]
    return [
        np.concatenate(
            [
                grid,
                rng.integers(0, 2**bits - 1, size, f"uint{bits}").view(dtype),
                (4 * rng.normal(size=size)).astype(dtype),
                rng.uniform(-1.5, 1.5, size).astype(dtype),
                (10.0 ** rng.uniform(-8, 3, size) * rng.choice([-1, 1], size)).astype(dtype),
                (1 + 0.01 * rng.normal(size=size)).astype(dtype),
            ]
        )
        for grid in grids
    ]


def reference(name, xs):
    """More digits than the result has, where somebody has them."""
    ufunc = PRIMITIVES[name].ufunc
    if xs[0].dtype == np.float32:
        return ufunc(*[x.astype(np.float64) for x in xs])
    if name in BY_PYTHON:
        return np.array([BY_PYTHON[name](x) for x in xs[0].tolist()])
    return ufunc(*[x.astype(np.longdouble) for x in xs])


def errors(got, exact, want):
    """In units in the last place; NaN and what is too small to count have none."""
    tiny = np.finfo(want.dtype).tiny
    normal = np.isfinite(want) & (np.abs(exact) > tiny)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    same |= (np.abs(got) <= tiny) & (np.abs(want) <= tiny)
    unit = np.spacing(np.abs(want)).astype(exact.dtype)
    found = np.where(normal, np.abs(got.astype(exact.dtype) - exact) / unit, np.where(same, 0, 1e9))
    return np.where(np.isnan(found), 1e9, found)


def near_zero(x, y, got, exact):
    """Where logaddexp is the small difference of two numbers, and right to the digits of those."""
    with np.errstate(all="ignore"):
        apart = np.abs(x - y)
        scale = np.abs(np.maximum(x, y)) + (1 + apart) * np.exp(-apart)
        limit = 4 * np.finfo(x.dtype).eps * scale + np.finfo(x.dtype).tiny
        return np.abs(got - exact) <= limit


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_functions_are_within_four_ulp(name, dtype):
    count = PRIMITIVES[name].ufunc.nin
    xs = arguments(dtype, count, 20_000 if dtype == "float32" else 5_000)
    with np.errstate(all="ignore"):
        exact = reference(name, xs)
        want = exact.astype(dtype)
        (got,), _ = run(fused(graph_of(name, [dtype] * count)), *xs)
        wrong = errors(got, exact, want)
    if name == "logaddexp":
        wrong = np.where(near_zero(*xs, got, exact), 0, wrong)
    worst = int(np.argmax(wrong))
    assert wrong[worst] <= 4, [float(a[worst]) for a in (*xs, got, want)]


NAMES = (
    "arccos arccosh arcsin arcsinh arctan arctanh cbrt cos cosh exp exp2 expm1 log log10 log1p "
    "log2 sin sinh tan tanh"
).split()


def numbers(texts, dtype):
    """Hexadecimal bits, as the tables have them."""
    unsigned = np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
    return np.array([int(t, 16) for t in texts], unsigned).view(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_numpys_own_tables_hold(name):
    path = tables() / f"umath-validation-set-{name}.csv"
    rows = [line.split(",") for line in path.read_text().splitlines() if line[:3] == "np."]
    assert len(rows) > 200
    for dtype in FLOATS:
        mine = [row[1:] for row in rows if row[0] == f"np.{dtype}"]
        x, want = (numbers([row[k] for row in mine], dtype) for k in (0, 1))
        bound = np.array([max(4, int(row[2])) for row in mine])
        (got,), _ = run(fused(graph_of(name, [dtype])), x)
        with np.errstate(all="ignore"):
            wrong = errors(got, want.astype(np.longdouble), want) > bound
        assert not wrong.any(), [(a[wrong][:4]) for a in (x, got, want)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent", [-1, 0, 0.5, 1, 2, 3, 4, 2.5, -3])
def test_powers_by_a_number(exponent, dtype):
    from gradwright.graph import Graph
    from gradwright.trace.tracer import Tracer, node

    graph = Graph()
    x = Tracer(graph, graph.input("x", (None,), dtype))
    graph.outputs = (node(graph, "power", [x, Tracer(graph, graph.const(exponent, dtype))]).i,)
    (values,) = arguments(dtype, 1, 3000)
    with np.errstate(all="ignore"):
        exact = np.power(values.astype(np.longdouble), np.longdouble(exponent))
        # x**0.5 is NaN at -inf in NumPy 2.4, and infinity before
        want = np.where(np.isinf(values), np.power(values, exponent), exact.astype(dtype))
        exact = np.where(np.isinf(values), want, exact)
        (got,), _ = run(fused(graph), values)
        assert errors(got, exact, want).max() <= 4
