"""JAX arrays and functions that cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
from errors.case import case

import gradwright as gw

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


@gw.host_op()
def reads(x):
    return np.asarray(V + 1)


@gw.host_op()
def returns(x):
    return jnp.asarray(x)


CASES = [
    case(lambda: reads(V), "the host op reads was called by JAX, and calls JAX itself", "NumPy in"),
    case(lambda: returns(V), "the host op returns was called by JAX, and calls JAX itself"),
    case(lambda: twice(jax.random.key(0)), "twice was called with key<fry>", "real numbers"),
    case(lambda: twice(V + 1j), "twice was called with complex64", "arrays of real numbers"),
    case(lambda: twice(jax.ShapeDtypeStruct((3,), jnp.complex64)), "twice was called with complex"),
    case(lambda: gw.op(lambda x: x + BIG)(jnp.int32(1)),
         "a captured int64 array with numbers that int32 does not hold", "jax_enable_x64"),
    case(lambda: eager_inside(jax.grad), "twice inside gw.eager() and in a function that JAX tran",
         "jax.disable_jit()"),
]  # fmt: skip
