"""Our rules and the optimizers of tf.compat.v1.train, on the same gradients."""

import conventions
import numpy as np
import pytest
from conventions import adam_hat, assert_near, equation, gradients, start
from tf1_modes import by_session, tf, v1

from gradwright import rules

pytestmark = pytest.mark.framework

LR = 1e-2
BUILT_IN = {
    "sgd": (rules.sgd, lambda: v1.train.GradientDescentOptimizer(LR)),
    "momentum": (rules.momentum, lambda: v1.train.MomentumOptimizer(LR, 0.9)),
    "nesterov": (rules.nesterov, lambda: v1.train.MomentumOptimizer(LR, 0.9, use_nesterov=True)),
    "adam": (adam_hat(eps=1e-8), lambda: v1.train.AdamOptimizer(LR)),
    "rmsprop": (conventions.rmsprop_ones, lambda: v1.train.RMSPropOptimizer(LR)),
    "adagrad": (conventions.adagrad_root(eps=0.0), lambda: v1.train.AdagradOptimizer(LR)),
}


def theirs(make):
    """In float64, so that what differs is what ours rounds."""
    with tf.Graph().as_default(), v1.Session() as session:
        ws = [v1.Variable(a) for a in start(np.float64)]
        gs = [v1.placeholder(tf.float64, w.shape) for w in ws]
        train = make().apply_gradients(zip(gs, ws, strict=True))
        session.run(v1.global_variables_initializer())
        for g in gradients(np.float64):
            session.run(train, dict(zip(gs, g, strict=True)))
        return session.run(ws)


def trained(rule):
    return by_session(rule, {}, start(), gradients())


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_trajectory_is_that_of_the_equation_and_of_tensorflow(name):
    rule, make = BUILT_IN[name]
    ours = trained(rule(lr=LR))
    assert_near(ours, equation(rule(lr=LR)))
    assert_near(ours, theirs(make))


def test_the_compact_rule_stays_near_its_equation_along_the_circle():
    assert_near(trained(conventions.compact), equation(conventions.compact), around=2.0)
