"""Random programs by kernels: NumPy's bits where only exact functions are in them, else close."""

import random

import numpy as np
import pytest
from test_graphs import Program, op_of

import gradwright as gw
from gradwright.targets.fused import fusable, op, phases, stages

COUNT, SMOOTH, PARTS = 120, 80, 4
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
