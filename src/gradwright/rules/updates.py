"""Updates of w by its gradient g."""

from typing import Any

import numpy as np

from ..annotations import Array, Rng
from ..compose import rule


@rule
def sgd(w: Array, g: Array, *, lr: float = 1e-2) -> Any:
    """Descend along the gradient: w ← w − lr·g.

    H. Robbins, S. Monro: A stochastic approximation method. Ann. Math. Stat. 22, 1951.
    """
    return w - lr * g


@rule
def momentum(w: Array, g: Array, m: Array = 0.0, *, lr: float = 1e-2, mu: float = 0.9) -> Any:
    """Descend along a running sum of gradients: m ← mu·m + g, w ← w − lr·m.

    B. Polyak: Some methods of speeding up the convergence of iteration methods. 1964. The step
    size multiplies m when it is used, as in PyTorch, not when it is kept, as in TensorFlow.
    """
    m = mu * m + g
    return w - lr * m, m


@rule
def nesterov(w: Array, g: Array, m: Array = 0.0, *, lr: float = 1e-2, mu: float = 0.9) -> Any:
    """Descend by the gradient one momentum step ahead: m ← mu·m + g, w ← w − lr·(g + mu·m).

    I. Sutskever, J. Martens, G. Dahl, G. Hinton: On the importance of initialization and momentum
    in deep learning. ICML 2013 (Nesterov 1983, restated so that g is taken at w).
    """
    m = mu * m + g
    return w - lr * (g + mu * m), m


@rule
def rmsprop(
    w: Array,
    g: Array,
    v: Array = 0.0,
    *,
    lr: float = 1e-2,
    rho: float = 0.99,
    eps: float = 1e-8,
) -> Any:
    """Divide the gradient by its running root mean square.

    v ← rho·v + (1 − rho)·g², w ← w − lr·g / (√v + eps), eps outside the root.

    T. Tieleman, G. Hinton: Lecture 6.5, rmsprop. Coursera: Neural networks for machine learning,
    2012.
    """
    v = rho * v + (1 - rho) * g**2
    return w - lr * g / (np.sqrt(v) + eps), v


@rule
def adagrad(w: Array, g: Array, s: Array = 0.0, *, lr: float = 1e-2, eps: float = 1e-10) -> Any:
    """Divide the gradient by the root of the sum of all its squares.

    s ← s + g², w ← w − lr·g / (√s + eps): s starts at 0 and eps is outside the root, as in PyTorch
    (TensorFlow, Keras and optax start at 0.1).

    J. Duchi, E. Hazan, Y. Singer: Adaptive subgradient methods for online learning and stochastic
    optimization. JMLR 12, 2011.
    """
    s = s + g**2
    return w - lr * g / (np.sqrt(s) + eps), s


@rule
def adam(
    w: Array,
    g: Array,
    m: Array = 0.0,
    v: Array = 0.0,
    *,
    lr: float = 1e-3,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    step: int = 1,
) -> Any:
    """Scale running means of the gradient by those of its square, both without their bias.

    D. Kingma, J. Ba: Adam: a method for stochastic optimization. ICLR 2015, algorithm 1: eps is
    added to √v̂, as in PyTorch and optax (TensorFlow adds it to √v).
    """
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    mhat, vhat = m / (1 - b1**step), v / (1 - b2**step)
    return w - lr * mhat / (np.sqrt(vhat) + eps), m, v


@rule
def adamw(
    w: Array,
    g: Array,
    m: Array = 0.0,
    v: Array = 0.0,
    *,
    lr: float = 1e-3,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    step: int = 1,
) -> Any:
    """Adam with weight decay beside it, not in its gradient.

    I. Loshchilov, F. Hutter: Decoupled weight decay regularization. ICLR 2019. The decay is
    multiplied by lr, as in PyTorch.
    """
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    mhat, vhat = m / (1 - b1**step), v / (1 - b2**step)
    return w - lr * (mhat / (np.sqrt(vhat) + eps) + weight_decay * w), m, v


@rule
def lion(
    w: Array,
    g: Array,
    m: Array = 0.0,
    *,
    lr: float = 1e-4,
    b1: float = 0.9,
    b2: float = 0.99,
    weight_decay: float = 0.0,
) -> Any:
    """Step by the sign of a mean of gradients.

    X. Chen and others: Symbolic discovery of optimization algorithms. NeurIPS 2023, algorithm 2.
    """
    update = np.sign(b1 * m + (1 - b1) * g)
    return w - lr * (update + weight_decay * w), b2 * m + (1 - b2) * g


@rule
def sgld(w: Array, g: Array, *, lr: float = 0.1, noise: float = 0.01, rng: Rng) -> Any:
    """Descend with normal noise: w ← w − lr·g + noise·ε.

    M. Welling, Y. W. Teh: Bayesian learning via stochastic gradient Langevin dynamics. ICML 2011.
    Samples of the posterior ∝ exp(−loss) come with noise = √(2·lr).
    """
    return w - lr * g + noise * rng.normal()


@rule(domain="[low, high)")
def compact_sgd(
    w: Array,
    g: Array,
    *,
    lr: float = 0.1,
    noise: float = 0.01,
    low: float = -10.0,
    high: float = 10.0,
    rng: Rng,
) -> Any:
    """Noisy gradient descent on the circle [low, high): what leaves at one end enters at the other.

    Centre the domain where the weights are: on [0, 20) a weight just below 0 becomes 20, and a
    model that is not periodic in its weights then starts again from there.
    """
    return low + np.mod(w - lr * g + noise * rng.normal() - low, high - low)


@rule
def muon(
    w: Array,
    g: Array,
    m: Array = 0.0,
    *,
    lr: float = 0.02,
    mu: float = 0.95,
    ns_steps: int = 5,
) -> Any:
    """Step by the orthogonal factor of the momentum, for matrices.

    The momentum's singular values are brought towards 1 by `ns_steps` steps of a quintic
    Newton–Schulz iteration.

    K. Jordan and others: Muon: an optimizer for hidden layers in neural networks. 2024.
    """
    if w.ndim != 2:
        raise ValueError(f"muon is for matrices, not for {w.ndim} dimensions: gw.partition")
    a, b, c = 3.4445, -4.7750, 2.0315
    rows, columns = w.shape
    m = mu * m + g
    x = g + mu * m
    x = x / (np.sqrt(np.sum(x * x)) + 1e-7)
    for _ in range(ns_steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return w - lr * np.sqrt(np.maximum(1, rows / columns)) * x, m
