"""Ops and optimizers in Keras that cannot be; on the backend of this process."""

from unittest import mock

import keras
import numpy as np
from errors.case import case

import gradwright as gw
from gradwright.targets.keras import op as target
from gradwright.targets.keras import paths

V = np.ones(3, np.float32)


@gw.op
def twice(x):
    return 2 * x


def local_op():
    @gw.op
    def inner(x):
        return x

    return inner


def variable(value=V):
    return keras.Variable(value)


def tensor():
    return keras.Input((3,))


def on_another_backend():
    with mock.patch.object(target, "BACKEND", "openvino"):
        twice(variable())


def eagerly():
    with gw.eager():
        twice(tensor())


CASES = [
    case(on_another_backend, "Keras on openvino: openvino is not in this version", "KERAS_BACKEND"),
    case(lambda: gw.op(lambda x, y: x + y)(tensor(), variable()), "was called with the variable",
         "beside a KerasTensor", "a layer that has the variable"),
    case(eagerly, "twice inside gw.eager() and on a KerasTensor", "gw.eager() around model(x, …)"),
    case(lambda: twice.layer(scale=2.0), "twice.layer has no option scale", "one of name, dtype"),
    case(lambda: local_op().layer(name="x").get_config(), "the layer x cannot be saved",
         "a name of its own at the top of a module"),
    case(lambda: paths.at("nowhere.ops:f", "op"), "the saved op f is not there: nowhere.ops is not",
         "import nowhere.ops before loading"),
]  # fmt: skip
