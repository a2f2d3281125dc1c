"""Softmax regression on MNIST, 1000 steps of 100 pictures: ours, a NumPy loop, a TF1 session."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

import gradwright as gw
from gradwright.cli.model import cross_entropy

from .runner import OURS, Contest

Array: TypeAlias = np.ndarray[Any, Any]
STEPS, BATCH, LR, NOISE = 1000, 100, 0.5, 1e-3
Loop: TypeAlias = Callable[[], Array]


def contests(data: str | None = None) -> Iterator[Contest]:
    """The plain rule against NumPy, the compact one against a session of TensorFlow 1."""
    job = Job(*_load(data))
    sgd, compact = gw.rules.sgd(lr=LR), gw.rules.compact_sgd(lr=LR, noise=NOISE, rng=0)
    runs = {OURS: job.ours(sgd), "NumPy by hand": job.by_hand}
    yield Contest("softmax regression, sgd", runs, {"NumPy by hand": 1.3})
    if find_spec("tensorflow"):
        runs = {OURS: job.ours(compact), "TF1 session": job.session()}
        yield Contest("softmax regression, compact_sgd", runs, {"TF1 session": 0.5})


def _load(data: str | None) -> tuple[Array, Array]:
    if data is None:
        return _generated()
    with np.load(data, allow_pickle=False) as file:
        return file["x_train"], file["y_train"]


def _generated() -> tuple[Array, Array]:
    """As many numbers as MNIST has, and one blurred picture for each class."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=60_000, dtype=np.uint8)
    pictures = rng.integers(200, size=(10, 28, 28), dtype=np.uint8)
    return pictures[y] + rng.integers(56, size=(60_000, 28, 28), dtype=np.uint8), y


class Job:
    """The same model, the same batches."""

    def __init__(self, pictures: Array, labels: Array) -> None:
        self.x = pictures.reshape(len(pictures), -1).astype(np.float32) / np.float32(255)
        self.onehot = np.eye(10, dtype=np.float32)[labels]
        rng = np.random.default_rng(0)
        self.batches = rng.integers(len(self.x), size=(STEPS, BATCH))

    def zeros(self) -> Array:
        return np.zeros((self.x.shape[1], 10), np.float32)

    def ours(self, rule: Any) -> Loop:
        def loop() -> Array:
            W = self.zeros()
            optimizer = rule.numpy(W)
            for k in self.batches:
                optimizer.step(_gradient(W, self.x[k], self.onehot[k]))
            return W

        return loop

    def by_hand(self) -> Array:
        W, lr = self.zeros(), np.float32(LR)
        for k in self.batches:
            x = self.x[k]
            z = x @ W
            e = np.exp(z - z.max(axis=1, keepdims=True))
            p = e / e.sum(axis=1, keepdims=True)
            W -= lr * (x.T @ (p - self.onehot[k]) / np.float32(BATCH))
        return W

    def session(self) -> Loop:
        """The program of 2016: a graph, a session, one grouped train step."""
        import tensorflow.compat.v1 as tf

        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None, self.x.shape[1]])
            onehot = tf.placeholder(tf.float32, [None, 10])
            W = tf.Variable(tf.zeros([self.x.shape[1], 10]), use_resource=False)
            bound, noise = tf.constant(20.0), tf.constant(NOISE)
            losses = tf.nn.softmax_cross_entropy_with_logits_v2(onehot, tf.matmul(x, W))
            (gradient,) = tf.gradients(tf.reduce_mean(losses), [W])
            moved = W - LR * gradient + tf.random_normal(W.shape, stddev=noise)
            train = tf.group(tf.assign(W, tf.mod(moved, bound)))
            begin = tf.global_variables_initializer()
            session = tf.Session()

        def loop() -> Array:
            session.run(begin)
            for k in self.batches:
                session.run(train, {x: self.x[k], onehot: self.onehot[k]})
            return np.asarray(session.run(W))

        return loop


_gradient = gw.grad(cross_entropy)
