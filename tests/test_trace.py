"""Tracing: one graph for all sizes, what specialises it, dtypes, trees, options, keys."""

import gc
import inspect
import itertools
import linecache
import operator
from pathlib import Path

import numpy as np
import pytest
from reference import assert_same, evaluate, graph_of

import gradwright as gw
from gradwright import emit
from gradwright.graph import Graph
from gradwright.targets.numpy import SPELLING


def counted(function):
    """An op, and the list of its traces: each is two calls of the function."""
    calls = []

    def body(*args, **options):
        calls.append(None)
        return function(*args, **options)

    body.__signature__ = inspect.signature(function)
    return gw.op(body), calls


def traces(calls):
    assert len(calls) % 2 == 0, "each trace runs the function twice"
    return len(calls) // 2


SHAPES = [(n, m) for n in (0, 1, 2, 3, 7) for m in (1, 2, 4, 5)]


# --- one trace serves all sizes -----------------------------------------------------------------
FOR_ALL_SIZES = [
    lambda x: np.sin(x) * 2 + np.mean(x),
    lambda x: x.reshape(-1) * x.size,
    lambda x: np.reshape(x, (x.shape[1], x.shape[0])),
    lambda x: x.T @ x,
    lambda x: np.concatenate([x, x[:, :1], np.zeros_like(x)], axis=1),
    lambda x: x / x.shape[0] + x.shape[1] // 2,
    lambda x: np.zeros_like(x) + np.sum(x, axis=0),
    lambda x: np.broadcast_to(x, (3, *x.shape)),
    lambda x: np.var(x, axis=1, ddof=1, keepdims=True),
    lambda x: x[::2, ::-1],
    lambda x: x - np.max(x, axis=1, keepdims=True),
    lambda x: np.roll(np.flip(x), 1, axis=0),
    lambda x: np.cumsum(x.T, axis=0),
    lambda x: np.einsum("ij,kj->ik", x, x),
    lambda x: x[:, None, :] * x[None],
    lambda x: np.linalg.norm(x, axis=1),
]


@pytest.mark.parametrize("k", range(len(FOR_ALL_SIZES)))
def test_one_trace_serves_all_sizes(k):
    function = FOR_ALL_SIZES[k]
    op, calls = counted(lambda x: function(x))
    for shape in SHAPES:
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        with np.errstate(all="ignore"):
            wanted = function(x)
        np.testing.assert_allclose(op(x), wanted, rtol=1e-5)
        assert np.shape(op(x)) == np.shape(wanted)
    assert traces(calls) == 1
    assert len({id(graph_of(op, np.ones(s, np.float32))[0]) for s in SHAPES}) == 1


def test_gradients_too_are_traced_once():
    calls = []

    def loss(x, y):
        calls.append(None)
        return np.sum(np.tanh(x) * y)

    gradient = gw.grad(loss, argnums=(0, 1))
    for n, m in SHAPES:
        gradient(np.ones((n, m)), np.ones((1, m)))
    assert traces(calls) == 1


def test_ranks_and_dtypes_are_traced_each():
    op, calls = counted(lambda x: x * 2)
    for shape, dtype in itertools.product([(), (3,), (2, 3)], ["float32", "float64", "int32"]):
        assert_same(op(np.ones(shape, dtype)), np.ones(shape, dtype) * 2)
        op(np.ones(tuple(d + 1 for d in shape), dtype))
    assert traces(calls) == 9


# --- what specialises ---------------------------------------------------------------------------
def rows(x):
    total = 0
    for row in x:
        total = total + row * row
    return total


def unpacked(x):
    a, b, *_ = x
    return a * b


SPECIALISING = {
    "for row in x": rows,
    "unpacking": unpacked,
    "range of a size": lambda x: sum((x[k] for k in range(x.shape[0])), np.zeros_like(x[0])),
    "len": lambda x: x * len(x),
    "arange of a size": lambda x: x * np.arange(x.shape[0])[:, None],
    "zeros of a size": lambda x: x + np.zeros(x.shape[0])[:, None],
    "if on a size": lambda x: x * 2 if x.shape[0] > 3 else x,
    "a backward slice": lambda x: x[x.shape[0] // 2 :: -1],
    "int of a size": lambda x: x ** int(x.shape[0]),
    "f-string of a size": lambda x: x * len(f"{int(x.shape[0])}"),
}


@pytest.mark.parametrize("name", SPECIALISING)
def test_a_body_that_reads_a_size_is_traced_for_each(name):
    function = SPECIALISING[name]
    op, calls = counted(lambda x: function(x))
    for n, m in itertools.product((2, 3, 5), (1, 2, 4, 6)):
        x = np.arange(n * m, dtype=np.float64).reshape(n, m) / 8
        assert_same(op(x), function(x))
    shapes = itertools.product((2, 3, 5), (1, 2, 4))
    made = {id(graph_of(op, np.ones(shape))[0]) for shape in shapes}
    assert len(made) == 3, "one graph for each number of rows, for any number of columns"


def options(x, *, k=2, axis=0, flag=True, scale=1.0, mode="plain"):
    for _ in range(k):
        x = x * x
    if flag:
        x = np.sum(x, axis=axis, keepdims=True)
    return -x * scale if mode == "negative" else x * scale


def test_options_that_are_read_are_traced_for_each_value():
    op, calls = counted(options)
    x = np.arange(6.0).reshape(2, 3) / 4
    values = (1, 2), (0, 1), (True, False), (1.0, 0.5, 3.0), ("plain", "negative")
    for chosen in itertools.product(*values):
        given = dict(zip(("k", "axis", "flag", "scale", "mode"), chosen, strict=True))
        assert_same(op(x, **given), options(x, **given))
    graphs = {
        id(graph_of(op, x, k=k, axis=0, flag=False, scale=s)[0])
        for k, s in itertools.product((1, 2), (1.0, 0.5, 3.0))
    }
    assert len(graphs) == 2, "a float is a runtime value"


def test_an_option_that_is_not_read_is_a_runtime_value():
    op, calls = counted(lambda x, *, n=1, b=False: x * n + b)
    x = np.arange(3.0)
    for n, b in itertools.product((1, 2, 7), (False, True)):
        assert_same(op(x, n=n, b=b), x * n + b)
    assert traces(calls) == 1


def test_keyword_positional_and_default_calls_are_the_same():
    op, calls = counted(lambda x, y=2.0, *, k=3.0: x * y + k)
    x = np.arange(3.0)
    for got in op(x), op(x, 2.0), op(x=x, y=2.0), op(y=2.0, x=x, k=3.0), op(x, k=3.0):
        assert_same(got, x * 2 + 3)
    assert traces(calls) == 1
    assert_same(op(x, 5.0, k=1.0), x * 5 + 1)
    assert traces(calls) == 1
    with pytest.raises(gw.SignatureError, match="too many positional"):
        op(x, 1.0, 2.0)
    with pytest.raises(gw.SignatureError, match="options by name: k"):
        op(x, j=2.0)


# --- sizes --------------------------------------------------------------------------------------
ARITHMETIC = [
    lambda n, m: n + m,
    lambda n, m: n - m,
    lambda n, m: 2 * n * m,
    lambda n, m: n // 2,
    lambda n, m: n / m,
    lambda n, m: n % 3,
    lambda n, m: (n * m) // m,
    lambda n, m: n**2,
    lambda n, m: n + 0.5,
    lambda n, m: -n,
    lambda n, m: (n + 1) * (m - 1) // 2 + n,
]


@pytest.mark.parametrize("k", range(len(ARITHMETIC)))
def test_arithmetic_on_sizes_stays_symbolic(k):
    f = ARITHMETIC[k]
    op, calls = counted(lambda x: x * f(x.shape[0], x.shape[1]))
    for n, m in itertools.product((1, 2, 5), (1, 3, 4)):
        for dtype in "float32", "float64", "int32":
            x = np.full((n, m), 3, dtype)
            assert_same(op(x), x * f(n, m))
    assert traces(calls) == 3


def test_sizes_as_shapes_and_bounds():
    functions = (
        lambda x: np.reshape(x, (x.shape[0] * x.shape[1],)),
        lambda x: x[: x.shape[0] - 1],
        lambda x: x[1 : x.shape[0]],
        lambda x: x[:, x.shape[1] // 2 :],
        lambda x: np.broadcast_to(x[:1], (x.shape[1], x.shape[0], x.shape[1])),
    )
    for f in functions:
        op = gw.op(f)
        for n, m in itertools.product((1, 2, 5), (1, 3, 4)):
            x = np.arange(float(n * m)).reshape(n, m)
            assert_same(op(x), f(x))
        made = {id(graph_of(op, np.ones(s))[0]) for s in itertools.product((1, 2, 5), (1, 3, 4))}
        assert len(made) == 1


# --- captured values ----------------------------------------------------------------------------
def test_captured_arrays_are_copied():
    c = np.array([1.0, 2.0])
    op = gw.op(lambda x: x * c)
    assert_same(op(np.ones(2)), [1.0, 2.0])
    c[0] = 99
    assert_same(op(np.ones(2)), [1.0, 2.0])


def test_captured_arrays_are_told_apart_by_content():
    def key(c, x=np.ones(2)):  # noqa: B008
        return graph_of(gw.op(lambda x: x * c), x)[0].key

    a = np.array([1.0, 2.0])
    assert key(a) == key(a.copy()) == key(np.array([1.0, 0, 2.0])[::2])
    others = [a + 1, a.astype(np.float32), a[None], a.astype(int), np.array([1.0, -0.0])]
    assert len({key(c) for c in [a, *others, np.array([1.0, 0.0])]}) == len(others) + 2


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_captured_numbers_are_weak(dtype):
    """np.float64 is a Python float, and as weak; other scalars are as strong as in NumPy."""
    x = np.array([1, 2], dtype)
    for c in np.float64(0.1), np.sqrt(2.0), np.arange(3.0)[1]:
        assert_same(gw.op(lambda x: x * c)(x), x * float(c))  # noqa: B023
    for c in np.array(0.1), np.float32(0.1), np.int16(3), np.int64(2):
        assert_same(gw.op(lambda x: x * c)(x), x * c)  # noqa: B023
    n = np.ones(2, int)
    assert_same(gw.op(lambda x: x + np.float32(0.1))(n), n + np.float32(0.1))
    assert_same(gw.op(lambda x: x + np.int16(3))(np.int8([1])), np.int16([4]))


def test_a_float64_array_promotes():
    x = np.float32([1, 2])
    assert gw.op(lambda x: x * np.array([1.0, 2.0]))(x).dtype == np.float64
    assert gw.op(lambda x: x * np.float64(2) * np.pi)(x).dtype == np.float32


INTEGERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint32"]
DTYPES = [*INTEGERS, "float16", "float32", "float64"]
MIXING = [
    lambda x, y: x + y,
    lambda x, y: x / (y + 2),
    lambda x, y: np.where(x > 1, x, y),
    lambda x, y: np.concatenate([x, y]),
    lambda x, y: np.stack([x, y]).sum(0),
    lambda x, y: np.maximum(x, y) * 2 + 0.5,
    lambda x, y: np.sum(x) + np.prod(y),
    lambda x, y: np.mean(x.astype(np.float32)) * y,
    lambda x, y: x @ y,
    lambda x, y: np.hypot(x, y),
    lambda x, y: np.cumsum(x) * y,
    lambda x, y: (x > y) + y,
]


@pytest.mark.parametrize("k", range(len(MIXING)))
def test_dtypes_mix_as_in_numpy(k):
    function = MIXING[k]
    op = gw.op(function)
    for a, b in itertools.product(DTYPES, DTYPES):
        x, y = np.array([0, 1, 3]).astype(a), np.array([2, 1, 1]).astype(b)
        try:
            wanted = function(x, y)
        except TypeError:
            with pytest.raises(TypeError):
                op(x, y)
        else:
            assert_same(op(x, y), wanted)


def test_a_mean_does_not_overflow():
    op = gw.op(lambda x: np.mean(x, axis=0))
    for x in (
        np.full(3, 2**62),
        np.full(1000, 60000, np.float16),
        np.full(300, 255, np.uint8),
        np.array([True, False, True]),
        np.full((4, 2), 3, np.float32),
    ):
        assert_same(op(x), np.mean(x, axis=0))


@pytest.mark.parametrize("value", [1, 2.5, True, np.float64(2)], ids=repr)
def test_numbers_as_arguments_are_weak(value):
    weak = value.item() if isinstance(value, np.float64) else value
    op, calls = counted(lambda x, y: x * y)
    for dtype in DTYPES:
        x = np.array([0, 1, 3]).astype(dtype)
        assert_same(op(x, value), x * weak)


# --- trees --------------------------------------------------------------------------------------
def test_trees_of_arguments_and_results():
    @gw.op
    def f(p, rest, nothing=None):
        w, (b, c) = p["w"], rest
        assert nothing is None
        return {"z": [w + b], "a": (c, None), "n": {"m": w * c}}

    p, rest = {"w": np.ones(3), "unused": np.zeros(2)}, [np.arange(3.0), np.full(3, 2.0)]
    got = f(p, rest)
    assert list(got) == ["a", "n", "z"]
    assert got["a"][1] is None
    assert_same(got["z"][0], p["w"] + rest[0])
    assert_same(got["a"][0], rest[1])
    assert_same(got["n"]["m"], p["w"] * rest[1])
    assert isinstance(f(p, tuple(rest))["a"], tuple)


def test_gradients_have_the_structure_of_the_argument():
    p = {"layers": [{"w": np.ones((2, 3)), "b": np.zeros(3)}, None], "scale": np.float64(2.0)}

    def loss(p, x):
        return np.sum((x @ p["layers"][0]["w"] + p["layers"][0]["b"]) * p["scale"])

    x = np.arange(4.0).reshape(2, 2)
    back = gw.grad(loss)({**p, "scale": np.array(2.0)}, x)
    assert back["layers"][1] is None
    assert_same(back["layers"][0]["w"], 2.0 * np.outer(x.sum(0), np.ones(3)))
    assert_same(back["layers"][0]["b"], np.full(3, 4.0))
    assert back["scale"] == np.sum(x @ p["layers"][0]["w"])


def test_any_number_of_arrays():
    op = gw.op(lambda *xs: sum(xs[1:], xs[0] * 2))
    for n in 1, 2, 4:
        assert_same(op(*np.ones((n, 3))), np.full(3, n + 1.0))


# --- names --------------------------------------------------------------------------------------
def test_names_of_the_users_hide_nothing():
    """Arguments called like what the program calls, and an op called like a helper."""

    @gw.op
    def unbroadcast(np_, v0, v3, c0, inf, nan, out, g):
        captured = np.array([1.0, 2.0])
        return np.sin(v0) * v3 + np.cos(np_) * c0 * captured + inf * nan + np.exp(out) * g

    xs = list(np.random.default_rng(0).uniform(1, 2, (8, 2)))
    f = unbroadcast.__wrapped__
    assert_same(unbroadcast(*xs), f(*xs))
    back = gw.grad(lambda *xs: np.sum(unbroadcast(*xs)), tuple(range(8)))(*xs)
    np.testing.assert_allclose(back[0], -np.sin(xs[0]) * xs[3] * [1, 2], rtol=1e-15)
    graph, leaves = graph_of(unbroadcast, *xs)
    assert_same(emit.program(graph, "np", SPELLING)(*leaves)[0], f(*xs))


def test_names_that_collide_are_told_apart():
    op = gw.op(lambda p: p["a"]["b"] - p["a_b"])
    assert_same(op({"a": {"b": np.array(5.0)}, "a_b": np.array(3.0)}), 2.0)
    g = Graph()
    for name in ("x", "x", "v2", "c0"):
        g.input(name, (), "float32")
    assert len({*g.names, "v2", "c0"}) == 6


# --- graphs -------------------------------------------------------------------------------------
def line_of(text):
    lines = Path(__file__).read_text().splitlines()
    return next(k for k, line in enumerate(lines, 1) if text in line and "line_of" not in line)


def test_a_graph_prints_as_equations():
    @gw.op
    def f(x, y):
        z = np.sin(x) * y
        return z + np.sum(z, axis=1, keepdims=True)

    graph, _ = graph_of(f, np.ones((2, 3), np.float32), np.float32(2))
    assert str(graph) == (
        "x: float32[x.shape[0], x.shape[1]] = input(k=0)\n"
        "y: float32[] = input(k=1)\n"
        "v2: float32[x.shape[0], x.shape[1]] = sin(x)\n"
        "v3: float32[x.shape[0], x.shape[1]] = multiply(v2, y)\n"
        "v4: float32[x.shape[0], 1] = sum(v3, axis=(1,), keepdims=True)\n"
        "v5: float32[x.shape[0], x.shape[1]] = add(v3, v4)\n"
        "return v5"
    )
    source = emit.source(graph, "f", SPELLING)
    line = line_of("z = np.sin(x) * y")
    assert source == (
        "def f(x, y):\n"
        f"    v0 = np.sin(x) * y  # test_trace.py:{line}\n"
        f"    v1 = v0 + v0.sum(axis=(1,), keepdims=True)  # test_trace.py:{line + 1}\n"
        "    return v1,\n"
    )


def key_of(function, *args):
    return graph_of(gw.op(function), *args)[0].key


def test_equal_functions_have_equal_keys():
    x = np.ones((2, 3), np.float32)

    def a(x):
        y = np.sin(x)
        return y * 2 + y

    def b(x):
        unused = np.exp(x)
        assert unused is not None
        return np.add(np.multiply(np.sin(x), 2), np.sin(x))

    assert key_of(a, x) == key_of(b, x) == key_of(a, np.ones((5, 1), np.float32))
    different = [
        key_of(a, x),
        key_of(a, x.astype(float)),
        key_of(a, x[0]),
        key_of(lambda x: np.sin(x) * 2 - np.sin(x), x),
        key_of(lambda x: np.sin(x) * 2.5 + np.sin(x), x),
        key_of(lambda x: np.sin(x) + np.sin(x) * 2, x),
    ]
    assert len(set(different)) == len(different)


def test_numbers_are_told_apart_by_their_text():
    x = np.ones(3)
    numbers = [0.0, -0.0, 1e-300, np.nan, np.inf, -np.inf, 5e-324]
    keys = []
    for n in numbers:
        function = gw.op(lambda x: np.copysign(x, n) + np.copysign(n, x))  # noqa: B023
        assert_same(function(x), np.copysign(x, n) + np.copysign(n, x))
        keys.append(graph_of(function, x)[0].key)
    assert len(set(keys)) == len(keys)


def test_a_function_with_a_rule_has_its_rule_in_its_key():
    def function(scale):
        op = gw.op(lambda x: x * 2)
        op.vjp(lambda g, x: g * scale)
        return op.example().function

    assert function(3) == function(3)
    assert function(3) != function(2)
    assert function(3) != gw.op(lambda x: x * 2).example().function


def test_records():
    @gw.op
    def f(x):
        y = gw.record("twice", 2 * x)
        return np.sum(gw.record("squared", y * y))

    x = np.arange(3.0)
    assert f(x) == 20
    graph, _ = graph_of(f, x)
    assert list(graph.records) == ["twice", "squared"]
    out, twice, squared = emit.program(graph, "f", SPELLING)(x)
    assert out == 20
    assert_same(twice, 2 * x)
    assert_same(squared, 4 * x * x)
    assert str(graph).count("record ") == 2


# --- memory -------------------------------------------------------------------------------------
SHARING = [
    lambda x: x,
    lambda x: (x, x),
    lambda x: (x.T, x[0], x[:, ::-1]),
    lambda x: x.reshape(-1),
    lambda x: np.broadcast_to(x, (2, *x.shape)),
    lambda x: np.expand_dims(x, 0),
    lambda x: np.squeeze(x[:1], 0),
    lambda x: gw.stop_gradient(x),
    lambda x: np.flip(x),
    lambda x: x.astype(np.float64),
    lambda x: np.einsum("ij->ji", x),
    lambda x: np.positive(x),
    lambda x: np.concatenate([x]),
    lambda x: (2 * x, (2 * x).T),
    lambda x: np.sum(x, axis=()),
    lambda x: np.zeros_like(x),
]


@pytest.mark.parametrize("k", range(len(SHARING)))
def test_outputs_share_no_memory(k):
    function = SHARING[k]
    op = gw.op(function)
    x = np.arange(6.0).reshape(2, 3)
    outs, wanted = op(x), function(x)
    pairs = list(zip(outs, wanted, strict=True)) if isinstance(outs, tuple) else [(outs, wanted)]
    for got, value in pairs:
        assert_same(got, value)
        if got.ndim:
            assert got.flags.writeable
            assert not np.shares_memory(got, x)
    for (a, _), (b, _) in itertools.combinations(pairs, 2):
        assert not np.shares_memory(a, b)


def test_a_captured_array_is_no_output():
    op = gw.op(lambda x: np.broadcast_to(x, (2,)) * 0 + np.array([1.0, 2.0]))
    captured = gw.op(lambda x: (np.where(True, np.array([1.0, 2.0]), x), x))
    for f in (lambda: op(np.array(1.0)), lambda: captured(np.zeros(2))[0]):
        first = f()
        first += 5
        assert_same(f(), [1.0, 2.0])


def test_programs_go_with_their_graphs():
    def files():
        return [name for name in linecache.cache if name.startswith("<gradwright numpy")]

    gc.collect()
    before = len(files())
    op = gw.op(lambda x: x * 3.21)
    op(np.ones(2))
    assert len(files()) == before + 1
    del op
    gc.collect()
    assert len(files()) == before


# --- what cannot be traced ----------------------------------------------------------------------
def test_what_differs_between_two_runs_raises():
    with pytest.raises(gw.TraceError, match="two different graphs"):
        gw.op(lambda x: x * np.random.normal())(np.ones(2))
    count = itertools.count()
    with pytest.raises(gw.TraceError, match="two different graphs"):
        gw.op(lambda x: x * next(count))(np.ones(2))


def in_place(x):
    x[0] = 1
    return x


def augmented(x):
    x += 1
    return x


REFUSED = {
    "if x > 0": (lambda x: x if x > 0 else -x, "np.where"),
    "in place": (in_place, "np.where"),
    "out=": (lambda x: np.add(x, 1, out=x), "no out="),
    "mask": (lambda x: x[x > 0], "np.where"),
    "asarray": (lambda x: np.asarray(x), "np.stack"),
    "float": (lambda x: float(x), "np.sqrt, not math.sqrt"),
    "item": (lambda x: x.item(), "x as it is"),
    "sort": (lambda x: np.sort(x), "sorting is no primitive"),
    "complex": (lambda x: x * 1j, "real numbers"),
    "two index arrays": (lambda x: np.outer(x, x)[[0, 1], [1, 0]], "np.take"),
    "in": (lambda x: 3 in x, "np.any"),
    "an unknown function": (lambda x: np.interp(x, x, x), "instead"),
    "where of one": (lambda x: np.where(x > 0), "np.where"),
    "a number that does not fit": (lambda x: (x > 0).astype(np.uint8) + 300, "a number that fits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_names_the_line_and_the_cure(name):
    function, cure = REFUSED[name]
    with pytest.raises(gw.TraceError, match="(?s)test_trace.py:.*instead: ") as caught:
        gw.op(function)(np.array([1.0, -2.0]))
    assert cure in str(caught.value)


def test_reference_and_source_agree_on_examples():
    for function in FOR_ALL_SIZES:
        x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
        graph, leaves = graph_of(gw.op(function), x)
        graph.verify()
        assert_same(evaluate(graph, *leaves)[0], gw.op(function)(x))


def test_what_is_formatted_without_a_spec_is_its_repr_and_sizes_are_numbers():
    seen = []

    @gw.op
    def shows(x):
        seen.append(f"{x} {x.shape[0]:03d}")
        return x

    shows(np.ones(7))
    assert seen[-1].startswith("<traced x: float64[") and seen[-1].endswith(" 007")


# --- what other libraries' arrays have ----------------------------------------------------------
def test_a_function_may_ask_whether_an_array_is_a_tensor():
    op = gw.op(lambda x: x.detach() if hasattr(x, "detach") else 2 * getattr(x, "data", x))
    assert_same(op(np.ones(3)), np.full(3, 2.0))


def test_the_error_for_an_attribute_is_of_both_kinds():
    with pytest.raises(AttributeError, match="no attribute detach") as caught:
        gw.op(lambda x: x.detach())(np.ones(3))
    assert isinstance(caught.value, gw.TraceError)


@pytest.mark.framework
@pytest.mark.parametrize("name", ["mul", "add", "sub", "truediv", "pow", "matmul", "lt"])
def test_a_captured_tensor_stays_a_constant(name):
    torch = pytest.importorskip("torch")
    function, t, x = getattr(operator, name), torch.arange(3.0) + 1, np.float32([4, 5, 6])
    for wanted, op in [
        (function(t.numpy(), x), gw.op(lambda x: function(t, x))),
        (function(x, t.numpy()), gw.op(lambda x: function(x, t))),
    ]:
        np.testing.assert_allclose(op(x), wanted, rtol=1e-6)
