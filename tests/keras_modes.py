"""One training run by NumPy, and by Keras in each of the ways that its backend can run."""

import keras
import numpy as np

BACKEND = keras.config.backend()
SHAPES = [(5, 7), (3,), ()]


def arrays(seed, dtype=np.float32, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape), dtype) for shape in shapes]


START = arrays(0)
GRADIENTS = [arrays(k + 1) for k in range(100)]


def numbers(variables):
    return [keras.ops.convert_to_numpy(v) for v in variables]


def tensors(values):
    return [keras.ops.convert_to_tensor(x) for x in values]


def by_numpy(rule, keywords, start=START, gradients=GRADIENTS):
    w = [a.copy() for a in start]
    optimizer = rule.numpy(w, **keywords)
    for g in gradients:
        optimizer.step(g)
    return w


def eagerly(rule, keywords, start=START, gradients=GRADIENTS, wrap=lambda f: f):
    variables = [keras.Variable(a) for a in start]
    optimizer = rule.keras(**keywords)
    step = wrap(lambda gs: optimizer.apply(gs, variables))
    for g in gradients:
        step(tensors(g))
    return numbers(variables)


def a_while(mode):
    """How many gradients a test has time for: one operation at a time takes long."""
    return GRADIENTS[:10] if BACKEND != "torch" and mode in (eagerly, statelessly) else GRADIENTS


def by_function(rule, keywords, start=START, gradients=GRADIENTS, jit=False):
    import tensorflow as tf

    def wrap(f):
        return tf.function(f, jit_compile=jit)

    return eagerly(rule, keywords, start, gradients, wrap)


def by_xla(rule, keywords, start=START, gradients=GRADIENTS):
    return by_function(rule, keywords, start, gradients, jit=True)


def statelessly(rule, keywords, start=START, gradients=GRADIENTS, wrap=lambda f: f):
    variables = [keras.Variable(a) for a in start]
    optimizer = rule.keras(**keywords)
    optimizer.build(variables)
    step = wrap(optimizer.stateless_apply)
    ws, state = tensors(variables), [v.value for v in optimizer.variables]
    for g in gradients:
        ws, state = step(state, tensors(g), ws)
    for a, b in zip(numbers(variables), start, strict=True):
        np.testing.assert_array_equal(a, b)
    return [keras.ops.convert_to_numpy(w) for w in ws]


def by_jit(rule, keywords, start=START, gradients=GRADIENTS):
    import jax

    return statelessly(rule, keywords, start, gradients, jax.jit)


MODES = {
    "tensorflow": [eagerly, by_function, by_xla],
    "torch": [eagerly, statelessly],
    "jax": [eagerly, statelessly, by_jit],
}[BACKEND]
