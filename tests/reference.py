"""The oracle: a slow, obvious interpreter of graphs, which shares no code with `emit`.

It says in plain NumPy what every primitive means, evaluates node by node, and checks that each
value has the shape and the dtype that its node claims.
"""

import operator

import numpy as np

from gradwright.primitives import PRIMITIVES
from gradwright.targets.numpy.op import meta

ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def size(dim, inputs):
    """The number that a dim is, for these inputs."""
    if isinstance(dim, int):
        return dim
    kind, *rest = dim
    if kind == "in":
        k, axis = rest
        return np.shape(inputs[k])[axis]
    if kind == "slice":
        length, *bounds = rest
        return len(range(size(length, inputs))[slice(*bounds)])
    numbers = [size(d, inputs) for d in rest]
    if kind == "bc":
        return np.broadcast_shapes(*((n,) for n in numbers))[0]
    if kind == "//":
        return numbers[0] // numbers[1] if numbers[1] else 0
    return ARITHMETIC[kind](*numbers)


def indices(entries):
    """An index as NumPy takes it; the sizes in it are numbers by now."""
    found = []
    for kind, *rest in entries:
        if kind == "at":
            found.append(rest[0])
        elif kind == "span":
            start, length = rest
            found.append(slice(start, start + length))
        else:
            found.append(slice(*rest))
    return tuple(found)


def unbroadcast(x, shape):
    """One number for every element of the smaller shape: the sum of what it was copied to."""
    lead = x.ndim - len(shape)
    same = [k for k in range(lead, x.ndim) if shape[k - lead] == x.shape[k]]
    repeated = tuple(k for k in range(x.ndim) if k not in same)
    return x.sum(axis=repeated).reshape(shape) if repeated else x


def scatter(x, shape, index):
    out = np.zeros(shape, x.dtype)
    out[indices(index)] = x
    return out


def scatter_add(x, at, axis, shape):
    out = np.zeros(shape, x.dtype)
    before = (slice(None),) * axis
    for k in np.ndindex(at.shape):
        out[(*before, at[k])] += x[(*before, *k)]
    return out


def philox(counter, key):
    """Philox4x32-10 on Python ints, as the paper has it (Salmon and others, SC 2011)."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 % 2**32, p0 >> 32 ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def random_bits(step, identity, seed, draw, lane, shape):
    step, identity, seed = int(step), int(identity), int(seed)
    key = seed % 2**32, seed >> 32 << 8 | draw
    out = []
    for i in range(int(np.prod(shape))):
        j = {"own": i, "even": i & ~1, "odd": i | 1, "place": i}[lane]
        counter = (j >> 2) % 2**32, j >> 34 | step >> 32 << 16, step % 2**32, identity
        word = philox(counter, key)[j & 3]
        out.append(i & 1 if lane == "place" else word)
    return np.array(out, np.uint32).reshape(shape)


def _call(*args, function):
    return evaluate(function.primal, *args)


MEANING = {
    "where": lambda c, x, y: np.where(c, x, y),
    "sum": lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims),
    "prod": lambda x, axis, keepdims: np.prod(x, axis=axis, keepdims=keepdims),
    "max": lambda x, axis, keepdims: np.max(x, axis=axis, keepdims=keepdims),
    "min": lambda x, axis, keepdims: np.min(x, axis=axis, keepdims=keepdims),
    "all": lambda x, axis, keepdims: np.all(x, axis=axis, keepdims=keepdims),
    "any": lambda x, axis, keepdims: np.any(x, axis=axis, keepdims=keepdims),
    "argmax": lambda x, axis, keepdims: np.argmax(x, axis=axis[0], keepdims=keepdims),
    "argmin": lambda x, axis, keepdims: np.argmin(x, axis=axis[0], keepdims=keepdims),
    "cumsum": lambda x, axis: np.cumsum(x, axis=axis),
    "reshape": lambda x, shape: np.reshape(x, shape),
    "transpose": lambda x, axes: np.transpose(x, axes),
    "expand_dims": lambda x, axis: np.expand_dims(x, axis),
    "squeeze": lambda x, axis: np.squeeze(x, axis),
    "broadcast_to": lambda x, shape: np.broadcast_to(x, shape),
    "getitem": lambda x, index: x[indices(index)],
    "concatenate": lambda *xs, axis: np.concatenate(xs, axis),
    "flip": lambda x, axis: np.flip(x, axis),
    "roll": lambda x, shift, axis: np.roll(x, shift, axis),
    "take": lambda x, at, axis: np.take(x, at, axis),
    "matmul": lambda x, y: x @ y,
    "einsum": lambda *xs, subscripts: np.einsum(subscripts, *xs, optimize=True),
    "unbroadcast": unbroadcast,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "random_bits": random_bits,
    "stop_gradient": lambda x: x,
    "variable": lambda x, id: x,
    "call": _call,
}

EXPONENT = {"square": 2, "sqrt": 0.5, "reciprocal": -1}


def _dtype(name):
    return np.dtype({"int": np.int64, "float": np.float64}.get(name, name))


def _numbered(name, param, inputs):
    """A parameter of a node with its sizes as numbers."""
    if name == "shape":
        return tuple(size(d, inputs) for d in param)
    if name == "index":
        return tuple(
            (kind, *(size(d, inputs) for d in rest)) if kind == "span" else (kind, *rest)
            for kind, *rest in param
        )
    return param


def _value(node, values, inputs):
    params = {name: _numbered(name, p, inputs) for name, p in node.params}
    args = [values[a] for a in node.args]
    if node.prim == "input":
        return inputs[params["k"]]
    if node.prim == "const":
        value = params["value"]
        return getattr(value, "array", value)
    if node.prim == "size":
        return size(params["dim"], inputs)
    if node.prim == "item":
        return args[0][params["k"]]
    if node.prim == "astype":
        return args[0].astype(_dtype(params["dtype"]))
    if params.pop("operator", False):  # of two numbers it is the C library's pow, and not NumPy's
        return operator.pow(args[0], EXPONENT[node.prim] if node.prim in EXPONENT else args[1])
    function = MEANING[node.prim] if node.prim in MEANING else PRIMITIVES[node.prim].ufunc
    return function(*args, **params)


def evaluate(graph, *inputs):
    """The outputs of a graph on arrays, node by node."""
    inputs = [np.asarray(x) for x in inputs]
    values = {}
    with np.errstate(all="ignore"):
        for i in graph.live():
            node = graph.nodes[i]
            value = values[i] = _value(node, values, inputs)
            if node.prim == "call":
                continue
            if node.prim in ("const", "size"):
                value = np.asarray(value, _dtype(node.dtype))[()]
            assert value.dtype == _dtype(node.dtype), f"v{i} is {value.dtype}: {node}"
            assert value.shape == tuple(size(d, inputs) for d in node.shape), f"v{i}: {node}"
            values[i] = value
    return [values[i] for i in graph.outputs]


def graph_of(op, *args, **options):
    """The graph that an op runs for these arguments, and the arrays it runs on."""
    leaves, layout = op.signature.layout(args, options)
    made = op.traced([meta(leaf, op.name) for leaf in leaves], layout)
    return made.function.primal, leaves


def assert_same(got, wanted):
    """Equal bits, of equal dtype and shape; one NaN is as good as another, and so is a zero."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)
