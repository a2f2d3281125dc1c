"""Ops in TensorFlow: a user's rule is used in every mode, to every order, or refused loudly.

A rule that equals TensorFlow's own derivative cannot show that it was dropped, so most rules here
are wrong on purpose.
"""

import functools
import subprocess
import sys

import numpy as np
import pytest
from tensorflow_modes import MODES, gradients, graph, tf, v1

import gradwright as gw
from gradwright import philox
from gradwright.emit import program
from gradwright.graph import Graph
from gradwright.targets.tensorflow import SPELLING

pytestmark = pytest.mark.framework
in_every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda m: m.__name__)
X = np.float32([[0.3, 0.7], [1.2, 1.7]])
Y = np.float32([0.2, 2.9])


def rule_of(kind, factor):
    """x·y with a rule of each kind, times a factor."""

    @gw.op
    def times(x, y):
        return x * y

    rules = {
        "partials": lambda x, y: (factor * y, factor * x),
        "vjp": lambda g, x, y: (factor * g * y, factor * g * x),
        "jvp": lambda dx, dy, x, y: factor * (dx * y + x * dy),
        "surrogate": lambda x, y: factor * x * y,
    }
    if kind != "derived":
        getattr(times, kind)(rules[kind])
    return times


def close(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@in_every_mode
@pytest.mark.parametrize("kind", ["derived", "partials", "vjp", "jvp", "surrogate"])
@pytest.mark.parametrize("factor", [1, 3])
def test_a_rule_is_used_and_its_broadcasting_undone(kind, factor, mode):
    op = rule_of(kind, factor)
    factor = 1 if kind == "derived" else factor
    wanted = factor * np.broadcast_to(Y, X.shape), factor * X.sum(0)
    for call in (lambda x, y: op(x, y), lambda x, y: op(x, y=y), lambda x, y: op(y=y, x=x)):
        close(mode(gradients(call))(tf.constant(X), tf.constant(Y)), wanted)


@in_every_mode
@pytest.mark.parametrize("kind", ["derived", "partials", "vjp", "jvp", "surrogate"])
@pytest.mark.parametrize("factor", [1, 3])
def test_the_second_derivative_is_that_of_the_rule(kind, factor, mode):
    op = rule_of(kind, factor)
    factor = 1 if kind == "derived" else factor
    x = tf.constant(Y)  # x·x is 2·factor·x in the first, and factor² + factor² in the second
    (got,) = mode(gradients(lambda x: op(x, x), 2))(x)
    wanted = gw.grad(lambda x: np.sum(gw.grad(lambda x: np.sum(op(x, x)))(x)))(Y)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    np.testing.assert_allclose(got, 2 * factor, rtol=1e-6)


@pytest.fixture
def nested():
    """Rules within rules that are wrong on purpose."""

    @gw.op
    def b(x):
        return x * 1

    @b.vjp
    def _(g, x):
        return 1000 * g

    @gw.op
    def a(x):
        return x * x

    @a.vjp
    def _(g, x):
        return g * b(x)

    return a, gw.op(lambda x: b(x) * x), b


@in_every_mode
def test_a_rule_within_a_rule_is_used_at_second_order(nested, mode):
    a, d, b = nested
    x = tf.constant([3.0])
    assert [mode(gradients(f))(x)[0] for f in nested] == [3, 3003, 1000]
    assert [mode(gradients(f, 2))(x)[0] for f in nested] == [1000, 2000, 0]


@in_every_mode
def test_third_derivatives(mode):
    x = tf.constant([0.3, 2.0])
    cube = gw.op(lambda x: np.exp(x) * x**3)
    (got,) = mode(gradients(cube, 3))(x)
    wanted = np.exp(x) * (x**3 + 9 * x**2 + 18 * x + 6)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@in_every_mode
def test_a_rule_that_reads_out(mode):
    op = gw.op(lambda x: np.exp(x))
    op.vjp(lambda g, x, out: 3 * g * out)
    for order in (1, 2, 3):
        (got,) = mode(gradients(op, order))(tf.constant([0.5]))
        np.testing.assert_allclose(got, [3**order * np.exp(0.5)], rtol=1e-5)


def test_values_and_static_shapes():
    op = gw.op(lambda x: np.sum(x, axis=-1, keepdims=True))
    with tf.Graph().as_default():
        v1_ = tf.compat.v1
        assert op(v1_.placeholder(tf.float32, [None, 3])).shape.as_list() == [None, 1]
        mod = gw.op(lambda x, y: np.mod(x, y))
        assert mod(v1_.constant(Y), v1_.constant(Y)).shape == (2,)

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def batched(x):
        assert op(x).shape.as_list() == [None, 1]
        return op(x)

    assert batched(tf.ones([5, 3])).shape == (5, 1)


def test_an_unknown_batch_in_xla_is_traced_once():
    counts = {"traces": 0}

    def body(x):
        counts["traces"] += 1
        return (x - np.mean(x, axis=0)) / x.shape[0]

    op = gw.op(body)
    run = tf.function(op.__call__, autograph=False, jit_compile=True, reduce_retracing=True)
    for n in (2, 3, 5, 2):
        x = np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)
        np.testing.assert_allclose(run(tf.constant(x)), body(x), rtol=1e-5, atol=1e-6)
        op(tf.constant(x))
    assert counts["traces"] == 4 + 2  # four by this test; gradwright traces twice, and compares


def test_trees_options_and_defaults():
    @gw.op
    def linear(p, x, *, scale=2.0, power=1, mode="plain", flip=False):
        y = p["w"] * x + p["b"][0]
        for _ in range(power):
            y = y * scale
        return {"y": -y if flip else y, "mode": x} if mode == "tree" else y

    p = {"w": tf.Variable(2.0), "b": [np.float32(1)]}
    x = tf.constant([1.0, 2.0])
    assert linear(p, x).numpy().tolist() == [6, 10]
    assert linear(p, x, power=2, scale=tf.constant(3.0)).numpy().tolist() == [27, 45]
    assert linear(p, x, flip=True, mode="tree")["y"].numpy().tolist() == [-6, -10]
    with tf.GradientTape() as tape:
        y = linear(p, x, scale=5.0)
    assert tape.gradient(y, p["w"]).numpy() == 15


@in_every_mode
def test_several_results_and_integers(mode):
    @gw.op
    def both(x, k):
        return np.sin(x) * k, np.argmax(x), x

    both.vjp(lambda g, x, k: (7 * g[0] + g[2], None))
    x, k = tf.constant([0.5, 0.1]), tf.constant([2, 3])
    out = mode(lambda x, k: both(x, k))(x, k)
    assert np.asarray(out[1]) == 0
    (got,) = mode(lambda x, k: gradients(lambda x: both(x, k)[0])(x))(x, k)
    np.testing.assert_allclose(got, [7, 7])
    (got,) = mode(lambda x, k: gradients(lambda x: both(x, k)[2])(x))(x, k)
    np.testing.assert_allclose(got, [1, 1])


@pytest.mark.parametrize(
    "dtype", "float16 bfloat16 float32 float64 int8 int32 int64 uint8 bool".split()
)
def test_dtypes_pass(dtype):
    op = gw.op(lambda x: np.maximum(x, x) + x)
    for mode in MODES:
        if dtype == "bfloat16" and mode is v1:
            continue
        got = mode(op)(tf.cast([0, 1], dtype))
        assert tf.as_dtype(got.dtype) == dtype


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (lambda: tf.sparse.from_dense([1.0]), "SparseTensor"),
        (lambda: tf.ragged.constant([[1.0], []]), "RaggedTensor"),
        (lambda: tf.constant("a"), "string"),
        (lambda: tf.constant(1j), "complex128"),
    ],
    ids=["sparse", "ragged", "string", "complex"],
)
def test_what_is_no_array_of_real_numbers_is_named(value, named):
    double = gw.op(lambda x: 2 * x)
    with pytest.raises(gw.SignatureError, match=f"(?s)<lambda>.*{named}.*instead"):
        double(value())


def test_an_unknown_rank_says_how_to_give_it():
    double = gw.op(lambda x: 2 * x)
    with pytest.raises(gw.SignatureError, match="(?s)unknown rank.*ensure_shape"):
        tf.function(double.__call__, autograph=False).get_concrete_function(tf.TensorSpec(None))


def jvp(f, x):
    with tf.autodiff.ForwardAccumulator(x, 2 * tf.ones_like(x)) as forward:
        y = f(x)
    return forward.jvp(y)


def test_forward_mode_uses_the_rule_or_raises(nested):
    """In eager mode TensorFlow transposes a vjp twice; in a graph it would take the body's."""
    a, d, b = nested
    x = tf.constant([3.0])
    assert [jvp(f, x).numpy().item() for f in nested] == [6, 6006, 2000]
    firsts = [gradients(f) for f in (a, d)]
    assert [jvp(lambda x, f=f: f(x)[0], x).numpy().item() for f in firsts] == [2000, 4000]
    clipped = gw.op(lambda x: x * 1)
    clipped.vjp(lambda g, x: np.clip(g, -1, 1))
    for f in (*nested, clipped):
        with pytest.raises(Exception, match="would not use the derivative of .*gw.jvp"):
            graph(functools.partial(jvp, f))(x)
    with pytest.raises(LookupError, match="would not use the derivative of .*gw.jvp"):
        jvp(clipped, x)


def test_autograph_leaves_ops_alone(nested):
    @tf.function
    def step(x):
        y = nested[0](x) if tf.reduce_sum(x) > 0 else x
        return tf.gradients(y, x)[0]

    assert step(tf.constant([3.0])).numpy() == 3


LOAD = """
import sys
import tensorflow as tf
loaded, x = tf.saved_model.load(sys.argv[1]), tf.constant([1.0])
def gradient(f):
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x)
    return run
for f in loaded.derived, loaded.reading, loaded.nested:
    first = gradient(f)
    print(first(x).numpy().item(), tf.function(first)(x).numpy().item())
    print(tf.function(first, jit_compile=True)(x).numpy().item())
print(gradient(gradient(loaded.derived))(x).numpy().item(), "gradwright" in sys.modules)
for f in loaded.reading, loaded.nested:
    for mode in (lambda f: f), tf.function:
        try:
            print(mode(gradient(gradient(f)))(x))
        except tf.errors.InvalidArgumentError as error:
            print("the second derivative of" in str(error))
"""


def test_a_saved_model_keeps_the_first_gradient_and_refuses_the_second(nested, tmp_path):
    """In another process, without gradwright; a derived op keeps the second as well."""
    reading = gw.op(lambda x: np.exp(x))
    reading.vjp(lambda g, x, out: 3 * g * out)
    module = tf.Module()
    batch = [tf.TensorSpec([None])]
    for name, f in {
        "derived": gw.op(lambda x: np.sin(x) * x).__call__,
        "reading": reading.__call__,
        "nested": lambda x: nested[2](x) * x + nested[0](x),
    }.items():
        setattr(module, name, tf.function(f, batch, autograph=False))
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, tmp_path, options=options)
    command = [sys.executable, "-c", LOAD, tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    said = ran.stdout.split()
    wanted = [np.sin(1) + np.cos(1)] * 3 + [3 * np.e] * 3 + [1002] * 3
    np.testing.assert_allclose([float(n) for n in said[:9]], wanted, rtol=1e-6, err_msg=ran.stderr)
    np.testing.assert_allclose(float(said[9]), 2 * np.cos(1) - np.sin(1), rtol=1e-5)
    assert said[10:] == ["False", "True", "True", "True", "True"], ran.stdout


def test_eager_runs_plain_numpy_and_has_no_gradient():
    seen = []
    op = gw.op(lambda x: seen.append(x) or x * 2)
    with gw.eager():
        with tf.GradientTape() as tape:
            x = tf.constant([1.0])
            tape.watch(x)
            y = op(x)
        assert type(seen[-1]) is np.ndarray and y.numpy() == 2
        with pytest.raises(gw.GradwrightError, match="gw.eager"):
            tape.gradient(y, x)
        with pytest.raises(gw.GradwrightError, match="run_functions_eagerly"):
            graph(op.__call__)(x)


@in_every_mode
@pytest.mark.parametrize("lane", ["own", "even", "odd", "place"])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_random_words_are_philoxs(lane, rank, mode):
    g = Graph()
    x = g.input("x", [None] * rank, "float32")
    numbers = [g.input(name, (), "int64") for name in ("step", "identity", "seed")]
    like = g.nodes[x].shape
    g.outputs = (g.add("random_bits", numbers, draw=3, lane=lane, shape=like),)
    run = mode(lambda *xs: list(program(g, "bits", SPELLING)(*xs)))
    for shape in {0: [()], 1: [(0,), (1,), (7,), (1001,)], 2: [(3, 5), (2, 0)]}[rank]:
        for numbers in [(1, 0, 0), (2**48 - 1, 2**32 - 1, 2**56 - 1), (2**33 + 5, 7, 2**40 + 9)]:
            (got,) = run(tf.zeros(shape), *(tf.constant(n, tf.int64) for n in numbers))
            wanted = philox.random_bits(*numbers, draw=3, lane=lane, shape=shape)
            np.testing.assert_array_equal(got, wanted)
