"""Right ops, for the checker to find nothing wrong with: every primitive, and compositions."""

import zlib

import numpy as np

import gradwright as gw
from gradwright.primitives import PRIMITIVES

AT = np.array([[2, 0, 0], [1, 2, -1]])

# Neither is anybody's derivative known: see the table.
NO_DERIVATIVE = {"nextafter", "zeta"}
UFUNCS = [
    name
    for name, row in PRIMITIVES.items()
    if row.kind in ("elementwise", "compare", "integer") and name not in NO_DERIVATIVE
]
# Calls of the primitives that are no ufuncs, on x of shape (2, 3, 4).
CALLS = {
    "where": lambda x: np.where(x > 1, x * x, 2 * x),
    "sum": lambda x: np.sum(x, axis=(0, -1)),
    "prod": lambda x: np.prod(x, axis=1),
    "max": lambda x: np.max(x, axis=-1, keepdims=True),
    "min": lambda x: np.min(x, axis=(0, 2)),
    "all": lambda x: np.where(np.all(x > -2, axis=0), x[0], 2 * x[1]),
    "any": lambda x: np.where(np.any(x > 1, axis=0), x[0], 2 * x[1]),
    "argmax": lambda x: np.where(np.argmax(x, axis=0) == 1, x[0], 2 * x[1]),
    "argmin": lambda x: np.where(np.argmin(x, axis=0) == 1, x[0], 2 * x[1]),
    "cumsum": lambda x: np.cumsum(x * x, axis=1),
    "reshape": lambda x: np.reshape(x, (4, 6)) ** 2,
    "transpose": lambda x: np.transpose(x, (2, 0, 1)) ** 2,
    "expand_dims": lambda x: np.expand_dims(x, 1) * x[0],
    "squeeze": lambda x: np.squeeze(x[:, :1] ** 2, 1),
    "broadcast_to": lambda x: np.broadcast_to(x[0, 0], (5, 4)) ** 2,
    "getitem": lambda x: x[1, ::-2, 1:] ** 2,
    "concatenate": lambda x: np.concatenate([x, x[:1] ** 2], axis=0),
    "flip": lambda x: np.flip(x, axis=1) * x,
    "roll": lambda x: np.roll(x, 2, axis=-1) * x,
    "take": lambda x: np.take(x, AT, axis=1) ** 2,
    "matmul": lambda x: x @ x[0].T,
    "einsum": lambda x: np.einsum("ijk,ilk->ijl", x, x),
    "astype": lambda x: x * np.floor(x).astype(np.int32),
    "stop_gradient": lambda x: x * gw.stop_gradient(x),
}


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layer_norm(x, gain, bias):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return gain * centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-5) + bias


def attention(q, k, v):
    return softmax(q @ k.T / 2) @ v


def huber(x, *, delta=0.7):
    a = np.abs(x)
    return np.where(a <= delta, 0.5 * x * x, delta * (a - 0.5 * delta))


def bilinear(x, y, z):
    return np.einsum("i,ijk,k->j", x, y, z)


def norm(x):
    return np.linalg.norm(x, axis=-1)


def safe_log(x):
    return np.where(x > 0, np.log(np.where(x > 0, x, 1)), 0)


R = np.random.default_rng(7)
V, W = R.normal(size=5), R.normal(size=5)
M, N = R.normal(size=(3, 4)), R.normal(size=(4, 3))
COMPOSITIONS = {
    "gelu": (lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))), V),
    "silu": (lambda x: x / (1 + np.exp(-x)), V),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0, x)), V),
    "softplus": (lambda x: np.logaddexp(0, x), V),
    "relu at 0": (lambda x: np.maximum(x, 0), np.array([-1, 0, 1e-9, -1e-9, 2.0])),
    "leaky": (lambda x: np.where(x > 0, x, 0.01 * x), V),
    "huber": (huber, V),
    "huber at delta": (huber, np.array([0.7, -0.7, 0.7 + 1e-12, 0.1, 3])),
    "hinge": (lambda x, y: np.mean(np.maximum(0, 1 - x * y)), V, np.sign(W)),
    "abs of sum": (lambda x: np.abs(np.sum(x, axis=0)), M),
    "softmax": (softmax, M),
    "logsumexp": (lambda x: np.log(np.sum(np.exp(x - np.max(x)))) + np.max(x), V),
    "cross entropy": (lambda x, t: -np.sum(t * np.log(softmax(x))), M, softmax(M)),
    "layer norm": (layer_norm, M, R.normal(size=4), R.normal(size=4)),
    "attention": (attention, M, M[::-1], M**2),
    "linear": (lambda x, w, b: x @ w + b, M, N, R.normal(size=3)),
    "bilinear": (bilinear, R.normal(size=2), R.normal(size=(2, 3, 2)), R.normal(size=2)),
    "norm": (norm, M),
    "cosine": (lambda x, y: x @ y / (np.sqrt(x @ x) * np.sqrt(y @ y)), V, W),
    "pairs": (lambda x: np.sqrt(np.sum((x[:, None] - x[None]) ** 2, -1) + 1e-6), M),
    "polynomial": (lambda x: ((x - 1) * x + 2) * x**3, V),
    "rational": (lambda x: (1 + x) / (1 + x * x), V),
    "mod": (lambda x, y: np.mod(x, y), np.float32([0.3, 0.7, 1.2]), np.float32([0.2, 0.5, 1])),
    "fold": (lambda x: np.abs(np.mod(x, 2.0) - 1), V * 3),
    "clip": (lambda x: np.clip(x, -0.5, 0.5), V),
    "clip at its ends": (lambda x: np.clip(x, -0.5, 0.5), np.array([-0.5, 0.5, 0.2, 2])),
    "safe log": (safe_log, V),
    "max pool": (lambda x: np.max(np.reshape(x, (2, 2, 3)), axis=1), R.normal(size=(4, 3))),
    "max with ties": (lambda x: np.max(x, axis=1), np.array([[1.0, 1, 0], [2, 3, 3]])),
    "smoothed step": (lambda x: 1 / (1 + np.exp(-50 * x)), V),
    "tiny numbers": (lambda x: np.sqrt(x) * 1e9, np.abs(V) * 1e-12),
    "huge numbers": (lambda x: np.log(x) ** 2, np.abs(V) * 1e12),
    "number by matrix": (lambda x, y: np.sin(x) * y, np.float64(0.3), M),
    "spread": (lambda x, y: np.hypot(x, y), M[:, :1], M[:1]),
    "gradient inside": (lambda x: gw.grad(lambda y: np.sum(np.sin(y) * y))(x) * x, V),
    "large": (lambda x, y: np.tanh(x) * y, R.normal(size=(40, 30)), R.normal(size=30)),
    "large matmul": (lambda x, y: np.tanh(x @ y), R.normal(size=(8, 20)), R.normal(size=(20, 9))),
}  # fmt: skip


# Where they have kinks or jumps, and the points beside these that are checked.
KINKED = {
    "abs": (np.abs, 0.0),
    "relu": (lambda x: np.maximum(x, 0), 0.0),
    "relu6": (lambda x: np.minimum(np.maximum(x, 0), 6), 6.0),
    "minimum": (lambda x: np.minimum(x * x, 1), 1.0),
    "clip": (lambda x: np.clip(x, -0.5, 0.5), 0.5),
    "where": (lambda x: np.where(x < 1, x, 2 - x), 1.0),
    "floor": (lambda x: np.floor(x) * x, 2.0),
    "ceil": (lambda x: x - np.ceil(x), 1.0),
    "rint": (lambda x: x * np.rint(x), 0.5),
    "trunc": (lambda x: np.trunc(x) + x * x, -1.0),
    "sign": (lambda x: np.sign(x) * x * x, 0.0),
    "heaviside": (lambda x: np.heaviside(x, 0.5) * x, 0.0),
    "mod": (lambda x: np.mod(x, 0.75), 1.5),
    "fmod": (lambda x: np.fmod(x, 0.5), -1.0),
    "triangle": (lambda x: np.abs(np.mod(x, 2.0) - 1), 3.0),
    "root of abs": (lambda x: np.sqrt(np.abs(x)), 0.0),
    "cube root": (np.cbrt, 0.0),
    "hypot": (lambda x: np.hypot(x, 0.0), 0.0),
    "norm": (lambda x: np.sqrt(np.sum(x * x)), 0.0),
    "power": (lambda x: np.abs(x) ** 1.5, 0.0),
    "x log x": (lambda x: np.where(x > 0, x * np.log(np.where(x > 0, x, 1)), 0), 0.0),
    "max": (lambda x: np.max(x * np.array([1, -1, 1, -1, 1, -1])), 0.0),
}  # fmt: skip
BESIDE = np.array([-0.3, -1e-3, -1e-9, 1e-12, 1e-6, 0.2])

# Rules written by hand, and right: (function, how the rule is declared, the rule, the example).
OWN = {
    "mod": (lambda x, y: np.mod(x, y), "partials", lambda x, y: (1, -np.floor_divide(x, y)),
            V * 3, np.abs(W) + 0.3),
    "hypot": (lambda x, y: np.hypot(x, y), "partials",
              lambda x, y, out: (x / out, y / out), V, W),
    "power": (lambda x: x**3, "partials", lambda x: 3 * x**2, V),
    "tanh": (lambda x: np.tanh(x), "vjp", lambda g, x, out: g * (1 - out**2), V),
    "matmul": (lambda x, y: x @ y, "vjp", lambda g, x, y: (g @ y.T, x.T @ g), M, N),
    "scale": (lambda x, s: x * s, "vjp", lambda g, x, s: (g * s, np.sum(g * x, axis=0)), M, V[:4]),
    "left to be summed": (lambda x, s: x * s, "vjp", lambda g, x, s: (g * s, g * x), M, V[:4]),
    "log softmax": (lambda x: x - np.log(np.sum(np.exp(x), -1, keepdims=True)), "vjp",
                    lambda g, x, out: g - np.exp(out) * np.sum(g, -1, keepdims=True), M),
    "product": (lambda x, y: x * y, "jvp", lambda dx, dy, x, y: dx * y + x * dy, V, W),
    "sum of squares": (lambda x: np.sum(x * x), "jvp", lambda dx, x: 2 * np.sum(x * dx), M),
    "sine and cosine": (lambda x: (np.sin(x), np.cos(x)), "vjp",
                        lambda g, x: g[0] * np.cos(x) - g[1] * np.sin(x), V),
    "straight through": (lambda x: np.round(x), "surrogate", lambda x: x, V),
    "spike": (lambda x: np.where(x > 0, 1.0, 0.0), "surrogate", lambda x: np.arctan(2 * x), V),
    "reversal": (lambda x: x, "surrogate", lambda x: -x, V),
    "huber": (lambda x: np.where(np.abs(x) <= 1, 0.5 * x * x, np.abs(x) - 0.5), "vjp",
              lambda g, x: g * np.clip(x, -1, 1), 2 * V),
    "integers": (lambda x, k: x * k, "vjp", lambda g, x, k: (g * k, None), V, np.arange(5)),
    "softplus": (lambda x: np.logaddexp(0, x), "partials", lambda x: 1 / (1 + np.exp(-x)), V),
    "safe norm": (lambda x: np.sqrt(np.sum(x * x, -1) + 1e-9), "vjp",
                  lambda g, x, out: g[..., None] * x / out[..., None], M),
}  # fmt: skip


def of_primitive(name, seed):
    """An op of one primitive, and an example from its domain, on a coarse grid here and there."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    if name in CALLS:
        return gw.op(CALLS[name]), [rng.normal(size=(2, 3, 4))]
    row = PRIMITIVES[name]
    ufunc, count = row.ufunc, row.ufunc.nin
    xs = [rng.uniform(*row.domain[min(k, len(row.domain) - 1)], 6) for k in range(count)]
    if row.kind == "integer":
        xs = [x.astype(np.int64) for x in xs]
    elif seed % 2 and row.module == "numpy":
        xs = [np.where(rng.random(6) < 0.3, np.round(x * 4) / 4 + 1e-3 * (x < 1), x) for x in xs]
    return gw.op((lambda x: ufunc(x)) if count == 1 else (lambda x, y: ufunc(x, y))), xs


def all_right(seed=0):
    """Every right op, with an example."""
    for name in [*UFUNCS, *CALLS]:
        yield name, *of_primitive(name, seed)
    for name, (function, *xs) in COMPOSITIONS.items():
        yield name, gw.op(function), xs
    rng = np.random.default_rng([seed, 8])
    for name, (function, at) in KINKED.items():
        yield f"{name}, beside", gw.op(_plain(function)), [at + rng.permutation(BESIDE)]
    for name, (function, how, rule, *xs) in OWN.items():
        op = gw.op(function)
        getattr(op, how)(rule)
        yield f"{name}, own rule", op, xs


def _plain(function):
    """A ufunc as a function of an array."""
    return (lambda x: function(x)) if isinstance(function, np.ufunc) else function
