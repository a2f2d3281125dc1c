"""Derivatives of every float primitive against differences, and the rules a user writes."""

import itertools
import zlib

import numpy as np
import pytest
from reference import assert_same, evaluate

import gradwright as gw
from gradwright import emit
from gradwright.primitives import PRIMITIVES
from gradwright.targets.numpy import SPELLING
from gradwright.targets.numpy.op import meta

EPS = np.finfo(np.float64).eps
STEPS = 2.0 ** -np.arange(5, 9)  # powers of two, and points on a grid: x ± h is exact


def differences(f, xs, vs, ulps=32):
    """The derivative of f in a direction, and a bound of its error.

    Central differences at four steps, extrapolated three times. What was left out is below the
    last correction, what was rounded below 32 ulp of f (of 1, where f is smaller: its terms are
    not) over the smallest step.
    """
    moved = [
        [f(*(x + s * h * v for x, v in zip(xs, vs, strict=True))) for s in (1, -1)] for h in STEPS
    ]
    table = [(up - down) / (2 * h) for (up, down), h in zip(moved, STEPS, strict=True)]
    for k in range(1, len(STEPS)):
        best = table[-1]
        table = [(4**k * b - a) / (4**k - 1) for a, b in itertools.pairwise(table)]
    size = np.maximum(np.max(np.abs(moved), axis=(0, 1)), 1)
    return table[0], np.abs(table[0] - best) + ulps * EPS * size / STEPS[-1]


def on_grid(x):
    return np.round(x * 2.0**20) / 2.0**20


def points(name, count=96):
    """Arguments from the domain of a primitive, and of each a direction alone."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    row = PRIMITIVES[name]
    xs = [on_grid(rng.uniform(low, high, count)) for low, high in row.domain[: row.ufunc.nin]]
    return xs, [[np.full(count, float(j == k)) for j in range(len(xs))] for k in range(len(xs))]


def assert_near_differences(got, f, xs, vs, ulps=32):
    """got is the derivative, wherever f has no kink or jump within the largest step."""
    wanted, error = differences(f, xs, vs, ulps)
    smooth = error < 1e-6 * (1 + np.abs(wanted))
    assert np.mean(smooth) > 0.5, "hardly a point without a kink near: not a test"
    assert np.all(np.isfinite(got))
    assert np.all((np.abs(got - wanted) <= error)[smooth])


# --- elementwise primitives ---------------------------------------------------------------------
UNKNOWN = {"nextafter": (0, 1), "zeta": (0,)}  # the table has no derivative by these arguments
ELEMENTWISE = [p for p, row in PRIMITIVES.items() if row.kind == "elementwise"]
CASES = [
    (name, k)
    for name in ELEMENTWISE
    for k in range(PRIMITIVES[name].ufunc.nin)
    if k not in UNKNOWN.get(name, ())
]


def function_of(name):
    ufunc = PRIMITIVES[name].ufunc
    return (lambda x: ufunc(x)) if ufunc.nin == 1 else (lambda x, y: ufunc(x, y))


def slope(f, k):
    """The derivative of an elementwise function by argument k, by reverse mode."""

    def total(*xs):
        return np.sum(f(*xs))

    return gw.grad(total, argnums=k)


def slope_forward(f, k):
    def derivative(*xs):
        return gw.jvp(f, xs, [np.ones_like(x) if j == k else None for j, x in enumerate(xs)])[1]

    return derivative


MODES = {"reverse": slope, "forward": slope_forward}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name, k", CASES)
def test_first_derivative(name, k, mode):
    xs, directions = points(name)
    got = MODES[mode](function_of(name), k)(*xs)
    assert_near_differences(got, PRIMITIVES[name].ufunc, xs, directions[k])


@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
@pytest.mark.parametrize("name, k", CASES)
def test_second_derivative(name, k, inner, outer):
    xs, directions = points(name)
    first = MODES[inner](function_of(name), k)
    for j in range(len(xs)):
        if j not in UNKNOWN.get(name, ()):
            got = MODES[outer](first, j)(*xs)
            assert_near_differences(got, gw.op(first), xs, directions[j])


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if PRIMITIVES[name].ufunc.nin == 1])
def test_third_derivative(name):
    xs, directions = points(name)
    second = slope_forward(slope(function_of(name), 0), 0)
    # second derivatives are sums of terms that cancel: log_ndtr's, at -3, are 100 times the sum
    assert_near_differences(slope(second, 0)(*xs), gw.op(second), xs, directions[0], ulps=1000)


@pytest.mark.parametrize("name, k", [(name, k) for name, ks in UNKNOWN.items() for k in ks])
@pytest.mark.parametrize("mode", MODES)
def test_an_unknown_derivative_raises(name, k, mode):
    xs, _ = points(name)
    with pytest.raises(gw.TraceError, match=rf"derivative of {name} .* argument {k} is not known"):
        MODES[mode](function_of(name), k)(*xs)


# --- shapes: name, function, shapes of its arguments --------------------------------------------
AT = np.array([[2, 0, 0], [1, 2, -1]])
HALF = np.array([True, False, True, True])
SHAPED = {
    "column by row": (lambda x, y: x * y, (3, 1), (1, 4)),
    "number by array": (lambda x, y: x * y - y / (2 + x * x), (), (4,)),
    "vector by matrix": (lambda x, y: np.hypot(x, y + 4), (4,), (3, 4)),
    "three ranks": (lambda x, y, z: x * y * z, (2, 1, 4), (3, 1), (4,)),
    "size one by size one": (lambda x, y: x * y, (1,), (1, 1)),
    "sum": (np.sum, (3, 4)),
    "sum of an axis": (lambda x: np.sum(x, axis=-2), (2, 3, 4)),
    "sum of axes, kept": (lambda x: np.sum(x, axis=(0, -1), keepdims=True), (2, 3, 4)),
    "mean": (lambda x: np.mean(x, axis=1), (3, 4)),
    "var": (lambda x: np.var(x, axis=0, ddof=1), (3, 4)),
    "std": (lambda x: np.std(x, axis=(0, 1), keepdims=True), (3, 4)),
    "norm": (lambda x: np.linalg.norm(x, axis=1), (3, 4)),
    "softmax": (
        lambda x: np.exp(x - np.max(x, -1, keepdims=True)) / np.sum(np.exp(x), -1)[..., None],
        (3, 4),
    ),
    "prod": (np.prod, (2, 3)),
    "prod of an axis": (lambda x: np.prod(x, axis=1), (2, 3, 2)),
    "prod of axes": (lambda x: np.prod(x, axis=(0, -1), keepdims=True), (2, 3, 2)),
    "max": (np.max, (3, 4)),
    "max of an axis": (lambda x: np.max(x, axis=-1, keepdims=True), (3, 4)),
    "min of axes": (lambda x: np.min(x, axis=(0, 2)), (2, 3, 4)),
    "ptp": (lambda x: np.ptp(x, axis=0), (3, 4)),
    "cumsum": (np.cumsum, (3, 4)),
    "cumsum of an axis": (lambda x: np.cumsum(x, axis=-2), (2, 3, 4)),
    "reshape": (lambda x: np.reshape(x, (4, -1)), (3, 4)),
    "transpose": (lambda x: np.transpose(x, (2, 0, 1)), (2, 3, 4)),
    "T": (lambda x: x.T, (2, 3, 4)),
    "moveaxis": (lambda x: np.moveaxis(x, 0, -1), (2, 3, 4)),
    "expand_dims": (lambda x: x[:, None, :, None], (3, 4)),
    "squeeze": (lambda x: np.squeeze(x, (0, -1)), (1, 3, 1)),
    "broadcast_to": (lambda x: np.broadcast_to(x, (2, 3, 4)), (3, 1)),
    "slice": (lambda x: x[1:, ::2], (3, 4)),
    "slice backwards": (lambda x: x[::-1, 3:0:-2], (3, 4)),
    "slice to before the end": (lambda x: x[:-1, -3:-1], (3, 4)),
    "at": (lambda x: x[-1, :, 2], (2, 3, 4)),
    "diff": (lambda x: np.diff(x, axis=0), (3, 4)),
    "split": (lambda x: np.split(x, 2)[1] * np.split(x, [1, 2], axis=1)[0][:2], (4, 3)),
    "concatenate": (lambda x, y: np.concatenate([x, y, x], axis=-1), (3, 2), (3, 4)),
    "stack": (lambda x, y: np.stack([x, y, x], axis=1), (3, 4), (3, 4)),
    "flip": (lambda x: np.flip(x, (0, -1)), (2, 3, 4)),
    "roll": (lambda x: np.roll(x, (1, -2), axis=(0, 1)), (3, 4)),
    "roll flat": (lambda x: np.roll(x, 5), (3, 4)),
    "take, repeated": (lambda x: np.take(x, AT, axis=1), (2, 3, 2)),
    "take flat": (lambda x: np.take(x, AT), (3, 4)),
    "index array": (lambda x: x[:, AT, 0], (2, 3, 4)),
    "where": (lambda x, y: np.where(HALF, x, np.sin(y)), (3, 4), (4,)),
    "where by value": (lambda x, y: np.where(x > y, x * y, 3), (3, 1), (4,)),
    "select": (lambda x: np.select([x > 1, x > 0], [x * x, np.sin(x)], 0), (3, 4)),
    "clip": (lambda x: np.clip(x, -0.5, 0.5), (3, 4)),
    "matrix by matrix": (lambda x, y: x @ y, (3, 4), (4, 2)),
    "matrix by vector": (lambda x, y: x @ y, (3, 4), (4,)),
    "vector by matrix product": (lambda x, y: x @ y, (4,), (2, 4, 3)),
    "vector by vector": (lambda x, y: x @ y, (4,), (4,)),
    "batches": (lambda x, y: x @ y, (5, 1, 3, 4), (2, 4, 2)),
    "batch of one": (lambda x, y: x @ y, (1, 3, 4), (5, 4, 2)),
    "a matrix squared": (lambda x: x @ x, (3, 3)),
    "dot": (lambda x, y: np.dot(x, y), (2, 3), (4, 3, 2)),
    "outer": (np.outer, (3,), (4,)),
    "tensordot": (lambda x, y: np.tensordot(x, y, axes=((0, 1), (1, 0))), (3, 4, 2), (4, 3, 5)),
    "inner": (np.inner, (2, 4), (3, 4)),
    "einsum product": (lambda x, y: np.einsum("ij,jk->ik", x, y), (3, 4), (4, 2)),
    "einsum implicit": (lambda x, y: np.einsum("ji,jk", x, y), (3, 4), (3, 2)),
    "einsum one": (lambda x: np.einsum("ijk->kj", x), (2, 3, 4)),
    "einsum total": (lambda x: np.einsum("ij->", x), (3, 4)),
    "einsum dots": (lambda x, y: np.einsum("...ij,...j->...i", x, y), (2, 3, 4), (4,)),
    "einsum three": (lambda x, y, z: np.einsum("ij,jk,k->i", x, y, z), (3, 4), (4, 2), (2,)),
    "einsum batch": (lambda x, y: np.einsum("bij,bjk->bik", x, y), (2, 3, 4), (2, 4, 2)),
    "einsum same": (lambda x: np.einsum("ij,kj->ik", x, x), (3, 4)),
    "sizes": (lambda x: x * x.shape[0] / (x.size + 1), (3, 4)),
    "through integers": (lambda x: x * np.floor(x).astype(np.int64) + x.astype(np.float64), (3, 4)),
    "through a constant": (lambda x: x * gw.stop_gradient(x), (3, 4)),
    "like": (lambda x: np.zeros_like(x) + np.ones_like(x) * x + np.full_like(x, 2), (3, 4)),
    "the argument itself": (lambda x: x, (3, 4)),
    "no dependence": (lambda x: np.ones_like(x), (3, 4)),
}
KINDS = ("select", "reduce", "scan", "shape", "contract", "cast")
FLAT = {"all", "any", "argmax", "argmin"}  # their results are no floats
STOPPED = {"through a constant"}  # its derivative is not that of its value, as is meant


def arrays(shapes):
    """Distinct numbers, none of them within a step of another: max has no ties, where no jumps."""
    rng = np.random.default_rng(3)
    total = sum(int(np.prod(s)) for s in shapes)
    grid = rng.permutation(np.arange(total) - total // 2) / 8 + 1 / 16
    parts = np.split(grid, np.cumsum([int(np.prod(s)) for s in shapes])[:-1])
    xs = [part.reshape(s) for part, s in zip(parts, shapes, strict=True)]
    return xs, [on_grid(rng.uniform(-0.5, 0.5, s)) for s in shapes], rng


def inner_product(us, vs):
    return sum(np.sum(u * v) for u, v in zip(us, vs, strict=True))


def assert_small(difference, *terms):
    """A difference of two sums of at most 1000 products, each sum rounded in its own order."""
    size = sum(np.sum(np.abs(t)) for t in terms)
    assert np.all(np.abs(difference) <= 1000 * EPS * size)


def test_every_primitive_of_arrays_is_differentiated():
    seen = set()
    for function, *shapes in SHAPED.values():
        xs, _, _ = arrays(shapes)
        op = gw.op(lambda *xs, function=function: function(*xs))
        leaves, layout = op.signature.layout(xs, {})
        f = op.traced([meta(x, "f") for x in leaves], layout).function
        for graph in (f.primal, f.vjp.primal):
            seen |= {graph.nodes[i].prim for i in graph.live()}
    wanted = {name for name, p in PRIMITIVES.items() if p.kind in KINDS}
    assert wanted - FLAT - seen == set()


@pytest.mark.parametrize("name", SHAPED)
def test_forward_is_the_difference_and_reverse_its_transpose(name):
    function, *shapes = SHAPED[name]
    xs, vs, rng = arrays(shapes)
    out, t = gw.jvp(function, tuple(xs), tuple(vs))
    assert_same(np.shape(t), np.shape(out))
    if name not in STOPPED:
        wanted, error = differences(function, xs, vs)
        assert np.all(error < 1e-6)
        assert np.all(np.abs(t - wanted) <= error)
    u = rng.uniform(-1, 1, np.shape(out))
    again, pull = gw.vjp(function, *xs)
    assert_same(again, out)
    back = pull(u)
    assert [(b.shape, b.dtype) for b in back] == [(x.shape, x.dtype) for x in xs]
    assert_small(
        inner_product([u], [t]) - inner_product(back, vs), u * t, *map(np.multiply, back, vs)
    )


@pytest.mark.parametrize("name", [name for name in SHAPED if name not in STOPPED])
def test_hessian_times_vector(name):
    """The same by reverse over reverse and forward over reverse, and it is the difference."""
    function, *shapes = SHAPED[name]
    xs, vs, rng = arrays(shapes)
    count = range(len(xs))
    u = rng.uniform(-1, 1, np.shape(function(*xs)))

    def curved(*xs):
        y = function(*xs)
        return np.sum(u * y + 0.5 * y * y)

    first = gw.grad(curved, argnums=tuple(count))
    rest = gw.grad(lambda *xs: inner_product(first(*xs), vs), argnums=tuple(count))(*xs)
    _, forward = gw.jvp(first, tuple(xs), tuple(vs))
    for k in count:
        wanted, error = differences(lambda *xs, k=k: first(*xs)[k], xs, vs)
        bound = error + 1000 * EPS * (1 + np.abs(wanted))
        assert np.all(bound < 1e-5)
        for got in rest[k], forward[k]:
            assert got.shape == xs[k].shape
            assert np.all(np.abs(got - wanted) <= bound)


@pytest.mark.parametrize("name", SHAPED)
def test_the_functions_that_bindings_see(name):
    """`Function.vjp` and `.jvp`, run as source and by the reference, are `gw.vjp` and `gw.jvp`."""
    function, *shapes = SHAPED[name]
    xs, vs, rng = arrays(shapes)
    op = gw.op(lambda *xs: function(*xs))
    leaves, layout = op.signature.layout(xs, {})
    f = op.traced([meta(x, "f") for x in leaves], layout).function
    (out,) = emit.program(f.primal, "f", SPELLING)(*xs)
    u = rng.uniform(-1, 1, np.shape(out))
    wanted = {
        "vjp": (gw.vjp(function, *xs)[1](u), (u,)),
        "jvp": ((gw.jvp(function, tuple(xs), tuple(vs))[1],), vs),
    }
    for mode, (values, seeds) in wanted.items():
        graph = getattr(f, mode).primal
        graph.verify()
        given = [*xs, out, *seeds]
        got = emit.program(graph, mode, SPELLING)(*given)
        for a, b, c in zip(got, values, evaluate(graph, *given), strict=True):
            assert_same(a, c)
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


# --- special places -----------------------------------------------------------------------------
def hessian(f, x):
    """Second derivatives of a function of one vector, a row at a time, in two modes."""
    first = gw.grad(f)
    rows = [gw.grad(lambda x, k=k: first(x)[k])(x) for k in range(len(x))]
    forward = [gw.jvp(first, (x,), (e,))[1] for e in np.eye(len(x))]
    np.testing.assert_array_equal(rows, forward)
    return np.array(rows)


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_prod_with_zeros(zeros):
    x = np.array([2.0, 3.0, 5.0, 7.0])
    x[:zeros] = 0
    without = [np.prod(np.delete(x, k)) for k in range(4)]
    np.testing.assert_array_equal(gw.grad(np.prod)(x), without)
    pairs = [[np.prod(np.delete(x, [j, k])) if j != k else 0 for k in range(4)] for j in range(4)]
    np.testing.assert_array_equal(hessian(np.prod, x), pairs)


def test_ties_share_the_gradient():
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    shares = np.array([[0, 1 / 2, 1 / 2], [1 / 3, 1 / 3, 1 / 3]])
    back = gw.grad(lambda x: np.sum(np.max(x, axis=1)))(x)
    np.testing.assert_array_equal(back, shares)
    np.testing.assert_array_equal(
        gw.jvp(lambda x: np.max(x, 1), (x,), (np.ones_like(x),))[1], [1, 1]
    )
    for f in np.maximum, np.minimum, np.fmax, np.fmin:
        _, pull = gw.vjp(f, np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
        dx, dy = pull(np.ones(3))
        assert dx[0] == dy[0] == 0.5
        larger = [0.5, 0, 1] if f in (np.maximum, np.fmax) else [0.5, 1, 0]
        np.testing.assert_array_equal(dx, larger)
        np.testing.assert_array_equal(dx + dy, 1)


def test_a_nan_beside_a_number_takes_no_gradient_from_it():
    x, y = np.array([np.nan, 1.0, 2.0]), np.array([1.0, np.nan, 1.0])
    for f in np.fmax, np.fmin:
        dx, dy = gw.vjp(f, x, y)[1](np.ones(3))
        np.testing.assert_array_equal(dx[:2], [0, 1])
        np.testing.assert_array_equal(dy[:2], [1, 0])


def test_repeated_indices_add_up():
    x, at = np.arange(4.0), np.array([[0, 0, -4], [3, 1, 0]])
    back = gw.grad(lambda x: np.sum(x[at] * np.arange(6.0).reshape(2, 3)))(x)
    np.testing.assert_array_equal(back, [0 + 1 + 2 + 5, 4, 0, 3])


def test_powers_at_zero():
    x = np.zeros(3)
    for power, slope_at_zero in ((0, 0), (1, 1), (2, 0), (3, 0)):
        np.testing.assert_array_equal(gw.grad(lambda x, p=power: np.sum(x**p))(x), slope_at_zero)
        got = gw.grad(lambda x, y: np.sum(np.power(x, y)), (0, 1))(x, np.full(3, float(power)))
        np.testing.assert_array_equal(got[0], slope_at_zero)
        np.testing.assert_array_equal(got[1], 0)


def test_the_same_array_twice_is_two_arguments():
    x = np.array([3.0])
    assert gw.grad(lambda x, y: np.sum(x * x * y))(x, x) == 18
    assert gw.grad(lambda x, y: np.sum(x * x * y), 1)(x, x) == 9
    assert gw.grad(lambda x: gw.grad(lambda y: np.sum(x * x * y))(x)[0])(x) == 6


@pytest.mark.parametrize("name, wanted", [("sin", "-cos"), ("exp", "exp"), ("square", "zero")])
def test_third_derivatives_in_every_order_of_modes(name, wanted):
    x = np.linspace(-1, 1, 7)
    values = {"-cos": -np.cos(x), "exp": np.exp(x), "zero": np.zeros(7)}[wanted]
    for modes in itertools.product(MODES.values(), repeat=3):
        f = function_of(name)
        for mode in modes:
            f = mode(f, 0)
        np.testing.assert_allclose(f(x), values, rtol=1e-15)


# --- dtypes -------------------------------------------------------------------------------------
FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize("a, b", itertools.product(FLOATS, FLOATS))
@pytest.mark.parametrize(
    "f", [np.multiply, np.hypot, lambda x, y: x @ y, lambda x, y: np.where(x > y, x, y)]
)
def test_gradients_have_the_dtypes_of_the_arguments(a, b, f):
    x, y = np.array([1, 2, 3], a), np.array([3, 2, 1], b)
    out, pull = gw.vjp(f, x, y)
    assert [g.dtype for g in pull(np.ones_like(out))] == [a, b]
    assert gw.jvp(f, (x, y), (x, y))[1].dtype == out.dtype == np.result_type(a, b)
    both = gw.grad(lambda x, y: np.sum(f(x, y)), (0, 1))(x, y)
    assert [g.dtype for g in both] == [a, b]


def test_integers_have_no_gradient():
    x, n = np.float32([1, 2, 3]), np.array([1, 2, 3])
    out, pull = gw.vjp(lambda x, n: x**n, x, n)
    back = pull(np.ones_like(out))
    np.testing.assert_array_equal(back[0], [1, 4, 27])
    assert back[1] is None
    assert gw.vjp(lambda t: t["x"] * t["n"], {"x": x, "n": n})[1](x)[0]["n"] is None
    np.testing.assert_array_equal(gw.jvp(lambda x, n: x * n, (x, n), (x, None))[1], x * n)
    np.testing.assert_array_equal(gw.grad(lambda x, n: np.sum(x * n))(x, n), n)
    with pytest.raises(gw.SignatureError, match="the gradient of f by an argument of integers"):
        gw.grad(gw.op(named_f), 1)(x, n)
    with pytest.raises(gw.SignatureError, match="a tangent of integers"):
        gw.jvp(lambda x, n: x * n, (x, n), (x, x))


def named_f(x, n):
    return np.sum(x * n)


named_f.__name__ = "f"


def test_outputs_of_integers_pass_no_cotangent():
    x = np.array([1.0, 5.0, 2.0])
    (out, at), pull = gw.vjp(lambda x: (x * x, np.argmax(x)), x)
    assert at == 1
    np.testing.assert_array_equal(pull((np.ones(3), np.array(7)))[0], 2 * x)


# --- rules of the user's own --------------------------------------------------------------------
def cubic(x, y):
    return x * x * y


def partials_rule(scale):
    op = gw.op(lambda x, y: x * x * y)
    op.partials(lambda x, y: (scale * 2 * x * y, scale * x * x))
    return op


def vjp_rule(scale):
    op = gw.op(lambda x, y: x * x * y)
    op.vjp(lambda g, x, y: (scale * g * 2 * x * y, scale * g * x * x))
    return op


def jvp_rule(scale):
    op = gw.op(lambda x, y: x * x * y)
    op.jvp(lambda dx, dy, x, y: scale * (2 * x * y * dx + x * x * dy))
    return op


def surrogate_rule(scale):
    op = gw.op(lambda x, y: x * x * y)
    op.surrogate(lambda x, y: scale * x * x * y)
    return op


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_a_cotangent_and_a_tangent_are_broadcast(shape):
    x, seed = whole((3,), 1), np.full(shape, 2.0)
    assert_same(gw.vjp(np.square, x)[1](seed)[0], 4 * x)
    assert_same(gw.jvp(np.square, (x,), (seed,))[1], 4 * x)


def test_a_surrogate_has_one_trace_for_all_sizes():
    """Its shape is that of the op, whatever the sizes are; where that is open they are read."""
    ste = gw.op(lambda x: np.round(x))
    ste.surrogate(lambda x: 3 * x)
    joined = gw.op(lambda x: np.concatenate([x, x]))
    joined.surrogate(lambda x: (x[:, None] * np.ones(2)).reshape(-1))
    for n in (2, 3):
        x = whole((n,), 1)
        assert_same(gw.grad(lambda x: np.sum(ste(x)))(x), np.full(n, 3.0))
        assert_same(gw.grad(lambda x: np.sum(joined(x)))(x), np.full(n, 2.0))
    assert len(ste._made) == 1


RULES = {"partials": partials_rule, "vjp": vjp_rule, "jvp": jvp_rule, "surrogate": surrogate_rule}
SHAPE_PAIRS = [((3,), (3,)), ((3, 1), (1, 4)), ((), (4,)), ((2, 3), (3,)), ((1,), (1, 1))]


def whole(shape, start):
    """Small whole numbers: every product and sum of them is exact."""
    return np.arange(start, start + np.prod(shape, dtype=int)).reshape(shape).astype(float)


@pytest.mark.parametrize("shapes", SHAPE_PAIRS)
@pytest.mark.parametrize("scale", [1, 3])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_used_in_every_mode(rule, scale, shapes):
    """A rule three times the true one is seen, exactly; a true one cannot tell."""
    op = RULES[rule](scale)
    xs = whole(shapes[0], 1), whole(shapes[1], 2)
    vs = whole(shapes[0], -2), whole(shapes[1], 3)
    out, pull = gw.vjp(op, *xs)
    true, true_pull = gw.vjp(cubic, *xs)
    assert_same(out, true)
    assert_same(op(*xs), cubic(*xs))
    u = whole(np.shape(out), -4)
    for got, wanted in zip(pull(u), true_pull(u), strict=True):
        assert_same(got, scale * wanted)
    same, moved = gw.jvp(op, xs, vs)
    assert_same(same, true)
    assert_same(moved, scale * gw.jvp(cubic, xs, vs)[1])


def total(f):
    return lambda x, y: np.sum(f(x, y))


@pytest.mark.parametrize("scale", [1, 3])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_differentiated_again(rule, scale):
    """The second derivative is the rule's own derivative, in every order of modes."""
    op, xs = RULES[rule](scale), (whole((3,), 1), whole((3,), 2))
    for inner, outer in itertools.product(MODES.values(), repeat=2):
        for j, k in itertools.product(range(2), repeat=2):
            got = outer(inner(op, j), k)(*xs)
            assert_same(got, scale * outer(inner(cubic, j), k)(*xs))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_inside_a_function(rule):
    """Five factors of three for f(f(x)) + f(x), counted by hand."""
    op = RULES[rule](3)
    x, y = whole((3,), 1), np.ones(3)

    def f(x):
        return np.sum(op(op(x, y), y) + op(x, y))

    inner = 3 * 2 * x
    np.testing.assert_array_equal(gw.grad(f)(x), 3 * 2 * (x * x) * inner + inner)
    moved = gw.jvp(f, (x,), (np.ones(3),))[1]
    np.testing.assert_array_equal(moved, np.sum(3 * 2 * (x * x) * inner + inner))


def nested():
    """Rules that are wrong on purpose, one inside another: only they give these numbers."""
    b = gw.op(lambda x: x + 0)
    b.vjp(lambda g, x: 1000 * g)
    a = gw.op(lambda x: x * x)
    a.vjp(lambda g, x: g * b(x))
    return a, gw.op(lambda x: b(x) * x)


@pytest.mark.parametrize("inner", MODES)
@pytest.mark.parametrize("outer", MODES)
def test_nested_rules_at_second_order(inner, outer):
    a, d = nested()
    x = np.array([3.0, -2.0])
    first = MODES[inner]
    np.testing.assert_array_equal(first(a, 0)(x), x)
    np.testing.assert_array_equal(first(d, 0)(x), 1001 * x)
    np.testing.assert_array_equal(MODES[outer](first(a, 0), 0)(x), 1000)
    np.testing.assert_array_equal(MODES[outer](first(d, 0), 0)(x), 2000)


@pytest.mark.parametrize("order", itertools.product(MODES, repeat=3), ids="-".join)
def test_third_derivative_through_a_rule(order):
    op = gw.op(lambda x: x**4)
    op.vjp(lambda g, x: 3 * g * 4 * x**3)
    f, x = op, whole((4,), 1)
    for mode in order:
        f = MODES[mode](f, 0)
    np.testing.assert_array_equal(f(x), 3 * 4 * 3 * 2 * x)


def test_broadcasting_is_undone_for_a_rule():
    times = gw.op(lambda x, y: x * y)
    times.vjp(lambda g, x, y: (g * y, g * x))
    x, y = np.array([0.0, 1, 2]), np.array([[1.0, 2, 3], [4, 5, 6]])
    dx, dy = gw.vjp(times, x, y)[1](np.ones((2, 3)))
    np.testing.assert_array_equal(dx, [5, 7, 9])
    np.testing.assert_array_equal(dy, [[0, 1, 2], [0, 1, 2]])
    assert (dx.shape, dy.shape) == ((3,), (2, 3))


@pytest.mark.parametrize("order", itertools.permutations(FLOATS, 2), ids="-".join)
def test_dtypes_are_restored_for_a_rule(order):
    a, b = order
    op = gw.op(lambda x, y: x * y)
    op.vjp(lambda g, x, y: (g.astype(np.float64) * y, g * x))
    x, y = np.ones(3, a), np.ones(3, b)
    back = gw.vjp(op, x, y)[1](np.ones(3, np.result_type(a, b)))
    assert [g.dtype for g in back] == [a, b]


def test_a_rule_may_give_none_for_integers():
    op = gw.op(lambda x, n: x * n)
    op.vjp(lambda g, x, n: (3 * g * n, None))
    x, n = np.array([1.0, 2.0]), np.array([3, 4])
    dx, dn = gw.vjp(op, x, n)[1](np.ones(2))
    np.testing.assert_array_equal(dx, 3 * n)
    assert dn is None


def test_a_rule_reads_out_and_options():
    @gw.op
    def scaled_exp(x, *, k=2.0, deep=False):
        return np.exp(k * x)

    @scaled_exp.vjp
    def _(g, x, out, *, k):
        return 3 * g * k * out

    x = np.array([0.0, 1.0])
    back = gw.grad(lambda x: np.sum(scaled_exp(x, k=4.0)))(x)
    np.testing.assert_array_equal(back, 3 * 4 * np.exp(4 * x))


def test_a_rule_that_is_not_linear_is_reverse_only():
    @gw.op
    def clipped(x):
        return x * 2

    @clipped.vjp
    def _(g, x):
        return np.clip(g, -1, 1)

    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(gw.vjp(clipped, x)[1](np.array([-5, 0.5, 5]))[0], [-1, 0.5, 1])
    with pytest.raises(gw.TraceError, match="forward mode of clipped: its vjp is not linear"):
        gw.jvp(clipped, (x,), (x,))


def test_a_jvp_that_is_not_linear_is_forward_only():
    @gw.op
    def bounded(x):
        return x * 2

    @bounded.jvp
    def _(dx, x):
        return np.clip(dx, -1, 1)

    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(gw.jvp(bounded, (x,), (np.array([-5, 0.5, 5]),))[1], [-1, 0.5, 1])
    with pytest.raises(gw.TraceError, match="reverse mode of bounded: its jvp is not linear"):
        gw.grad(lambda x: np.sum(bounded(x)))(x)


def test_a_rule_of_trees():
    @gw.op
    def affine(p, x):
        return {"y": p["w"] * x + p["b"][0], "z": x - p["w"]}

    @affine.vjp
    def _(g, p, x):
        dw = 3 * (g["y"] * x - g["z"])
        return {"w": dw, "b": [3 * g["y"]]}, 3 * (g["y"] * p["w"] + g["z"])

    p = {"w": whole((3,), 2), "b": [whole((3,), 5)]}
    x = whole((3,), 1)
    g = {"y": whole((3,), -1), "z": whole((3,), 4)}
    dp, dx = gw.vjp(affine, p, x)[1](g)
    np.testing.assert_array_equal(dp["w"], 3 * (g["y"] * x - g["z"]))
    np.testing.assert_array_equal(dp["b"][0], 3 * g["y"])
    np.testing.assert_array_equal(dx, 3 * (g["y"] * p["w"] + g["z"]))
    moved = gw.jvp(affine, (p, x), (p, x))[1]
    np.testing.assert_array_equal(moved["y"], 3 * (p["w"] * x + p["b"][0] + x * p["w"]))


WRONG = [
    (lambda g, x, y: (g * y, np.sum(g * x)), r"shape \(\) for the argument y of shape"),
    (lambda g, x, y: (g * y,), "gives 1 values for 2"),
    (lambda g, x, y: ((g * y)[:, None] * np.ones((1, 2)), g * x), "for the argument x of shape"),
]


@pytest.mark.parametrize("rule, text", WRONG)
def test_a_rule_of_the_wrong_shape_raises(rule, text):
    op = gw.op(lambda x, y: x * y)
    op.vjp(rule)
    x = np.ones(3)
    with pytest.raises(gw.SignatureError, match=text):
        gw.vjp(op, x, x)[1](x)


def test_argnums_may_be_a_list():
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    by_list = gw.grad(lambda x, y: np.sum(x * y), argnums=[0, 1])(x, y)
    assert isinstance(by_list, tuple)
    np.testing.assert_array_equal(by_list, (y, x))


def test_functions_of_numpy_are_ops():
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    np.testing.assert_array_equal(gw.op(np.sin)(x), np.sin(x))
    np.testing.assert_array_equal(gw.op(np.multiply)(x, y), x * y)
    assert gw.op(np.sum)(x) == 3
    assert "arctan2(x1, x2)" in gw.op(np.arctan2).explain()


@pytest.mark.parametrize("kind", ["partials", "vjp", "jvp"])
def test_a_rule_without_return_is_no_derivative_of_zero(kind):
    cube = gw.op(lambda x: x**3)
    getattr(cube, kind)((lambda g, x: None) if kind != "partials" else lambda x: None)
    with pytest.raises(gw.SignatureError, match="returns None"):
        gw.jvp(cube, (2.0,), (1.0,)) if kind == "jvp" else gw.grad(cube)(2.0)


def test_a_tuple_says_that_there_is_no_derivative():
    f = gw.op(lambda x: x**3)
    f.vjp(lambda g, x: (None,))
    assert gw.grad(f)(2.0) == 0


@pytest.mark.parametrize(
    "kind, rule",
    [
        ("vjp", lambda x, g: g * x),
        ("jvp", lambda x, dx: dx * x),
        ("partials", lambda y, x: (1, 1)),
        ("vjp", lambda g, y, x: (g, g)),
        ("surrogate", lambda y, x: x),
    ],
)
def test_arguments_of_a_rule_in_another_order_are_refused(kind, rule):
    names = set(rule.__code__.co_varnames)
    op = gw.op(lambda x, y: x * y) if "y" in names else gw.op(lambda x: np.sin(x))
    with pytest.raises(gw.SignatureError, match="stands where"):
        getattr(op, kind)(rule)


def test_other_names_are_as_good():
    f = gw.op(lambda x, y: x * y)
    f.vjp(lambda ct, a, b: (ct * b, ct * a))
    assert gw.grad(f, argnums=(0, 1))(2.0, 3.0) == (3.0, 2.0)


def test_a_norm_has_a_derivative_of_zero_at_zero():
    x = np.array([[3.0, 4.0], [0.0, 0.0]])
    f = lambda x: np.sum(np.linalg.norm(x, axis=1))
    np.testing.assert_allclose(gw.grad(f)(x), [[0.6, 0.8], [0, 0]], rtol=1e-15)
    assert np.isnan(gw.op(lambda x: np.linalg.norm(x))(np.array([np.nan, 1.0])))
