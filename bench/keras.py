"""Train steps of Keras on TensorFlow, compiled by XLA: our Adam against Keras' own."""

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

import gradwright as gw

from .runner import OURS, Contest

BATCH, STEPS = 100, 20
LIMIT = 1.05
Step = Callable[[], Any]


def contests(data: str | None = None) -> Iterator[Contest]:
    """Two models, one of few weights and one of many: forward, backward, update."""
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if not (find_spec("tensorflow") and find_spec("keras")):
        return
    import keras

    # Keras has another eps: the same arithmetic, an update of the same cost
    optimizers = {
        OURS: lambda: gw.rules.adam.keras(lr=1e-3),
        "keras.optimizers.Adam": lambda: keras.optimizers.Adam(1e-3),
    }
    for width, steps in ((128, STEPS), (2000, 2)):
        runs = {name: _training(make(), width, steps) for name, make in optimizers.items()}
        count = (784 + 1) * width + (width + 1) * width + (width + 1) * 10
        name = f"Keras on TensorFlow, {count:,} weights, {steps} steps"
        yield Contest(name, runs, {"keras.optimizers.Adam": LIMIT})


def _training(optimizer: Any, width: int, steps: int) -> Step:
    """The compiled train step of a network with two hidden layers, as fit runs it."""
    import keras
    import tensorflow as tf

    layer = keras.layers.Dense
    net = keras.Sequential(
        [keras.Input((784,)), layer(width, "relu"), layer(width, "relu"), layer(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(optimizer, loss, jit_compile=True)
    rng = np.random.default_rng(0)
    x = tf.constant(rng.random((BATCH, 784), np.float32))
    y = tf.constant(rng.integers(10, size=BATCH))
    net.make_train_function()
    batches = iter(tf.data.Dataset.from_tensors((x, y)).repeat())

    def run() -> None:
        for _ in range(steps):
            logs = net.train_function(batches)
        for value in logs.values():
            float(value)  # waits for the step

    return run
