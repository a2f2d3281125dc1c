"""An update rule of your own: edit the equation, run it again.

gradwright show examples/my_rule.py:my_rule
gradwright demo --rule examples/my_rule.py:my_rule --set lr=0.2
gradwright demo --compare sgd examples/my_rule.py:my_rule
"""

import numpy as np

import gradwright as gw


@gw.rule(domain="[low, high)")
def my_rule(w, g, m=0.0, *, lr=0.1, mu=0.9, noise=1e-3, low=-10.0, high=10.0, rng):
    """Momentum with noise on the circle [low, high)."""
    m = mu * m + g
    w = w - lr * m + noise * rng.normal()
    return low + np.mod(w - low, high - low), m


@gw.op
def mod(x, y):
    """The remainder, whose derivative you say: ∂/∂x = 1, ∂/∂y = −⌊x/y⌋."""
    return np.mod(x, y)


@mod.partials
def _(x, y):
    return 1, -np.floor_divide(x, y)
