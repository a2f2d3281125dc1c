"""Rules as each framework has them: where our own equation is another one, theirs is written here.

What differs: whether eps is added inside or outside of a root, whether the bias of the means is
taken out of them or put into the step, and from what a sum of squares starts.
"""

import numpy as np

import gradwright as gw
from gradwright import rules

COUNT, NEAR = 200, 5e-6
SHAPES = [(5, 7), (3,), ()]


@gw.rule
def adam_hat(w, g, m=0.0, v=0.0, *, lr=1e-3, b1=0.9, b2=0.999, eps=1e-7, step=1):
    """Adam with the eps that its paper calls ε̂: w ← w − lr·√(1−b2ᵗ)/(1−b1ᵗ)·m / (√v + eps)."""
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    return w - lr * np.sqrt(1 - b2**step) / (1 - b1**step) * m / (np.sqrt(v) + eps), m, v


@gw.rule
def decayed(w, *, lr=1e-3, weight_decay=4e-3):
    """Decoupled decay, multiplied by lr: w ← w − lr·weight_decay·w."""
    return w - lr * weight_decay * w


@gw.rule
def rmsprop_root(w, g, v=0.0, *, lr=1e-3, rho=0.9, eps=1e-7):
    """RMSprop with eps inside the root: w ← w − lr·g / √(v + eps)."""
    v = rho * v + (1 - rho) * g**2
    return w - lr * g / np.sqrt(v + eps), v


@gw.rule
def rmsprop_ones(w, g, v=1.0, *, lr=1e-3, rho=0.9, eps=1e-10):
    """The same, from v = 1."""
    v = rho * v + (1 - rho) * g**2
    return w - lr * g / np.sqrt(v + eps), v


@gw.rule
def adagrad_root(w, g, s=0.1, *, lr=1e-3, eps=1e-7):
    """Adagrad from s = 0.1, eps inside the root: w ← w − lr·g / √(s + eps)."""
    s = s + g**2
    return w - lr * g / np.sqrt(s + eps), s


compact = rules.compact_sgd(lr=0.01, noise=0.01, low=-1.0, high=1.0, rng=3)  # a rule with noise


def arrays(seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape).astype(np.float32), dtype) for shape in SHAPES]


def start(dtype=np.float32):
    return [np.asarray(np.tanh(w), dtype) for w in arrays(0)]


def gradients(dtype=np.float32):
    return [arrays(k + 1, dtype) for k in range(COUNT)]


def equation(rule):
    """The weights after all steps, in float64 and by NumPy."""
    w = start(np.float64)
    optimizer = rule.numpy(w)
    for g in gradients(np.float64):
        optimizer.step(g)
    return w


def assert_near(ours, wanted, around=np.inf):
    """No weight is further than `NEAR`; on a circle, along it."""
    for a, b in zip(ours, wanted, strict=True):
        apart = np.abs(np.asarray(a, np.float64) - b)
        assert np.minimum(apart, around - apart).max() <= NEAR
