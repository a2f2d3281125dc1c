"""`py_func` with a gradient: in graphs of TensorFlow 1, in tf.function, in eager mode."""

import subprocess
import sys

import numpy as np
import pytest
from tensorflow_modes import MODES, gradients, jit, tf, v1

import gradwright as gw

py_func = gw.tf1.py_func
pytestmark = pytest.mark.framework
in_every_mode = pytest.mark.parametrize(
    "mode", [m for m in MODES if m is not jit], ids=lambda m: m.__name__
)


def sine(x, **keywords):
    """With three times its gradient, so that it is seen whose gradient is used."""
    return py_func(
        np.sin, [x], tf.float32, grad=lambda op, g: 3 * g * tf.cos(op.inputs[0]), **keywords
    )


def exponential(x):
    return py_func(np.exp, [x], [tf.float32], False, "e", lambda op, g: 3 * g * op.outputs[0])[0]


@in_every_mode
@pytest.mark.parametrize("stateful", [True, False])
def test_the_gradient_is_the_one_given(mode, stateful):
    x = tf.constant([0.5, 1.0])
    np.testing.assert_allclose(mode(sine)(x), np.sin(x), rtol=1e-6)
    (got,) = mode(gradients(lambda x: sine(x, stateful=stateful)))(x)
    np.testing.assert_allclose(got, 3 * np.cos(x), rtol=1e-6)
    (got,) = mode(gradients(sine, 2))(x)
    np.testing.assert_allclose(got, -3 * np.sin(x), rtol=1e-6)


@in_every_mode
@pytest.mark.parametrize("order", [1, 2, 3])
def test_outputs_are_differentiable_too(mode, order):
    (got,) = mode(gradients(exponential, order))(tf.constant([0.5]))
    np.testing.assert_allclose(got, [3**order * np.exp(0.5)], rtol=1e-6)


@in_every_mode
def test_several_arrays_and_no_gradient_for_some(mode):
    def both(x, y):
        def f(a, b):
            return a * b, (a + b).astype(np.float64)

        def grad(op, g, h):
            assert [t.shape.rank for t in (*op.inputs, *op.outputs)] == [1] * 4
            return 5 * g + tf.cast(h, tf.float32), None

        return py_func(f, [x, y], [tf.float32, tf.float64], grad=grad)

    x, y = tf.constant([1.0, 2.0]), tf.constant([1.0, 2.0])
    product, total = mode(both)(x, y)
    np.testing.assert_allclose(product, [1, 4])
    np.testing.assert_allclose(total, [2, 4])
    got, none = mode(gradients(lambda x, y: both(x, y)[0]))(x, y)
    np.testing.assert_allclose(got, [5, 5])
    np.testing.assert_allclose(none, [0, 0])


def test_a_graph_gives_the_operation_itself():
    seen = []
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3])
        for _ in range(2):
            y = py_func(np.cos, [x], tf.float32, name="c", grad=lambda op, g: seen.append(op) or g)
            tf.gradients(y, x)
        assert [type(op) for op in seen] == [tf.Operation] * 2
        assert [op.name for op in seen] == ["c", "c_1"] and seen[0].graph is graph
        assert y.shape.as_list() == [None, 3]


def opaque(x):
    return np.array(x.tolist(), np.float32).sum(-1)


@pytest.mark.parametrize(
    ("func", "shape", "wanted"),
    [
        (lambda x: np.sum(x, axis=-1, keepdims=True), None, [None, 1]),
        (opaque, None, None),
        (opaque, [None], [None]),
        (opaque, (4,), [4]),
    ],
    ids=["traced", "opaque", "given", "tuple"],
)
def test_static_shapes(func, shape, wanted):
    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def run(x):
        single = py_func(func, [x], tf.float32, shape=shape)
        (listed,) = py_func(func, [x], [tf.float32], shape=shape and [shape])
        for y in single, listed:
            assert (y.shape.as_list() if y.shape.rank is not None else None) == wanted
        return single

    assert run(tf.ones([4, 3])).shape[0] == 4


@in_every_mode
def test_another_dtype_is_an_error_that_names_both(mode):
    def wide(x):
        return py_func(lambda a: a.astype(np.float64), [x], tf.float32, name="wide")

    with pytest.raises(Exception, match=r"(?s)wide returned float64 where Tout says float32"):
        mode(wide)(tf.ones(2))


@in_every_mode
def test_another_number_of_arrays_is_an_error(mode):
    with pytest.raises(Exception, match="two returned 2 arrays where Tout names 1"):
        mode(lambda x: py_func(lambda a: (a, a), [x], tf.float32, name="two"))(tf.ones(2))


@in_every_mode
@pytest.mark.parametrize(
    ("grad", "said"),
    [
        (lambda op, g: tf.reduce_sum(g), r"gives shape \(\) for input 0"),
        (lambda op, g: [g, g], "gives 2 values for 1 inputs"),
    ],
    ids=["shape", "count"],
)
def test_a_gradient_that_does_not_fit_is_an_error(mode, grad, said):
    def run(x):
        return py_func(np.sin, [x], tf.float32, name="sine", grad=grad)

    with pytest.raises(gw.SignatureError, match=f"(?s)the grad of py_func sine {said}.*instead"):
        mode(gradients(run))(tf.ones(2))


def test_strings_and_state_pass():
    calls = []
    twice = lambda s: calls.append(s) or np.bytes_(np.asarray(s).item() * 2)  # noqa: E731
    y = py_func(twice, [tf.constant("a")], tf.string)
    assert y.numpy() == b"aa" and len(calls) == 1
    count = v1(lambda x: py_func(lambda a: calls.append(a) or a, [x], tf.float32, shape=[None]))
    np.testing.assert_allclose(count(tf.ones(2)), [1, 1])
    assert len(calls) == 2


def test_forward_mode_raises():
    x = tf.ones(2)
    with (
        pytest.raises(LookupError, match="only a reverse rule"),
        tf.autodiff.ForwardAccumulator(x, x),
    ):
        sine(x)


def test_gradwright_does_not_import_tensorflow():
    code = "import sys, gradwright.tf1; print('tensorflow' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
