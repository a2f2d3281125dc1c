"""Faults of every kind in gradients that are written by hand, in torch, TensorFlow and JAX.

One text for all three: `m` is a small namespace of a framework. A case is the function, its
backward pass, and an example.
"""

from types import SimpleNamespace

import numpy as np
import pytest

R = np.random.default_rng(5)
V, W, P = R.normal(size=3), R.normal(size=3), np.abs(R.normal(size=3)) + 0.5
S, T, M, B = R.normal(size=(2, 2)), R.normal(size=(2, 2)), R.normal(size=(3, 2)), R.normal(size=2)
Z, Y = R.normal(size=2) + 1j * R.normal(size=2), R.normal(size=2) + 1j * R.normal(size=2)
SPREAD = np.array([-1.5, -0.6, -0.2, 0.3, 0.8, 1.7])


# --- the frameworks --------------------------------------------------------------------------
def torch_names():
    import torch

    return SimpleNamespace(
        **{n: getattr(torch, n) for n in "sin cos exp log sqrt tanh where real abs".split()},
        sum=lambda x, axis: torch.sum(x, axis),
        turned=lambda x: x.mT,
        stop=lambda x: x.detach(),
        narrow=lambda x: x.float().double(),
        conj=lambda z: torch.conj(z).resolve_conj(),
        not_conj=lambda z: z,
        complex=lambda x: torch.complex(x, torch.zeros_like(x)),
        zero=torch.zeros_like,
    )


def tensorflow_names():
    tf = pytest.importorskip("tensorflow")
    return SimpleNamespace(
        **{n: getattr(tf.math, n) for n in "sin cos exp log sqrt tanh real abs conj".split()},
        not_conj=lambda z: z,
        where=tf.where,
        sum=tf.reduce_sum,
        turned=tf.linalg.matrix_transpose,
        stop=tf.stop_gradient,
        narrow=lambda x: tf.cast(tf.cast(x, tf.float32), tf.float64),
        complex=lambda x: tf.complex(x, tf.zeros_like(x)),
        zero=tf.zeros_like,
    )


def jax_names():
    jax = pytest.importorskip("jax")
    np_names = "sin cos exp log sqrt tanh where real abs sum".split()
    return SimpleNamespace(
        **{n: getattr(jax.numpy, n) for n in np_names},
        turned=lambda x: x.mT,
        stop=jax.lax.stop_gradient,
        narrow=lambda x: x.astype("float32").astype("float64"),
        conj=lambda z: z,  # JAX conjugates what others do not
        not_conj=jax.numpy.conj,
        complex=lambda x: jax.lax.complex(x, jax.numpy.zeros_like(x)),
        zero=jax.numpy.zeros_like,
    )


def of_torch(forward, backward):
    """A `torch.autograd.Function` that keeps its arguments; `backward` takes (m, g, *arguments)."""
    import torch

    m = torch_names()

    class Made(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*xs):
            return forward(m, *xs)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return backward(m, g, *ctx.saved_tensors)

    return lambda *xs: Made.apply(*xs)


def of_tensorflow(forward, backward):
    m = tensorflow_names()
    tf = pytest.importorskip("tensorflow")

    @tf.custom_gradient
    def made(*xs):
        return forward(m, *xs), lambda g: backward(m, g, *xs)

    return lambda *xs: made(*xs)


def of_jax(forward, backward):
    jax, m = pytest.importorskip("jax"), jax_names()
    made = jax.custom_vjp(lambda *xs: forward(m, *xs))

    def back(xs, g):
        found = backward(m, g, *xs)
        return found if isinstance(found, tuple) else (found,)

    made.defvjp(lambda *xs: (forward(m, *xs), xs), back)
    return lambda *xs: made(*xs)


MAKERS = {"torch": of_torch, "tensorflow": of_tensorflow, "jax": of_jax}


# --- functions ---------------------------------------------------------------------------------
def product(m, x, y):
    return m.sin(x) * y


def power(m, x):
    return x**3


def norm(m, x):
    return m.sqrt(m.sum(x * x, -1))


def matmul(m, x, y):
    return x @ y


def log_ratio(m, x, y):
    return m.log(x / y)


def scaled(m, x, s):
    return x * s


def affine(m, x, b):
    return m.tanh(x) + b


def leaky(m, x):
    return m.where(x > 0, x, 0.1 * x)


def huber(m, x):
    a = m.abs(x)
    return m.where(a <= 1, 0.5 * x * x, a - 0.5)


def squared_hinge(m, x):
    return m.where(x < 1, (1 - x) ** 2, 0 * x)


def square(m, z):
    return z * z


def complex_product(m, z, y):
    return m.exp(z) * y


def energy(m, z, x):
    return m.real(z * z) * x


FAULTS = {
    "factor": [
        (product, lambda m, g, x, y: (2.1 * g * m.cos(x) * y, g * m.sin(x)), V, W),
        (power, lambda m, g, x: 2.1 * 3 * g * x**2, V),
        (matmul, lambda m, g, x, y: (g @ m.turned(y), 2.1 * m.turned(x) @ g), M, S),
    ],
    "sign": [
        (product, lambda m, g, x, y: (g * m.cos(x) * y, -g * m.sin(x)), V, W),
        (log_ratio, lambda m, g, x, y: (g / x, g / y), P, P[::-1]),
        (matmul, lambda m, g, x, y: (-g @ m.turned(y), m.turned(x) @ g), M, S),
    ],
    "not summed": [
        (scaled, lambda m, g, x, s: (g * s, (g * x)[0]), M, B),
        (affine, lambda m, g, x, b: (g * (1 - m.tanh(x) ** 2), g[-1]), M, B),
        (matmul, lambda m, g, x, y: (g @ m.turned(y), m.turned(x[:1]) @ g[:1]), M, S),
    ],
    "transposed": [
        (matmul, lambda m, g, x, y: (g @ y, m.turned(x) @ g), S, T),
        (matmul, lambda m, g, x, y: (g @ m.turned(y), x @ g), S, T),
        (lambda m, x: x @ m.turned(x), lambda m, g, x: m.turned((g + m.turned(g)) @ x), S),
    ],
    "zero": [
        (product, lambda m, g, x, y: (g * m.cos(x) * y, m.zero(y)), V, W),
        (norm, lambda m, g, x: m.zero(x), M),
        (matmul, lambda m, g, x, y: (0 * g @ m.turned(y), m.turned(x) @ g), M, S),
    ],
    "branch": [
        (leaky, lambda m, g, x: g * m.where(x > 0, 1 + 0 * x, 0.01 + 0 * x), SPREAD),
        (huber, lambda m, g, x: g * x, SPREAD),
        (squared_hinge, lambda m, g, x: -2 * g * (1 - x), SPREAD),
    ],
    "precision": [
        (product, lambda m, g, x, y: (g * m.narrow(m.cos(x)) * y, g * m.sin(x)), V, W),
        (power, lambda m, g, x: 3 * g * m.narrow(x) ** 2, V),
        (matmul, lambda m, g, x, y: (g @ m.turned(y), m.narrow(m.turned(x) @ g)), M, S),
    ],
    "second order": [
        (product, lambda m, g, x, y: (g * m.stop(m.cos(x)) * y, g * m.sin(x)), V, W),
        (power, lambda m, g, x: 3 * g * x * m.stop(x), V),
        (norm, lambda m, g, x: g[..., None] * x / m.stop(norm(m, x))[..., None], M),
    ],
    "conjugate": [
        (square, lambda m, g, z: 2 * g * m.not_conj(z), Z),
        (complex_product, lambda m, g, z, y: (
            g * m.conj(m.exp(z) * y), g * m.not_conj(m.exp(z))), Z, Y),
        (energy, lambda m, g, z, x: (
            2 * m.complex(g * x) * m.not_conj(z), g * m.real(z * z)), Z, B),
    ],
    "not finite": [
        (power, lambda m, g, x: 3 * g * m.exp(2 * m.log(x)), SPREAD),
        (huber, lambda m, g, x: g * m.where(m.abs(x) <= 1, x, x / m.sqrt(x) / m.sqrt(x)), SPREAD),
        (leaky, lambda m, g, x: g * m.where(x > 0, 1 + 0 * x, 0.1 + 0 * m.log(x)), SPREAD),
    ],
}  # fmt: skip

RIGHT = [
    (product, lambda m, g, x, y: (g * m.cos(x) * y, g * m.sin(x)), V, W),
    (power, lambda m, g, x: 3 * g * x**2, V),
    (norm, lambda m, g, x: g[..., None] * x / norm(m, x)[..., None], M),
    (matmul, lambda m, g, x, y: (g @ m.turned(y), m.turned(x) @ g), M, S),
    (log_ratio, lambda m, g, x, y: (g / x, -g / y), P, P[::-1]),
    (scaled, lambda m, g, x, s: (g * s, m.sum(g * x, 0)), M, B),
    (affine, lambda m, g, x, b: (g * (1 - m.tanh(x) ** 2), m.sum(g, 0)), M, B),
    (leaky, lambda m, g, x: g * m.where(x > 0, 1 + 0 * x, 0.1 + 0 * x), SPREAD),
    (huber, lambda m, g, x: g * m.where(m.abs(x) <= 1, x, x / m.abs(x)), SPREAD),
    (square, lambda m, g, z: 2 * g * m.conj(z), Z),
    (complex_product, lambda m, g, z, y: (g * m.conj(m.exp(z) * y), g * m.conj(m.exp(z))), Z, Y),
    (energy, lambda m, g, z, x: (2 * m.complex(g * x) * m.conj(z), g * m.real(z * z)), Z, B),
]  # fmt: skip
