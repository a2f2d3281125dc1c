"""float16 and bfloat16 in kernels: read, computed in float32, and rounded once."""

import ml_dtypes
import numpy as np
import pytest
from fused_graphs import Guarded, fused, graph_of, run

import gradwright as gw
from gradwright import rules
from gradwright.kinds import loop
from gradwright.precision import STORAGES
from gradwright.primitives import PRIMITIVES
from gradwright.targets.fused.functions import FUNCTIONS, POLYNOMIALS
from gradwright.targets.fused.fusable import _NOT_ROUNDED, unfusable
from gradwright.targets.numpy import engines

F4 = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
LOW = [np.dtype("float16"), BF16]
ALL = np.arange(2**16, dtype=np.uint16)


def assert_equal(got, want):
    """Equal bits, but for those of NaN."""
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    bits = f"uint{8 * want.dtype.itemsize}"
    np.testing.assert_array_equal(got[~nan].view(bits), want[~nan].view(bits))


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_every_number_is_read(dtype):
    x = ALL.view(dtype)
    (got,), _ = run(fused(graph_of("astype", [dtype.name], "float32")), x)
    assert_equal(got, x.astype(F4))


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_float32_is_rounded(dtype):
    """Every number of the dtype, what lies halfway to the next, what lies beside that, others."""
    with np.errstate(all="ignore"):
        exact = ALL.view(dtype).astype(F4)
        exact = exact[np.isfinite(exact)]
        half = (
            exact.astype(np.float64) + np.nextafter(exact.astype(dtype), dtype.type(np.inf))
        ) / 2
        half = half[np.isfinite(half)].astype(F4)
        bits = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32).view(F4)
        small = np.random.default_rng(1).normal(0, 3e-5, 100_000).astype(F4)
        beside = [np.nextafter(half, F4(k * np.inf)) for k in (-1, 1)]
        x = np.concatenate([exact, half, *beside, bits, small, F4([np.inf, -np.inf, np.nan])])
        want = x.astype(dtype)
    (got,), _ = run(fused(graph_of("astype", ["float32"], dtype.name)), x)
    assert_equal(got, want)


@pytest.mark.parametrize(("old", "new"), [("float16", "bfloat16"), ("float64", "float16")])
def test_other_casts_would_be_rounded_twice(old, new):
    for pair in ((old, new), (new, old)):
        assert "a cast" in unfusable(graph_of("astype", [pair[0]], pair[1]))


def _functions():
    for name in sorted({*FUNCTIONS, *POLYNOMIALS} - {*_NOT_ROUNDED}):
        row = PRIMITIVES[name]
        if row.kind in ("elementwise", "compare"):
            try:
                ins, _ = loop(name, ["float16"] * row.ufunc.nin)
            except TypeError:
                continue
            if ins == ["float16"] * row.ufunc.nin:
                yield name


@pytest.mark.parametrize("name", _functions())
def test_float16_is_numpys_to_its_last_place(name):
    """NumPy computes these in float32 too: its bits, unless a function was near a tie."""
    ufunc = PRIMITIVES[name].ufunc
    rng = np.random.default_rng(0)
    x, y = ALL.view("float16"), rng.permutation(ALL).view("float16")
    xs = [x, y][: ufunc.nin]
    with np.errstate(all="ignore"):
        want = ufunc(*xs)
        widely = ufunc(*[a.astype(F4) for a in xs])
    (got,), _ = run(fused(graph_of(name, ["float16"] * ufunc.nin)), *xs)
    if want.dtype == bool:
        np.testing.assert_array_equal(got, want)
        return
    # what NumPy itself rounds otherwise than its own float32: the remainders of huge quotients
    with np.errstate(all="ignore"):
        known = (widely.astype("float16") == want) | (np.isnan(widely) & np.isnan(want))
    got, want = got[known], want[known]
    assert known.mean() > 0.99
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    places = np.abs(_place(got[~nan]) - _place(want[~nan]))
    assert places.max() <= (0 if name in FUNCTIONS else 1)
    assert np.mean(places > 0) < 0.001


def _place(x):
    """The position of a float16 in the order of all; both zeros are one."""
    bits = x.view(np.int16).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.mark.parametrize("size", [0, 1, 15, 64, 65, 1000])
def test_no_byte_outside_is_touched(size):
    program = fused(graph_of("add", ["float16", "float16"]))
    for at_end in (True, False):
        x, y, out = (Guarded(4).array(size, np.float16, at_end) for _ in range(3))
        x[:], y[:] = np.arange(size), 0.5
        run(program, x, y, outs=[out])
        np.testing.assert_array_equal(out, x + y)


RULES = [
    rules.sgd,
    rules.adamw,
    rules.lion,
    rules.compact_sgd,
    gw.chain(rules.clip, rules.momentum),
]


def _trained(rule, dtype, sizes=(1003, 5), steps=4, **options):
    rng = np.random.default_rng(0)
    w = [rng.normal(size=n).astype(dtype) for n in sizes]
    seeded = rule.seed is not None or options["precision"] == "stochastic"
    optimizer = rule.options(**options).numpy(w, **({"rng": 3} if seeded else {}))
    for _ in range(steps):
        optimizer.step([rng.normal(size=n).astype(dtype) for n in sizes])
    return [*w, *(s for p in optimizer._parameters for s in p.slots.values())]


@pytest.mark.parametrize("precision", STORAGES)
@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_rules_have_numpys_bits(rule, dtype, precision):
    got = _trained(rule, dtype, engine="fused", precision=precision)
    want = _trained(rule, dtype, engine="numpy", precision=precision)
    for a, b in zip(got, want, strict=True):
        if rule is rules.compact_sgd:  # normals to the last place of float32
            np.testing.assert_allclose(a.astype(F4), b.astype(F4), atol=2e-6, rtol=2.0**-7)
        else:
            assert_equal(a, b)


def test_a_step_like_the_one_before_it_is_one_call(monkeypatch):
    w, g = np.ones(100, BF16), np.ones(100, BF16)
    optimizer = rules.adamw.options(engine="fused", precision="master").numpy([w])
    for _ in range(2):  # the second finds what stays the same
        optimizer.step([g])
    monkeypatch.setattr(engines, "update", None)
    optimizer.step([g])
    assert optimizer._parameters[0].steps == 3


def test_ops_of_float16():
    f = gw.op(lambda x, y: np.where(x > 0, np.sqrt(np.abs(x)) * y, -x) + 2).options(engine="fused")
    x = np.random.default_rng(0).normal(size=(7, 33)).astype(np.float16)
    y = x[0]
    got = f(x, y)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, f.__wrapped__(x, y))
    np.testing.assert_array_equal(f(x.T, x.T), f.__wrapped__(x.T, x.T))


def test_sums_of_float16_are_numpys():
    f = gw.op(lambda x: np.sum(x * x, axis=-1)).options(engine="fused")
    x = np.random.default_rng(0).normal(size=(7, 333)).astype(np.float16)
    np.testing.assert_array_equal(f(x), f.__wrapped__(x))


@pytest.mark.framework
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("precision", STORAGES)
def test_tensors_have_the_bits_of_arrays(name, precision):
    torch = pytest.importorskip("torch")
    dtype = np.dtype(name)
    start, grads = np.linspace(-2, 2, 999), np.linspace(1, -1, 999)
    w, g = start.astype(dtype), grads.astype(dtype)
    seeded = {"rng": 3} if precision == "stochastic" else {}
    rule = rules.adamw.options(engine="fused", precision=precision)
    p = torch.nn.Parameter(torch.tensor(start.astype(F4)).to(getattr(torch, name)))
    p.grad = torch.tensor(grads.astype(F4)).to(p.dtype)
    ours, theirs = rule.numpy([w], **seeded), rule.torch([p], **seeded)
    for _ in range(3):
        ours.step([g])
        theirs.step()
    np.testing.assert_array_equal(p.detach().view(torch.int16).numpy(), w.view(np.int16))
