"""Host ops on torch tensors: the rule is used in every mode, and Python runs when it should."""

import numpy as np
import pytest
from host_ops import exp, nested, outer, resident, row_sum, sine

import gradwright as gw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from test_torch_modes import (  # noqa: E402
    COS,
    DERIVATIVES,
    EAGER,
    ONES,
    SIN,
    VALUES,
    Model,
    X,
    Y,
    compiled,
)
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, jacrev, jvp, vmap  # noqa: E402
from torch_ops import derivative, leaf  # noqa: E402

BOTH_MODES = ["vjp", "both", "partials", "surrogate"]
FIRST = ["grad", "grad by keyword", "grad by y", "vmap of grad", "grad of vmap", "vjp", "jacrev"]


@pytest.mark.parametrize("mode", [*VALUES, *DERIVATIVES, *EAGER])
@pytest.mark.parametrize("kind, factor", [(k, 3) for k in BOTH_MODES] + [("vjp", 1)])
def test_every_mode_uses_the_rule(kind, factor, mode):
    run, wanted = {**VALUES, **DERIVATIVES, **EAGER}[mode]
    f = sine(kind, factor)
    torch.testing.assert_close(run(f), wanted if mode in VALUES else factor * wanted)


@pytest.mark.parametrize("mode", [*VALUES, *FIRST])
def test_a_rule_on_the_host_in_every_mode_that_it_is_for(mode):
    run, wanted = {**VALUES, **DERIVATIVES}[mode]
    torch.testing.assert_close(run(sine("host", 3)), wanted if mode in VALUES else 3 * wanted)


@pytest.mark.parametrize("mode", [m for m in DERIVATIVES if m not in FIRST])
def test_and_where_it_is_not_it_raises(mode):
    with pytest.raises(gw.TraceError, match="whose rule runs on the host"):
        DERIVATIVES[mode][0](sine("host"))


@pytest.mark.parametrize("mode", ["vmap", "vmap of grad", "hessian", "jvp", "grad by keyword"])
def test_the_first_call_ever_may_be_compiled(mode):
    run, wanted = {**VALUES, **DERIVATIVES}[mode]
    f = sine("vjp", 3)
    got = compiled(lambda: run(f))()
    torch.testing.assert_close(got, wanted if mode in VALUES else 3 * wanted)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("kind", ["vjp", "host", "jvp"])
def test_backward_of_compiled_code_uses_the_rule(kind, backend):
    f = sine(kind, 3)
    x = X.clone().requires_grad_()
    out = compiled(lambda x, y: 2 * f(x, y=y), backend)(x, Y)
    torch.testing.assert_close(out, 2 * SIN)
    out.sum().backward()
    torch.testing.assert_close(x.grad, 6 * COS)


def test_gradcheck_and_gradgradcheck():
    x, y = (leaf(z.numpy(), torch.float64) for z in (X, Y))
    f = sine("vjp")
    assert gradcheck(f, (x, y), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, (x, y))
    assert gradcheck(exp(), (x,), check_batched_grad=True)
    assert gradcheck(sine("host"), (x, y), check_batched_grad=True)
    rows = torch.autograd.functional.jacobian(exp(3), x, vectorize=True)
    torch.testing.assert_close(rows, torch.diag(3 * x.detach().exp()))
    with pytest.raises(Exception, match="Jacobian mismatch"):
        gradcheck(exp(3), (x,))


def test_opcheck_of_the_operator_that_all_share():
    f = outer()
    f(X, Y)
    call = next(n["function"] for n in f.example().function.primal.nodes if n.prim == "host")
    for operator in (torch.ops.gradwright.host, torch.ops.gradwright.host_once):
        found = torch.library.opcheck(operator.default, (call.handle, 0, [X, torch.ones(3)]))
        assert set(found.values()) == {"SUCCESS"}


# --- batches ------------------------------------------------------------------------------------
def test_outer_product_in_batches():
    f = outer(3)
    x, y, ys = torch.rand(5, 3), torch.rand(2), torch.rand(5, 2)
    torch.testing.assert_close(vmap(f, (0, None))(x, y), torch.stack([f(v, y) for v in x]))
    torch.testing.assert_close(vmap(f, (1, None), 2)(x.T, y)[:, :, 0], f(x[0], y))
    twice = vmap(vmap(f, (0, None)), (None, 0))(x, ys)
    torch.testing.assert_close(twice, torch.stack([torch.stack([f(v, w) for v in x]) for w in ys]))

    def loss(x, y):
        return (f(x, y) ** 2).sum()

    wanted = torch.stack([3 * 2 * v * (y**2).sum() for v in x])
    torch.testing.assert_close(vmap(grad(loss), (0, None))(x, y), wanted)
    torch.testing.assert_close(compiled(vmap(grad(loss), (0, None)))(x, y), wanted)
    assert vmap(f, (0, None))(x[:0], y).shape == (0, 3, 2)
    assert jacrev(f)(x[0], y).shape == (3, 2, 3)


def test_an_elementwise_function_gets_the_whole_batch():
    seen = []

    @gw.host_op(batch="elementwise")
    def f(x, y):
        seen.append((x.shape, y.shape))
        return x * y

    f.partials(lambda x, y: (3 * y, 3 * x))
    x, y = torch.rand(5, 3), torch.rand(2, 1)
    torch.testing.assert_close(vmap(f, (0, None))(x, y), torch.stack([v * y for v in x]))
    assert seen == [((5, 1, 3), (2, 1))]
    got = vmap(grad(lambda x, y: f(x, y).sum()), (0, None))(x, y)
    torch.testing.assert_close(got, (3 * y.sum()).expand(5, 3))


# --- types --------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("run", [lambda f: f, compiled], ids=["eager", "compiled"])
def test_results_and_gradients_have_the_dtype_of_the_arguments(dtype, run):
    x = leaf([0.5, 1.0], dtype)
    out = run(exp(3))(x)
    out.sum().backward()
    assert out.dtype == x.grad.dtype == dtype
    close = {"rtol": 1e-2, "atol": 0} if dtype.itemsize == 2 else {"rtol": 1e-6, "atol": 0}
    torch.testing.assert_close(out, x.detach().exp(), **close)
    torch.testing.assert_close(x.grad, 3 * x.detach().exp(), **close)


def test_integers_that_torch_hardly_has():
    f = gw.host_op(out=lambda x: x)(lambda x: x[::-1])
    for dtype in (torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.bool):
        x = torch.tensor([1, 0]).to(dtype)
        out = f(x)
        assert out.dtype == dtype and out.to(torch.int64).tolist() == [0, 1]


def test_sizes_that_compiled_code_does_not_know():
    run = compiled(row_sum(), dynamic=True)
    for n in (4, 6, 5):
        x = torch.rand(n, 3, requires_grad=True)
        out = run(x)
        torch.testing.assert_close(out, x.sum(-1, keepdim=True))
        out.sum().backward()
        assert x.grad.eq(3).all()
    for f in (row_sum(2), compiled(row_sum(2))):
        with pytest.raises(gw.SignatureError, match=r"shape \(4, 2\) for one of \(4, 1\)"):
            f(torch.ones(4, 3))


# --- memory, exceptions, torch in the body ------------------------------------------------------
def test_inputs_are_not_written_and_results_share_nothing():
    @gw.host_op()
    def writes(x):
        x[0] = 7
        return x

    x = torch.ones(3)
    with pytest.raises(ValueError, match="read-only"):
        writes(x)
    same = gw.host_op()(lambda x: x)
    for f in (same, compiled(same), lambda x: vmap(same)(x[None])[0]):
        out = f(x)
        out += 1
        assert x.tolist() == [1, 1, 1] and out.tolist() == [2, 2, 2]
    seen = []
    gw.host_op()(lambda x: (seen.append(x), x)[1])(torch.rand(2, 3).T)
    assert seen[0].flags.c_contiguous


def test_exceptions_are_the_bodys_own_and_the_last_is_kept():
    @gw.host_op()
    def fails(x):
        raise KeyError("boom")

    for f in (fails, compiled(fails), vmap(fails)):
        for _ in range(3):
            with pytest.raises(KeyError, match="boom"):
                f(torch.ones(3, 3))
            assert isinstance(fails.last_error, KeyError)


def test_a_body_that_calls_torch_raises():
    x = torch.rand(300, 300)

    @gw.host_op()
    def reentrant(a):
        return (torch.from_numpy(a.copy()) @ x).numpy()

    reentrant.vjp(lambda g, x: g)
    jitted = compiled(reentrant, "inductor")
    for k in range(40):
        with pytest.raises(gw.GradwrightError, match="called by torch, and calls torch itself"):
            (jitted if k % 2 else reentrant)(x)
    inner = exp()
    op_in_op = gw.host_op()(lambda x: inner(x) + 1)  # on arrays it may
    torch.testing.assert_close(op_in_op(X), X.exp() + 1)


def test_what_is_not_pure_runs_once_for_each_call():
    calls = []

    @gw.host_op(pure=False)
    def noisy(x):
        calls.append(1)
        return x + len(calls)

    noisy.vjp(lambda g, x: 3 * g)

    def f(x):
        noisy(x)  # what nobody reads runs too
        return 10 * noisy(x) + noisy(x) ** 2

    for run in (f, compiled(f, "aot_eager"), compiled(f, "inductor")):
        x = torch.zeros(2, requires_grad=True)
        for grad_mode in (True, False):
            calls.clear()
            with torch.set_grad_enabled(grad_mode):
                out = run(x)
            assert out.tolist() == [29, 29] and len(calls) == 3
            if grad_mode:
                out.sum().backward()
                assert x.grad.tolist() == [48, 48] and len(calls) == 3
    square = gw.op(lambda x: noisy(x) ** 2)
    with pytest.raises(gw.TraceError, match="runs noisy again, which is not pure"):
        square(leaf([1.0])).sum().backward()


# --- rules --------------------------------------------------------------------------------------
def test_without_a_rule_backward_raises_and_names_the_op():
    @gw.host_op()
    def bare(x):
        return x * 2

    for f in (bare, gw.op(lambda x: bare(x) * x)):
        out = f(leaf([1.0, 2.0]))
        with pytest.raises(gw.TraceError, match="the host op bare, which has no rule"):
            out.sum().backward()
        with pytest.raises(gw.TraceError, match="the host op bare, which has no rule"):
            grad(lambda x, f=f: f(x).sum())(X)
        with pytest.raises(gw.TraceError, match="the host op bare, which has no rule"):
            jvp(f, (X,), (ONES,))
    with pytest.raises(Exception, match="the host op bare, which has no rule"):
        compiled(bare)(leaf([1.0])).sum().backward()
    torch.testing.assert_close(bare(X), X * 2)


def test_rules_within_rules():
    x = leaf([3.0])
    for f, wanted in zip(nested(), (1000, 2000), strict=True):
        assert derivative(derivative(f(x), x), x) == wanted
        assert hessian(lambda x, f=f: f(x).sum())(x.detach()) == wanted


def test_what_was_saved_long_ago_is_saved_again():
    f = exp(3)
    x = leaf([0.5, 1.0])
    out = f(x)
    for k in range(40):
        f(x.detach() + k + 1)
    out.sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach().exp())
    x.grad = None
    out = f(x)
    with torch.no_grad():
        saved = x.clone()
    out.sum().backward()
    torch.testing.assert_close(x.grad, 3 * saved.exp())


@pytest.mark.parametrize("strict", [True, False])
def test_export_refuses(strict):
    with pytest.raises(Exception, match="torch.export: it runs Python on the host"):
        torch.export.export(Model(sine("vjp", 3)), (X,), strict=strict)


# --- ops that are gone --------------------------------------------------------------------------
def use(k):
    f = sine("vjp", k)
    x = leaf([1.0, 2.0])
    derivative(derivative(f(x, x), x), x)


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ops_that_are_gone_leave_nothing_behind(count):
    for k in range(100):  # caches of fixed size fill first
        use(k)
    before = resident()
    for k in range(count):
        use(k)
    # 60 kB an op, if they stayed alive, would be 6 MB
    assert resident() - before < (20e6 if count == 10_000 else 4e6)


def test_a_host_op_is_an_array_of_numpy_and_a_number_too():
    f = sine("vjp", 3)
    x = leaf([0.3, 1.1])
    out = f(x, np.float32([2, -1.5]))
    out.sum().backward()
    torch.testing.assert_close(x.grad, 3 * COS)
    assert f(x, 2.0).dtype == torch.float32
