"""The ways in which TensorFlow runs a function; tests take `tf` from here."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")


def plain(f):
    return f


def graph(f):
    return tf.function(f, autograph=False)


def unknown_sizes(f):
    """The function traced without knowing any size."""

    def run(*xs):
        specs = [tf.TensorSpec([None] * len(x.shape), x.dtype) for x in xs]
        return tf.function(f, autograph=False, input_signature=specs)(*xs)

    return run


def jit(f):
    return tf.function(f, autograph=False, jit_compile=True)


def v1(f):
    """The function in a graph of TensorFlow 1, with placeholders of unknown sizes."""

    def run(*xs):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            ins = [tf.compat.v1.placeholder(x.dtype, [None] * len(x.shape)) for x in xs]
            return session.run(f(*ins), dict(zip(ins, map(np.asarray, xs), strict=True)))

    return run


MODES = [plain, graph, unknown_sizes, jit, v1]


def gradients(f, order=1):
    """The function that gives the gradients of a sum of f's outputs; of their sum, and so on."""

    def once(*xs):
        if not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function:
            return tf.gradients(f(*xs), list(xs), unconnected_gradients="zero")
        with tf.GradientTape() as tape:
            tape.watch(xs)
            out = f(*xs)
        return tape.gradient(out, list(xs), unconnected_gradients="zero")

    return once if order == 1 else gradients(once, order - 1)
