"""What a traced function captured and that is bound to another object later: it is seen."""

import functools
import gc
import linecache
import sys
import timeit

import numpy as np
import pytest

import gradwright as gw
from gradwright import captures

W = np.array([1.0, 2.0])
X = np.ones(2)
SCALE = 1.0
LR = 0.5
traces = 0


def helper(x):
    return SCALE * x


@gw.op
def inner(x):
    return SCALE * x**2


@gw.op
def ruled(x):
    return x**2


@ruled.vjp
def _(g, x):
    return SCALE * g * x


def loss(w):
    return np.sum(X * w**2)


def through_helper(w):
    return np.sum(helper(w) ** 2)


def through_op(w):
    return np.sum(inner(w))


def through_rule(w):
    return np.sum(ruled(w))


def inside_a_lambda(w):
    return (lambda: np.sum([lambda v: SCALE * v][0](w)))()


USES_SCALE = [through_helper, through_op, through_rule, inside_a_lambda,
              functools.partial(through_helper)]  # fmt: skip


def assert_agree(op, derivative, w):
    """The value of an op and its gradient are of the same captured objects."""
    d = 1e-6 * np.eye(len(w))
    numeric = [(op(w + e) - op(w - e)) / 2e-6 for e in d]
    np.testing.assert_allclose(derivative(w), numeric, rtol=1e-5)


def test_a_new_mini_batch(monkeypatch):
    op, derivative, both = gw.op(loss), gw.grad(loss), gw.value_and_grad(loss)
    for k in [1.0, 3.0, 5.0]:
        monkeypatch.setattr(sys.modules[__name__], "X", np.full(2, k))
        assert op(W) == 5 * k
        assert derivative(W).tolist() == (2 * k * W).tolist()
        assert both(W)[0] == 5 * k
        assert_agree(op, derivative, W)
        out, pull = gw.vjp(op, W)
        assert pull(1.0)[0].tolist() == derivative(W).tolist()
        assert gw.jvp(op, (W,), (W,))[1] == derivative(W) @ W


def test_a_pull_sees_it_too(monkeypatch):
    _, pull = gw.vjp(loss, W)
    assert pull(1.0)[0].tolist() == [2, 4]
    monkeypatch.setattr(sys.modules[__name__], "X", np.full(2, 2.0))
    assert pull(1.0)[0].tolist() == [4, 8]


def test_another_size(monkeypatch):
    op = gw.op(loss)
    op(W)
    monkeypatch.setattr(sys.modules[__name__], "X", np.ones((3, 2)))
    assert op(W) == 15


@pytest.mark.parametrize("function", USES_SCALE)
def test_a_global_of_what_is_called(function, monkeypatch):
    derivative = gw.grad(lambda w: function(w))
    before = derivative(W)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.0)
    after = derivative(W)
    assert np.all(after > before)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 1.0)
    assert derivative(W).tolist() == before.tolist()


@pytest.mark.parametrize("name, uses", [("helper", through_helper), ("inner", through_op)])
def test_a_helper_or_an_op_defined_anew(name, uses, monkeypatch):
    op, derivative = gw.op(uses), gw.grad(uses)
    before = op(W)
    derivative(W)
    new = (lambda x: 3 * x) if name == "helper" else gw.op(lambda x: 3 * x**2)
    monkeypatch.setattr(sys.modules[__name__], name, new)
    assert op(W) == (9 if name == "helper" else 3) * before
    assert_agree(op, derivative, W)


def test_a_closure_variable():
    scale = 1.0

    @gw.op
    def f(x):
        return scale * x

    derivative = gw.grad(lambda x: np.sum(f(x)))
    assert f(W).tolist() == [1, 2] and derivative(W).tolist() == [1, 1]
    scale = 2.0
    assert f(W).tolist() == [2, 4] and derivative(W).tolist() == [2, 2]


def test_what_is_not_bound_yet():
    @gw.op
    def f(x):
        return x if x.ndim else late + not_there  # noqa: F821

    assert f(W) is not None
    assert not f._captures.are_rebound()
    late = 1.0
    assert f._captures.are_rebound()
    assert f(W).tolist() == W.tolist() and late


def test_options_and_keywords_too():
    scale = 1.0

    @gw.op
    def f(x, *, k=2):
        return scale * k * x

    assert f(W, k=3).tolist() == [3, 6]
    scale = 2.0
    assert f(W, k=3).tolist() == [6, 12]


def test_nothing_is_traced_again_while_nothing_is_rebound():
    @gw.op
    def f(x):
        global traces  # which the trace itself binds anew
        traces += 1
        return helper(x)

    start = traces
    f(W)
    once = traces - start
    derivative = gw.grad(lambda x: np.sum(inner(x)))
    derivative(W)
    made = derivative._made
    for _ in range(5):
        f(W)
        f(x=W)
        derivative(W)
    assert traces - start == once and derivative._made is made
    f(np.float32(W))
    assert traces - start == 2 * once
    f(W)
    assert traces - start == 2 * once


def test_what_was_traced_is_dropped(monkeypatch):
    op, derivative = gw.op(loss), gw.grad(loss)

    def rebind(times):
        for k in range(times):
            monkeypatch.setattr(sys.modules[__name__], "X", np.full(2, float(k)))
            op(W), derivative(W)
        gc.collect()
        programs = [name for name in linecache.cache if name.startswith("<gradwright")]
        return len(op._made._made), len(derivative._made._made), len(op.ready), len(programs)

    *first, programs = rebind(2)
    *then, later = rebind(200)
    assert first == then == [1, 1, 1] and later <= programs + 2, (programs, later)


def test_modules_of_numpy_and_gradwright_are_not_searched():
    found = captures.Captures([lambda x: np.linalg.norm(np.tensordot(x, x))])
    assert [name for _, name, _ in found._names] == ["np"]
    assert not captures.Captures([gw.rules.adam.equations[0].function])._names
    assert captures.Captures([np.linalg.norm, gw.grad])._names == ()


def test_a_method_is_searched():
    class Model:
        def apply(self, x):
            return SCALE * x

    names = [name for _, name, _ in captures.Captures([Model().apply])._names]
    assert names == ["SCALE"]


def test_it_costs_little():
    derivative = gw.grad(through_helper)
    derivative(W)
    asked = derivative._captures.are_rebound
    assert min(timeit.repeat(asked, number=1000, repeat=5)) / 1000 < 5e-6  # 0.3 µs, unhurried


# --- rules --------------------------------------------------------------------------------------
@gw.rule
def descent(w, g):
    return w - LR * g


@gw.rule
def helped(w, g, m=0.0):
    m = m + helper(g)
    return w - m, m


def stepped(optimizer, w):
    before = w.copy()
    optimizer.step(np.ones_like(w))
    return (before - w).tolist()


@pytest.mark.parametrize("other", [{}, {"accumulate": 1}])
def test_a_global_of_a_rule(other, monkeypatch):
    w, v = np.ones(2), np.ones(2)
    rule = descent.options(**other)
    one, two = rule.numpy(w), rule.numpy([v, np.ones(3)])
    for rate in [0.5, 0.25, 0.125]:
        monkeypatch.setattr(sys.modules[__name__], "LR", rate)
        assert rule(np.ones(2), np.ones(2)).tolist() == [1 - rate] * 2
        for _ in range(3):
            assert stepped(one, w) == [rate, rate]
            before = v.copy()
            two.step([np.ones(2), np.ones(3)])
            assert (before - v).tolist() == [rate, rate]
        assert str(rate) in rule.source()


def test_a_helper_of_a_rule_in_a_partition(monkeypatch):
    params = {"a": np.zeros(2), "b": np.zeros(2)}
    optimizer = gw.partition({"a": helped, "*": descent}).numpy(params)
    grads = {"a": np.ones(2), "b": np.ones(2)}
    optimizer.step(grads)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.0)
    monkeypatch.setattr(sys.modules[__name__], "LR", 1.0)
    optimizer.step(grads)
    assert params["a"].tolist() == [-4, -4] and params["b"].tolist() == [-1.5, -1.5]


def test_a_rule_is_planned_once_while_nothing_is_rebound():
    w = np.ones(2)
    optimizer = descent.numpy(w)
    optimizer.step(w)
    plans, prepared = descent._plans, optimizer._parameters[0].prepared
    for _ in range(3):
        optimizer.step(np.ones(2))
        descent(w, w)
    assert descent._plans is plans and optimizer._parameters[0].prepared is prepared


def test_plans_of_a_rule_are_dropped(monkeypatch):
    w = np.ones(2)
    optimizer = descent.numpy(w)
    for k in range(200):
        monkeypatch.setattr(sys.modules[__name__], "LR", float(k))
        optimizer.step(np.ones(2))
    assert len(descent._plans._made) == 1 and len(descent._plans_of_floats) <= 1


# --- frameworks ---------------------------------------------------------------------------------
@pytest.mark.framework
def test_in_torch(monkeypatch):
    torch = pytest.importorskip("torch")
    op = gw.op(loss)
    w = torch.tensor(W, requires_grad=True)
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = descent.torch([parameter])
    for k in [1.0, 3.0]:
        monkeypatch.setattr(sys.modules[__name__], "X", np.full(2, k))
        monkeypatch.setattr(sys.modules[__name__], "LR", k / 8)
        out = op(w)
        assert out.item() == 5 * k
        assert torch.autograd.grad(out, w)[0].tolist() == (2 * k * W).tolist()
        before, parameter.grad = parameter.detach().clone(), torch.ones(2)
        optimizer.step()
        assert (before - parameter).tolist() == [k / 8] * 2


@pytest.mark.framework
def test_compiled_again_in_torch(monkeypatch):
    """Compiled code keeps what it was compiled with; what is compiled later has the new object."""
    torch = pytest.importorskip("torch")
    op = gw.op(through_helper)
    w = torch.tensor(W)
    for k in [1.0, 3.0]:
        monkeypatch.setattr(sys.modules[__name__], "SCALE", k)
        torch.compiler.reset()
        assert torch.compile(lambda w: 2 * op(w), backend="eager", fullgraph=True)(w) == 10 * k**2


@pytest.mark.framework
def test_in_tensorflow(monkeypatch):
    tf = pytest.importorskip("tensorflow")
    op = gw.op(loss)
    w = tf.constant(W)
    for k in [1.0, 3.0]:
        monkeypatch.setattr(sys.modules[__name__], "X", np.full(2, k))
        with tf.GradientTape() as tape:
            tape.watch(w)
            out = op(w)
        assert float(out) == 5 * k
        assert tape.gradient(out, w).numpy().tolist() == (2 * k * W).tolist()


# --- a rule of an op that comes too late --------------------------------------------------------
def test_a_rule_after_the_op_was_used_inside_another():
    c = gw.op(lambda x: x**2)
    assert gw.grad(c)(3.0) == 6
    with pytest.raises(gw.SignatureError, match="was used before its partials was attached"):
        c.partials(lambda x: 7 * x)


def test_a_rule_after_what_failed_is_in_time():
    ready = False
    c = gw.op(lambda x: x if ready else x.tolist())
    with pytest.raises(gw.TraceError):
        c(W)
    c.partials(lambda x: 7 * x)
    ready = True
    assert gw.grad(c)(2.0) == 14
