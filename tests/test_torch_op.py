"""Ops on torch tensors in eager mode: arguments, dtypes, memory."""

import gc
import runpy
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest

import gradwright as gw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch_ops import derivative, leaf, sine  # noqa: E402

# --- how it is called ---------------------------------------------------------------------------
PROGRAMS = Path(__file__).parent / "programs"


@gw.op
def affine(d, *, mode="fast", k=2):
    y = d["a"] * d["b"][0]
    return k * y if mode == "fast" else np.tanh(k * y)


@affine.vjp
def _(g, d, out, *, mode, k):
    s = 3 * (k if mode == "fast" else k * (1 - out**2))
    return {"a": s * g * d["b"][0], "b": [s * g * d["a"]]}


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("k", [2, 0.5])
def test_trees_options_and_keywords(mode, k):
    x, y = leaf(0.3), leaf(0.4)
    z = affine(d={"b": [y], "a": x}, k=k, mode=mode)
    xy = k * x * y
    torch.testing.assert_close(z, xy if mode == "fast" else torch.tanh(xy))
    slope = 3 * k * (1 if mode == "fast" else 1 - torch.tanh(xy) ** 2)
    z.backward()
    torch.testing.assert_close(x.grad, slope * y)
    torch.testing.assert_close(y.grad, slope * x)


def test_numbers_and_numpy_arrays_join_the_tensors():
    @gw.op
    def f(x, y, z=2.0):
        return x * y + z

    x = leaf([1.0, 2.0])
    array = np.float32([3, 4])
    out = f(x, array)
    array[:] = 0  # torch cannot see this: the op has its copy
    out.sum().backward()
    assert out.tolist() == [5, 10] and x.grad.tolist() == [3, 4]
    assert f(x, 0.1).dtype == torch.float32 and f(0.1, x, z=3).dtype == torch.float32
    assert f(x, np.float64([0.5, 0.5])).dtype == torch.float64
    assert f(torch.tensor([1, 2]), 2, 3).dtype == torch.int64


def test_integers_in_and_out_have_no_derivative():
    @gw.op
    def best(x, i):
        v = np.take(x, i)
        return v, np.argmax(v)

    x = leaf([1.0, 5.0, 2.0])
    v, k = best(x, torch.tensor([0, 0, 2], dtype=torch.int32))
    assert (k.item(), k.dtype, k.requires_grad) == (2, torch.int64, False)
    v.sum().backward()
    assert x.grad.tolist() == [2, 0, 1]


def test_what_needs_no_gradient_is_not_asked_for_one():
    special = pytest.importorskip("scipy.special")
    q = leaf([1.5, 2.5], torch.float64)
    s = torch.tensor([2.0, 3.0], dtype=torch.float64)
    gw.op(lambda s, q: special.zeta(s, q))(s, q).sum().backward()
    np.testing.assert_allclose(q.grad, -s * torch.special.zeta(s + 1, q.detach()))
    out = gw.op(lambda s, q: special.zeta(s, q))(s.requires_grad_(), q)
    with pytest.raises(gw.TraceError, match="derivative of zeta .* argument 0 is not known"):
        out.sum().backward()


def test_no_graph_without_a_need_for_one():
    f = sine("vjp", 3)
    x = leaf([1.0, 2.0])
    with torch.no_grad():
        assert not f(x, x).requires_grad
    with torch.inference_mode():
        assert not f(x, x).requires_grad
    assert not f(x.detach(), 2.0).requires_grad
    assert f(torch.nn.Parameter(x.detach()), 2.0).grad_fn is not None
    y = f(x, 2.0)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_outputs_are_never_the_inputs():
    x = torch.tensor([1.0, 2.0])
    same, turned, again = gw.op(lambda x: (x, x[::-1], x))(x)
    for out in same, turned, again:
        out += 1
    assert x.tolist() == [1, 2] and again.tolist() == [2, 3]
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    gw.op(lambda a, b: a + b)(a, b).sum().backward()
    a.grad += 1
    assert b.grad.tolist() == [1, 1]
    constant = gw.op(lambda x: np.arange(3) * np.ones(3))
    first = constant(x)
    first += 1
    assert constant(x).tolist() == [0, 1, 2]


def test_results_may_be_changed_in_place_where_no_derivative_reads_them():
    x = leaf([1.0, 2.0])
    y = gw.op(lambda x, y: x * y)(x, 2.0)
    y += 1
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]
    z = gw.op(lambda x: np.exp(x))(x)
    z += 1
    with pytest.raises(RuntimeError, match="inplace operation"):
        z.sum().backward()


def test_several_outputs_some_without_a_gradient():
    f = gw.op(lambda x, y: {"p": x * y, "q": (np.sin(x), x > y)})
    x, y = leaf([1.0, 2.0], torch.float64), leaf([3.0, 0.5], torch.float64)
    out = f(x, y)
    assert out["q"][1].dtype == torch.bool and not out["q"][1].requires_grad
    out["q"][0].sum().backward(retain_graph=True)
    torch.testing.assert_close(x.grad, torch.cos(x))
    assert y.grad is None or not y.grad.any()
    assert gradcheck(lambda x, y: (f(x, y)["p"], f(x, y)["q"][0]), (x, y))
    assert gradgradcheck(lambda x, y: (f(x, y)["p"], f(x, y)["q"][0]), (x, y))


def test_a_zero_size_tensor():
    f = sine("vjp", 3)
    x = leaf(np.zeros((0, 3)))
    f(x, torch.ones(3, dtype=torch.float64)).sum().backward()
    assert x.grad.shape == (0, 3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_changes_no_dtype(dtype):
    f = gw.op(lambda x, y: (x @ y, np.exp(x)))
    x, y = torch.rand(3, 3), torch.rand(3, 3)
    with torch.autocast("cpu", getattr(torch, dtype)):
        assert torch.mm(x, y).dtype == getattr(torch, dtype)
        outs = f(x.requires_grad_(), y)
        assert [out.dtype for out in outs] == [torch.float32] * 2
        outs[0].sum().backward()
        assert x.grad.dtype == torch.float32
        narrow = f(torch.mm(x, y), torch.mm(x, y))[0]
        assert narrow.dtype == getattr(torch, dtype)
    torch.testing.assert_close(x.grad, torch.ones(3, 3) @ y.T)


def test_bfloat16_is_rounded_once():
    f = gw.op(lambda x, y: x * y - x)
    x = torch.tensor([1.0078125], dtype=torch.bfloat16)
    assert f(x, x) == (x.float() * x.float() - x.float()).bfloat16()
    assert f(x, 2.0).dtype == torch.bfloat16
    assert f(x, torch.ones(1)).dtype == torch.float32


@pytest.mark.parametrize(
    "x, what",
    [
        (lambda: torch.ones(2, dtype=torch.complex64), "complex64"),
        (lambda: torch.eye(2).to_sparse(), "sparse"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quantized"),
        (lambda: torch.ones(2, dtype=torch.float8_e4m3fn), "float8"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_refused_is_named(x, what):
    with pytest.raises(gw.SignatureError, match=f"^f was called with .*{what}"):
        sine("vjp", 1)(x(), 2.0)
    with pytest.raises(gw.SignatureError, match="^f was called with complex128"):
        sine("vjp", 1)(torch.ones(2), np.ones(2) * 1j)


def test_sparse_cotangents():
    table = leaf(np.ones((4, 2)))
    weight = sine("vjp", 1)(table, 2.0)
    torch.nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True).sum().backward()
    wanted = np.zeros((4, 2))
    wanted[1] = 4 * np.cos(1)
    np.testing.assert_allclose(table.grad, wanted)


def test_jit_trace_would_lose_the_rule():
    with pytest.raises(gw.GradwrightError, match="torch.jit.trace"):
        torch.jit.trace(lambda x: sine("vjp", 3)(x, 2.0), torch.ones(2))


# --- gw.eager() ---------------------------------------------------------------------------------
def test_eager_runs_numpy(capsys):
    @gw.op
    def f(x, *, k=2):
        print(type(x).__name__)
        return {"out": k * x, "n": len(x)}

    x = torch.tensor([1.0, 2.0])
    with gw.eager():
        out = f(x)
    assert capsys.readouterr().out == "ndarray\n"
    assert out["out"].tolist() == [2, 4] and out["out"].dtype == torch.float32
    assert out["n"].item() == 2


def test_eager_does_not_lose_a_gradient_or_change_a_tensor():
    @gw.op
    def f(x):
        x[0] = 7
        return x

    x = leaf([1.0, 2.0])
    with gw.eager(), pytest.raises(gw.SignatureError, match="requires a gradient"):
        f(x)
    with gw.eager(), torch.no_grad(), pytest.raises(ValueError, match="read-only"):
        f(x)


# --- programs, memory ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["q05_options", "q06_integers"])
def test_a_users_program_runs_as_written(name):
    runpy.run_path(str(PROGRAMS / f"{name}.py"), run_name="__main__")


def test_the_users_mod_and_surrogates():
    runpy.run_path(str(PROGRAMS / "q01_mod.py"))["test_torch"]()
    ops = runpy.run_path(str(PROGRAMS / "q03_surrogate.py"))
    x = leaf([0.2, 1.7])
    for n in range(3):
        ops["reverse"](x, strength=0.1 * n).sum().backward()
    np.testing.assert_allclose(x.grad, [-0.3, -0.3], rtol=1e-6)
    assert derivative(ops["ste_round"](x), x).tolist() == [1, 1]
    assert ops["spike"](x).tolist() == [1, 1]
    torch.testing.assert_close(derivative(ops["spike"](x), x), 1 / (1 + 10 * x.detach()) ** 2)


@pytest.mark.parametrize("factor", [1, 3])
def test_the_users_rules_are_used(factor):
    @gw.op
    def mod(x, y):
        return np.mod(x, y)

    @mod.partials
    def _(x, y):
        return factor, -factor * np.floor_divide(x, y)

    @gw.op
    def ste_round(x):
        return np.round(x)

    @ste_round.surrogate
    def _(x):
        return factor * x

    x, y = leaf([0.3, 0.7, 1.2, 1.7]), leaf([0.2, 0.5, 1.0, 2.9])
    mod(x, y=y).sum().backward()
    assert x.grad.tolist() == [factor] * 4
    assert y.grad.tolist() == [-factor, -factor, -factor, 0]
    assert derivative(ste_round(x), x).tolist() == [factor] * 4


def use(k):
    f = gw.op(lambda x: x * float(k) + np.sin(x))
    x = leaf([1.0, 2.0])
    derivative(derivative(f(x), x), x)
    return f


def test_ops_that_are_gone_leave_nothing_behind():
    alive = weakref.ref(use(0))
    gc.collect()
    assert alive() is None
    for k in range(20):  # caches of fixed size fill first
        use(k)
    # 10,000 ops may leave 20 MB, which is 2 kB an op; one that stayed alive would leave 60 kB.
    # tracemalloc itself keeps the file name of every program that allocated: some 300 bytes. A
    # table of the interpreter's that doubles meanwhile is no leak: it does so in one round only.
    grown = min(growth(200, start) for start in (1000, 2000, 3000))
    assert grown < 200 * 2000, f"{grown / 200:.0f} bytes an op"


def growth(count, start):
    """The bytes that a number of ops leave behind."""
    gc.collect()
    tracemalloc.start()
    for k in range(count):
        use(start + k)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return grown


def test_a_kind_of_arguments_that_was_seen_before():
    f = sine("vjp", 3)
    x, y = leaf([0.3, 1.1]), torch.tensor([2.0, -1.5])
    wanted = 3 * torch.cos(x) * y
    for _ in range(3):  # the second call is a shorter way to the same
        torch.testing.assert_close(derivative(f(x, y), x), wanted)
        torch.testing.assert_close(derivative(f(torch.nn.Parameter(x.detach()), y) * x, x), f(x, y))
        assert f(x.double(), y).dtype == torch.float64
        assert f(x.bfloat16(), y.bfloat16()).dtype == torch.bfloat16
        with pytest.raises(gw.SignatureError, match="sparse"):
            f(x.detach().to_sparse(), y)
        with pytest.raises(gw.GradwrightError, match="torch.jit.trace"):
            torch.jit.trace(lambda x: f(x, y), x.detach())
        with gw.eager(), torch.no_grad():
            np.testing.assert_allclose(f(x, y), f.__wrapped__(x.detach().numpy(), y.numpy()))
