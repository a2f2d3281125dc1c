"""JAX arrays and functions that cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
from errors.case import case

import gradwright as gw
from gradwright import rules

V, BIG = jnp.ones(3), np.array([2**40, 1, 1])


@gw.op
def twice(x):
    return 2 * x


@gw.op
def repeated(x, *, n):
    return x * len(range(n))


def eager_inside(transform):
    with gw.eager():
        transform(twice)(1.0)


def step(rule, grads=V, params=V, **keywords):
    """One step of a transformation."""
    tx = rule.optax()
    return tx.step(grads, tx.init(params), params, **keywords)


def eager_step():
    with gw.eager():
        jax.jit(lambda w: step(rules.sgd, w, w))(V)


@gw.rule
def rated(w, g, *, lr):
    return w - lr * g


@gw.host_op()
def reads(x):
    return np.asarray(V + 1)


@gw.host_op()
def returns(x):
    return jnp.asarray(x)


CASES = [
    case(lambda: twice.options(engine="fused")(jnp.ones(3)),
         'twice with engine="fused" on JAX\'s arrays', 'engine="auto", or NumPy arrays'),
    case(lambda: reads(V), "the host op reads was called by JAX, and calls JAX itself", "NumPy in"),
    case(lambda: returns(V), "the host op returns was called by JAX, and calls JAX itself"),
    case(lambda: twice(jax.random.key(0)), "twice was called with key<fry>", "real numbers"),
    case(lambda: twice(V + 1j), "twice was called with complex64", "arrays of real numbers"),
    case(lambda: twice(jax.ShapeDtypeStruct((3,), jnp.complex64)), "twice was called with complex"),
    case(lambda: gw.op(lambda x: x + BIG)(jnp.int32(1)),
         "a captured int64 array with numbers that int32 does not hold", "jax_enable_x64"),
    case(lambda: eager_inside(jax.grad), "twice inside gw.eager() and in a function that JAX tran",
         "jax.disable_jit()"),
    # rules
    case(lambda: rated.optax(), "rated has no value for lr", "lr=… when the optimizer is made"),
    case(lambda: rules.sgd.options(engine="fused").optax(), "engine='fused' for JAX, which has its",
         'engine="auto"'),
    case(lambda: rules.sgd.optax().update(V, rules.sgd.optax().init(V)),
         "sgd updates parameters, and was not given them", "update(grads, state, params)"),
    case(lambda: rules.sgd.optax().init({"w": jnp.arange(3)}), "w is int32",
         "arrays of floats, None for what is not trained"),
    case(lambda: step(rules.sgd, {"a": V}, {"b": V}), "the gradients have another structu",
         "one leaf for each parameter, None for no gradient"),
    case(lambda: step(rules.sgd, V[:2]), "the gradients have shape (2,) for the parameter, which i",
         "arrays like the parameters"),
    case(lambda: step(rules.sgd, None), "no gradients for any of ['the parameter']",
         "parameters that the loss depends on"),
    case(lambda: rules.sgd.optax().step(V, (), V), "the state of sgd is a tuple",
         "what its init or update returned"),
    case(lambda: rules.adam.optax().step(V, rules.sgd.optax().init(V), V),
         "the state has the slots [] for 1 parameters, adam has ['m', 'v'] for 1"),
    case(lambda: rules.ema.optax().init(jax.ShapeDtypeStruct((3,), jnp.float32)),
         "the slot avg starts from the values of the parameter, of which the shape is known",
         "jax.eval_shape(transformation.init, params)"),
    case(eager_step, "a step inside gw.eager() and in a function that JAX transforms"),
    case(lambda: rules.sgd(V, jax.random.key(0)), "a rule was called with key<fry>"),
    case(lambda: jax.jit(rules.ema)(V), "a slot starts from the values of a parameter that JAX",
         "the slots, after w and g"),
]  # fmt: skip
