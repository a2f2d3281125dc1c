"""Host ops in TensorFlow: eager, `tf.function`, graphs of TensorFlow 1, nested tapes."""

import numpy as np
import pytest
from host_ops import RULES, exp, nested, outer, resident, row_sum, sine
from tensorflow_modes import gradients, graph, jit, plain, tf, unknown_sizes, v1

import gradwright as gw

pytestmark = pytest.mark.framework
MODES = [plain, graph, unknown_sizes, v1]
in_every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda m: m.__name__)
X, Y = tf.constant([0.3, 1.1]), tf.constant([2.0, -1.5])
SIN, COS = np.sin(X) * Y, np.cos(X) * Y


@in_every_mode
@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("kind", RULES)
def test_values_and_gradients(kind, factor, mode):
    f = sine(kind, factor)
    np.testing.assert_allclose(mode(f)(X, Y), SIN, rtol=1e-6)
    for call in (f, lambda x, y: f(x, y=y), lambda x, y: f(y=y, x=x)):
        dx, dy = mode(gradients(call))(X, Y)
        np.testing.assert_allclose(dx, factor * COS, rtol=1e-6)
        np.testing.assert_allclose(dy, factor * np.sin(X), rtol=1e-6)


@in_every_mode
@pytest.mark.parametrize("kind", RULES)
def test_second_derivatives(kind, mode):
    f = sine(kind, 3)
    run = mode(gradients(lambda x: f(x, Y.numpy()), 2))
    if kind == "host":
        with pytest.raises(Exception, match="whose rule runs on the host"):
            run(X)
    else:
        np.testing.assert_allclose(run(X)[0], -3 * SIN, rtol=1e-6)


@in_every_mode
def test_rules_within_rules(mode):
    for f, wanted in zip(nested(), (1000, 2000), strict=True):
        assert mode(gradients(f, 2))(tf.constant([3.0]))[0] == wanted


@in_every_mode
def test_a_rule_that_reads_out_and_runs_python_once(mode):
    calls = []

    @gw.host_op()
    def f(x):
        calls.append(1)
        return np.exp(x)

    f.vjp(lambda g, x, out: 3 * g * out)
    f(X)  # traced
    for order in (1, 2, 3):
        calls.clear()
        (got,) = mode(gradients(f, order))(X)
        np.testing.assert_allclose(got, 3**order * np.exp(X), rtol=1e-6)
        assert len(calls) == 1


def test_forward_mode_in_eager_mode():
    f = sine("vjp", 3)
    ones = tf.ones(2)
    with tf.autodiff.ForwardAccumulator(X, ones) as forward:
        with tf.GradientTape() as tape:
            tape.watch(X)
            out = f(X, Y)
        first = tape.gradient(out, X)
    np.testing.assert_allclose(forward.jvp(out), 3 * COS, rtol=1e-6)
    np.testing.assert_allclose(forward.jvp(first), -3 * SIN, rtol=1e-6)
    g = gw.host_op()(lambda x: np.exp(x))
    g.vjp(lambda g, x, out: 3 * g * out)
    with tf.autodiff.ForwardAccumulator(X, ones) as forward:
        with tf.GradientTape() as tape:
            tape.watch(X)
            out = g(X)
        first = tape.gradient(out, X)
    np.testing.assert_allclose(forward.jvp(first), 9 * np.exp(X), rtol=1e-6)


def test_static_shapes_before_any_run():
    f = row_sum()

    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def batched(x):
        assert f(x).shape.as_list() == [None, 1]
        return f(x)

    assert batched(tf.ones([5, 3])).shape == (5, 1)
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 3])
        assert f(x).shape.as_list() == [None, 1]
        assert outer()(x[:, 0], tf.ones(2)).shape.as_list() == [None, 2]
    wide = row_sum(2)
    for run in (wide, graph(wide)):
        with pytest.raises(Exception, match=r"shape \(5, 2\) for one of \(5, 1\)"):
            run(tf.ones([5, 3]))


@in_every_mode
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_results_and_gradients_have_the_dtype_of_the_arguments(dtype, mode):
    f, x = exp(3), tf.constant([0.5, 1.0], dtype)
    out, (grad,) = mode(f)(x), mode(gradients(f))(x)
    assert out.dtype == grad.dtype == dtype
    wanted = np.exp(np.array([0.5, 1.0]))
    rtol = 1e-2 if "16" in dtype else 1e-6
    np.testing.assert_allclose(np.asarray(out, np.float64), wanted, rtol=rtol)
    np.testing.assert_allclose(np.asarray(grad, np.float64), 3 * wanted, rtol=rtol)


@in_every_mode
def test_outer_product_in_batches(mode):
    f, x = outer(3), tf.random.stateless_uniform([5, 3], [0, 1])
    got = mode(lambda x, y: tf.vectorized_map(lambda v: f(v, y), x))(x, Y)
    np.testing.assert_allclose(got, np.stack([np.outer(v, Y) for v in x]), rtol=1e-6)
    if mode in (graph, plain):
        loss = gradients(lambda v, y: f(v, y) ** 2)
        got = mode(lambda x, y: tf.vectorized_map(lambda v: loss(v, y)[0], x))(x, Y)
        np.testing.assert_allclose(got, 6 * np.asarray(x) * np.sum(Y**2), rtol=1e-5)


@in_every_mode
def test_without_a_rule_a_gradient_raises_and_names_the_op(mode):
    @gw.host_op()
    def bare(x):
        return x * 2

    for f in (bare, gw.op(lambda x: bare(x) * x)):
        with pytest.raises(Exception, match="the host op bare, which has no rule"):
            mode(gradients(f))(X)
        mode(f)(X)


def test_inputs_are_not_written_and_results_share_nothing():
    @gw.host_op()
    def writes(x):
        x[0] = 7
        return x

    kept = np.ones(3, np.float32)
    x = tf.constant(kept)
    for run in (writes, graph(writes)):
        with pytest.raises(Exception, match="read-only"):
            run(x)
        assert x.numpy().tolist() == [1, 1, 1]
    lent = gw.host_op()(lambda x: kept)
    out, in_graph = lent(x), graph(lent)(x)
    kept[:] = 5
    assert out.numpy().tolist() == in_graph.numpy().tolist() == x.numpy().tolist() == [1, 1, 1]


def test_exceptions():
    @gw.host_op()
    def fails(x):
        raise KeyError("boom")

    run = graph(fails)
    for _ in range(3):
        with pytest.raises(KeyError, match="boom") as caught:
            fails(X)
        assert type(caught.value) is KeyError and fails.last_error is caught.value
        with pytest.raises(tf.errors.UnknownError, match="host op fails raised KeyError: 'boom'"):
            run(X)
        assert isinstance(fails.last_error, KeyError)
    ends = graph(gw.host_op()(lambda x: next(iter(()))))
    with pytest.raises(tf.errors.UnknownError, match="raised StopIteration"):
        ends(X)  # as TensorFlow's OutOfRangeError it would end a dataset


def test_a_body_that_calls_tensorflow_raises():
    x = tf.ones([300, 300])
    weights = tf.Variable(x)

    @gw.host_op()
    def reentrant(a):
        return (tf.constant(a) @ weights).numpy()

    run = graph(reentrant)
    for k in range(40):
        with pytest.raises(Exception, match="called by TensorFlow, and calls TensorFlow itself"):
            (run if k % 2 else reentrant)(x)
        assert isinstance(reentrant.last_error, gw.GradwrightError)
    quiet = gw.host_op()(lambda x: (tf.constant(x), x)[1])
    with pytest.raises(gw.GradwrightError, match="calls TensorFlow itself"):
        quiet(X)
    inner = exp()
    op_in_op = gw.host_op()(lambda x: inner(x) + 1)  # on arrays it may
    for f in (op_in_op, graph(op_in_op)):
        np.testing.assert_allclose(f(X), np.exp(X) + 1, rtol=1e-6)


@in_every_mode
def test_what_is_not_pure_runs_once_for_each_call(mode):
    calls = []

    @gw.host_op(pure=False)
    def noisy(x):
        calls.append(1)
        return x + len(calls)

    noisy.vjp(lambda g, x, out: 3 * g * out / out)
    run = mode(lambda x: 10 * noisy(x) + noisy(x) ** 2)
    for _ in range(2):
        calls.clear()
        assert np.asarray(run(tf.zeros(1))) in (10 + 4, 20 + 1) and len(calls) == 2
    calls.clear()
    (got,) = mode(gradients(lambda x: noisy(x) ** 2))(tf.zeros(1))
    assert got == 6 and len(calls) == 1
    square = gw.op(lambda x: noisy(x) ** 2)
    with pytest.raises(gw.TraceError, match="runs noisy again, which is not pure"):
        mode(gradients(square))(X)


def test_xla_and_saved_models_refuse(tmp_path):
    f = sine("vjp", 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="PyFuncStateless"):
        jit(f)(X, Y)
    module = tf.Module()
    module.run = tf.function(f, input_signature=[tf.TensorSpec([None])] * 2, autograph=False)
    with pytest.raises(ValueError, match="Error when tracing gradients for SavedModel"):
        tf.saved_model.save(module, str(tmp_path))


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ops_that_are_gone_leave_nothing_behind(count):
    def use(k):
        gradients(exp(k), 1)(X)

    for k in range(100):
        use(k)
    before = resident()
    for k in range(count):
        use(k)
    assert resident() - before < (20e6 if count == 10_000 else 4e6)


def test_the_checker_takes_what_tensorflow_refuses_for_refused():
    gw.check(exp(), X.numpy(), frameworks=["tensorflow"])
    with pytest.raises(gw.CheckFailure, match="off by a factor of 3"):
        gw.check(exp(3), X.numpy(), frameworks=["tensorflow"])
