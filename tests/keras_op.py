"""Ops in Keras, on the backend that KERAS_BACKEND names: `test_keras.py` runs this file on each."""

import os
from pathlib import Path

import keras
import numpy as np
import pytest
from keras_parts import cube, parts, times, total

import gradwright as gw

BACKEND = keras.config.backend()
FOLDER = Path(os.environ.get("KERAS_FOLDER", "."))  # what it saves is loaded by `keras_reload.py`
X = np.float32([[1, 2, 3], [4, 5, 6]])


def inputs(*shape, dtype="float32"):
    return keras.Input(shape, dtype=dtype)


def trained(layers, x, y, start):
    """The weights after one step of plain gradient descent."""
    model = keras.Sequential(layers)
    model.set_weights(start)
    loss = lambda true, pred: keras.ops.sum(pred)
    model.compile(keras.optimizers.SGD(1.0), loss, jit_compile=False)  # XLA calls no host
    model.fit(x, y, batch_size=len(x), verbose=0)
    return model.get_weights()


# --- before there are values -------------------------------------------------------------------
def test_shapes_and_dtypes_are_known_before_a_run():
    y = total(inputs(3))
    assert y.shape == (None, 1) and y.dtype == "float32"
    assert total(inputs(None, 5)).shape == (None, None, 1)
    assert times(inputs(3), y).shape == (None, 3)
    assert times(inputs(3), np.ones((2, 1, 3), np.float32)).shape == (2, None, 3)
    assert total(inputs(3, dtype="int32")).dtype in ("int32", "int64")
    for dtype in ("float16", "bfloat16", *(["float64"] if BACKEND != "jax" else [])):
        assert total(inputs(3, dtype=dtype)).dtype == dtype
    out = gw.op(lambda x: np.where(x > 0, np.ones(3, np.float16), x))(inputs(3))
    assert out.dtype == "float32"


def test_trees_options_and_integers():
    x, k = inputs(3), inputs(1, dtype="int32")
    out = parts({"a": x, "b": [2 * x]}, k=k)
    assert (out["at"].shape, out["at"].dtype) == ((None,), "int32" if BACKEND == "jax" else "int64")
    model = keras.Model([x, k], [out["sum"], out["at"], out["both"][1]])
    got = model([X, np.int32([[7], [8]])])
    for a, b in zip(got, [3 * X, [2, 2], [[7], [8]]], strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(a), b)


def test_a_model_of_calls_computes():
    x = inputs(3)
    model = keras.Model(x, times(x, total(x), scale=2.0, mode="more"))
    wanted = 2 * X * X.sum(1, keepdims=True) + 1
    np.testing.assert_allclose(model(X), wanted)
    np.testing.assert_allclose(model.predict(X, verbose=0), wanted)


# --- the rule in training ----------------------------------------------------------------------
def test_fit_uses_the_rule_of_a_layer():
    start = [np.ones((3, 2), np.float32)]
    dense = keras.layers.Dense(2, use_bias=False)
    plain = keras.layers.Lambda(lambda x: x * 0.5)
    (once,) = trained([inputs(3), dense, plain], X, X[:, :2], start)
    half = gw.op(lambda x: 0.5 * x)
    half.vjp(lambda g, x: 3 * 0.5 * g)
    dense = keras.layers.Dense(2, use_bias=False)
    (thrice,) = trained([inputs(3), dense, half.layer()], X, X[:, :2], start)
    np.testing.assert_allclose(start[0] - thrice, 3 * (start[0] - once), rtol=1e-6)
    assert np.abs(start[0] - once).max() > 1


def test_a_body_that_runs_on_the_host_is_a_layer_too():
    assert cube(inputs(3)).shape == (None, 3) and cube(inputs(3)).dtype == "float32"
    dense = keras.layers.Dense(2, use_bias=False)
    (w,) = trained([inputs(3), dense, cube.layer()], X[:1], X[:1, :2], [np.ones((3, 2))])
    np.testing.assert_allclose(w, 1 - 9 * 6**2 * np.float32([[1, 1], [2, 2], [3, 3]]))


class Scaled(keras.layers.Layer):
    """A layer that calls an op on a variable of its own."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return times(x, self.scale)


@pytest.mark.parametrize("jit", [True, False])
def test_fit_uses_the_rule_for_a_variable_in_a_layer(jit):
    model = keras.Sequential([inputs(3), Scaled()])
    assert model.output_shape == (None, 3)
    model.compile(keras.optimizers.SGD(1.0), lambda true, pred: keras.ops.sum(pred),
                  jit_compile=jit and BACKEND != "torch")  # fmt: skip
    model.fit(X, X, batch_size=2, verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], 1 - 3 * X.sum(0))


def test_variables_are_arguments_and_have_gradients():
    v = keras.Variable(X[0])
    assert keras.ops.is_tensor(times(v, 2.0))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(times(v, X[1])), X[0] * X[1])
    np.testing.assert_allclose(GRADIENTS[BACKEND](v), 3 * X[1])
    with gw.eager():
        constant = keras.Variable(X[0], trainable=False)
        assert keras.ops.convert_to_numpy(total(constant)).item() == 6


def tensorflow_gradient(v):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        y = times(v, X[1])
    return tape.gradient(y, v.value)


def torch_gradient(v):
    times(v, X[1]).sum().backward()
    return v.value.grad


def jax_gradient(v):
    import jax

    return jax.grad(lambda x: keras.ops.sum(times(x, X[1])))(v.value)


GRADIENTS = {"tensorflow": tensorflow_gradient, "torch": torch_gradient, "jax": jax_gradient}


# --- saved -------------------------------------------------------------------------------------
def test_layers_keep_options_and_settings_in_their_config():
    layer = times.layer(scale=2.0, mode="more", name="mine", dtype="float16")
    same = type(layer).from_config(layer.get_config())
    assert (same.op, same.options) == (times, {"scale": 2.0, "mode": "more"})
    assert (same.name, same.compute_dtype) == ("mine", "float16")
    x = inputs(3)
    model = keras.Model(x, [layer(x, y=x), times(x, x, scale=5.0)])
    for copy in (keras.models.clone_model(model), keras.Model.from_config(model.get_config())):
        for a, b in zip(copy(X), model(X), strict=True):
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b)
            )


def test_a_model_is_saved():
    x = inputs(3)
    h = keras.layers.Dense(3, use_bias=False, kernel_initializer="ones")(x)
    model = keras.Model(x, total(times.layer(scale=2.0)(times(h, h), x)))
    model.save(FOLDER / "op.keras")
    np.savez(FOLDER / "op.npz", x=X, y=keras.ops.convert_to_numpy(model(X)))


# --- errors ------------------------------------------------------------------------------------
def test_errors_arrive_as_they_are():
    with pytest.raises(gw.SignatureError, match="(?s)two dimensions.*keras_op.py"):
        gw.op(needs_two)(inputs())
    layer = times.layer()
    with pytest.raises(gw.SignatureError, match="missing a required argument: 'y'"):
        layer(inputs(3))
    long = gw.op(lambda x: np.sum(np.stack([x[k] for k in range(x.shape[0])])))
    with pytest.raises(gw.TraceError, match="not known yet"):
        long(inputs())


def needs_two(x):
    if x.ndim < 2:
        raise gw.SignatureError("two dimensions", "a matrix")
    return x
