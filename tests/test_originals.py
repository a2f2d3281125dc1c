"""The two programs that started this project, on TensorFlow 1, with only the trick replaced."""

from importlib.resources import as_file, files

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

pytestmark = pytest.mark.framework


# --- 1. a function with a gradient of its own ----------------------------------------------------
# It was tf.py_func(np_mod), with a gradient registered under a random name by
# graph.gradient_override_map({"PyFunc": name, "PyFuncStateless": name}), and no static shape.
def mod_op(factor):
    @gw.op
    def mod(x, y):
        return np.mod(x, y)

    @mod.partials
    def _(x, y):
        return factor, -factor * np.floor_divide(x, y)

    return mod


def mod_py_func(factor):
    """The original's own shape: a NumPy function, and a gradient of the operation."""

    def grad(op, g):
        x, y = op.inputs
        return factor * g, factor * g * tf.math.negative(tf.math.floordiv(x, y))

    return lambda x, y: gw.tf1.py_func(np.mod, [x, y], tf.float32, grad=grad, shape=x.shape)


@pytest.mark.parametrize("factor", [1, 3])  # three times the true rule: it is seen that it is used
@pytest.mark.parametrize("make", [mod_op, mod_py_func])
def test_mod_in_a_session(make, factor):
    function = make(factor)
    with tf.Graph().as_default(), v1.Session() as session:
        x = tf.constant([0.3, 0.7, 1.2, 1.7])
        y = tf.constant([0.2, 0.5, 1.0, 2.9])
        z = function(x, y)
        gr = tf.gradients(z, [x, y])
        session.run(v1.global_variables_initializer())
        assert z.shape == (4,)
        np.testing.assert_allclose(session.run(z), [0.1, 0.2, 0.2, 1.7], rtol=1e-6)
        gx, gy = session.run(gr)
        np.testing.assert_array_equal(gx, np.multiply(factor, [1, 1, 1, 1]))
        np.testing.assert_array_equal(gy, np.multiply(factor, [-1, -1, -1, 0]))


# --- 2. an optimizer on a circle -----------------------------------------------------------------
# It was W.assign(tf.mod(W - lr * grad + noise, B)), grouped by hand with lr.assign(lr - 0.001).
BOUND, BATCH, DECAY = 20.0, 100, 0.001


def digits():
    with as_file(files("gradwright") / "data" / "digits.npz") as path, np.load(path) as data:
        parts = {k: data[k] for k in data.files}
    for k in ("x_train", "x_test"):
        parts[k] = parts[k].reshape(-1, 64).astype(np.float32) / 16
    return parts


class Softmax:
    """y = x W, cross entropy, and one grouped step that updates W and lowers the rate."""

    def __init__(self, optimizer_of):
        self.x = v1.placeholder(tf.float32, [None, 64])
        self.y = v1.placeholder(tf.int64, [None])
        self.W, self.lr = v1.Variable(tf.zeros([64, 10])), v1.Variable(0.5)
        logits = tf.matmul(self.x, self.W)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.y, logits=logits)
        )
        optimizer = optimizer_of(self.lr)
        self.gradients = optimizer.compute_gradients(loss, [self.W])
        update = optimizer.apply_gradients(self.gradients)
        with tf.control_dependencies([update]):  # the rate of this step was read before
            self.train = tf.group(update, self.lr.assign(self.lr - DECAY))
        self.accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), self.y), tf.float32))


def test_softmax_regression_on_a_circle():
    data, rng = digits(), np.random.default_rng(0)

    def compact(lr):
        return rules.compact_sgd.tf1(lr=lr, noise=0.001, low=-BOUND / 2, high=BOUND / 2, rng=0)

    with tf.Graph().as_default(), v1.Session() as session:
        model = Softmax(compact)
        session.run(v1.global_variables_initializer())
        for _ in range(400):
            k = rng.integers(len(data["x_train"]), size=BATCH)
            batch = {model.x: data["x_train"][k], model.y: data["y_train"][k]}
            session.run(model.train, batch)
            W = session.run(model.W)
            assert W.min() >= -BOUND / 2
            assert W.max() < BOUND / 2
        test = {model.x: data["x_test"], model.y: data["y_test"]}
        assert session.run(model.accuracy, test) >= 0.9
        np.testing.assert_allclose(session.run(model.lr), 0.5 - 400 * DECAY, rtol=1e-4)


def test_the_same_steps_by_numpy():
    """The session's own gradients, given to the NumPy optimizer, give the session's weights."""
    data, rng = digits(), np.random.default_rng(1)
    keywords = {"noise": 0.01, "low": -1.0, "high": 1.0, "rng": 7}
    W = np.zeros((64, 10), np.float32)
    reference = rules.compact_sgd.numpy(W, **keywords)
    with tf.Graph().as_default(), v1.Session() as session:
        model = Softmax(lambda lr: rules.compact_sgd.tf1(lr=lr, **keywords))
        session.run(v1.global_variables_initializer())
        for _ in range(200):
            k = rng.integers(len(data["x_train"]), size=BATCH)
            batch = {model.x: data["x_train"][k], model.y: data["y_train"][k]}
            lr = session.run(model.lr)
            # fetched with the update, these are the gradients that it used
            g, _ = session.run([model.gradients[0][0], model.train], batch)
            reference.step(g, lr=float(lr))
        difference = np.abs(session.run(model.W) - W)
        assert np.minimum(difference, 2 - difference).max() <= 5e-6


def test_gradients_processed_between_compute_and_apply():
    """An op between compute_gradients and apply_gradients, and the rate lowered in the group."""

    @gw.op
    def my_capper(g):
        return np.clip(g, -1, 1)

    with tf.Graph().as_default(), v1.Session() as session:
        W, lr = v1.Variable([3.0, -0.25]), v1.Variable(0.5)
        optimizer = rules.sgd.tf1(lr=lr)
        pairs = optimizer.compute_gradients(tf.reduce_sum(W**2), [W, v1.Variable(1.0)])
        capped = [(my_capper(g), v) for g, v in pairs if g is not None]
        update = optimizer.apply_gradients(capped)
        with tf.control_dependencies([update]):
            train = tf.group(update, lr.assign(lr - 0.25))
        session.run(v1.global_variables_initializer())
        session.run(train)
        np.testing.assert_array_equal(session.run(W), [2.5, 0.0])
        session.run(train)
        np.testing.assert_array_equal(session.run(W), [2.25, 0.0])
