"""Every primitive that a kernel computes, for every way that arrays may lie in memory."""

import numpy as np
import pytest
from fused_graphs import Guarded
from test_fused_ops import misaligned

import gradwright as gw
from gradwright.kinds import loop
from gradwright.primitives import PRIMITIVES
from gradwright.targets.fused.functions import FUNCTIONS, ON_BOOLEANS, ON_INTEGERS, POLYNOMIALS
from gradwright.targets.numpy.memory import MEMORY

DTYPES = ("float32", "float64", "int32", "uint8", "bool")
ROWS, COLUMNS = 9, 70

# each gives an array of ROWS x COLUMNS, or what broadcasts to it
LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: np.asfortranarray(a),
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "strided": lambda a: np.repeat(a, 3, axis=1)[:, ::3],
    "misaligned": misaligned,
    "one row": lambda a: a[:1],
    "one column": lambda a: a[:, :1],
    "a number": lambda a: a[0, 0],
}


def primitives(dtype):
    """Those that take and understand this dtype."""
    known = {"b": ON_BOOLEANS, "i": ON_INTEGERS, "u": ON_INTEGERS}
    for name in known.get(np.dtype(dtype).kind, {**FUNCTIONS, **POLYNOMIALS}):
        row = PRIMITIVES[name]
        if row.kind not in ("elementwise", "compare", "integer"):
            continue
        try:
            ins, _ = loop(name, [dtype] * row.ufunc.nin)
        except TypeError:
            continue
        if ins == [dtype] * row.ufunc.nin:
            yield name


def values(dtype, seed):
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random((ROWS, COLUMNS)) < 0.5
    if dtype[:5] == "float":
        return rng.normal(size=(ROWS, COLUMNS)).astype(dtype)
    return rng.integers(0, 7, (ROWS, COLUMNS)).astype(dtype)


def applied(ufunc):
    count = ufunc.nin
    return gw.op((lambda x: ufunc(x)) if count == 1 else (lambda x, y: ufunc(x, y)))


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES)
def test_primitives_of_arrays_as_they_lie(dtype):
    """The bits are those that the same kernel gives for contiguous arrays."""
    wrong, tried = [], 0
    for name in primitives(dtype):
        ufunc = PRIMITIVES[name].ufunc
        op = applied(ufunc).options(engine="fused")
        first, second = values(dtype, 0), values(dtype, 1)
        for layout, lay in LAYOUTS.items():
            xs = [lay(first)] if ufunc.nin == 1 else [lay(first), second]
            if xs[0].ndim == 0 and ufunc.nin == 1:
                continue
            plain = [np.array(np.broadcast_to(x, (ROWS, COLUMNS))) for x in xs]
            got, want = op(*xs), op(*plain)
            tried += 1
            got = np.broadcast_to(got, want.shape)
            if not np.array_equal(got, want, equal_nan=want.dtype != bool):
                wrong.append((name, layout))
    assert not wrong
    assert tried > 100


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 64), (3, 65), (1, 8193), (130, 3)])
def test_no_byte_outside_an_array_is_touched(shape, at_end, monkeypatch):
    """Rows, strides, broadcasting: all arrays lie at the end, or at the start, of their pages."""
    rng = np.random.default_rng(0)

    def placed(shape, dtype):
        places.append(Guarded(24))
        return places[-1].array(int(np.prod(shape)), dtype, at_end).reshape(shape)

    def like(a):
        b = placed(a.shape, a.dtype)
        b[...] = a
        return b

    places = []
    monkeypatch.setattr(type(MEMORY), "empty", lambda self, shape, dtype: placed(shape, dtype))

    @gw.op
    def f(x, y):
        s = x - np.max(x, axis=-1, keepdims=True)
        return x * y + 1, np.sum(s * s, axis=-1), s / np.sum(np.exp(s), axis=-1, keepdims=True)

    whole = rng.normal(size=(shape[0], 2 * shape[1])).astype(np.float32)
    x, row = like(whole)[:, ::-2], like(rng.normal(size=shape[1]).astype(np.float32))
    if x.size > 1:
        for got, want in zip(f.options(engine="fused")(x, row), f.__wrapped__(x, row), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert len(places) >= 2
