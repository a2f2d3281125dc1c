"""Ops on tensors: every primitive in eager mode, graphs and XLA, against the NumPy target."""

import numpy as np
import pytest
import scipy.special
from tensorflow_modes import MODES, gradients, jit, plain, tf, unknown_sizes, v1

import gradwright as gw
from gradwright import emit
from gradwright.primitives import PRIMITIVES
from gradwright.targets.tensorflow import SPELLING, UNSUPPORTED

pytestmark = pytest.mark.framework

UFUNCS = [
    p
    for p, row in PRIMITIVES.items()
    if row.kind in ("elementwise", "compare", "integer") and p not in UNSUPPORTED
]
SMOOTH = [p for p in UFUNCS if PRIMITIVES[p].kind == "elementwise" and PRIMITIVES[p].partials]
DTYPES = "float32 float64 float16 int32 int64 uint8 uint32 bool".split()
TOLERANCE = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-12}


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


@pytest.mark.parametrize("name", [n for n in UFUNCS if PRIMITIVES[n].ufunc.nin == 2])
def test_a_number_may_stand_on_either_side(name):
    ufunc = PRIMITIVES[name].ufunc
    x = np.int32([1, 2, 3]) if PRIMITIVES[name].kind == "integer" else np.array([0.3, 1, 2])
    for f in (lambda x: ufunc(2, x), lambda x: ufunc(x, 2)):
        for mode in (plain, unknown_sizes, v1):
            assert_close(mode(gw.op(f))(tf.constant(x)), gw.op(f)(x))


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


def assert_gradients(f, xs, order=1):
    """The gradients of an op in TensorFlow are those that gw.grad gives on NumPy arrays."""
    op, every = gw.op(f), tuple(range(len(xs)))
    wanted = first = gw.grad(lambda *ys: np.sum(f(*ys)), every)
    if order == 2:
        wanted = gw.grad(lambda *ys: sum(np.sum(g) for g in first(*ys)), every)
    expected = wanted(*xs)
    for mode in (plain, unknown_sizes):
        got = mode(gradients(op, order))(*map(tf.constant, xs))
        for a, b in zip(got, expected, strict=True):
            assert_close(a, b, TOLERANCE[b.dtype.name] * 10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SMOOTH)
def test_a_ufunc_has_our_gradients(name, dtype):
    ufunc, xs = PRIMITIVES[name].ufunc, points(name, dtype)
    if name == "zeta":
        f, xs = (lambda y: ufunc(np.float32(2).astype(dtype), y)), xs[1:]
    else:
        f = (lambda x: ufunc(x)) if len(xs) == 1 else (lambda x, y: ufunc(x, y))
    assert_gradients(f, xs)
    if dtype == "float64":
        assert_gradients(f, xs, order=2)


def reduction(f, axis, keepdims):
    return lambda x: f(x, axis=axis, keepdims=keepdims)


SHAPES = {
    **{
        f"{name} {axis} {keep}": reduction(getattr(np, name), axis, keep)
        for name in ("sum", "prod", "max", "min", "all", "any", "argmax", "argmin")
        for axis in (None, 0, -1, (), (0, 2))
        for keep in (False, True)
        if not (name.startswith("arg") and isinstance(axis, tuple))
    },
    "cumsum": lambda x: np.cumsum(x, 1),
    "reshape": lambda x: np.reshape(x, (-1, x.shape[0])),
    "transpose": lambda x: np.transpose(x, (2, 0, 1)),
    "expand_dims": lambda x: x[:, None, :, None],
    "squeeze": lambda x: np.squeeze(x[:, :1], 1),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, *x.shape)) * x,
    "broadcast": lambda x: x + x[:, :1] + x[0] + x[0, 0, 0],
    "index": lambda x: x[1:, 0, ::2],
    "negative": lambda x: x[-1, -2:, ::-1],
    "span": lambda x: x[:, : x.shape[0] - 1],
    "newest": lambda x: x[..., -1],
    "steps": lambda x: x[::2, 1:-1],
    "concatenate": lambda x: np.concatenate([x, x[:, :1], x], 1),
    "stack": lambda x: np.stack([x, x * x], -1),
    "flip": lambda x: np.flip(x, (0, 2)),
    "roll": lambda x: np.roll(x, (1, -2), (0, 2)),
    "roll all": lambda x: np.roll(x, 3),
    "take": lambda x: np.take(x, [[0, -1], [0, 0]], 1),
    "take front": lambda x: x[np.array([1, 1, -2])],
    "matmul": lambda x: x @ np.swapaxes(x, 1, 2),
    "vector": lambda x: x @ x[0, 0],
    "einsum": lambda x: np.einsum("ijk,ilk->jl", x, x),
    "einsum sum": lambda x: np.einsum("ijk->k", x),
    "mean": lambda x: (x - np.mean(x, -1, keepdims=True)) / (1 + np.std(x, -1, keepdims=True)),
    "where": lambda x: np.where(x > 0.5, x, 0) * x.shape[1],
    "captured": lambda x: x * np.arange(4.0).astype(np.float32) + np.ones((3, 4), np.float32),
    "size": lambda x: x / np.sqrt(x.shape[-1]) + x.size,
    "constant": lambda x: np.ones((2, 2)),
    "itself": lambda x: x,
}


@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_reductions_are_numpys(name, mode):
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    op = gw.op(SHAPES[name])
    assert_close(mode(op)(tf.constant(x)), op(x))


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_reductions_have_our_gradients(name):
    x = np.random.default_rng(1).normal(size=(2, 3, 4))
    if "arg" in name or name.startswith(("all", "any", "constant")):
        pytest.skip("not differentiable")
    f = SHAPES[name]
    assert_gradients(lambda x: f(x.astype(np.float32)) * 1, [x.astype(np.float32)])
    assert_gradients(lambda x: f(x) ** 3, [x], order=2) if name != "captured" else None


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d[0] in "iub"])
@pytest.mark.parametrize("name", [n for n in SHAPES if n not in ("mean", "size", "captured")])
def test_shapes_and_reductions_of_integers(name, dtype):
    x = np.random.default_rng(1).integers(0, 3, (2, 3, 4)).astype(dtype)
    op = gw.op(SHAPES[name])
    try:
        wanted = op(x)
    except (gw.TraceError, TypeError):
        pytest.skip("not in NumPy")
    for mode in (plain, unknown_sizes):
        assert_close(mode(op)(tf.constant(x)), wanted)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_reductions_find_a_nan(name, axis):
    x = np.array([[1, np.nan, np.inf], [np.nan, np.nan, -np.inf], [2, 3, 3]], np.float32)
    op = gw.op(lambda x: getattr(np, name)(x, axis=axis))
    for mode in (plain, jit):
        assert_close(mode(op)(tf.constant(x)), op(x))


@pytest.mark.parametrize("prim", UNSUPPORTED)
def test_what_tensorflow_cannot_do_says_why(prim):
    name = prim.split()[0]
    if name == "global_sum":
        pytest.skip("not in an op")
    ufunc = getattr(scipy.special, name, None) or getattr(np, name)
    op = gw.op(lambda x: ufunc(*[x] * ufunc.nin))
    x = tf.zeros(2, prim.split()[-1] if " " in prim else tf.float32)
    with pytest.raises(gw.TraceError, match=f"(?s){name}.*test_tensorflow_prim.*instead"):
        op(x)


def test_every_primitive_is_spelled_or_refused():
    structural = {"call", "item"}
    for prim, row in PRIMITIVES.items():
        known = {*SPELLING.forms, *UNSUPPORTED, *emit._INFIX, *emit._PREFIX, *structural}
        assert prim in known or hasattr(tf.math, row.name), prim
