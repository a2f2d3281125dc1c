"""Ops and rules at the top of a module, where a saved model finds them again."""

import numpy as np

import gradwright as gw


@gw.op
def total(x):
    return np.sum(x, axis=-1, keepdims=True)


@gw.op
def times(x, y, *, scale=1.0, mode="plain"):
    return scale * x * y if mode == "plain" else scale * x * y + 1


@times.vjp
def _(g, x, y, *, scale, mode):
    """Three times what it would be."""
    return 3 * scale * g * y, 3 * scale * g * x


@gw.op
def parts(d, k):
    return {"sum": d["a"] + d["b"][0], "at": np.argmax(d["a"], axis=-1), "both": (d["a"], k)}


@gw.host_op(out=lambda x: x)
def cube(x):
    return np.asarray(x, np.float64) ** 3


@cube.vjp
def _(g, x):
    """Three times what it would be."""
    return 9 * g * x**2


@gw.rule(domain="[low, high)")
def circle(w, g, *, lr=1.0, low=0.0, high=1.0):
    return low + np.mod(w - lr * g - low, high - low)


@gw.rule
def jump(w, g, *, size=1.0, rng):
    """What shows the bits of the noise."""
    return w + size * rng.uniform()


noisy = gw.chain(gw.rules.clip_by_global_norm(max_norm=1.0), gw.rules.momentum(lr=0.1),
                 jump(size=0.01, rng=2**55 + 9))  # fmt: skip
by_name = gw.partition({"*/bias": gw.rules.sgd(lr=0.5), "*": gw.rules.adam})
