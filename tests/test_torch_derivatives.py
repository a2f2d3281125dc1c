"""Derivatives of ops on torch tensors, of every order, in eager mode."""

import numpy as np
import pytest

import gradwright as gw
from gradwright.primitives import PRIMITIVES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch_ops import KINDS, derivative, leaf, sine  # noqa: E402

# --- derivatives of the primitives --------------------------------------------------------------
UNKNOWN = {"nextafter": (0, 1), "zeta": (0,)}  # the table has no derivative by these arguments
CASES = [
    (name, k)
    for name, row in PRIMITIVES.items()
    if row.kind == "elementwise" and name not in ("betaln", "j0", "j1")
    for k in range(row.ufunc.nin)
    if k not in UNKNOWN.get(name, ())
]


def points(name, dtype="float64", count=7):
    rng = np.random.default_rng(len(name))
    row = PRIMITIVES[name]
    return [rng.uniform(a, b, count).astype(dtype) for a, b in row.domain[: row.ufunc.nin]]


def function_of(name):
    ufunc = PRIMITIVES[name].ufunc
    return (lambda x: ufunc(x)) if ufunc.nin == 1 else (lambda x, y: ufunc(x, y))


def slope(f, k):
    return gw.grad(lambda *xs: np.sum(f(*xs)), argnums=k)


@pytest.mark.parametrize("name, k", CASES)
def test_first_and_second_derivatives_are_numpys(name, k):
    xs, f = points(name), function_of(name)
    ts = [torch.tensor(x, requires_grad=j not in UNKNOWN.get(name, ())) for j, x in enumerate(xs)]
    op = gw.op(f)
    first = derivative(op(*ts), ts[k])
    np.testing.assert_allclose(first.detach(), slope(f, k)(*xs), rtol=1e-11, atol=1e-13)
    for j in range(len(xs)):
        if j in UNKNOWN.get(name, ()):
            continue
        second = np.zeros(7)  # a constant derivative has no graph, in torch's own ops too
        if first.requires_grad:
            found = torch.autograd.grad(first.sum(), ts[j], retain_graph=True, allow_unused=True)
            second = second if found[0] is None else found[0]
        wanted = slope(slope(f, k), j)(*xs)
        np.testing.assert_allclose(second, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "tanh", "multiply", "remainder", "maximum", "erf"])
def test_gradients_keep_the_dtype_of_their_tensor(name, dtype):
    xs = points(name, "float32")
    ts = [leaf(x, getattr(torch, dtype)) for x in xs]
    gw.op(function_of(name))(*ts).float().sum().backward()
    for k, t in enumerate(ts):
        assert t.grad.dtype == t.dtype
        wanted = slope(function_of(name), k)(*[t.detach().float().numpy() for t in ts])
        tolerance = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 2e-2}[dtype]
        np.testing.assert_allclose(t.grad.float(), wanted, rtol=tolerance, atol=tolerance)


# Compositions whose derivatives use shapes, reductions, indexing and products.
AT = np.array([[2, 0, 0], [1, 2, -1]])
SHAPED = {
    "column by row": (lambda x, y: x * y, (3, 1), (1, 4)),
    "number by array": (lambda x, y: x * y - y / (2 + x * x), (), (4,)),
    "three ranks": (lambda x, y, z: x * y * z, (2, 1, 4), (3, 1), (4,)),
    "sum": (lambda x: np.sum(x * x, axis=(0, -1), keepdims=True), (2, 3, 4)),
    "mean": (lambda x: np.mean(x * x, axis=1), (3, 4)),
    "softmax": (lambda x: np.exp(x) / np.sum(np.exp(x), -1, keepdims=True), (3, 4)),
    "prod": (lambda x: np.prod(x, axis=(0, 2)), (2, 3, 2)),
    "prod with zeros": (lambda x: np.prod(x * np.array([0.0, 1.0, 2.0])), (3,)),
    "max": (lambda x: np.max(x * x, axis=1), (3, 4)),
    "cumsum": (lambda x: np.cumsum(x * x, axis=0), (3, 2)),
    "take": (lambda x: np.take(x * x, AT, axis=1), (2, 3, 2)),
    "index": (lambda x: x[1:, ::-1] * x[:-1, 0:1], (3, 4)),
    "roll": (lambda x: np.roll(x, 1, axis=0) * x, (3, 4)),
    "stack": (lambda x, y: np.stack([x * y, y]), (3,), (3,)),
    "matmul": (lambda x, y: x @ y, (2, 3, 4), (4, 2)),
    "einsum": (lambda x, y: np.einsum("ij,kj,i->ki", x, y, x[:, 0]), (2, 3), (4, 3)),
    "transpose": (lambda x: x.T @ x, (3, 2)),
    "where": (lambda x, y: np.where(x > 0, x * y, x / (2 + y * y)), (4,), (4,)),
    "sizes": (lambda x: x * x / x.shape[0] + np.sqrt(x.size) * x, (3, 4)),
    "broadcast": (lambda x: np.broadcast_to(x * x, (2, *x.shape)), (3,)),
}


@pytest.mark.parametrize("name", SHAPED)
def test_gradcheck_and_gradgradcheck(name):
    f, *shapes = SHAPED[name]
    op, rng = gw.op(f), np.random.default_rng(1)
    ts = [leaf(rng.uniform(0.2, 2, shape)) for shape in shapes]
    assert gradcheck(op, ts)
    assert gradgradcheck(op, ts)


def strided(shape, seed):
    """A tensor that is not contiguous, and one that is expanded."""
    x = np.random.default_rng(seed).uniform(0.2, 2, (*shape[::-1], 2))
    return leaf(x)[..., 0].permute(*range(len(shape))[::-1])


@pytest.mark.parametrize("name", ["softmax", "matmul", "roll", "take", "index"])
def test_strides_of_inputs_and_cotangents_do_not_matter(name):
    f, *shapes = SHAPED[name]
    op = gw.op(f)
    ts = [strided(shape, k) for k, shape in enumerate(shapes)]
    assert not ts[0].is_contiguous()
    assert gradcheck(op, ts)
    assert gradgradcheck(op, ts)
    plain = [t.detach().contiguous().requires_grad_() for t in ts]
    ct = torch.rand(op(*plain).shape[::-1], dtype=torch.float64).permute(
        *range(op(*plain).dim())[::-1]
    )
    got = torch.autograd.grad(op(*ts), ts, ct)
    wanted = torch.autograd.grad(op(*plain), plain, ct.contiguous())
    expanded = torch.autograd.grad(op(*ts).sum(), ts)  # its cotangent has strides 0
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(expanded, torch.autograd.grad(op(*plain).sum(), plain))


def test_gradcheck_of_batched_cotangents():
    ts = [leaf(np.random.default_rng(2).uniform(0.2, 2, (3, 4)))]
    assert gradcheck(gw.op(SHAPED["softmax"][0]), ts, check_batched_grad=True)


# --- rules of the user's: the true one, and three times it ---------------------------------------
@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_is_used_in_every_derivative(kind, factor):
    f = sine(kind, factor)
    x, y = leaf([0.3, 1.1]), leaf([2.0, -1.5])
    sin, cos = torch.sin(x), torch.cos(x)
    dx = derivative(f(x, y), x)
    dy = derivative(f(x, y), y)
    torch.testing.assert_close(f(x, y), sin * y)
    torch.testing.assert_close(dx, factor * cos * y)
    torch.testing.assert_close(dy, factor * sin)
    # the rule itself is NumPy's own functions: its derivatives are the true ones, times factor
    torch.testing.assert_close(derivative(dx, x), -factor * sin * y)
    torch.testing.assert_close(derivative(dx, y), factor * cos)
    torch.testing.assert_close(derivative(derivative(dx, x), x), -factor * cos * y)
    f(x, y).sum().backward()
    torch.testing.assert_close(x.grad, factor * cos * y)
    torch.testing.assert_close(y.grad, factor * sin)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_sees_that_a_rule_is_wrong(kind):
    ts = leaf([0.3, 1.1], torch.float64), leaf([2.0, -1.5], torch.float64)
    assert gradcheck(sine(kind, 1), ts)
    assert gradgradcheck(sine(kind, 1), ts)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(sine(kind, 3), ts)


def test_wrong_rules_inside_rules_are_used_at_second_order():
    @gw.op
    def b(x):
        return x

    @b.vjp
    def _(g, x):
        return 1000 * g

    @gw.op
    def a(x):
        return x * x

    @a.vjp
    def _(g, x):
        return g * b(x)

    @gw.op
    def d(x):
        return b(x) * x

    x = leaf(3.0)
    assert derivative(b(x), x) == 1000
    first = derivative(a(x), x)
    assert (first.item(), derivative(first, x).item()) == (3, 1000)
    first = derivative(d(x), x)
    assert (first.item(), derivative(first, x).item()) == (3003, 2000)


@pytest.mark.parametrize("factor", [1, 3])
def test_a_rule_need_not_sum_what_broadcasting_repeated(factor):
    @gw.op
    def times(x, y):
        return x * y

    @times.vjp
    def _(g, x, y):
        return factor * 1000 * g, factor * 2000 * g

    x, y = leaf(np.ones((3, 1))), leaf(np.ones((2, 1, 4)))
    times(x, y).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3, 1), factor * 8000.0, dtype=torch.float64))
    torch.testing.assert_close(y.grad, torch.full((2, 1, 4), factor * 6000.0, dtype=torch.float64))
