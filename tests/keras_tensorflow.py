"""Optimizers in Keras that TensorFlow alone can: its variables, sparse gradients, replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_modes import GRADIENTS, START, by_numpy
from keras_parts import jump, noisy

import gradwright as gw
from gradwright import rules

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def test_tensorflows_own_variables_are_updated():
    ws = [tf.Variable(a, name=f"w{k}") for k, a in enumerate(START)]
    optimizer = noisy.keras()

    @tf.function
    def step(*gs):
        optimizer.apply_gradients(zip(gs, ws, strict=True))

    for g in GRADIENTS[:20]:
        step(*map(tf.constant, g))
    for ours, exact in zip(ws, by_numpy(noisy, {}, gradients=GRADIENTS[:20]), strict=True):
        np.testing.assert_allclose(ours, exact, atol=1e-6)
    assert gw.partition({"w": rules.sgd, "*": rules.adam}).keras(lr=0.1)


def test_rows_of_a_sparse_gradient_that_repeat_are_summed():
    w = keras.Variable(np.ones((3, 1), np.float32))
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([0, 0, 2]))
    rules.sgd.keras(lr=1.0).apply([slices], [w])
    np.testing.assert_array_equal(w.numpy().ravel(), [-2, 1, -3])
    net = keras.Sequential([keras.Input((2,)), keras.layers.Embedding(5, 3)])
    before = net.get_weights()[0]
    net.compile(rules.sgd.keras(lr=1.0), lambda true, pred: keras.ops.sum(pred))
    net.fit(np.int32([[0, 3]]), np.zeros(1), verbose=0)
    moved = before - net.get_weights()[0]
    np.testing.assert_allclose(moved[:, 0], [1, 0, 0, 1, 0], atol=1e-6)


def test_large_parameters_are_compiled():
    w = keras.Variable(np.ones(100_000, np.float32))
    optimizer = rules.adam.keras(lr=0.1)
    optimizer.apply([tf.ones(100_000)], [w])
    np.testing.assert_allclose(w.numpy(), 0.9, rtol=1e-6)


@pytest.fixture(scope="module")
def strategy():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def replicated(strategy, rule, keywords, gradients):
    """Each replica has the half of every gradient; they are summed."""
    with strategy.scope():
        ws = [keras.Variable(a) for a in START]
        optimizer = rule.keras(**keywords)
        optimizer.build(ws)

    @tf.function
    def step(*gs):
        strategy.run(lambda *gs: optimizer.apply([g / 2 for g in gs], ws), gs)

    for g in gradients:
        step(*map(tf.constant, g))
    copies = [strategy.experimental_local_results(w.value) for w in ws]
    for replicas in copies:
        np.testing.assert_array_equal(*replicas)
    return [replicas[0].numpy() for replicas in copies], optimizer


@pytest.mark.parametrize(
    ("rule", "keywords"),
    [
        (gw.chain(rules.clip_by_global_norm(max_norm=0.5), rules.adam), {"lr": 0.01}),
        (noisy.options(skip_nonfinite=True, accumulate=2), {"use_ema": True}),
    ],
)
def test_replicas_sum_their_gradients_and_stay_equal(strategy, rule, keywords):
    ws, optimizer = replicated(strategy, rule, keywords, GRADIENTS[:20])
    own = {k: v for k, v in keywords.items() if k == "lr"}
    exact = by_numpy(rule, own, gradients=GRADIENTS[:20])
    for ours, reference in zip(ws, exact, strict=True):
        np.testing.assert_allclose(ours, reference, atol=1e-6)
    assert optimizer.steps == 20 // rule.settings.accumulate


def test_a_model_is_fitted_on_replicas(strategy):
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    weights = []
    for scope in (strategy.scope, tf.distribute.get_strategy().scope):
        with scope():
            keras.utils.set_random_seed(0)
            net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            optimizer = gw.chain(rules.momentum(lr=0.1), jump(size=0.01, rng=3)).keras()
            net.compile(optimizer, "mse")
        net.fit(x, x[:, :1], batch_size=16, epochs=2, shuffle=False, verbose=0)
        weights.append(net.get_weights())
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_an_optimizer_of_another_scope_is_refused(strategy):
    optimizer = rules.sgd.keras()
    with strategy.scope():
        w = keras.Variable(START[0])
    optimizer.build([w])
    with pytest.raises(gw.StateError, match="(?s)made under .*instead: with strategy.scope"):
        strategy.run(lambda: optimizer.apply([tf.ones_like(w.value)], [w]))
