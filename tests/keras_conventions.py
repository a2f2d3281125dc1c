"""Our rules and the optimizers of Keras: `test_conventions_keras.py` runs this on each backend."""

from types import SimpleNamespace

import conventions
import keras
import numpy as np
import pytest
from conventions import adagrad_root, adam_hat, assert_near, equation, gradients, start
from keras_modes import BACKEND, MODES

import gradwright as gw
from gradwright import rules

LR = 1e-2
BUILT_IN = {
    "sgd": (rules.sgd, lambda: keras.optimizers.SGD(LR)),
    "momentum": (rules.momentum, lambda: keras.optimizers.SGD(LR, momentum=0.9)),
    "nesterov": (rules.nesterov, lambda: keras.optimizers.SGD(LR, 0.9, nesterov=True)),
    "adam": (adam_hat, lambda: keras.optimizers.Adam(LR)),
    "adamw": (gw.chain(conventions.decayed, adam_hat), lambda: keras.optimizers.AdamW(LR)),
    "rmsprop": (conventions.rmsprop_root, lambda: keras.optimizers.RMSprop(LR)),
    "adagrad": (adagrad_root, lambda: keras.optimizers.Adagrad(LR)),
    "lion": (
        rules.lion(weight_decay=0.1),
        lambda: keras.optimizers.Lion(LR, weight_decay=0.1),
    ),
}
# The one that is compiled, where there is one. On torch Keras' own stateless_apply writes into the
# variables, so theirs is run eagerly.
run = MODES[0] if BACKEND == "torch" else MODES[-1]


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_trajectory_is_that_of_the_equation_and_of_keras(name):
    rule, make = BUILT_IN[name]
    ours = run(rule(lr=LR), {}, start(), gradients())
    assert_near(ours, equation(rule(lr=LR)))
    theirs = SimpleNamespace(keras=make)  # in float64: what differs is what ours rounds
    assert_near(ours, run(theirs, {}, start(np.float64), gradients(np.float64)))


def test_the_compact_rule_stays_near_its_equation_along_the_circle():
    ours = run(conventions.compact, {}, start(), gradients())
    assert_near(ours, equation(conventions.compact), around=2.0)
