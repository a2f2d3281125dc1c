"""Our rules and the optimizers of optax, on the same gradients."""

import conventions
import numpy as np
import pytest
from conventions import adagrad_root, assert_near, equation, gradients, start
from jax_modes import jax, jnp, x64

from gradwright import rules

optax = pytest.importorskip("optax")
pytestmark = pytest.mark.framework
assert x64  # a fixture

LR = 1e-2
BUILT_IN = {
    "sgd": (rules.sgd, lambda: optax.sgd(LR)),
    "momentum": (rules.momentum, lambda: optax.sgd(LR, 0.9)),
    "nesterov": (rules.nesterov, lambda: optax.sgd(LR, 0.9, nesterov=True)),
    "adam": (rules.adam, lambda: optax.adam(LR)),
    "adamw": (rules.adamw(weight_decay=0.1), lambda: optax.adamw(LR, weight_decay=0.1)),
    "rmsprop": (
        rules.rmsprop(rho=0.9),
        lambda: optax.rmsprop(LR, 0.9, eps_in_sqrt=False),
    ),
    "rmsprop, eps inside": (
        conventions.rmsprop_root(eps=1e-8),
        lambda: optax.rmsprop(LR, 0.9),
    ),
    "adagrad": (adagrad_root, lambda: optax.adagrad(LR)),
    "lion": (rules.lion(weight_decay=0.1), lambda: optax.lion(LR, weight_decay=0.1)),
}


def trained(transformation, dtype=np.float32):
    w = [jnp.array(a) for a in start(dtype)]
    state = transformation.init(w)

    @jax.jit
    def step(g, state, w):
        moved, state = transformation.update(g, state, w)
        return optax.apply_updates(w, moved), state

    for g in gradients(dtype):
        w, state = step(g, state, w)
    assert step._cache_size() <= 2
    return w


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_trajectory_is_that_of_the_equation_and_of_optax(name, x64):
    rule, theirs = BUILT_IN[name]
    ours = trained(rule(lr=LR).optax())
    assert all(w.dtype == np.float32 for w in ours)
    assert_near(ours, equation(rule(lr=LR)))
    assert_near(ours, trained(theirs(), np.float64))


def test_the_compact_rule_stays_near_its_equation_along_the_circle():
    ours = trained(conventions.compact.optax())
    assert_near(ours, equation(conventions.compact), around=2.0)
