"""The value of one function and the derivative of another: straight through, and reversal.

python examples/surrogates.py
"""

import numpy as np

import gradwright as gw


@gw.op
def ste_round(x):
    """Round; going backward it is not there (Bengio et al. 2013, arXiv:1308.3432)."""
    return np.round(x)


@ste_round.surrogate
def _(x):
    return x


@gw.op
def reverse(x, *, strength=1.0):
    """Nothing; going backward it turns the gradient (Ganin et al. 2016, arXiv:1505.07818)."""
    return x


@reverse.surrogate
def _(x, *, strength):
    return -strength * x


def quantized(w, x, y):
    """The loss of a linear model whose weights are whole numbers."""
    return np.mean((x @ ste_round(w) - y) ** 2)


if __name__ == "__main__":
    r = np.random.default_rng(0)
    x, wanted = r.normal(size=(200, 3)), np.array([2.0, -1.0, 3.0])
    w, step = np.zeros(3), gw.grad(quantized)
    for _ in range(40):
        w = w - 0.1 * step(w, x, x @ wanted)
    print("whole weights that were learned by gradients:", ste_round(w))

    loss = lambda z: np.sum(reverse(z, strength=2.0) ** 2)
    print("d/dz Σ z² behind a reversal:", gw.grad(loss)(np.array([1.0, 3.0])))
