"""Ops on tensors: every primitive in eager mode, graphs and XLA, against the NumPy target."""

import functools
import warnings

import gradwright as gw
import numpy as np
import pytest
from gradwright import philox
from gradwright.primitives import PRIMITIVES

tf = pytest.importorskip("tensorflow")
from gradwright import emit  # noqa: E402
from gradwright.targets.tensorflow import SPELLING, UNSUPPORTED  # noqa: E402

pytestmark = pytest.mark.framework

UFUNCS = [
    p
    for p, row in PRIMITIVES.items()
    if row.kind in ("elementwise", "compare", "integer") and p not in UNSUPPORTED
]
SMOOTH = [p for p in UFUNCS if PRIMITIVES[p].kind == "elementwise" and PRIMITIVES[p].partials]
DTYPES = "float32 float64 float16 int32 int64 uint8 uint32 bool".split()
TOLERANCE = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-12}


def plain(f):
    return f


def function(f):
    return tf.function(f, autograph=False)


def unknown_sizes(f):
    """The function traced without knowing any size."""

    def run(*xs):
        specs = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in xs]
        return tf.function(f, autograph=False, input_signature=specs)(*xs)

    return run


def jit(f):
    return tf.function(f, autograph=False, jit_compile=True)


def v1(f):
    """The function in a graph of TensorFlow 1, with placeholders of unknown sizes."""

    def run(*xs):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            ins = [tf.compat.v1.placeholder(x.dtype, [None] * len(x.shape)) for x in xs]
            return session.run(f(*ins), dict(zip(ins, map(np.asarray, xs), strict=True)))

    return run


MODES = [plain, function, unknown_sizes, jit, v1]


def specials(dtype):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        top = np.iinfo(dtype)
        return np.unique(np.array([top.min, top.max, 0, 1, 2, 3, 5, 7, 100], dtype))
    edges = [np.inf, 0.0, 0.3, 0.5, 1, 1.5, 2, 2.5, 3, 7, 30]
    return np.array([np.nan, *edges, *(-e for e in edges)], dtype)


def arguments(name, dtype):
    """All pairs of special values; integers to negative powers raise in NumPy."""
    x = specials(dtype)
    if name == "reciprocal" and x.dtype.kind in "iu":
        x = x[x != 0]
    if name in ("zeta", "betaln"):  # their domains; beyond, SciPy has conventions of its own
        x = x[(x > 1) & (x < 50)] if name == "zeta" else x[(x >= 0) & (x < 50)]
    if PRIMITIVES[name].module == "scipy.special":  # the sign of zero is not part of the contract
        x = x[~(np.signbit(x) & (x == 0))] if x.dtype.kind == "f" else x
    if PRIMITIVES[name].ufunc.nin == 1:
        return [x]
    return [x[:, None], x[(x >= 0) & (x < 20)] if name == "power" and x.dtype.kind in "iu" else x]


def ufunc_op(name):
    ufunc = PRIMITIVES[name].ufunc
    return gw.op((lambda x: ufunc(x)) if ufunc.nin == 1 else (lambda x, y: ufunc(x, y)))


def assert_close(got, wanted, tolerance=None):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    tolerance = tolerance or TOLERANCE.get(wanted.dtype.name, 0)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufunc_has_numpys_values(name, dtype):
    op, xs = ufunc_op(name), arguments(name, dtype)
    try:
        wanted = op(*xs)
    except gw.TraceError:
        pytest.skip("NumPy has no such loop")
    tensors = [tf.constant(x) for x in xs]
    if f"{name} {wanted.dtype}" in UNSUPPORTED:
        with pytest.raises(gw.TraceError, match="kernels"):
            op(*tensors)
        return
    assert_close(op(*tensors), wanted)
    assert_close(unknown_sizes(op)(*tensors), wanted)
    assert_close(v1(op)(*tensors), wanted)


@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufunc_has_numpys_values_in_xla(name):
    if name in ("j0", "j1"):
        pytest.skip("XLA has no kernel for it, and says so")
    op = ufunc_op(name)
    xs = points(name, "int32" if PRIMITIVES[name].kind == "integer" else "float32")
    assert_close(jit(op)(*map(tf.constant, xs)), op(*xs))


def points(name, dtype):
    """Random arguments where the primitive is smooth."""
    rng = np.random.default_rng(0)
    domain = PRIMITIVES[name].domain
    domain = (domain * 2)[: PRIMITIVES[name].ufunc.nin]
    return [rng.uniform(a, b, 5).astype(dtype) for a, b in domain]
