"""Tensors, variables and functions of TensorFlow that cannot be."""

from unittest import mock

import numpy as np
import tensorflow as tf
from errors.case import case

import gradwright as gw
from gradwright import rules, tf1
from gradwright.targets.tensorflow import saved as tensorflow_saved

v1 = tf.compat.v1
V = np.ones(3, np.float32)


@gw.op
def twice(x):
    return 2 * x


@gw.host_op()
def reentrant(x):
    return tf.constant(x)


def in_graph(run):
    with tf.Graph().as_default():
        return run()


def of_unknown_rank():
    return v1.placeholder(tf.float32)


def of_unknown_size():
    return v1.placeholder(tf.float32, [None])


def eager_in_graph(run):
    def inside():
        with gw.eager():
            run()

    in_graph(inside)


def gradient_of_eager():
    x = tf.constant(V)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with gw.eager():
            y = twice(x)
    tape.gradient(y, x)


def applied(pairs, rule=rules.sgd, **options):
    optimizer = rule.tf1(**options)
    optimizer.apply_gradients(pairs())
    return optimizer


def variable(value=V):
    return tf.Variable(value)


def pairs(g=V, value=V):
    return lambda: [(None if g is None else tf.constant(g), variable(value))]


def twice_the_same():
    v = variable()
    return [(tf.constant(V), v), (tf.constant(V), v)]


def without_a_gradient():
    v = variable()
    optimizer = rules.sgd.options(accumulate=2).tf1()
    optimizer.apply_gradients([(tf.constant(V), v)])
    optimizer.apply_gradients([(None, v), (tf.constant(V), variable())])


def swapped(slot):
    optimizer = applied(pairs(), gw.chain(rules.sgd, rules.ema))
    with optimizer.swapped(slot):
        optimizer.apply_gradients(pairs()())


def swapped_in_graph():
    with rules.sgd.tf1().swapped("avg"):
        pass


def several_replicas():
    strategy = mock.Mock(num_replicas_in_sync=2)
    with (
        mock.patch.object(tf.distribute, "has_strategy", lambda: True),
        mock.patch.object(tf.distribute, "get_strategy", lambda: strategy),
    ):
        applied(pairs())


def reference_variable():
    v = v1.get_variable("v", initializer=V, use_resource=False)
    gw.chain(rules.sgd, rules.ema).tf1().apply_gradients([(tf.constant(V), v)])


def py_func(grad):
    x = tf.constant(V)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf1.py_func(lambda a: a, [x], tf.float32, name="same", grad=grad)
    tape.gradient(y, x)


def host(function):
    """What TensorFlow calls; it would show the error as a text of its own."""
    return tf1._checked(function, [tf.float32], "same")(V)


CASES = [
    # ops
    case(lambda: reentrant(tf.constant(V)), "the host op reentrant was called by TensorFlow, and "
         "calls TensorFlow itself (Const)", "NumPy in it"),
    case(lambda: tensorflow_saved.pulled(reentrant.example().function, [], []),
         "reentrant runs Python on the host, which a SavedModel does not keep", "a traced op"),
    case(lambda: twice(tf.sparse.from_dense(V)), "twice was called with a SparseTensor",
         "tf.sparse.to_dense(x)"),
    case(lambda: twice(tf.constant(["a"])), "twice was called with string", "real numbers"),
    case(lambda: twice.options(engine="fused")(tf.constant(V)),
         'twice with engine="fused" on TensorFlow\'s arrays', 'engine="auto", or NumPy arrays'),
    case(lambda: in_graph(lambda: twice(of_unknown_rank())),
         "twice was called with a tensor of unknown rank", "x.set_shape([None, …])"),
    case(lambda: eager_in_graph(lambda: twice(tf.constant(V))),
         "twice inside gw.eager() and in a graph, where tensors have no values",
         "tf.config.run_functions_eagerly(True)"),
    case(gradient_of_eager, "a gradient through twice, which ran as plain NumPy inside gw.eager()",
         "the call outside of gw.eager()"),
    # rules
    case(lambda: rules.sgd.tf1([variable()]), "sgd.tf1 was given 1 positional values",
         "sgd.tf1(lr=…), then .minimize(loss, var_list=[…])"),
    case(lambda: rules.sgd.options(engine="fused").tf1(), "engine='fused' for TensorFlow, which",
         'engine="auto"'),
    case(without_a_gradient, "no gradient of Variable, of which earlier ones are accumulated",
         "tf.zeros_like(v) say"),
    case(lambda: swapped("avg"), "step inside swapped('avg')", "the step after the with block"),
    case(lambda: swapped("m"), "no slot 'm' in sgd_ema", "one of avg"),
    case(lambda: in_graph(swapped_in_graph), "swapped in a graph is not in this version"),
    case(several_replicas, "a tf.distribute.Strategy of several replicas is not", "one replica"),
    case(lambda: eager_in_graph(lambda: applied(pairs())), "a step inside gw.eager() and in a"),
    case(lambda: in_graph(lambda: rules.sgd(of_unknown_rank(), of_unknown_rank())),
         "a tensor of unknown rank", "x.set_shape([None, …]) before the call"),
    case(lambda: in_graph(lambda: rules.momentum(of_unknown_size(), of_unknown_size())),
         "slots for a tensor of unknown shape", "the slots, after w and g"),
    case(lambda: applied(pairs(None)), "no gradients for any of ['Variable']", "the loss depends"),
    case(lambda: applied(twice_the_same), "a variable twice among", "the sum of its gradients"),
    case(lambda: applied(lambda: [(V, tf.constant(V))]), "is optimized", "a tf.Variable"),
    case(lambda: applied(pairs(V, np.arange(3))), "the variable Variable is int64(3,)", "float"),
    case(lambda: applied(pairs(V[:2])), "the gradient of Variable is float32(2,), the variable",
         "the gradient of this variable, or None"),
    case(lambda: in_graph(reference_variable), "a slot starts from v, a reference variable",
         "use_resource=True"),
    # py_func
    case(lambda: py_func(lambda op, g: [g, g]), "the grad of py_func same gives 2 values for 1 in",
         "one for each of op.inputs"),
    case(lambda: py_func(lambda op, g: tf.zeros(2)), "the grad of py_func same gives shape (2,)",
         "the gradient summed over what broadcasting repeated"),
    case(lambda: host(lambda a: (a, a)), "py_func same returned 2 arrays where Tout names 1",
         "one dtype in Tout for each array"),
    case(lambda: host(lambda a: a.astype(np.float64)),
         "py_func same returned float64 where Tout says float32", "result.astype(np.float32)"),
]  # fmt: skip
