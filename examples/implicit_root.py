"""A solver of SciPy's with a gradient: x(a) solves F(x, a) = 0.

The implicit function theorem gives the derivative without a look into the solver,
∂x/∂a = −(∂F/∂a) / (∂F/∂x). The rule is NumPy, so there are derivatives of any order.

python examples/implicit_root.py
"""

import numpy as np

import gradwright as gw


def F(x, a, b):
    return x**3 + a * x - b


@gw.host_op()
def root(a, b):
    """The real x with x³ + a·x = b, for positive a; a and b broadcast."""
    from scipy.optimize import brentq

    def solve(a, b):
        high = 1 + abs(b) ** (1 / 3)
        return brentq(F, -high, high, args=(a, b), xtol=1e-14)

    return np.vectorize(solve, otypes=[float])(a, b)


@root.vjp
def _(g, a, b, x):
    slope = 3 * x**2 + a  # ∂F/∂x; and ∂F/∂a = x, ∂F/∂b = −1
    return -g * x / slope, g / slope


if __name__ == "__main__":
    a, b = np.array([1.0, 2.0, 3.0]), np.array([10.0, 3.0, 4.0])
    x = root(a, b)
    print("x      ", x, " F =", np.abs(F(x, a, b)).max())
    total = lambda a, b: np.sum(root(a, b))
    print("∂x/∂b  ", gw.grad(total, 1)(a, b))
    print("∂²x/∂b²", gw.grad(lambda a, b: np.sum(gw.grad(total, 1)(a, b)), 1)(a, b))

    # which a has its root at 1.5? Newton's method, by the gradient
    a = np.array(1.0)
    for _ in range(6):
        value, slope = gw.value_and_grad(root)(a, np.array(10.0))
        a = a - (value - 1.5) / slope
    print("a with root 1.5:", a, " exactly", (10 - 1.5**3) / 1.5)
