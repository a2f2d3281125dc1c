"""Training steps in a TensorFlow 1 session: ours against the grouped graph written by hand."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

import gradwright as gw

from .runner import OURS, Contest

BATCH, SHAPE, BOUND, NOISE, DECAY = 100, (784, 10), 20.0, 0.01, 1e-6
STEPS, MANY = 50, 4_000_000
Step = Callable[[], Any]


def contests(data: str | None = None) -> Iterator[Contest]:
    """Softmax regression with noise and decay in one grouped step, and AdamW on 4M weights."""
    if not find_spec("tensorflow"):
        return
    rules = {OURS: _by_rule, "tf.assign(W, tf.mod(…))": _by_hand}
    runs = {name: _repeated(_softmax(update), STEPS) for name, update in rules.items()}
    yield Contest("compact rule, 7,840 weights, 50 steps", runs, {"tf.assign(W, tf.mod(…))": 1.0})
    large = {OURS: _adamw_by_rule, "AdamW written as operations": _adamw_by_hand}
    large["tf.train.AdamOptimizer"] = _adam
    runs = {name: _large(update) for name, update in large.items()}
    yield Contest("AdamW, 4M weights", runs, {"AdamW written as operations": 1.0})


def _repeated(step: Step, times: int) -> Step:
    def run() -> None:
        for _ in range(times):
            step()

    return run


# --- softmax regression --------------------------------------------------------------------------
def _softmax(update: Callable[..., Any]) -> Step:
    """A session's training step on one batch: forward, backward, update, decay of the rate."""
    import tensorflow as tf

    v1, rng = tf.compat.v1, np.random.default_rng(0)
    with tf.Graph().as_default() as graph:
        x, y = v1.placeholder(tf.float32, [None, SHAPE[0]]), v1.placeholder(tf.int32, [None])
        W, lr = v1.Variable(tf.zeros(SHAPE)), v1.Variable(0.1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=x @ W, labels=y)
        train = update(tf, tf.reduce_mean(losses), W, lr)
        initialize = v1.global_variables_initializer()
    session = v1.Session(graph=graph)
    session.run(initialize)
    batch = rng.random((BATCH, SHAPE[0]), np.float32), rng.integers(10, size=BATCH, dtype=np.int32)
    step = session.make_callable(train, [x, y])
    return lambda: step(*batch)


def _by_rule(tf: Any, loss: Any, W: Any, lr: Any) -> Any:
    """The same on the circle [-B/2, B/2)."""
    bounds = {"low": -BOUND / 2, "high": BOUND / 2}
    optimizer = gw.rules.compact_sgd.tf1(lr=lr, noise=NOISE, rng=0, **bounds)
    gradients = optimizer.compute_gradients(loss, [W])
    return tf.group(optimizer.apply_gradients(gradients), lr.assign(lr - DECAY))


def _by_hand(tf: Any, loss: Any, W: Any, lr: Any) -> Any:
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(lr)
    ((g, _),) = optimizer.compute_gradients(loss, [W])
    new = tf.math.mod(W - lr * g + tf.random.normal(SHAPE, stddev=NOISE), BOUND)
    return tf.group(tf.compat.v1.assign(W, new), lr.assign(lr - DECAY))


# --- many weights --------------------------------------------------------------------------------
def _large(update: Callable[..., Any]) -> Step:
    """An update by a gradient that is there already."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        W, g = v1.Variable(tf.zeros([MANY])), v1.Variable(tf.ones([MANY]))
        train = update(tf, g.read_value(), W)
        initialize = v1.global_variables_initializer()
    session = v1.Session(graph=graph)
    session.run(initialize)
    step: Step = session.make_callable(train)
    return step


def _adamw_by_rule(tf: Any, g: Any, W: Any) -> Any:
    return gw.rules.adamw.tf1().apply_gradients([(g, W)])


def _adam(tf: Any, g: Any, W: Any) -> Any:
    return tf.compat.v1.train.AdamOptimizer().apply_gradients([(g, W)])


def _adamw_by_hand(tf: Any, g: Any, W: Any) -> Any:
    v1 = tf.compat.v1
    m, v = v1.Variable(tf.zeros([MANY])), v1.Variable(tf.zeros([MANY]))
    step = v1.Variable(0.0)
    t = step + 1
    new_m, new_v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    mhat, vhat = new_m / (1 - 0.9**t), new_v / (1 - 0.999**t)
    new = W - 1e-3 * (mhat / (tf.sqrt(vhat) + 1e-8) + 1e-2 * W)
    with tf.control_dependencies([new, new_m, new_v]):
        return tf.group(W.assign(new), m.assign(new_m), v.assign(new_v), step.assign(t))
