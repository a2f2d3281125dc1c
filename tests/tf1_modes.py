"""One training run by NumPy, and by TensorFlow in each of the ways that it can run."""

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1

SHAPES = [(5, 7), (3,), ()]


def arrays(seed, dtype=np.float32, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape), dtype) for shape in shapes]


START = arrays(0)
GRADIENTS = [arrays(k + 1) for k in range(200)]


def by_numpy(rule, keywords, start=START, gradients=GRADIENTS):
    w = [a.copy() for a in start]
    optimizer = rule.numpy(w, **keywords)
    for g in gradients:
        optimizer.step(g)
    return w


def by_session(rule, keywords, start=START, gradients=GRADIENTS, resource=True):
    with tf.Graph().as_default(), v1.Session() as session:
        ws = [v1.Variable(a, use_resource=resource) for a in start]
        gs = [v1.placeholder(w.dtype.base_dtype, w.shape) for w in ws]
        train = rule.tf1(**keywords).apply_gradients(zip(gs, ws, strict=True))
        session.run(v1.global_variables_initializer())
        for g in gradients:
            session.run(train, dict(zip(gs, g, strict=True)))
        return session.run(ws)


def by_ref(rule, keywords, start=START, gradients=GRADIENTS):
    v1.disable_control_flow_v2()  # as in programs that disable the behaviour of TensorFlow 2
    try:
        return by_session(rule, keywords, start, gradients, resource=False)
    finally:
        v1.enable_control_flow_v2()


def by_function(rule, keywords, start=START, gradients=GRADIENTS, wrap=tf.function):
    ws = [tf.Variable(a) for a in start]
    optimizer = rule.tf1(**keywords)

    @wrap
    def step(*gs):
        optimizer.apply_gradients(zip(gs, ws, strict=True))

    for g in gradients:
        step(*map(tf.constant, g))
    return [w.numpy() for w in ws]


def eagerly(rule, keywords, start=START, gradients=GRADIENTS):
    return by_function(rule, keywords, start, gradients, wrap=lambda f: f)


def by_xla(rule, keywords, start=START, gradients=GRADIENTS):
    return by_function(rule, keywords, start, gradients, lambda f: tf.function(f, jit_compile=True))


MODES = [by_session, by_ref, by_function, eagerly, by_xla]


# --- rules ---------------------------------------------------------------------------------------
FULL = gw.chain(rules.clip_by_global_norm(max_norm=0.5), rules.adamw, rules.ema(decay=0.9))


@gw.rule
def jump(w, g, *, rng):
    return w + rng.uniform()
