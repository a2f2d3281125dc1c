"""An option of an op with a rule of its own has no derivative: who asks for one gets an error.

Rules here give three times the true derivative, which shows that they are used.
"""

import numpy as np
import pytest

import gradwright as gw

KINDS = ["partials", "vjp", "jvp"]
NONE = "option a: the op's own"
RULES = {
    "partials": lambda x, *, a: 3 * a,
    "vjp": lambda g, x, *, a: 3 * a * g,
    "jvp": lambda dx, x, *, a: 3 * a * dx,
    "surrogate": lambda x, *, a: 3 * a * x,
}


def scaled(kind):
    @gw.op
    def op(x, *, a=1.0):
        return a * x

    getattr(op, kind)(RULES[kind])
    return op


def nested(kind):
    """An op without a rule that hands its option on to one with a rule."""
    inner = scaled(kind)

    @gw.op
    def op(x, *, a=1.0):
        return inner(x, a=a) + a * a

    return op


def passed(kind):
    """The same, through a surrogate's function."""
    inner = scaled(kind)

    @gw.op
    def op(x, *, a=1.0):
        return a * x

    @op.surrogate
    def _(x, *, a):
        return inner(x, a=a)

    return op


by_kind = pytest.mark.parametrize("kind", KINDS)
by_form = pytest.mark.parametrize("form", [scaled, nested, passed])


@by_kind
@by_form
def test_in_numpy(kind, form):
    op = form(kind)
    assert gw.grad(lambda x: op(x, a=2.0))(5.0) == 6
    assert gw.grad(lambda x, a: op(x, a=a))(5.0, 2.0) == 6
    assert gw.grad(lambda a: a**2 + op(5.0, a=gw.stop_gradient(a)))(2.0) == 4
    assert gw.jvp(lambda x: op(x, a=2.0), (5.0,), (1.0,))[1] == 6
    with pytest.raises(gw.TraceError, match=NONE):
        gw.grad(lambda a: op(5.0, a=a))(2.0)
    with pytest.raises(gw.TraceError, match=NONE):
        gw.vjp(lambda x, a: op(x, a=a), 5.0, 2.0)[1](1.0)
    with pytest.raises(gw.TraceError, match=NONE):
        gw.jvp(lambda a: op(5.0, a=a), (2.0,), (1.0,))


@by_kind
def test_the_derivative_of_a_rule_by_an_option_is_known(kind):
    op = scaled(kind)
    slope = gw.grad(lambda x, a: op(x, a=a))
    assert gw.grad(slope, argnums=1)(5.0, 2.0) == 3


def test_a_surrogate_has_what_its_function_has():
    op = scaled("surrogate")
    assert gw.grad(lambda a: op(5.0, a=a))(2.0) == 15


def test_options_that_are_no_floats():
    @gw.op
    def op(x, *, k, mode="fast"):
        return k * x

    @op.partials
    def _(x, *, k):
        return 3 * k

    assert gw.grad(lambda x, k: op(x, k=k))(5.0, 2) == 6


@pytest.mark.framework
@by_kind
@by_form
def test_in_torch(kind, form):
    torch = pytest.importorskip("torch")
    op = form(kind)
    x, a = torch.tensor(5.0, requires_grad=True), torch.tensor(2.0)
    for option in (2.0, a):
        assert torch.autograd.grad(op(x, a=option), x)[0] == 6
        assert torch.func.grad(lambda x, a: op(x, a=a))(x.detach(), option) == 6
    assert torch.func.jvp(lambda x: op(x, a=a), (x.detach(),), (torch.tensor(1.0),))[1] == 6
    a.requires_grad_()
    out = op(x, a=a)  # the value alone is fine
    with pytest.raises(gw.TraceError, match=NONE):
        out.backward()
    a = a.detach()
    with pytest.raises(gw.TraceError, match=NONE):
        torch.func.grad(lambda a: op(x.detach(), a=a))(a)
    with pytest.raises(gw.TraceError, match=NONE):
        torch.func.jvp(lambda a: op(x.detach(), a=a), (a,), (a,))
    batch = torch.func.vmap(torch.func.grad(lambda x, a: op(x, a=a)))(torch.ones(3), torch.ones(3))
    assert batch.tolist() == [3, 3, 3]


@pytest.mark.framework
@by_kind
@by_form
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["eager", "graph", "jit"])
def test_in_tensorflow(kind, form, mode):
    tf = pytest.importorskip("tensorflow")
    op = form(kind)
    x, a = tf.constant(5.0), tf.constant(2.0)
    run = [lambda f: f, tf.function, lambda f: tf.function(f, jit_compile=True)][mode]

    def gradient(by_option, option):
        def found(x, a):
            with tf.GradientTape() as tape:
                tape.watch(a if by_option else x)
                out = op(x, a=option(a))
            return tape.gradient(out, a if by_option else x)

        return run(found)(x, a)

    assert gradient(False, lambda a: a) == 6
    assert gradient(False, lambda a: 2.0) == 6
    assert gradient(True, tf.stop_gradient) is None
    with pytest.raises(Exception, match=NONE):
        gradient(True, lambda a: a)


def test_traced_sizes_may_fill_an_array():
    @gw.op
    def f(x):
        y = np.zeros(2)
        y[0] = x.shape[0]
        return np.sum(x) * y

    assert f(np.ones(3)).tolist() == [9, 0]
