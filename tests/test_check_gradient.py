"""Gradients that are written in a framework: seeded faults, and faults that others reported."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework
R = np.random.default_rng(5)
V, S, T, M = R.normal(size=4), R.normal(size=(3, 3)), R.normal(size=(3, 3)), R.normal(size=(4, 3))
Z = R.normal(size=3) + 1j * R.normal(size=3)
SPREAD = np.array([-1.5, -0.6, -0.2, 0.3, 0.8, 1.7])


def found(function, *xs, framework="torch", **more):
    from gradwright.check import gradient

    return gradient.report(function, xs, framework, more.get("effort", "quick"), 0)


# --- what only torch can have ------------------------------------------------------------------
def function(forward, backward):
    class Made(torch.autograd.Function):
        pass

    Made.forward, Made.backward = staticmethod(forward), staticmethod(backward)
    return lambda x: Made.apply(x)


def saves(value):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return value(x)

    return forward


def blind(g):
    """The memory behind g, read as if it were contiguous."""
    steps = torch.empty(g.shape).stride()
    return torch.as_strided(g, g.shape, steps)


def test_a_rule_that_does_not_read_strides():  # pytorch#194719: gradcheck passes it
    f = function(saves(torch.sin), lambda ctx, g: blind(g) * torch.cos(ctx.saved_tensors[0]))
    x = torch.tensor(M, requires_grad=True)
    assert torch.autograd.gradcheck(f, (x,), fast_mode=False)
    kinds = {c.diagnosis.kind for c in found(f, M, effort="normal").faults}
    assert "strides" in kinds


def test_a_second_derivative_that_is_lost():  # pytorch#104040
    def forward(ctx, x):
        e = torch.exp(x)
        ctx.save_for_backward(e)  # neither an argument nor a result
        return e + x

    f = function(forward, lambda ctx, g: g * (ctx.saved_tensors[0] + 1))
    report = found(f, V)
    assert report.faults[0].diagnosis.kind == "second order", str(report)


def test_memory_that_torch_does_not_know_to_be_shared():
    f = function(lambda ctx, x: torch.from_numpy(x.detach().numpy()), lambda ctx, g: g)
    assert "alias" in {c.diagnosis.kind for c in found(f, V, effort="normal").faults}


def test_a_rule_that_writes_into_its_cotangent():
    def backward(ctx, g):
        g *= 2
        return g

    f = function(lambda ctx, x: 2 * x, backward)
    assert "mutation" in {c.diagnosis.kind for c in found(f, V, effort="normal").faults}


def test_a_function_that_writes_into_its_argument():
    def forward(ctx, x):
        x += 1
        return 2 * x

    f = function(forward, lambda ctx, g: 2 * g)
    assert not found(f, V, effort="normal")


def test_a_precision_that_is_lost():
    f = function(saves(torch.sin), lambda ctx, g: g * torch.cos(ctx.saved_tensors[0].float()))
    report = found(f, V)
    assert report.faults[0].diagnosis.kind == "precision", str(report)


def test_a_rule_that_compiled_transforms_drop():
    class Made(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return torch.sin(x.detach())

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * torch.cos(*ctx.saved_tensors)

    report = found(lambda x: Made.apply(x), V, effort="normal")
    wrong = {c.mode: c.diagnosis.kind for c in report.faults}
    assert wrong.get("compile(func)") == "zero", str(report)
    assert "torch" not in wrong


# --- what others can have ----------------------------------------------------------------------
def test_a_rule_that_a_call_by_keyword_skips():  # tensorflow#65839
    tf = pytest.importorskip("tensorflow")

    @tf.custom_gradient
    def f(x):
        out = tf.numpy_function(np.sin, [x], x.dtype)
        return tf.ensure_shape(out, x.shape), lambda g: g * tf.cos(x)

    report = found(f, V, framework="tensorflow")
    assert {c.mode for c in report.faults} == {"tf by keyword"}, str(report)


def test_a_gradient_of_the_wrong_shape():
    tf = pytest.importorskip("tensorflow")

    @tf.custom_gradient
    def f(x, b):
        return x + b, lambda g: (g, g)

    report = found(f, M, M[0], framework="tensorflow")
    d = report.faults[0].diagnosis
    assert d.kind == "not summed" and "axis 0" in d.text, str(report)


def test_a_cotangent_of_another_dtype():
    jax = pytest.importorskip("jax")
    f = jax.custom_vjp(lambda x: jax.numpy.sin(x))
    f.defvjp(
        lambda x: (jax.numpy.sin(x), x),
        lambda x, g: ((g * jax.numpy.cos(x)).astype(jax.numpy.float64),),
    )
    report = found(f, V, framework="jax", effort="normal")
    assert [c.diagnosis.kind for c in report.faults] == ["dtype"], str(report)
