"""Our rules and the optimizers of torch.optim, on the same gradients."""

import conventions
import pytest
from conventions import assert_near, equation, gradients, start

from gradwright import rules

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

LR = 1e-2
BUILT_IN = {
    "sgd": (rules.sgd, lambda p: torch.optim.SGD(p, LR)),
    "momentum": (rules.momentum, lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    "nesterov": (rules.nesterov, lambda p: torch.optim.SGD(p, LR, momentum=0.9, nesterov=True)),
    "adam": (rules.adam, lambda p: torch.optim.Adam(p, LR)),
    "adamw": (rules.adamw, lambda p: torch.optim.AdamW(p, LR)),
    "rmsprop": (rules.rmsprop, lambda p: torch.optim.RMSprop(p, LR)),
    "adagrad": (rules.adagrad, lambda p: torch.optim.Adagrad(p, LR)),
}


def trained(make, dtype=torch.float32):
    params = [torch.nn.Parameter(torch.tensor(w, dtype=dtype)) for w in start()]
    optimizer = make(params)
    for gs in gradients():
        for p, g in zip(params, gs, strict=True):
            p.grad = torch.tensor(g, dtype=dtype)
        optimizer.step()
    return [p.detach().numpy() for p in params]


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_trajectory_is_that_of_the_equation_and_of_torch(name):
    rule, theirs = BUILT_IN[name]
    ours = trained(rule(lr=LR).torch)
    assert_near(ours, equation(rule(lr=LR)))
    assert_near(ours, trained(theirs, torch.float64))


def test_the_compact_rule_stays_near_its_equation_along_the_circle():
    assert_near(trained(conventions.compact.torch), equation(conventions.compact), around=2.0)
