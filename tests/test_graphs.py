"""Random programs: numpy source = reference interpreter = the program run by NumPy, bit for bit.

All three call NumPy's own functions in one order and on one memory layout, so nothing may
differ. Derivatives of the same programs pass the dot-product test.
"""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import assert_same, evaluate, graph_of

import gradwright as gw
from gradwright.primitives import PRIMITIVES

DTYPES = ["float64", "float32", "float64", "float32", "int64", "int32"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310, -1e-42, 1e300, -3e38]
MAX_SIZE = 400  # of an array that a step makes


@gw.op
def bent(x, y):
    return np.where(x > y, x * y, x - y)


@bent.vjp
def _(g, x, y):
    return g * np.where(x > y, y, 1), g * np.where(x > y, x, -1)


@gw.op
def parted(x):
    return np.sin(x), x * x


@parted.vjp
def _(g, x):
    return g[0] * np.cos(x) + g[1] * 2 * x


# Each way to make a step: (its arguments' values, draws) -> a function of these arguments, or
# nothing where it does not apply.
STEPS = {}


def step(weight, arity=1):
    def register(make):
        STEPS[make.__name__] = weight, arity, make
        return make

    return register


UNARY = [np.negative, np.abs, np.sign, np.square, np.floor, np.rint, np.trunc, np.sin, np.cos]
UNARY += [np.tanh, np.arctan, np.exp, np.sqrt, np.log1p, np.cbrt, np.reciprocal, np.expm1]
BINARY = [np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.hypot]
BINARY += [np.arctan2, np.mod, np.floor_divide, np.logaddexp, np.fmax, np.copysign]
COMPARE = [np.less, np.less_equal, np.greater, np.equal, np.not_equal]


def is_float(x):
    return x.dtype.kind == "f"


@step(5)
def unary(x, draw):
    f = draw.choice(UNARY)
    return None if x.dtype.kind == "b" else lambda x: f(x)


@step(9, 2)
def binary(x, y, draw):
    f = draw.choice(BINARY)
    return None if "b" in (x.dtype.kind, y.dtype.kind) else lambda x, y: f(x, y)


@step(4)
def with_number(x, draw):
    f = draw.choice([np.add, np.subtract, np.multiply, np.divide, np.maximum, np.mod])
    c = draw.choice([2, -1, 3, 0.5, 0.1, -2.75, np.float64(1.5), np.float32(0.3)])
    swap = draw.random() < 0.3
    if x.dtype.kind == "b":
        return None
    weak = c.item() if isinstance(c, np.float64) else c
    return lambda x: f(weak, x) if swap else f(x, weak)


@step(2)
def power(x, draw):
    n = draw.choice([2, 3, 0.5, -1, 1, 0, 1.5, -2.0])
    return (lambda x: x**n) if is_float(x) else None


@step(3, 2)
def compare(x, y, draw):
    f = draw.choice(COMPARE)
    return lambda x, y: f(x, y)


@step(1)
def classify(x, draw):
    f = draw.choice([np.isnan, np.isfinite, np.isinf])
    return lambda x: f(x)


@step(2, 2)
def logic(x, y, draw):
    f = draw.choice([np.logical_and, np.logical_or, np.logical_xor])
    return lambda x, y: f(x, y)


@step(6, 2)
def integer(x, y, draw):
    f = draw.choice([np.bitwise_and, np.bitwise_or, np.bitwise_xor])
    if "f" in (x.dtype.kind, y.dtype.kind):
        return lambda x, y: f(x > 0, ~(y <= 1))
    return lambda x, y: f(x, y)


@step(4, 3)
def where(c, x, y, draw):
    return lambda c, x, y: np.where(c, x, y)


@step(2)
def where_number(x, draw):
    return lambda x: np.where(x > 0, x, 0)


def some_axes(x, draw):
    kept = [k for k in range(x.ndim) if draw.random() < 0.6]
    return tuple(k - x.ndim if draw.random() < 0.3 else k for k in kept)


@step(5)
def reduce(x, draw):
    f = draw.choice([np.sum, np.sum, np.max, np.min, np.prod, np.any, np.all, np.mean])
    axes = draw.choice([None, some_axes(x, draw)])
    keep = draw.random() < 0.5
    if x.size == 0 or not x.ndim or (f is np.mean and not is_float(x)):
        return None
    return lambda x: f(x, axis=axes, keepdims=keep)


@step(1)
def arg_reduce(x, draw):
    f = draw.choice([np.argmax, np.argmin])
    axis = draw.randrange(-x.ndim, x.ndim) if x.ndim else 0
    return (lambda x: f(x, axis=axis)) if x.ndim else None


@step(4)
def scan(x, draw):
    axis = draw.randrange(-x.ndim, x.ndim) if x.ndim else 0
    return (lambda x: np.cumsum(x, axis=axis)) if x.ndim else None


@step(2)
def transpose(x, draw):
    axes = draw.sample(range(x.ndim), x.ndim)
    return lambda x: np.transpose(x, axes)


@step(2)
def flatten(x, draw):
    if x.ndim > 1 and draw.random() < 0.5:
        return lambda x: np.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    return lambda x: x.reshape(-1)


@step(1)
def new_axis(x, draw):
    axis = draw.randrange(x.ndim + 1)
    return (lambda x: np.expand_dims(x, axis)) if x.ndim < 3 else None


@step(2)
def drop_axis(x, draw):
    axis = draw.randrange(x.ndim) if x.ndim else 0
    one = bool(x.ndim) and x.shape[axis] > 0
    return (lambda x: np.squeeze(x[(slice(None),) * axis + (slice(0, 1),)], axis)) if one else None


@step(1)
def spread(x, draw):
    n = draw.randrange(1, 4)
    return (lambda x: np.broadcast_to(x, (n, *x.shape))) if x.ndim < 3 else None


@step(3)
def cut(x, draw):
    pieces = [
        slice(None),
        slice(1, None),
        slice(None, -1),
        slice(None, None, 2),
        slice(None, None, -1),
    ]
    index = tuple(draw.choice(pieces) for _ in range(x.ndim))
    return (lambda x: x[index]) if x.ndim else None


@step(1)
def pick(x, draw):
    at = draw.choice([0, -1])
    return (lambda x: x[at]) if x.ndim and len(x) else None


@step(2)
def flip(x, draw):
    axes = some_axes(x, draw)
    return lambda x: np.flip(x, axes)


@step(2)
def roll(x, draw):
    shift, axis = draw.randrange(-3, 4), draw.randrange(x.ndim) if x.ndim else None
    return (lambda x: np.roll(x, shift, axis)) if x.ndim else None


@step(2)
def join(x, draw):
    axis = draw.randrange(x.ndim) if x.ndim else 0
    return (lambda x: np.concatenate([x, x], axis)) if x.ndim else None


@step(2, 2)
def stack(x, y, draw):
    return (lambda x, y: np.stack([x, y])) if x.shape == y.shape and x.ndim < 3 else None


@step(2)
def take(x, draw):
    axis = draw.randrange(x.ndim) if x.ndim else 0
    length = x.shape[axis] if x.ndim else 0
    at = np.array([draw.randrange(-length, length) for _ in range(4)]) if length else None
    return (lambda x: np.take(x, at, axis)) if length else None


@step(4, 2)
def matmul(x, y, draw):
    fits = x.ndim and y.ndim and x.shape[-1] == y.shape[max(y.ndim - 2, 0)] and x.ndim + y.ndim < 6
    return (lambda x, y: x @ y) if fits else None


@step(4)
def gram(x, draw):
    return (lambda x: x @ np.swapaxes(x, -1, -2)) if x.ndim > 1 else None


@step(3)
def einsum(x, draw):
    # one term: there is one order only
    form = draw.choice(["ij->ji", "ij->i", "ij->j", "ij->"])
    return (lambda x: np.einsum(form, x)) if x.ndim == 2 and x.dtype.kind != "b" else None


@step(5)
def cast(x, draw):
    dtype = draw.choice(["float32", "float64", "int64", "int32", "bool"])
    plain = dtype[:5] == "float" or bool(np.all(np.isfinite(x)) and np.all(np.abs(x) < 2**31))
    return (lambda x: x.astype(dtype)) if plain else None


@step(5)
def by_size(x, draw):
    axis = draw.randrange(x.ndim) if x.ndim else 0
    if not x.ndim or x.dtype.kind == "b":
        return None
    return draw.choice(
        [lambda x: x * x.shape[axis], lambda x: x / (x.size + 1), lambda x: x + x.shape[axis] // 2]
    )


@step(2)
def like(x, draw):
    return draw.choice([lambda x: np.ones_like(x) + x, lambda x: np.full_like(x, 3) * x])


@step(4)
def stopped(x, draw):
    return lambda x: gw.stop_gradient(x)


@step(4, 2)
def own_rule(x, y, draw):
    numbers = is_float(x) and is_float(y)
    return (lambda x, y: bent(x, y)) if numbers else None


@step(3)
def own_pair(x, draw):
    def pair(x):
        a, b = parted(x)
        return a + b

    return pair if is_float(x) else None


class Program:
    """A straight line of steps, each on what earlier ones gave; drawn beside its values."""

    def __init__(self, draw, smooth=False):
        self.draw, self.smooth, self.steps = draw, smooth, []
        shapes = [(), (1,), (3,), (4,), (3, 4), (3, 1), (1, 4), (2, 3, 4), (4, 3), (0, 3), (5,)]
        odd = draw.random() < 0.2 and not smooth  # an odd one gets a special value at times
        dtypes = ["float64", "float64", "int64"] if smooth else DTYPES
        self.inputs = [self.array(draw.choice(shapes), draw.choice(dtypes), odd) for _ in range(3)]
        self.inputs[0] = self.inputs[0].astype("float64")
        values = list(self.inputs)
        wanted = draw.randrange(9, 16)
        while len(self.steps) < wanted:
            self.extend(values)
        used = {at for _, args in self.steps for at in args}
        self.ends = [k for k in range(3, len(values)) if k not in used]

    def array(self, shape, dtype, odd):
        numbers = [self.draw.randrange(-24, 25) / 8 for _ in range(int(np.prod(shape)))]
        x = np.array(numbers).reshape(shape).astype(dtype)
        if odd and is_float(x):
            for k in range(x.size):
                if self.draw.random() < 0.2:
                    x.flat[k] = self.draw.choice(SPECIAL)
        return x

    def extend(self, values):
        """Add a step that applies; recent values are likelier arguments."""
        _, arity, make = self.draw.choice(KINDS)
        at = [self.draw.randrange(max(0, len(values) - 6), len(values)) for _ in range(arity)]
        try:
            f = make(*(values[k] for k in at), self.draw)
            if f is None:
                return
            with gw.eager(), np.errstate(all="ignore"):
                value = np.asarray(f(*(values[k] for k in at)))
        except (ValueError, TypeError):  # NumPy refuses: shapes or dtypes do not meet
            return
        allowed = not self.smooth or (value.dtype != np.float32 and np.all(np.abs(value) < 1e3))
        if value.size <= MAX_SIZE and allowed:
            self.steps.append((f, at))
            values.append(value)

    def __call__(self, *inputs):
        values = list(inputs)
        for f, at in self.steps:
            values.append(f(*(values[k] for k in at)))
        return tuple(values[k] for k in self.ends)


KINDS = [kind for kind in STEPS.values() for _ in range(kind[0])]


def op_of(program):
    """The program as an op that NumPy runs, whose bits are to be the program's own."""
    return gw.op(lambda x, y, z: program(x, y, z)).options(engine="numpy")


def sums_in_another_order(graph):
    """Whether NumPy may lay out an array of the user's otherwise than one of the program's.

    It does so where a repeated array is cast by a function on the way, and not before it. A sum
    adds up in the order of the memory.
    """
    nodes = [graph.nodes[i] for i in graph.live()]
    repeated = any(n.prim == "broadcast_to" and not n.dtype.startswith("float") for n in nodes)
    return repeated and any(n.prim in ("sum", "prod", "matmul") for n in nodes)


def assert_close(got, wanted):
    """Equal up to the rounding of at most MAX_SIZE summands."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    bound = MAX_SIZE * np.finfo(got.dtype).eps if is_float(got) else 0
    np.testing.assert_allclose(got, wanted, rtol=bound, atol=0)


def check_values(program):
    """The three ways to run it agree to the bit. Return the graph."""
    with gw.eager(), np.errstate(all="ignore"):
        wanted = program(*program.inputs)
    op = op_of(program)
    graph, leaves = graph_of(op, *program.inputs)
    graph.verify()
    given = [np.array(x) for x in program.inputs]
    outs = op(*program.inputs)
    same = assert_close if sums_in_another_order(graph) else assert_same
    for out, again, plain in zip(outs, evaluate(graph, *leaves), wanted, strict=True):
        same(out, plain)
        same(again, plain)
        assert not any(np.shares_memory(out, x) for x in program.inputs)
    for before, after in zip(given, program.inputs, strict=True):
        assert_same(after, before)
    return graph


def check_derivatives(program):
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩, and the shapes and dtypes are right. Return whether it was finite."""
    rng = np.random.default_rng(0)
    xs = program.inputs
    vs = tuple(rng.uniform(-1, 1, x.shape) if is_float(x) else None for x in xs)
    outs, ts = gw.jvp(op_of(program), tuple(xs), vs)
    us = tuple(rng.uniform(-1, 1, out.shape) if is_float(out) else None for out in outs)
    again, pull = gw.vjp(op_of(program), *xs)
    back = pull(us)
    for out, same in zip(outs, again, strict=True):
        assert_same(out, same)
    for x, b in zip(xs, back, strict=True):
        assert (b is None) if not is_float(x) else (b.shape, b.dtype) == (x.shape, x.dtype)
    moved = [u * t for u, t in zip(us, ts, strict=True) if u is not None]
    pulled = [b * v for b, v in zip(back, vs, strict=True) if b is not None]
    size = sum(np.sum(np.abs(term)) for term in moved + pulled)
    if not np.isfinite(size):
        return False
    gap = abs(sum(map(np.sum, moved)) - sum(map(np.sum, pulled)))
    assert gap <= TOLERANCE * size, (gap, size)
    return True


pytestmark = pytest.mark.thorough

TOLERANCE = 1e-11  # of the sums of absolute values, after at most 15 steps in float64
COUNT, PARTS = 5000, 20
SMOOTH, SMOOTH_PARTS = 1000, 10


def check_programs(part, count):
    """Hypothesis draws the seeds; a seed is one program."""

    @settings(max_examples=count)
    @given(st.integers(part << 32, (part + 1 << 32) - 1))
    def check(seed):
        try:
            check_values(Program(random.Random(seed)))
        except Exception as error:
            raise AssertionError(f"Program(random.Random({seed}))") from error

    check()


@pytest.mark.parametrize("part", range(PARTS))
def test_three_ways_to_run_a_program_agree(part):
    check_programs(part, COUNT // PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS, 2 * PARTS))
def test_three_ways_to_run_twenty_thousand_programs_agree(part):
    check_programs(part, 20_000 // PARTS)


@pytest.mark.parametrize("part", range(SMOOTH_PARTS))
def test_forward_and_reverse_agree_on_programs(part):
    finite = []
    for seed in range(part, SMOOTH, SMOOTH_PARTS):
        program = Program(random.Random(seed), smooth=True)
        try:
            finite.append(check_derivatives(program))
        except Exception as error:
            raise AssertionError(f"Program(random.Random({seed}), smooth=True)") from error
    assert np.mean(finite) > 0.9


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=150)
def test_programs_that_hypothesis_shrinks(draw, smooth):
    program = Program(draw, smooth)
    check_values(program)
    if smooth:
        check_derivatives(program)


def test_the_programs_are_of_all_kinds(capsys):
    prims, kinds, sizes, special = Counter(), Counter(), [], 0
    for seed in range(500):
        program = Program(random.Random(seed))
        graph, _ = graph_of(op_of(program), *program.inputs)
        nodes = [graph.nodes[i] for i in graph.live()]
        found = [n.prim for n in nodes if n.prim in PRIMITIVES]
        prims.update(found)
        kinds.update(PRIMITIVES[p].kind for p in found)
        sizes.append(len(found))
        special += not all(np.all(np.isfinite(x)) for x in program.inputs)
    share = {kind: n / sum(kinds.values()) for kind, n in kinds.most_common()}
    with capsys.disabled():
        print(
            f"\nnodes: {min(sizes)} to {max(sizes)}, mean {np.mean(sizes):.1f}; special: {special}"
        )
        print(", ".join(f"{kind} {part:.1%}" for kind, part in share.items()))
        print(", ".join(f"{prim} {n}" for prim, n in prims.most_common()))
    assert min(sizes) >= 8
    assert 50 <= special < 120  # a tenth
    # noise and sums over parameters belong to rules, Python on the host is no program
    assert set(share) == {row.kind for row in PRIMITIVES.values()} - {"random", "global", "host"}
    assert min(share.values()) > 0.02
    assert len(prims) > 70
