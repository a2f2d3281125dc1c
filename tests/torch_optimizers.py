"""What the tests of torch optimizers share: parameters, gradients, rules with counterparts."""

import numpy as np
import torch

from gradwright import rules

SHAPES = [(3, 4), (5,), (), (0,), (2, 1, 3)]
MOVES = {
    "sgd": (rules.sgd, {"lr": 1e-2}),
    "momentum": (rules.momentum, {"lr": 1e-2}),
    "nesterov": (rules.nesterov, {"lr": 1e-2}),
    "adam": (rules.adam, {"lr": 1e-2}),
    "adamw": (rules.adamw, {"lr": 1e-2}),
    "rmsprop": (rules.rmsprop, {"lr": 1e-2}),
    "lion": (rules.lion, {"lr": 1e-3, "weight_decay": 0.1}),
}
BUILT_IN = {
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-2),
    "momentum": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9),
    "nesterov": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9, nesterov=True),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-2),
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-2),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=1e-2),
}


def arrays(shapes=SHAPES, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def parameters(values):
    return [torch.nn.Parameter(torch.tensor(x)) for x in values]


def set_gradients(params, gradients):
    for p, g in zip(params, gradients, strict=True):
        p.grad = None if g is None else torch.tensor(g)


def steps(optimizer, params, count, first=0):
    for k in range(first, first + count):
        set_gradients(params, arrays([tuple(p.shape) for p in params], seed=100 + k))
        optimizer.step()


def values(params):
    return [p.detach().clone() for p in params]


def assert_equal(params, others):
    for p, q in zip(params, others, strict=True):
        assert torch.equal(p, q)
