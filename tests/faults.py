"""Faults of every kind, in several ops: what the checker has to see, and what to call it.

A case is: the function, its rule (a vjp), and an example.
"""

import numpy as np

import gradwright as gw

R = np.random.default_rng(3)
V, W, P = R.normal(size=6), R.normal(size=6), np.abs(R.normal(size=6)) + 0.5
S, T, M = R.normal(size=(3, 3)), R.normal(size=(3, 3)), R.normal(size=(4, 3))
SPREAD = np.array([-1.5, -0.6, -0.2, 0.3, 0.8, 1.7])


def product(x, y):
    return np.sin(x) * y


def scaled(x, s):
    return x * s


def power(x):
    return x**3


def hypot(x, y):
    return np.hypot(x, y)


def matmul(x, y):
    return x @ y


def gram(x):
    return x @ x.T


def bilinear(x, a, y):
    return x @ a @ y


def norm(x):
    return np.sqrt(np.sum(x * x, axis=-1))


def log_ratio(x, y):
    return np.log(x / y)


def leaky(x):
    return np.where(x > 0, x, 0.1 * x)


def huber(x):
    a = np.abs(x)
    return np.where(a <= 1, 0.5 * x * x, a - 0.5)


def squared_hinge(x):
    return np.maximum(0, 1 - x) ** 2


def affine(x, b):
    return np.tanh(x) + b


FAULTS = {
    "factor": [
        (product, lambda g, x, y: (2.1 * g * np.cos(x) * y, g * np.sin(x)), V, W),
        (power, lambda g, x: 2 * g * x**2, V),
        (norm, lambda g, x: 2 * g[..., None] * x / norm(x)[..., None], M),
        (matmul, lambda g, x, y: (g @ y.T, 2.1 * x.T @ g), M, S),
    ],
    "sign": [
        (product, lambda g, x, y: (g * np.cos(x) * y, -g * np.sin(x)), V, W),
        (log_ratio, lambda g, x, y: (g / x, g / y), P, P[::-1]),
        (matmul, lambda g, x, y: (-g @ y.T, x.T @ g), M, S),
    ],
    "zero": [
        (product, lambda g, x, y: (g * np.cos(x) * y, None), V, W),
        (hypot, lambda g, x, y: (0 * g, g * y / np.hypot(x, y)), V, W),
        (norm, lambda g, x: np.zeros_like(x), M),
    ],
    "swapped": [
        (product, lambda g, x, y: (g * np.sin(x), g * np.cos(x) * y), V, W),
        (hypot, lambda g, x, y: (g * y / np.hypot(x, y), g * x / np.hypot(x, y)), V, W),
        (matmul, lambda g, x, y: (x.T @ g, g @ y.T), S, T),
    ],
    "transposed": [
        (matmul, lambda g, x, y: (g @ y, x.T @ g), S, T),
        (matmul, lambda g, x, y: (g @ y.T, x @ g), S, T),
        (matmul, lambda g, x, y: (g @ y.T, g.T @ x), S, T),
        (gram, lambda g, x: ((g + g.T) @ x).T, S),
        (bilinear, lambda g, x, a, y: (g * a @ y, g * y[:, None] * x, g * x @ a), S[0], T, S[1]),
    ],
    "not summed": [
        (scaled, lambda g, x, s: (g * s, (g * x)[0]), M, R.normal(size=3)),
        (affine, lambda g, x, b: (g / np.cosh(x) ** 2, g[-1]), M, R.normal(size=3)),
        (matmul, lambda g, x, y: (g @ y.T, x[:1].T @ g[:1]), M, S),
    ],
    "branch": [
        (leaky, lambda g, x: g * np.where(x > 0, 1, 0.01), SPREAD),
        (huber, lambda g, x: g * x, SPREAD),
        (squared_hinge, lambda g, x: -2 * g * (1 - x), SPREAD),
    ],
    "precision": [
        (product, lambda g, x, y: (g * np.cos(x.astype(np.float32)) * y, g * np.sin(x)), V, W),
        (power, lambda g, x: g * 3 * (x**2).astype(np.float32), V),
        (matmul, lambda g, x, y: (g @ y.T, (x.T @ g).astype(np.float32)), M, S),
    ],
    "second order": [
        (product, lambda g, x, y: (g * gw.stop_gradient(np.cos(x)) * y, g * np.sin(x)), V, W),
        (power, lambda g, x: 3 * g * x * gw.stop_gradient(x), V),
        (norm, lambda g, x: g[..., None] * x / gw.stop_gradient(norm(x))[..., None], M),
    ],
    "not finite": [
        (leaky, lambda g, x: g * np.where(x > 0, np.sqrt(x) / np.sqrt(x), 0.1 + 0 * np.log(x)),
         SPREAD),
        (huber, lambda g, x: g * np.clip(x, -1, 1) * np.sqrt(x) / np.sqrt(x), SPREAD),
        (power, lambda g, x: 3 * g * np.exp(2 * np.log(x)), SPREAD),
    ],
}  # fmt: skip


def op_of(function, rule):
    """A fresh op of a function, under its name, with a rule."""
    op = gw.op(lambda *xs: function(*xs)) if rule is None else gw.op(function)
    if rule is not None:
        op.vjp(rule)
    return op


CASES = [
    (kind, f"{kind} in {case[0].__name__} {k}", case)
    for kind, cases in FAULTS.items()
    for k, case in enumerate(cases)
]
