"""Every primitive × {NumPy source, reference interpreter} × dtype, against NumPy itself."""

import itertools
import operator

import numpy as np
import pytest
from reference import assert_same, evaluate, graph_of, philox

import gradwright as gw
from gradwright import emit
from gradwright.graph import Graph
from gradwright.primitives import PRIMITIVES
from gradwright.targets.numpy import SPELLING

DTYPES = ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"]
UFUNCS = [p for p, row in PRIMITIVES.items() if row.kind in ("elementwise", "compare", "integer")]


def specials(dtype):
    """What arithmetic goes wrong at, and a few plain numbers."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        top = np.iinfo(dtype)
        return np.unique(np.array([top.min, top.max, 0, 1, 2, 3, 5, 7, 100], dtype))
    info = np.finfo(dtype)
    edges = [np.inf, info.max, info.tiny, info.smallest_subnormal, 0, 0.3, 0.5, 1, 1.5, 2, 3, 7, 88]
    return np.array([np.nan, *edges, *(-e for e in map(float, edges))], dtype)


def check(function, *arrays, refused=False, equal=assert_same):
    """The op, and its graph interpreted, give NumPy's bits; what NumPy refuses raises.

    Return the graph, or nothing where there is none.
    """
    op = gw.op(function)
    try:
        with np.errstate(all="ignore"):
            wanted = function(*arrays)
    except (TypeError, OverflowError):
        refused = True
    if refused:
        with pytest.raises(gw.TraceError):
            op(*arrays)
        return None
    graph, leaves = graph_of(op, *arrays)
    graph.verify()
    got = op(*arrays)
    equal(got, wanted)
    (again,) = evaluate(graph, *leaves)
    assert_same(got, again)
    return graph


def arguments(name, dtype):
    """All pairs of special values, as a grid that broadcasting makes."""
    ufunc = PRIMITIVES[name].ufunc
    x = specials(dtype)
    if ufunc.nin == 1:
        return [x]
    y = x
    if name == "power" and np.dtype(dtype).kind in "iu":
        y = x[x >= 0]  # NumPy refuses integers to negative powers
    return [x[:, None], y]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufunc_is_numpys(name, dtype):
    ufunc = PRIMITIVES[name].ufunc
    function = (lambda x: ufunc(x)) if ufunc.nin == 1 else (lambda x, y: ufunc(x, y))
    graph = check(function, *arguments(name, dtype))
    assert graph is None or name in {n.prim for n in graph.nodes}


BINARY = [name for name in UFUNCS if PRIMITIVES[name].ufunc.nin == 2]


@pytest.mark.parametrize("number", [0, 1, 2, 3, -1, 300, 0.5, 0.1, -1.5, 1e300, True], ids=repr)
@pytest.mark.parametrize("name", BINARY)
def test_a_number_beside_an_array_is_weak(name, number):
    # NumPy compares uint8 with -1 and 300 too; a graph, whose casts are nodes, refuses
    outside = PRIMITIVES[name].kind == "compare" and number in (-1, 300) and "logical" not in name
    # x ** 2 has another dtype than np.power(x, 2), where x is bool; tracing cannot tell them apart
    ufunc = operator.pow if name == "power" else PRIMITIVES[name].ufunc
    for dtype in DTYPES:
        x = specials(dtype)
        refused = outside and dtype == "uint8"
        check(lambda x: ufunc(number, x), x[~(x < 0)] if name == "power" else x, refused=refused)
        if name != "power" or number >= 0:
            check(lambda x: ufunc(x, number), x, refused=refused)


@pytest.mark.parametrize("name", BINARY)
def test_two_dtypes_meet_as_in_numpy(name):
    ufunc = PRIMITIVES[name].ufunc
    for a, b in itertools.permutations(DTYPES, 2):
        x, y = specials(a)[:, None], specials(b)
        if name == "power":
            y = y[~(y < 0)]
        check(lambda x, y: ufunc(x, y), x, y)


# --- primitives that are no ufuncs: calls that exercise them, on x of shape (2, 3, 4) -----------
def as_dtype(dtype):
    return lambda x: x.T.astype(dtype)


AT = np.array([[2, 0, 0], [1, 2, -1]])
CALLS = {
    "where": [
        lambda x: np.where(x > 1, x, 2),
        lambda x: np.where(x[0] > 1, x, x[:1]),
        lambda x: np.where(x, 2.5, x),
        lambda x: np.where(x > 1, 1, 0),
        lambda x: np.select([x > 2, x > 0], [x, 2 * x], 0),
    ],
    "sum": [
        lambda x: np.sum(x),
        lambda x: x.sum(0),
        lambda x: np.sum(x, axis=-1, keepdims=True),
        lambda x: np.sum(x, axis=(0, -1)),
        lambda x: np.sum(x.T, axis=1),
        lambda x: np.add.reduce(x, axis=1),
    ],
    "prod": [
        lambda x: np.prod(x),
        lambda x: x.prod(axis=1),
        lambda x: np.prod(x, axis=(1, 2), keepdims=True),
        lambda x: np.multiply.reduce(x),
    ],
    "max": [
        lambda x: np.max(x),
        lambda x: x.max(axis=-2),
        lambda x: np.amax(x, axis=(0, 2), keepdims=True),
        lambda x: np.maximum.reduce(x, axis=2),
    ],
    "min": [
        lambda x: np.min(x),
        lambda x: x.min(axis=-2),
        lambda x: np.amin(x, axis=(0, 2), keepdims=True),
        lambda x: np.ptp(x, axis=1),
    ],
    "all": [lambda x: np.all(x), lambda x: x.all(axis=1), lambda x: np.all(x > 1, axis=(0, 1))],
    "any": [lambda x: np.any(x), lambda x: x.any(axis=1), lambda x: np.any(x > 1, keepdims=True)],
    "argmax": [
        lambda x: np.argmax(x),
        lambda x: x.argmax(axis=-1),
        lambda x: np.argmax(x, axis=1, keepdims=True),
    ],
    "argmin": [
        lambda x: np.argmin(x),
        lambda x: x.argmin(0),
        lambda x: np.argmin(x, keepdims=True),
    ],
    "cumsum": [
        lambda x: np.cumsum(x),
        lambda x: x.cumsum(axis=-1),
        lambda x: np.cumsum(x.T, axis=0),
        lambda x: np.add.accumulate(x),
    ],
    "reshape": [
        lambda x: np.reshape(x, (4, 6)),
        lambda x: x.reshape(-1),
        lambda x: x.reshape(2, -1),
        lambda x: x.T.ravel(),
    ],
    "transpose": [
        lambda x: x.T,
        lambda x: x.transpose(1, 2, 0),
        lambda x: np.swapaxes(x, 0, -1),
        lambda x: np.moveaxis(x, 0, -1),
        lambda x: np.moveaxis(x, (0, 1), (2, 0)),
    ],
    "expand_dims": [
        lambda x: np.expand_dims(x, -1),
        lambda x: np.expand_dims(x, (0, 2)),
        lambda x: x[:, None, :, None],
    ],
    "squeeze": [
        lambda x: np.squeeze(x[:1, :, :1]),
        lambda x: np.squeeze(x[:, None], 1),
        lambda x: x[None, ..., None].squeeze((0, -1)),
    ],
    "broadcast_to": [
        lambda x: np.broadcast_to(x, (5, 2, 3, 4)),
        lambda x: np.broadcast_to(x[:, :1], (2, 3, 4)),
        lambda x: np.broadcast_to(x[0, 0, 0], x.shape),
        lambda x: np.zeros_like(x),
        lambda x: np.full_like(x, 3, dtype=np.float32),
    ],
    "getitem": [
        lambda x: x[0],
        lambda x: x[:, 1:],
        lambda x: x[..., -1],
        lambda x: x[1, :, ::2],
        lambda x: x[::-1, 2:0:-1, ::-2],
        lambda x: x[:, :, -3:],
        lambda x: x[:, 7:, :-1],
        lambda x: x[0, 1, 2],
    ],
    "concatenate": [
        lambda x: np.concatenate([x, x[:1]]),
        lambda x: np.concatenate([x, x, x[..., :1]], axis=-1),
        lambda x: np.concatenate([x, x[0]], axis=None),
        lambda x: np.concatenate([x, np.ones_like(x, dtype=np.float64)]),
        lambda x: np.stack([x, x], axis=-1),
        lambda x: np.vstack([x[0], x[0, 0]]),
        lambda x: np.hstack([x[0, 0], x[1, 0]]),
    ],
    "flip": [lambda x: np.flip(x), lambda x: np.flip(x, (0, -1)), lambda x: x[:, ::-1]],
    "roll": [
        lambda x: np.roll(x, 1),
        lambda x: np.roll(x, -2, axis=1),
        lambda x: np.roll(x, (1, 5), axis=(0, 2)),
        lambda x: np.roll(x, (1, 2), axis=(1, 1)),
    ],
    "take": [
        lambda x: np.take(x, AT),
        lambda x: np.take(x, AT, axis=1),
        lambda x: x[:, [2, 0, 0]],
        lambda x: x[1, AT],
        lambda x: x[..., AT[0]],
        lambda x: x.take(1, axis=-1),
    ],
    "matmul": [
        lambda x: x[0] @ x[1].T,
        lambda x: x @ x[0, 0],
        lambda x: x[0, :, 0] @ x,
        lambda x: x[0, 0] @ x[1, 1],
        lambda x: np.matmul(x, np.swapaxes(x, 1, 2)),
        lambda x: np.dot(x[0], x[1].T),
    ],
    "einsum": [
        lambda x: np.einsum("ijk,ijk->i", x, x),
        lambda x: np.einsum("ijk->kj", x),
        lambda x: np.einsum("...j,j", x, x[0, 0]),
        lambda x: np.einsum("ij,kj->ik", x[0], x[1]),
        lambda x: np.tensordot(x, x, axes=((1, 2), (1, 2))),
        lambda x: np.inner(x[0], x[1]),
    ],
    "astype": [as_dtype(d) for d in DTYPES],
    "size": [
        lambda x: x * x.shape[1],
        lambda x: x[:, : x.shape[1] - 1],
        lambda x: np.broadcast_to(x.shape[0] / 3, (2,)) + x[0, 0, :2],
        lambda x: np.reshape(x.shape[0] / 3, (1, 1)) + x[0, 0, :2],
        lambda x: np.expand_dims(x.shape[0], 0) + x[0, 0, :2],
        lambda x: np.concatenate([np.reshape(2 * x.shape[0], (1,)), x[0, 0]]),
        lambda x: x.size - x,
        lambda x: x[x.shape[0] // 2],
        lambda x: np.reshape(x, (x.shape[0] * x.shape[1], x.shape[2])),
    ],
}


def numbers(dtype):
    """Plain numbers, and repeated ones, of shape (2, 3, 4)."""
    x = np.random.default_rng(0).integers(0, 5, (2, 3, 4))
    return (x - (0 if dtype == "uint8" else 1) + 0.1 * (np.dtype(dtype).kind == "f")).astype(dtype)


def mixed(dtype):
    """Special values, of shape (2, 3, 4)."""
    return np.resize(np.random.default_rng(1).permutation(specials(dtype)), (2, 3, 4))


def assert_close(got, wanted):
    """Equal but for the order of a sum of 24 terms, each of them below 25."""
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    eps = np.finfo(got.dtype).eps if got.dtype.kind == "f" else 0
    np.testing.assert_allclose(got, wanted, rtol=0, atol=24 * 24 * 25 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_numpys(name, dtype):
    found = set()
    for function in CALLS[name]:
        # np.einsum(…, optimize=True) in the source may sum in another order than without
        graph = check(
            function, numbers(dtype), equal=assert_close if name == "einsum" else assert_same
        )
        found |= {n.prim for n in graph.nodes} if graph else {name}
        if name not in ("einsum", "matmul"):
            check(function, mixed(dtype))
    assert name in found


# --- what NumPy has no name for: nodes, and what they must give ---------------------------------
def grid(dtype):
    return np.arange(24).reshape(2, 3, 4).astype(dtype)


def spread(x, at, size, axis):
    """scatter_add, by one-hot products."""
    hot = (np.ravel(at)[:, None] % size == np.arange(size)).astype(x.dtype)
    flat = x.reshape((*x.shape[:axis], -1, *x.shape[axis + at.ndim :]))
    return np.moveaxis(np.tensordot(flat, hot, axes=(axis, 0)), -1, axis)


def placed(x, shape, index):
    out = np.zeros(shape, x.dtype)
    out[index] = x
    return out


ROWS = (("slice", None, None, None), ("at", -1), ("slice", 5, None, -2))
PART = (("span", 1, ("in", 0, 0)), ("slice", 0, 3, None), ("slice", None, None, None))
NODES = {
    "unbroadcast": [
        ({"shape": (3, 1)}, lambda x: np.sum(x, axis=(0, 2))[:, None]),
        ({"shape": ()}, lambda x: np.sum(x)),
        ({"shape": (2, 3, 4)}, lambda x: x),
        ({"shape": (1, 3, 4)}, lambda x: np.sum(x, axis=0, keepdims=True)),
    ],
    "scatter": [
        ({"shape": (4, 3, 4), "index": PART}, lambda x: placed(x, (4, 3, 4), np.s_[1:3])),
    ],
    "stop_gradient": [({}, lambda x: x)],
    "variable": [({"id": 7}, lambda x: x)],
}
LINEAR = [d for d in DTYPES if d != "bool"]
COTANGENTS = ["float32", "float64", "float16"]


def built(prim, dtype, args=(), **params):
    """A graph of one node on an array of three dimensions of unknown size."""
    g = Graph()
    x = g.input("x", (None, None, None), dtype)
    more = [
        g.input(f"n{k}", (), "int64") if a is None else g.const(a, "int64")
        for k, a in enumerate(args)
    ]
    g.outputs = (g.add(prim, [x, *more], **params),)
    g.verify()
    return g


@pytest.mark.parametrize("dtype", COTANGENTS)
@pytest.mark.parametrize("name", NODES)
def test_a_node_is_what_it_says(name, dtype):
    for params, wanted in NODES[name]:
        g = built(name, dtype, **params)
        x = grid(dtype)
        (got,) = emit.program(g, name, SPELLING)(x)
        assert_same(got, wanted(x))
        assert_same(evaluate(g, x)[0], got)


@pytest.mark.parametrize("dtype", LINEAR)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_add_adds_where_indices_repeat(axis, dtype):
    at = np.array([[2, 0, 0, -1], [1, 1, 1, 0]])
    shape = [5, 5, 5]
    shape[axis] = 3
    x = np.take(np.arange(75).reshape(shape), at, axis).astype(dtype) % 7
    g = Graph()
    nodes = g.input("x", (None,) * 4, dtype), g.input("at", (None, None), "int64")
    g.outputs = (g.add("scatter_add", nodes, axis=axis, shape=tuple(shape)),)
    (got,) = emit.program(g, "f", SPELLING)(x, at)
    assert_same(got, spread(x, at, 3, axis))
    assert_same(evaluate(g, x, at)[0], got)


def test_scatter_with_a_negative_index_and_step():
    g = Graph()
    x = g.input("x", (None, None), "float32")
    g.outputs = (g.add("scatter", [x], shape=(2, 3, 6), index=ROWS),)
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    (got,) = emit.program(g, "f", SPELLING)(given)
    wanted = np.zeros((2, 3, 6), np.float32)
    wanted[:, 2, [5, 3, 1]] = given
    assert_same(got, wanted)
    assert_same(evaluate(g, given)[0], got)


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [  # the known answers of Random123
        ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_references_philox_is_the_papers(counter, key, wanted):
    assert " ".join(f"{word:08x}" for word in philox(counter, key)) == wanted


@pytest.mark.parametrize("lane", ["own", "even", "odd", "place"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (0,)])
@pytest.mark.parametrize("step, seed", [(1, 0), (2**33 + 5, 2**55 + 2**31 + 3)])
def test_random_bits_are_the_references(lane, shape, step, seed):
    g = Graph()
    counts = [g.input(name, (), "int64") for name in ("step", "identity", "seed")]
    g.outputs = (g.add("random_bits", counts, draw=2, lane=lane, shape=shape),)
    (got,) = emit.program(g, "f", SPELLING)(step, 9, seed)
    assert_same(got, evaluate(g, step, 9, seed)[0])


def test_a_call_of_an_op_with_its_own_rule():
    @gw.op
    def inner(x, y):
        return x * y, np.sum(x)

    @inner.vjp
    def _(g, x, y):
        return g[0] * y, g[0] * x

    graph = check(lambda x: inner(x, x + 1)[0] * inner(x, 2 * x)[1], np.float32([1, 2, 3]))
    assert {"call", "item"} <= {n.prim for n in graph.nodes}


# `global_sum` is a sum over all the parameters of a rule: no function of one array has it
ELSEWHERE = {"global_sum"}


def test_every_primitive_is_tested():
    own = {"scatter_add", "random_bits", "call", "host", "item"}
    assert set(PRIMITIVES) == {*UFUNCS, *CALLS, *NODES, *own, *ELSEWHERE}


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_what_is_tested_elsewhere_raises_on_its_own(name):
    with pytest.raises(AttributeError, match=name):
        emit.program(built(name, "float32"), "f", SPELLING)(grid("float32"))
