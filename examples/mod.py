"""An op with a derivative that you say: the remainder.

python examples/mod.py
"""

import importlib.util

import numpy as np

import gradwright as gw


@gw.op
def mod(x, y):
    """The remainder with the sign of y, as NumPy has it."""
    return np.mod(x, y)


@mod.partials
def _(x, y):
    return 1, -np.floor_divide(x, y)


def in_numpy(x, y):
    dx, dy = gw.grad(lambda x, y: np.sum(mod(x, y)), (0, 1))(x, y)
    return mod(x, y), dx, dy


def in_torch(x, y):
    import torch

    x, y = (torch.tensor(a, requires_grad=True) for a in (x, y))
    out = mod(x, y)
    return (out, *torch.autograd.grad(out.sum(), (x, y)))


def in_tensorflow(x, y):
    import tensorflow as tf

    x, y = tf.Variable(x), tf.Variable(y)
    with tf.GradientTape() as tape:
        out = mod(x, y)
    return (out, *tape.gradient(out, (x, y)))


def in_jax(x, y):
    import jax

    return (mod(*map(jax.numpy.asarray, (x, y))), *jax.grad(lambda *a: mod(*a).sum(), (0, 1))(x, y))


if __name__ == "__main__":
    print(mod.explain())
    x, y = np.array([5.0, -5.0, 7.5]), np.array([3.0, 3.0, -2.0])
    for run in (in_numpy, in_torch, in_tensorflow, in_jax):
        framework = run.__name__.removeprefix("in_")
        if importlib.util.find_spec(framework):
            out, dx, dy = (getattr(a, "detach", lambda a=a: a)() for a in run(x, y))
            print(f"{framework:<11} {np.array(out)}  ∂x {np.array(dx)}  ∂y {np.array(dy)}")
