"""What the tests of the torch target share: leaves, derivatives, an op with a rule of each kind."""

import numpy as np
import torch

import gradwright as gw

KINDS = ["partials", "vjp", "jvp", "surrogate"]


def leaf(x, dtype=None):
    return torch.tensor(x, dtype=dtype, requires_grad=True)


def derivative(out, x, **more):
    return torch.autograd.grad(out.sum(), x, create_graph=True, **more)[0]


def sine(kind, factor=1):
    """An op with a rule of each kind, `factor` times the true derivative."""

    @gw.op
    def f(x, y):
        return np.sin(x) * y

    rules = {
        "partials": lambda x, y: (factor * np.cos(x) * y, factor * np.sin(x)),
        "vjp": lambda g, x, y: (factor * g * np.cos(x) * y, factor * g * np.sin(x)),
        "jvp": lambda dx, dy, x, y: factor * (np.cos(x) * y * dx + np.sin(x) * dy),
        "surrogate": lambda x, y: factor * np.sin(x) * y,
    }
    if kind:
        getattr(f, kind)(rules[kind])
    return f
