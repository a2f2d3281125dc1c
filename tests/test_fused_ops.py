"""Ops by kernels against the user's own function: shapes, strides, derivatives, engines."""

import gc
import threading as python_threads

import numpy as np
import pytest
import scipy.special

import gradwright as gw
from gradwright.targets.fused import op as fused_op
from gradwright.targets.fused import threads

F4, F8 = np.float32, np.float64


@gw.op
def mixed(x, y):
    return np.where(x > 0, x * y + np.sqrt(np.abs(y)), np.maximum(x, y) / 2)


@gw.op
def two(x, y):
    return x - y, x * y > 0.5


def normal(shape, dtype=F4, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def by_kernel(op, *arrays):
    return op.options(engine="fused")(*arrays)


SHAPES = [
    ((5,), (5,)),
    ((1000,), (1000,)),
    ((3, 5, 7), (3, 5, 7)),
    ((20_000,), ()),
    ((), (100,)),
    ((10, 70), (70,)),
    ((70, 10), (10,)),
    ((10, 70), (10, 1)),
    ((300, 3), (3,)),
    ((3,), (300, 3)),
    ((30, 1), (1, 40)),
    ((4, 1, 6), (5, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
    ((9000, 2), (9000, 1)),
    ((1, 9000), (3, 1)),
    ((0,), (0,)),
    ((3, 0), (1, 1)),
    ((1, 1), (1,)),
]


@pytest.mark.parametrize("dtype", [F4, F8])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_broadcasting_gives_numpys_bits(a, b, dtype):
    x, y = normal(a, dtype), normal(b, dtype, 1)
    if max(x.size, y.size) == 1:
        pytest.skip("one number is no loop")
    for got, want in zip(
        (by_kernel(mixed, x, y), *by_kernel(two, x, y)),
        (mixed.__wrapped__(x, y), *two.__wrapped__(x, y)),
        strict=True,
    ):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


VIEWS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "in Fortran's order": np.asfortranarray,
    "reversed": lambda a: a[::-1, ::-1],
    "every other": lambda a: a[::2, ::3],
    "a window": lambda a: a[1:, 2:-1],
    "a column": lambda a: a[:, 3],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "misaligned": lambda a: misaligned(a),
    "of other bytes": lambda a: a.astype(a.dtype.newbyteorder()),
}


def misaligned(a):
    memory = np.empty(a.nbytes + 1, np.uint8)[1:]
    memory[:] = np.frombuffer(a.tobytes(), np.uint8)
    return memory.view(a.dtype).reshape(a.shape)


@pytest.mark.parametrize("dtype", [F4, F8])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("other", ["contiguous", "reversed", "a number"])
def test_arrays_as_they_lie(view, other, dtype):
    x = VIEWS[view](normal((120, 90), dtype))
    y = F4(0.5)
    if other != "a number":
        y = normal(x.shape, dtype, 1)[:: 1 if other == "contiguous" else -1]
    np.testing.assert_array_equal(by_kernel(mixed, x, y), mixed.__wrapped__(x, y))


def test_python_numbers_are_arguments():
    x = normal(1000)
    for number in (2, 0.1, True, F4(3)):
        got, want = by_kernel(two, x, number)[0], two.__wrapped__(x, number)[0]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_results_are_arrays_of_their_own():
    same = gw.op(lambda x: (x, 2 * x, 2 * x)).options(engine="fused")
    x = normal(200)
    a, b, c = same(x)
    assert not np.shares_memory(a, x)
    assert not np.shares_memory(b, c)
    np.testing.assert_array_equal(b, c)


def test_a_sum_beside_the_elements():
    @gw.op
    def both(x):
        return np.sum(x * x), np.mean(x), x - np.sum(x)

    x = normal((40, 700))
    for got, want in zip(by_kernel(both, x), both.__wrapped__(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-4)
        assert got.dtype == want.dtype


def test_the_array_library_runs_between_the_kernels():
    @gw.op
    def layer(x, w, b):
        return np.maximum(x * 2 @ w + b, 0) ** 2

    x, w, b = normal((30, 40)), normal((40, 50)), normal(50)
    np.testing.assert_array_equal(by_kernel(layer, x, w, b), layer.__wrapped__(x, w, b))
    kinds = [line for line in layer.source("fused").splitlines() if line.startswith("; one pass")]
    assert len(kinds) == 2


def test_python_on_the_host_runs_between_the_kernels():
    @gw.host_op()
    def cumulated(x):
        return np.add.accumulate(x)

    f = gw.op(lambda x: np.sqrt(cumulated(x * x)) + x).options(engine="fused")
    x = normal(500)
    np.testing.assert_array_equal(f(x), np.sqrt(np.cumsum(x * x)) + x)


def test_the_value_and_the_gradient_are_one_pass():
    f = gw.value_and_grad(lambda x: np.sum(x * x / (1 + np.abs(x))))
    x = normal(100_000)
    got = f(x)
    want = gw.value_and_grad(gw.op(lambda x: np.sum(x * x / (1 + np.abs(x)))).options(
        engine="numpy"))(x)  # fmt: skip
    np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
    np.testing.assert_array_equal(got[1], want[1])
    assert "1 kernel, 0 other parts" in f.source("fused")


def test_derivatives_have_the_engine_of_the_op():
    x, y = normal(50), normal(50, seed=1)
    fused, numpys = mixed.options(engine="fused"), mixed.options(engine="numpy")
    for derivative in (
        lambda f: gw.vjp(f, x, y)[1](x),
        lambda f: gw.jvp(f, (x, y), (y, x)),
        lambda f: gw.grad(gw.op(lambda x: np.sum(f(x, y))).options(engine=f.engine))(x),
    ):
        for got, want in zip(derivative(fused), derivative(numpys), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("times", [1, 3])
def test_an_own_rule_is_computed_by_the_kernel(times):
    @gw.op
    def scaled(x, y):
        return x * y

    @scaled.partials
    def _(x, y):
        return times * y, times * x

    x, y = normal(300), normal(300, seed=1)
    fused = scaled.options(engine="fused")
    gx, gy = gw.vjp(fused, x, y)[1](np.ones_like(x))
    np.testing.assert_array_equal(gx, times * y)
    np.testing.assert_array_equal(gy, times * x)


def test_auto_takes_a_kernel_where_it_pays(monkeypatch):
    runs = []
    run = fused_op.Sized.run
    monkeypatch.setattr(fused_op.Sized, "run", lambda *a: runs.append(1) or run(*a))
    mixed(normal(10), normal(10))
    assert not runs
    mixed(normal(100_000), normal(100_000))
    assert runs
    mixed.options(engine="numpy")(normal(100_000), normal(100_000))
    assert len(runs) == 1


def test_one_kernel_serves_all_sizes():
    op = mixed.options(engine="fused")
    for n in range(2, 100):
        op(normal(n), normal(n))
    (fused,) = [
        made for made in op.example().function.primal.programs.values() if hasattr(made, "_plans")
    ]
    ((loop,),) = [plan.loops for plan in fused._plans.values()]
    assert len(loop._programs) == 1
    assert len(fused._made) <= 64


@pytest.mark.parametrize("threads_", ["1", "2", "3"])
def test_the_bits_do_not_depend_on_the_threads(threads_, monkeypatch):
    f = gw.op(lambda x: (np.sum(x * x), np.exp(x))).options(engine="fused")
    x = normal(100_001)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", "1")
    want = f(x)
    monkeypatch.setattr(threads, "SMALL", 1000)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", threads_)
    for got, one in zip(f(x), want, strict=True):
        np.testing.assert_array_equal(got, one)


def test_many_python_threads_call_at_once():
    op, x, y = mixed.options(engine="fused"), normal(30_000), normal(30_000, seed=1)
    want, found = mixed.__wrapped__(x, y), [None] * 8

    def work(k):
        for _ in range(5):
            found[k] = op(x, y)

    workers = [python_threads.Thread(target=work, args=(k,)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for got in found:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: np.cumsum(x), "nothing in it is a loop"),
        (lambda x: x[0] * 2, "nothing in it is a loop"),
        (lambda x: scipy.special.gamma(x) + x, "gamma of float32"),
    ],
)
def test_a_kernel_that_was_asked_for_is_not_silently_left_out(function, why):
    with pytest.raises(gw.SignatureError, match=why):
        gw.op(function).options(engine="fused")(normal(100))


def test_what_is_traced_anew_is_compiled_anew_and_goes():
    def make(k):
        return gw.op(lambda x: x * k).options(engine="fused")

    for k in range(3):
        np.testing.assert_array_equal(make(float(k))(np.ones(8, F4)), np.full(8, k, F4))
    gc.collect()
    from gradwright.targets.fused.op import Fused

    assert sum(isinstance(o, Fused) for o in gc.get_objects()) < 100


@pytest.mark.parametrize("shapes", [((3,), (4,)), ((30_000,), (40_000,))])
def test_sizes_that_do_not_fit_are_an_error_of_the_op(shapes):
    x, y = map(np.ones, shapes)
    for engine in ("auto", "fused", "numpy"):
        with pytest.raises(gw.SignatureError, match="could not be broadcast together"):
            mixed.options(engine=engine)(x, y)


def test_the_source_says_passes_bytes_and_lines():
    text = mixed.source("fused")
    assert "; mixed: 1 kernel, 0 other parts" in text
    assert "; one pass, 12 bytes an element: 8 read, 4 written" in text
    assert "; test_fused_ops.py:" in text


# --- torch --------------------------------------------------------------------------------------
@pytest.mark.framework
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("times", [1, 3])
def test_tensors_and_their_derivatives(dtype, times):
    torch = pytest.importorskip("torch")

    @gw.op
    def scaled(x, y):
        return x * y - x

    @scaled.partials
    def _(x, y):
        return times * (y - 1), times * x

    x = torch.from_numpy(normal((60, 50), dtype)).requires_grad_()
    y = torch.from_numpy(normal(50, dtype, 1)).requires_grad_()
    out = scaled.options(engine="fused")(x, y)
    assert out.dtype is x.dtype
    assert torch.equal(out, x * y - x)
    gx, gy = torch.autograd.grad(out.square().sum(), (x, y), create_graph=True)
    torch.testing.assert_close(gx, times * 2 * out * (y - 1))
    torch.testing.assert_close(gy, (times * 2 * out * x).sum(0))
    (second,) = torch.autograd.grad(gx.sum(), x)
    assert second.shape == x.shape
    torch.testing.assert_close(second, (times * times * 2 * (y - 1) ** 2).expand_as(x))


@pytest.mark.framework
def test_tensors_as_they_lie():
    torch = pytest.importorskip("torch")
    op = mixed.options(engine="fused")
    a, b = torch.from_numpy(normal((120, 90))), torch.from_numpy(normal((120, 90), seed=1))
    for x, y in ((a.t(), b.t()), (a[::2, ::3], b[1::2, 1::3]), (a[:1].expand(120, 90), b)):
        want = mixed.__wrapped__(x.numpy(), y.numpy())
        np.testing.assert_array_equal(op(x, y).numpy(), want)


@pytest.mark.framework
def test_tensors_that_no_kernel_reads_are_torchs():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(normal(100_000))
    fused = mixed.options(engine="fused")
    negated = torch._neg_view(x)
    for got in (mixed(negated, x), torch.func.vmap(mixed)(negated[None], x[None])[0]):
        torch.testing.assert_close(got, mixed.options(engine="numpy")(-x, x))
    with pytest.raises(gw.SignatureError, match="a tensor on cpu"):
        fused(negated, x)
    with pytest.raises(gw.SignatureError, match="records or transforms"):
        torch.func.vmap(fused)(x[None], x[None])
