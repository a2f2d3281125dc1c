"""Sums along the last axis, and what is made of them, in one kernel that goes row by row."""

import numpy as np
import pytest

import gradwright as gw
from gradwright.targets.fused import threads

F4, F8 = np.float32, np.float64
EPS = {F4: 3e-5, F8: 1e-12}


@gw.op
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


@gw.op
def log_softmax(x):
    s = x - np.max(x, axis=-1, keepdims=True)
    return s - np.log(np.sum(np.exp(s), axis=-1, keepdims=True))


@gw.op
def logsumexp(x):
    m = np.max(x, axis=-1, keepdims=True)
    return m[..., 0] + np.log(np.sum(np.exp(x - m), axis=-1))


@gw.op
def layer_norm(x, w, b):
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * w + b


@gw.op
def spread(x):
    """Results of a row, results of an element, and one of everything."""
    low, high = np.min(x, axis=-1), np.max(x, axis=-1, keepdims=True)
    return low, high, (x - low[..., None]) / (high - low[..., None]), np.sum(x * x)


OPS = [softmax, log_softmax, logsumexp, layer_norm]
SHAPES = [(3, 5), (50, 301), (7, 64), (2, 3, 100), (5, 9000), (1, 10), (200, 2)]


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def arrays(op, shape, dtype):
    rest = [normal(shape[-1], dtype, k) for k in (1, 2)] if op is layer_norm else []
    return [normal(shape, dtype), *rest]


@pytest.mark.parametrize("dtype", [F4, F8])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_values_and_derivatives(op, shape, dtype):
    xs = arrays(op, shape, dtype)
    fused, numpys = op.options(engine="fused"), op.options(engine="numpy")
    want = op.__wrapped__(*xs)
    got = fused(*xs)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=EPS[dtype], atol=EPS[dtype])
    g = normal(want.shape, dtype, 3)
    for a, b in zip(gw.vjp(fused, *xs)[1](g), gw.vjp(numpys, *xs)[1](g), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=EPS[dtype], atol=10 * EPS[dtype])


def test_each_is_one_pass():
    for op in (softmax, log_softmax, layer_norm):
        op(*arrays(op, (3, 5), F4))
        text = op.source("fused")
        assert text.count("; one pass") == 1
    assert "; one pass, 8 bytes an element: 4 read, 4 written" in softmax.source("fused")


@pytest.mark.parametrize("shape", [(40, 30), (3, 4, 70)])
def test_results_of_rows_of_elements_and_of_everything(shape):
    x = normal(shape, F4)
    for got, want in zip(spread.options(engine="fused")(x), spread.__wrapped__(x), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_stay_in_their_row(value):
    x = normal((6, 100), F4)
    x[2, 17] = value
    with np.errstate(all="ignore"):
        want = softmax.__wrapped__(x)
    np.testing.assert_allclose(softmax.options(engine="fused")(x), want, rtol=1e-5)


VIEWS = [lambda a: a.T, lambda a: a[::-1, ::-2], lambda a: np.broadcast_to(a[:1], a.shape)]


@pytest.mark.parametrize("view", VIEWS)
def test_arrays_as_they_lie(view):
    x = view(normal((90, 120), F4))
    want = softmax.__wrapped__(x)
    np.testing.assert_allclose(softmax.options(engine="fused")(x), want, rtol=1e-5)


@pytest.mark.parametrize("count", ["1", "2", "3"])
def test_the_bits_do_not_depend_on_the_threads(count, monkeypatch):
    x = normal((300, 200), F4)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", "1")
    want = softmax.options(engine="fused")(x)
    monkeypatch.setattr(threads, "SMALL", 1000)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", count)
    np.testing.assert_array_equal(softmax.options(engine="fused")(x), want)


def test_rows_of_no_elements():
    add = gw.op(lambda x: np.sum(2 * x, axis=-1)).options(engine="fused")
    np.testing.assert_array_equal(add(np.ones((3, 0), F4)), np.zeros(3, F4))
    np.testing.assert_array_equal(add(np.ones((0, 3), F4)), np.zeros(0, F4))


def test_the_loss_of_a_classifier():
    def loss(x, t):
        s = x - np.max(x, axis=-1, keepdims=True)
        logs = s - np.log(np.sum(np.exp(s), axis=-1, keepdims=True))
        return -np.mean(np.sum(t * logs, axis=-1))

    x, t = normal((60, 50), F4), np.eye(50, dtype=F4)[np.arange(60) % 50]
    got, grad = gw.value_and_grad(gw.op(loss).options(engine="fused"))(x, t)
    np.testing.assert_allclose(got, loss(x, t), rtol=1e-6)
    np.testing.assert_allclose(grad, (softmax.__wrapped__(x) - t) / 60, atol=1e-7)


@pytest.mark.framework
def test_tensors():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(normal((60, 50), F4)).requires_grad_()
    w, b = (torch.from_numpy(normal(50, F4, k)).requires_grad_() for k in (1, 2))
    out = layer_norm.options(engine="fused")(x, w, b)
    want = torch.nn.functional.layer_norm(x, (50,), w, b)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-5)
    g = torch.from_numpy(normal((60, 50), F4, 3))
    for got, known in zip(
        torch.autograd.grad(out, (x, w, b), g), torch.autograd.grad(want, (x, w, b), g), strict=True
    ):
        torch.testing.assert_close(got, known, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 5), (50, 301), (200, 2)])
def test_what_is_one_a_row_after_another_part(shape):
    """The sums of a row are of the first loops, and the last has none, nor an element of x."""

    @gw.op
    def f(x):
        s, t = np.sum(x, axis=-1, keepdims=True), np.max(x, axis=-1, keepdims=True)
        return s * (s + t)[::-1] + 2

    x = normal(shape, F8)
    got = f.options(engine="fused")(x)
    np.testing.assert_allclose(got, f.__wrapped__(x), rtol=1e-12)
