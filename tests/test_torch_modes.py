"""Ops under torch.func, forward mode, torch.compile and torch.export: the rule is never lost."""

import gc
import weakref

import numpy as np
import pytest

import gradwright as gw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from torch.autograd import forward_ad, gradcheck  # noqa: E402
from torch.autograd.functional import hessian as autograd_hessian  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402
from torch_ops import KINDS, leaf, sine  # noqa: E402

RULES = [(kind, factor) for kind in KINDS for factor in (1, 3)] + [(None, 1)]
X, Y = torch.tensor([0.3, 1.1]), torch.tensor([2.0, -1.5])
ONES = torch.ones(2)
SIN, COS = torch.sin(X) * Y, torch.cos(X) * Y


def dual(f):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(X, ONES), Y)).tangent


def dual_over_reverse(f):
    x = X.clone().requires_grad_()
    with forward_ad.dual_level():
        out = f(forward_ad.make_dual(x, ONES), Y).sum()
        return forward_ad.unpack_dual(torch.autograd.grad(out, x, create_graph=True)[0]).tangent


def batched(f):
    x = X.clone().requires_grad_()
    return torch.autograd.grad(f(x, Y), x, torch.eye(2), is_grads_batched=True)[0]


def total(f):
    return lambda x: f(x, Y).sum()


# What each mode computes, and what it must be: a multiple of the factor of the rule, or a value.
VALUES = {
    "vmap": (lambda f: vmap(f, (0, None))(torch.stack([X, X]), Y), torch.stack([SIN, SIN])),
    "vmap of a column": (lambda f: vmap(f, (1, None), 1)(X[:, None], Y)[:, 0], SIN),
    "vmap of vmap": (lambda f: vmap(vmap(f))(X[None], Y[None])[0], SIN),
}
DERIVATIVES = {
    "grad": (lambda f: grad(total(f))(X), COS),
    "grad by keyword": (lambda f: grad(lambda x: f(y=Y, x=x).sum())(X), COS),
    "grad by y": (lambda f: grad(lambda x, y: f(x, y).sum(), argnums=1)(X, Y), torch.sin(X)),
    "grad of grad": (lambda f: grad(lambda x: grad(total(f))(x).sum())(X), -SIN),
    "vmap of grad": (lambda f: vmap(grad(total(f)))(X[None])[0], COS),
    "grad of vmap": (lambda f: grad(lambda x: vmap(f)(x[None], Y[None]).sum())(X), COS),
    "vjp": (lambda f: vjp(lambda x: f(x, Y), X)[1](ONES)[0], COS),
    "jvp": (lambda f: jvp(lambda x: f(x, Y), (X,), (ONES,))[1], COS),
    "jvp of jvp": (
        lambda f: jvp(lambda x: jvp(lambda x: f(x, Y), (x,), (ONES,))[1], (X,), (ONES,))[1],
        -SIN,
    ),
    "jacrev": (lambda f: jacrev(lambda x: f(x, Y))(X), torch.diag(COS)),
    "jacfwd": (lambda f: jacfwd(lambda x: f(x, Y))(X), torch.diag(COS)),
    "hessian": (lambda f: hessian(total(f))(X), -torch.diag(SIN)),
    "jacfwd of jacfwd": (lambda f: jacfwd(jacfwd(total(f)))(X), -torch.diag(SIN)),
    "jacrev of jacfwd": (lambda f: jacrev(jacfwd(total(f)))(X), -torch.diag(SIN)),
}
EAGER = {
    "dual": (dual, COS),
    "dual over reverse": (dual_over_reverse, -SIN),
    "batched cotangents": (batched, torch.diag(COS)),
    "autograd's hessian": (lambda f: autograd_hessian(total(f), X), -torch.diag(SIN)),
    "its hessian, vectorized": (
        lambda f: autograd_hessian(total(f), X, vectorize=True),
        -torch.diag(SIN),
    ),
}


@pytest.mark.parametrize("mode", [*VALUES, *DERIVATIVES, *EAGER])
@pytest.mark.parametrize("kind, factor", RULES)
def test_every_mode_uses_the_rule(kind, factor, mode):
    run, wanted = {**VALUES, **DERIVATIVES, **EAGER}[mode]
    f = sine(kind, factor)
    torch.testing.assert_close(run(f), wanted if mode in VALUES else factor * wanted)


def test_gradcheck_in_forward_mode_and_batched():
    x, y = (leaf(z.numpy(), torch.float64) for z in (X, Y))
    for kind in KINDS:
        assert gradcheck(sine(kind), (x, y), check_forward_ad=True, check_batched_grad=True)


def test_a_rule_that_is_not_linear_has_no_forward_mode():
    @gw.op
    def clipped(x):
        return x * 1.0

    @clipped.vjp
    def _(g, x):
        return np.clip(g, -1, 1)

    assert torch.equal(grad(lambda x: (5 * clipped(x)).sum())(X), ONES)
    with pytest.raises(gw.TraceError, match="forward mode of clipped: its vjp is not linear"):
        jvp(clipped, (X,), (ONES,))


def test_integers_and_several_outputs_under_transforms():
    f = gw.op(lambda x, i: (np.take(x, i) * x[:1], np.argmax(x), x > 1))
    i = torch.tensor([1, 0, 1])
    x = torch.stack([X, X + 1])
    values, positions, larger = vmap(f, (0, None))(x, i)
    torch.testing.assert_close(values, torch.stack([z[i] * z[:1] for z in x]))
    assert positions.tolist() == [1, 1] and larger.tolist() == [[False, True], [True, True]]
    wanted = jacrev(lambda x: x[i] * x[:1])(X)
    torch.testing.assert_close(jacrev(lambda x: f(x, i)[0])(X), wanted)
    torch.testing.assert_close(jacfwd(lambda x: f(x, i)[0])(X), wanted)


# --- torch.compile -------------------------------------------------------------------------------
def compiled(function, backend="aot_eager", **more):
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=True, **more)


@pytest.mark.parametrize("mode", [*VALUES, *DERIVATIVES])
@pytest.mark.parametrize("kind", ["vjp", None])
def test_the_first_call_ever_may_be_compiled(kind, mode):
    run, wanted = {**VALUES, **DERIVATIVES}[mode]
    f, factor = sine(kind, 3 if kind else 1), 3 if kind else 1
    got = compiled(lambda: run(f))()
    torch.testing.assert_close(got, wanted if mode in VALUES else factor * wanted)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("kind", KINDS)
def test_backward_of_compiled_code_uses_the_rule(kind, backend):
    f = sine(kind, 3)
    x = X.clone().requires_grad_()
    out = compiled(lambda x, y: 2 * f(x, y=y), backend)(x, Y)
    torch.testing.assert_close(out, 2 * SIN)
    out.sum().backward()
    torch.testing.assert_close(x.grad, 6 * COS)


@gw.op
def affine(d, *, mode="fast", k=2):
    y = d["a"] * d["b"][0]
    return {"out": [k * y if mode == "fast" else np.tanh(k * y)], "at": np.argmax(y)}


@affine.vjp
def _(g, d, out, *, mode, k):
    s = 3 * (k if mode == "fast" else k * (1 - out["out"][0] ** 2))
    return {"a": s * g["out"][0] * d["b"][0], "b": [s * g["out"][0] * d["a"]]}


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_trees_and_options_in_compiled_code(mode):
    def f(x, k):
        found = affine(d={"b": [Y], "a": x}, k=k, mode=mode)
        return found["out"][0], found["at"]

    run = compiled(f)
    for k in (2, 3, 4, 0.5, 0.7, 0.9):
        x, z = (X.clone().requires_grad_() for _ in range(2))
        got, wanted = run(x, k), f(z, k)
        torch.testing.assert_close(got, wanted)
        got[0].sum().backward()
        wanted[0].sum().backward()
        torch.testing.assert_close(x.grad, z.grad)


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled_code_for_several_sizes(dynamic):
    sized = gw.op(lambda x: np.concatenate(np.split(x, 2)[::-1]) / x.shape[0] - np.mean(x))
    run = compiled(lambda x: sized(x) * 1, dynamic=dynamic)
    for n in (4, 6, 10, 8):
        x = torch.rand(n)
        torch.testing.assert_close(run(x), sized(x))


def test_a_second_derivative_through_compiled_code_raises():
    f = sine("vjp", 3)
    x = X.clone().requires_grad_()
    first = torch.autograd.grad(compiled(total(f))(x), x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


def test_compiled_code_does_not_keep_what_is_gone():
    def use():
        f = sine("vjp", 3)
        compiled(lambda: f(X, Y))()
        return weakref.ref(f)

    alive = use()
    torch._dynamo.reset()
    gc.collect()
    assert alive() is None


def scaled(factor):
    @gw.op
    def f(x):
        return factor * np.sin(x)

    return f


def called(op, x):
    return op(x)


HOLDERS = {
    "argument": lambda op: lambda x: torch.compile(called, backend="eager")(op, x),
    "closure": lambda op: torch.compile(lambda x: op(x), backend="eager"),
    "attribute": lambda op: torch.compile(One(op), backend="eager"),
}


class One(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, x):
        return self.op(x)


@pytest.mark.parametrize("holder", HOLDERS)
def test_compiled_code_is_for_one_op_alone(holder):
    """torch keeps code by the Python function that it was made of, which may call another op."""
    ops = {factor: scaled(factor) for factor in (1.0, 5.0)}
    for factor, op in ops.items():
        torch.testing.assert_close(HOLDERS[holder](op)(X), factor * torch.sin(X))


# --- torch.export --------------------------------------------------------------------------------
class Model(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, x):
        return self.op(x, x)


@pytest.mark.parametrize("strict", [True, False])
def test_export_refuses_to_lose_a_rule(strict):
    with pytest.raises(Exception, match="torch.export, which record its equations"):
        torch.export.export(Model(sine("vjp", 3)), (X,), strict=strict)
    program = torch.export.export(Model(sine(None)), (X,), strict=strict)
    torch.testing.assert_close(program.module()(X), torch.sin(X) * X)
