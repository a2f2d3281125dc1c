"""Random programs by kernels: NumPy's bits where only exact functions are in them, else close."""

import random
from collections import Counter

import numpy as np
import pytest
from reference import evaluate, graph_of
from test_graphs import Program, op_of

import gradwright as gw
from gradwright.targets.fused import fusable, op, phases, stages

COUNT, SMOOTH, PARTS = 120, 80, 4
BOTH_DERIVATIVES, NIGHTLY, NIGHTLY_PARTS = 16, 20_000, 20
TINY = {"float32": 1.2e-38, "float64": 2.3e-308}

pytestmark = pytest.mark.thorough


@pytest.fixture
def always(monkeypatch):
    """Kernels for work of any size."""
    monkeypatch.setattr(op, "WORTH", -1)


@pytest.fixture
def exact(monkeypatch):
    """Functions and sums are left to NumPy."""
    monkeypatch.setattr(fusable, "POLYNOMIALS", {})
    for module in (fusable, stages, phases):
        monkeypatch.setattr(module, "summand", lambda graph, i: None)
        monkeypatch.setattr(module, "is_row_sum", lambda graph, n: False)


def same(got, want):
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    equal = got == want
    if want.dtype.kind == "f":
        tiny = TINY[want.dtype.name]
        equal |= (np.isnan(got) & np.isnan(want)) | ((abs(got) < tiny) & (abs(want) < tiny))
    return bool(np.all(equal))


def close(got, want):
    assert (np.asarray(got).dtype, np.shape(got)) == (np.asarray(want).dtype, np.shape(want))
    return np.allclose(got, want, rtol=1e-8, atol=1e-8, equal_nan=True)


def both(program, *inputs):
    """What kernels give, and what NumPy gives."""
    f = op_of(program)
    with np.errstate(all="ignore"):
        return f(*inputs), f.options(engine="numpy")(*inputs)


@pytest.mark.parametrize("part", range(PARTS))
def test_exact_programs_have_numpys_bits(part, always, exact):
    for seed in range(part, COUNT, PARTS):
        program = Program(random.Random(seed))
        for got, want in zip(*both(program, *program.inputs), strict=True):
            assert same(got, want), f"Program(random.Random({seed}))"


@pytest.mark.parametrize("part", range(PARTS))
def test_programs_of_functions_and_sums_are_close(part, always):
    for seed in range(part, SMOOTH, PARTS):
        program = Program(random.Random(seed), smooth=True)
        for got, want in zip(*both(program, *program.inputs), strict=True):
            assert close(got, want), f"Program(random.Random({seed}), smooth=True)"


@pytest.mark.parametrize("part", range(PARTS))
def test_derivatives_of_programs_are_close(part, always):
    for seed in range(part, SMOOTH // 2, PARTS):
        program = Program(random.Random(seed), smooth=True)
        xs = program.inputs
        wrong = []
        results = []
        for engine in ("auto", "numpy"):
            f = op_of(program).options(engine=engine)
            with np.errstate(all="ignore"):
                outs, pull = gw.vjp(f, *xs)
                cts = tuple(np.ones_like(o) if o.dtype.kind == "f" else None for o in outs)
                results.append(pull(cts))
        for got, want in zip(*results, strict=True):
            if got is not None and np.all(np.abs(want) < 1e6) and not close(got, want):
                wrong.append(seed)
        assert not wrong


# --- values, first and second derivatives: kernels = NumPy's functions = the slow interpreter -----
def orders(program):
    """The sum of a program's floats, its gradient, and that of the gradient's square."""
    wrt = tuple(k for k, x in enumerate(program.inputs) if x.dtype.kind == "f")

    def total(x, y, z):
        floats = [o for o in program(x, y, z) if np.issubdtype(o.dtype, np.floating)]
        return sum([np.sum(o) for o in floats], np.float64(0))

    first = gw.grad(total, argnums=wrt)
    size = lambda x, y, z: sum([np.sum(g * g) for g in first(x, y, z)])  # noqa: E731
    return [lambda x, y, z: program(x, y, z), first, gw.grad(size, argnums=wrt)]


def three_ways(f, inputs):
    """What kernels, NumPy's functions and the interpreter of graphs give."""
    op = gw.op(lambda x, y, z: f(x, y, z))
    graph, leaves = graph_of(op, *inputs)
    with np.errstate(all="ignore"):
        return op(*inputs), op.options(engine="numpy")(*inputs), evaluate(graph, *leaves)


def is_edge(f, inputs, want):
    """Whether so small a step moves the result by so much: functions may differ by their ulps."""
    moved = [x + 1e-13 * (1 + abs(x)) if x.dtype.kind == "f" else x for x in inputs]
    return not all(map(near, three_ways(f, moved)[1], want))


def near(got, want):
    """Close, beside the largest element; what is not finite, and huge numbers, are not compared."""
    assert (np.asarray(got).dtype, np.shape(got)) == (np.asarray(want).dtype, np.shape(want))
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    known = np.isfinite(want) & (np.abs(want) < 1e6)
    got, want = got[known], want[known]
    size = max(1, np.max(np.abs(want), initial=0))
    return bool(np.all(np.abs(got - want) <= 1e-8 * size))


def compared(seeds):
    """How many results were the same, were on an edge, and had nothing finite, by order."""
    counts, wrong = Counter(), []
    for seed in seeds:
        program = Program(random.Random(seed), smooth=True)
        for order, f in enumerate(orders(program)):
            fused, source, reference = three_ways(f, program.inputs)
            for got, want, other in zip(fused, source, reference, strict=True):
                assert near(other, want), (seed, order)
                if near(got, want):
                    kind = "same" if np.isfinite(want).any() or not np.size(want) else "not finite"
                elif is_edge(f, program.inputs, source):
                    kind = "edge"
                else:
                    kind = "wrong"
                    wrong.append((seed, order))
                counts[order, kind] += 1
    assert not wrong
    return counts


def check_counts(counts, capsys):
    with capsys.disabled():
        print(
            ", ".join(f"order {order}: {n} {kind}" for (order, kind), n in sorted(counts.items()))
        )
    for order in range(3):
        everything = sum(n for (k, _), n in counts.items() if k == order)
        assert counts[order, "same"] > 0.9 * everything


def test_values_and_both_derivatives(always, capsys):
    check_counts(compared(range(BOTH_DERIVATIVES)), capsys)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(NIGHTLY_PARTS))
def test_values_and_both_derivatives_of_twenty_thousand_programs(part, always, capsys):
    each = NIGHTLY // NIGHTLY_PARTS
    check_counts(compared(range(10**6 + part * each, 10**6 + (part + 1) * each)), capsys)
