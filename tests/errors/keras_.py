"""Ops and optimizers in Keras that cannot be; on the backend of this process."""

from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from errors.case import case

import gradwright as gw
from gradwright import rules
from gradwright.targets.keras import backends, paths

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
    with mock.patch.object(backends, "NAME", "openvino"):
        twice(variable())


def eagerly():
    with gw.eager():
        twice(tensor())


def stepped(rule=rules.sgd, variables=None, **keywords):
    """An optimizer that has had a step."""
    optimizer = rule.keras(**keywords)
    variables = variables or [variable()]
    optimizer.apply([keras.ops.ones(v.shape) for v in variables], variables)
    return optimizer


def twice_the_same():
    v = variable()
    stepped(variables=[v, v])


def swapped():
    optimizer = stepped(gw.chain(rules.sgd, rules.ema))
    with optimizer.swapped("avg"):
        optimizer.apply([keras.ops.ones(3)])


def swap_nothing():
    with stepped().swapped("avg"):
        pass


def set_rate(rule, **keywords):
    rule.keras(**keywords).learning_rate = 0.5


def load_anothers():
    store = {}
    stepped(rules.adam).save_own_variables(store)
    stepped(rules.lion).load_own_variables(store)


def saved_with(**keywords):
    rules.sgd.keras(**keywords).get_config()


@gw.rule
def plain(w, g, *, rate=0.1):
    return w - rate * g


def in_graph():
    v = variable()
    optimizer = stepped(variables=[v])

    @tf.function(autograph=False)
    def step():
        with gw.eager():
            optimizer.apply([tf.ones(3)], [v])

    step()


def in_another_scope():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    v = variable()
    optimizer = stepped(variables=[v])
    strategy.run(lambda: optimizer.apply([tf.ones(3)], [v]))


CASES = [
    case(on_another_backend, "Keras on openvino: openvino is not in this version", "KERAS_BACKEND"),
    case(lambda: gw.op(lambda x, y: x + y)(tensor(), variable()), "was called with the variable",
         "beside a KerasTensor", "a layer that has the variable"),
    case(eagerly, "twice inside gw.eager() and on a KerasTensor", "gw.eager() around model(x, …)"),
    case(lambda: twice.layer(scale=2.0), "twice.layer has no option scale", "one of name, dtype"),
    case(lambda: local_op().layer(name="x").get_config(), "the op inner cannot be saved",
         "a name of its own at the top of a module"),
    case(lambda: paths.at("nowhere.ops:f", "op"), "the saved op f is not there: nowhere.ops is not",
         "import nowhere.ops before loading"),
    # optimizers
    case(lambda: rules.sgd.options(engine="numpy").keras(), "sgd.keras with Options(engine='numpy'",
         "not in this version for Keras", "engine='auto'"),
    case(lambda: rules.sgd.options(accumulate=2).keras(gradient_accumulation_steps=3),
         "accumulate=2 beside gradient_accumulation_steps=3", "one of them"),
    case(lambda: stepped(variables=[keras.Variable(np.arange(3), trainable=False)]),
         "is int", "real floats"),
    case(lambda: stepped(rules.sgd.options(precision="master"), weight_decay=0.1),
         "weight_decay of Keras would change variable", "precision='master'", "rules.decay"),
    case(twice_the_same, "a variable twice among ['variable", "the sum of its gradients"),
    case(lambda: rules.sgd.keras().apply([V]), "1 gradients without variables, for an optimizer of"
         " 0", "build(variables) before"),
    case(swapped, "step inside swapped('avg')", "the step after the with block"),
    case(swap_nothing, "no slot 'avg' in sgd", "none: it has no slots"),
    case(lambda: set_rate(plain), "plain has no hyperparameter lr that all", "which has rate"),
    case(lambda: set_rate(rules.sgd, lr=gw.schedules.linear(1.0, 0.0, 3)),
         "the learning rate of sgd is linear(1.0, 0.0, 3), and cannot be set", "lr=0.1 when"),
    case(load_anothers, "the state of adam (", "for the rule lion (", "built for the same"),
    case(lambda: saved_with(lr=gw.per_param(lambda name, w: 0.1)), "lr of the rule sgd cannot be"
         " saved", "a schedule of gw.schedules"),
    case(lambda: saved_with(lr=gw.schedules.of(abs)), "cannot be saved: it is of(abs), a function",
         "linear, cosine, exponential, piecewise"),
    case(in_graph, "a step inside gw.eager() and in a graph", "run_functions_eagerly"),
    case(in_another_scope, "a step under OneDeviceStrategy of an optimizer that was made under",
         "with strategy.scope(): around the model and the optimizer"),
]  # fmt: skip
