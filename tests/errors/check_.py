"""Checks that cannot be made, and what they find wrong."""

from unittest import mock

import numpy as np
from errors.case import case

import gradwright as gw
from gradwright.check import frameworks

V = np.ones(3)


def op(function, vjp=None):
    made = gw.op(function)
    if vjp is not None:
        made.vjp(vjp)
    return made


def plain(x):
    return x


def seeded(x, *, seed=0):
    return x * seed


def of_four(x):
    return x[3] * np.ones((7, 2)) @ x


def not_installed():
    with mock.patch.object(frameworks, "find_spec", lambda name: None):
        gw.check(op(plain), V, frameworks=["torch"])


CASES = [
    case(lambda: gw.check(plain, V), "gw.check of plain, which is no op", "gw.check(gw.op(f)"),
    case(lambda: gw.check(op(plain), V, effort="more"), "effort='more'", "quick, normal, thorough"),
    case(lambda: gw.check(op(plain), V, frameworks=["cobol"]), "no framework 'cobol'", "one of nu"),
    case(lambda: gw.check(gw.rules.sgd, V), "gw.check(sgd, …) with examples", "keywords of the ru"),
    case(lambda: gw.check(gw.rules.sgd, frameworks=["cobol"]), "gw.check(sgd) in cobol: its opti"),
    case(lambda: gw.check_gradient(plain, V), "gw.check_gradient(plain, …, framework=None)",
         "framework= one of torch, tensorflow, jax; gw.check for an op"),
    case(lambda: gw.check_gradient(plain, "a", framework="torch"), "an example is str", "arrays"),
    case(not_installed, "torch is not installed", "pip install 'gradwright[torch]'"),
    case(lambda: gw.check(op(plain), "a"), "gw.check(plain, …): an example is str", "of real num"),
    case(lambda: gw.check(op(seeded), V), "seeded has an option seed, as gw.check itself has"),
    case(lambda: gw.check(op(of_four)), "no example of of_four was given", "with arrays of yours"),
    case(lambda: gw.check(op(plain, lambda g, x: 2.1 * g), V, frameworks=["numpy"]),
         "plain: the gradient by x is off by a factor of 2.1, at x[0] = 1: expected 1, got 2.1",
         "seen in numpy (reverse), seed 0", "the factor"),
]  # fmt: skip
