"""Softmax regression ``y = x W``, and one step of its training in each framework."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from ..op import Op
from ..rule import Rule
from ..transforms import stop_gradient, value_and_grad
from .data import Array
from .stop import WrongUsage


def cross_entropy(W: Any, x: Any, onehot: Any) -> Any:
    """The mean of −log softmax(x W) at the right classes."""
    return of_scores(x @ W, onehot)


def of_scores(z: Any, onehot: Any) -> Any:
    """The mean of −log softmax(z) at the right classes."""
    z = z - stop_gradient(np.max(z, axis=1, keepdims=True))  # the same value, and exp stays finite
    return (np.sum(np.log(np.sum(np.exp(z), axis=1))) - np.sum(z * onehot)) / z.shape[0]


class Training(NamedTuple):
    """A model under way: `step` gives the loss of a batch before it changes the weights."""

    step: Callable[[Array, Array], float]
    weights: Callable[[], Array]


def numpy(rule: Rule[Any], W: Array) -> Training:
    """NumPy arrays."""
    optimizer = rule.numpy(W)
    loss_and_gradient = value_and_grad(cross_entropy)

    def step(x: Array, onehot: Array) -> float:
        loss, gradient = loss_and_gradient(W, x, onehot)
        optimizer.step(gradient)
        return float(loss)

    return Training(step, lambda: W)


def torch(rule: Rule[Any], start: Array) -> Training:
    """Tensors of PyTorch, eagerly: the op's derivative is run by autograd."""
    import torch

    W = torch.nn.Parameter(torch.from_numpy(start))
    optimizer, loss_of = rule.torch([W]), Op(cross_entropy)

    def step(x: Array, onehot: Array) -> float:
        optimizer.zero_grad()
        loss = loss_of(W, torch.from_numpy(x), torch.from_numpy(onehot))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return Training(step, lambda: W.detach().numpy())


def tf1(rule: Rule[Any], start: Array) -> Training:
    """A graph and a session of TensorFlow 1."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, start.shape[0]])
        onehot = tf.placeholder(tf.float32, [None, start.shape[1]])
        W = tf.get_variable("W", initializer=start, use_resource=True)
        loss = Op(cross_entropy)(W, x, onehot)
        train = rule.tf1().minimize(loss, var_list=[W])
        session = tf.Session()
        session.run(tf.global_variables_initializer())

    def step(batch: Array, target: Array) -> float:
        return float(session.run([loss, train], {x: batch, onehot: target})[0])

    return Training(step, lambda: np.asarray(session.run(W)))


def optax(rule: Rule[Any], start: Array) -> Training:
    """JAX arrays; the gradient and the update are one compiled function."""
    import jax

    transformation, loss_and_gradient = rule.optax(), jax.value_and_grad(Op(cross_entropy))
    W = jax.numpy.array(start)
    now = {"W": W, "state": transformation.init(W)}

    @jax.jit
    def train(W: Any, state: Any, x: Any, onehot: Any) -> Any:
        loss, gradient = loss_and_gradient(W, x, onehot)
        return loss, *transformation.step(gradient, state, W)

    def step(x: Array, onehot: Array) -> float:
        loss, now["W"], now["state"] = train(now["W"], now["state"], x, onehot)
        return float(loss)

    return Training(step, lambda: np.asarray(now["W"]))


def keras(rule: Rule[Any], start: Array) -> Training:
    """A model of Keras, on the backend that KERAS_BACKEND names."""
    import keras

    inputs, classes = start.shape
    layer = keras.layers.Dense(classes, use_bias=False, kernel_initializer="zeros")
    net, loss = keras.Sequential([keras.Input((inputs,)), layer]), Op(of_scores)
    net.compile(rule.keras(), lambda onehot, z: loss(z, onehot))

    def step(x: Array, onehot: Array) -> float:
        net.reset_metrics()  # or it is the mean since then
        return float(net.train_on_batch(x, onehot))

    return Training(step, lambda: np.asarray(keras.ops.convert_to_numpy(layer.kernel)))


FRAMEWORKS = {"numpy": numpy, "tf1": tf1, "keras": keras, "torch": torch, "optax": optax}
PACKAGES = {
    "numpy": ["numpy"],
    "tf1": ["tensorflow"],
    "keras": ["keras"],
    "torch": ["torch"],
    "optax": ["jax", "optax"],
}

EXTRAS = {"optax": "jax"}  # the others have the package's own name


def missing(framework: str) -> str | None:
    """The package that a framework needs and that is not here."""
    backend = [os.environ.get("KERAS_BACKEND", "tensorflow")] if framework == "keras" else []
    needed = [*PACKAGES[framework], *backend]
    return next((package for package in needed if find_spec(package) is None), None)


def check_installed(framework: str) -> None:
    """Raise unless the packages of a framework are here."""
    if package := missing(framework):
        raise WrongUsage(
            f"--framework {framework}: {package} is not installed; "
            f"pip install 'gradwright[{EXTRAS.get(package, package)}]'"
        )


def start(framework: str, rule: Rule[Any], inputs: int, classes: int) -> Training:
    """The model with weights zero, in one framework."""
    return FRAMEWORKS[framework](rule, np.zeros((inputs, classes), np.float32))
