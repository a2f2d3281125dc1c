"""Every primitive × torch × dtype: its values are NumPy's, or it is refused."""

import numpy as np
import pytest
from test_primitives import (
    BINARY,
    CALLS,
    DTYPES,
    NODES,
    UFUNCS,
    arguments,
    built,
    grid,
    mixed,
    numbers,
)

import gradwright as gw
from gradwright import emit
from gradwright.graph import Graph
from gradwright.philox import random_bits
from gradwright.primitives import PRIMITIVES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from gradwright.targets.torch import SPELLING  # noqa: E402

# Units in the last place of a result; torch has its own exp, sin, lgamma, …
ULPS = {"float16": 4, "float32": 8, "float64": 8}
# Less for some: relative to the result, and (near zeros of the function) to 1.
ROUGH = {"gamma": (2e-13, 0), "logaddexp2": (0, 1), "cosm1": (0, 1), "psi": (0, 1)}
J = {"j0": (0, 4), "j1": (0, 4)}


def is_normal(x):
    """Subnormals are not part of the contract."""
    return ~((x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)) if x.dtype.kind == "f" else x == x


def assert_near(got, wanted, rtol=0.0, atol=0.0):
    """Equal dtypes and shapes, values equal to a few ulps; atol is in ulps of 1."""
    wanted = np.asarray(wanted)
    assert isinstance(got, torch.Tensor)
    got = got.detach().numpy()
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted)
        return
    eps = float(np.finfo(wanted.dtype).eps)
    rtol, atol = max(rtol, eps * ULPS[wanted.dtype.name]), max(eps * atol, eps * 1e-3)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)


def tensors(*arrays):
    return [torch.tensor(x) for x in arrays]


def check(function, *arrays, rtol=0.0, atol=0.0):
    """The op on tensors gives what it gives on NumPy arrays, in the same dtype."""
    op = gw.op(function)
    try:
        wanted = op(*arrays)
    except gw.TraceError:
        with pytest.raises(gw.TraceError):
            op(*tensors(*arrays))
        return
    assert_near(op(*tensors(*arrays)), wanted, rtol, atol)


def refused(name, dtype):
    """Whether the target says that it cannot compute a primitive."""
    if f"{name} float64" in SPELLING.unsupported:
        return PRIMITIVES[name].ufunc(np.ones(1, dtype)).dtype == np.float64
    return name in SPELLING.unsupported


def moderate(x):
    size = np.abs(x.astype(float))
    return (size == 0) | ((size > 1e-30) & (size < 1e30)) | ~np.isfinite(size)


def plain(name, dtype):
    """Pairs of special values, without what is not part of the contract."""
    x, *rest = arguments(name, dtype)
    if name == "reciprocal" and x.dtype.kind in "biu":
        x = x[x != 0]  # undefined in C
    y = rest[0] if rest else x
    x, y = x[is_normal(x.ravel())], y[is_normal(y)]
    if name in ("remainder", "fmod"):  # torch's is NaN where the quotient overflows
        x, y = x[moderate(x.ravel())], y[moderate(y)]
    return [x, y] if rest else [x]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufunc_has_numpys_values(name, dtype):
    ufunc = PRIMITIVES[name].ufunc
    function = (lambda x: ufunc(x)) if ufunc.nin == 1 else (lambda x, y: ufunc(x, y))
    arrays = plain(name, dtype)
    if refused(name, dtype):
        with pytest.raises(gw.TraceError, match=f"{name}.* is not in the torch target"):
            gw.op(function)(*tensors(*arrays))
        return
    rtol, atol = {**ROUGH, **J}.get(name, (0, 0))
    check(function, *arrays, rtol=rtol if dtype != "float32" else 0, atol=8 * atol)


@pytest.mark.parametrize("number", [0, 1, 2, 3, -1, 300, 0.5, 0.1, -1.5, True], ids=repr)
@pytest.mark.parametrize("name", [name for name in BINARY if name not in SPELLING.unsupported])
def test_a_number_beside_a_tensor_is_weak(name, number):
    ufunc = PRIMITIVES[name].ufunc
    _, atol = ROUGH.get(name, (0, 0))
    for dtype in DTYPES:
        x = plain(name, dtype)[0].ravel()
        check(lambda x: ufunc(number, x), x[~(x < 0)] if name == "power" else x, atol=8 * atol)
        if name != "power" or number >= 0:
            check(lambda x: ufunc(x, number), x, atol=8 * atol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_numpys_values(name, dtype):
    for function in CALLS[name]:
        check(function, numbers(dtype), rtol=1e-2 if dtype == "float16" else 0.0)
        if name not in ("einsum", "matmul", "prod", "sum", "cumsum"):
            check(function, mixed(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NODES)
def test_a_node_has_numpys_value(name, dtype):
    for params, wanted in NODES[name]:
        x = torch.tensor(grid(dtype))
        (got,) = emit.program(built(name, dtype, **params), name, SPELLING)(x)
        assert_near(got, wanted(grid(dtype)))


@pytest.mark.parametrize("lane", ["own", "even", "odd", "place"])
@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (0,)])
@pytest.mark.parametrize("step, seed", [(1, 0), (2**33 + 5, 2**55 + 2**31 + 3)])
def test_random_bits_are_philoxs(lane, shape, step, seed):
    g = Graph()
    counts = [g.input(name, (), "int64") for name in ("step", "identity", "seed")]
    g.outputs = (g.add("random_bits", counts, draw=2, lane=lane, shape=shape),)
    (got,) = emit.program(g, "f", SPELLING)(*map(torch.tensor, (step, 9, seed)))
    np.testing.assert_array_equal(got, random_bits(step, 9, seed, draw=2, lane=lane, shape=shape))


UNSIGNED = ["uint8", "uint16", "uint32"]


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_integers_overflow_as_numpys(dtype):
    top = np.iinfo(dtype).max
    x = np.array([0, 1, 2, 5, top - 1, top], dtype)
    for function in (
        lambda x: x + x,
        lambda x: x - 1,
        lambda x: x * x,
        lambda x: ~x,
        lambda x: x << 3,
        lambda x: (x - 1) >> 1,
        lambda x: (x * x + 1) // 3,
        lambda x: np.sum(x),
        lambda x: (x - 2).astype(np.float64),
        lambda x: (x - 2) < x,
        lambda x: (x.astype(np.int64) - 3).astype(dtype),
        lambda x: np.array([1, 2, 3, 4, 5, top], dtype) * x,
    ):
        check(function, x)


def with_constants(function):
    return gw.op(lambda x, n: (function(x), x + n + np.arange(4.0)))


@pytest.mark.parametrize("name", CALLS)
def test_a_program_stays_on_the_device_of_its_tensors(name):
    x = numbers("float32")
    for f in map(with_constants, CALLS[name]):
        here, there = f(torch.tensor(x), 0.5), f(torch.tensor(x, device="meta"), 0.5)
        for a, b in zip(here, there, strict=True):
            assert (b.device.type, b.shape, b.dtype) == ("meta", a.shape, a.dtype)
