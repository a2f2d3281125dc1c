"""Every primitive × JAX × dtype, x64 on and off: its values are NumPy's, or it is refused."""

import numpy as np
import pytest
from jax_modes import jax, jnp, x64
from test_primitives import (
    BINARY,
    CALLS,
    NODES,
    UFUNCS,
    arguments,
    as_dtype,
    built,
    grid,
    mixed,
    numbers,
    spread,
)

import gradwright as gw
from gradwright import emit
from gradwright.graph import Graph
from gradwright.philox import random_bits
from gradwright.primitives import PRIMITIVES
from gradwright.targets.jax import SPELLING

pytestmark = [pytest.mark.framework, pytest.mark.usefixtures(x64.__name__)]

# Each dtype costs XLA a compilation of every operation.
DTYPES = ["float32", "float64", "int32", "uint8", "bool"]
# Units in the last place of a result; XLA has its own exp, sin, lgamma, …
ULPS = {"float16": 4, "float32": 8, "float64": 8}
# More for some: of the result, and (near zeros of the function) of 1.
ROUGH = {
    "exp2": (32, 0),
    "log_ndtr": (16, 0),
    "sinh": (16, 0),
    "cosh": (16, 0),
    "logaddexp2": (0, 1),
    "cosm1": (0, 1),
    "gamma": (1000, 0),
    "gammaln": (0, 8),
    "psi": (0, 8),
}


@pytest.fixture(scope="module", autouse=True)
def forget():
    """Thousands of compiled operations take gigabytes."""
    yield
    jax.clear_caches()


def is_normal(x):
    """Subnormals are not part of the contract."""
    return ~((x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)) if x.dtype.kind == "f" else x == x


def assert_near(got, wanted, ulps=0, atol=0):
    """Equal dtypes and shapes, values equal to a few ulps; atol is in ulps of 1."""
    wanted = np.asarray(wanted)
    assert isinstance(got, jax.Array)
    got = np.asarray(got)
    assert got.shape == wanted.shape
    assert got.dtype == jax.dtypes.canonicalize_dtype(wanted.dtype)
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted)
        return
    eps = float(np.finfo(got.dtype).eps)
    ulps, atol = max(ulps, ULPS[got.dtype.name]), max(atol, 1e-3)
    np.testing.assert_allclose(got, wanted.astype(got.dtype), rtol=eps * ulps, atol=eps * atol)


def check(function, *arrays, ulps=0, atol=0):
    """The op on JAX arrays gives what it gives on NumPy arrays, in the same dtype."""
    op = gw.op(function)
    try:
        wanted = op(*arrays)
    except gw.TraceError:
        with pytest.raises(gw.TraceError):
            op(*map(jnp.asarray, arrays))
        return
    assert_near(op(*map(jnp.asarray, arrays)), wanted, ulps, atol)


def is_meant(name, x, k):
    """Whether argument k is in the domain, and nothing on the way to the result is subnormal."""
    if name == "zeta":  # beyond, SciPy has conventions of its own
        return (x > (1e-3 if k else 1)) & (x < 50)
    if name in ("divide", "floor_divide", "erfcinv", "rel_entr") and x.dtype.kind == "f":
        size = np.abs(x.astype(np.float64))  # XLA multiplies by reciprocals
        return is_normal(x) & ((size < 1e-37) == (size == 0)) & ((size < 1e37) | ~np.isfinite(size))
    if name == "reciprocal" and x.dtype.kind in "biu":
        return x != 0  # undefined in C
    return is_normal(x)


def plain(name, dtype):
    """Pairs of special values, without what is not part of the contract."""
    xs = arguments(name, dtype)
    kept = [x.ravel()[is_meant(name, x.ravel(), k)] for k, x in enumerate(xs)]
    return [kept[0][:, None], kept[1]] if len(kept) == 2 else kept


def function_of(name):
    ufunc = PRIMITIVES[name].ufunc
    return (lambda x: ufunc(x)) if ufunc.nin == 1 else (lambda x, y: ufunc(x, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufunc_has_numpys_values(name, dtype):
    arrays = plain(name, dtype)
    if name in SPELLING.unsupported:
        with pytest.raises(gw.TraceError, match=f"{name}.* is not in the jax target"):
            gw.op(function_of(name))(*map(jnp.asarray, arrays))
        return
    ulps, atol = ROUGH.get(name, (0, 0))
    check(function_of(name), *arrays, ulps=ulps, atol=atol)


@pytest.mark.parametrize("number", [0, 2, -1, 300, 0.5, True], ids=repr)
@pytest.mark.parametrize("name", [name for name in BINARY if name not in SPELLING.unsupported])
def test_a_number_beside_an_array_is_weak(name, number):
    if name == "zeta" and not number > 1:
        pytest.skip("outside of its domain")
    ufunc = PRIMITIVES[name].ufunc
    ulps, atol = ROUGH.get(name, (0, 0))
    for dtype in ("float32", "uint8"):
        x = plain(name, dtype)[0].ravel()
        less = x[~(x < 0)] if name == "power" else x
        check(lambda x: ufunc(number, x), less, ulps=ulps, atol=atol)
        if name == "power" and number == 0.5:
            x = x[x != -np.inf]  # XLA makes it a square root
        if name != "power" or number >= 0:
            check(lambda x: ufunc(x, number), x, ulps=ulps, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_numpys_values(name, dtype):
    for function in CALLS[name]:
        check(function, numbers(dtype))
        if dtype == "float32" and name not in (
            "einsum",
            "matmul",
            "prod",
            "sum",
            "cumsum",
            "astype",
        ):
            x = mixed(dtype)
            check(function, np.where(is_normal(x), x, x.dtype.type(0)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NODES)
def test_a_node_has_numpys_value(name, dtype):
    for params, wanted in NODES[name]:
        x = jnp.asarray(grid(dtype))
        (got,) = emit.program(built(name, dtype, **params), name, SPELLING)(x)
        assert_near(got, wanted(grid(dtype)))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_add_adds_where_indices_repeat(axis):
    at = np.array([[2, 0, 0, -1], [1, 1, 1, 0]])
    shape = [5, 5, 5]
    shape[axis] = 3
    x = np.take(np.arange(75.0).reshape(shape), at, axis)
    g = Graph()
    nodes = g.input("x", (None,) * 4, "float64"), g.input("at", (None, None), "int64")
    g.outputs = (g.add("scatter_add", nodes, axis=axis, shape=tuple(shape)),)
    (got,) = emit.program(g, "f", SPELLING)(jnp.asarray(x), jnp.asarray(at))
    assert_near(got, spread(x, at, 3, axis))


@pytest.mark.parametrize("lane", ["own", "even", "odd", "place"])
@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (3, 2, 5), (0,)])
@pytest.mark.parametrize("step, seed", [(1, 0), (2**33 + 5, 2**55 + 2**31 + 3)])
def test_random_bits_are_philoxs(lane, shape, step, seed):
    g = Graph()
    counts = [g.input(name, (), "int64") for name in ("step", "identity", "seed")]
    g.outputs = (g.add("random_bits", counts, draw=2, lane=lane, shape=shape),)
    run = emit.program(g, "f", SPELLING)
    wanted = random_bits(step, 9, seed, draw=2, lane=lane, shape=shape)
    pairs = [tuple(np.uint32([x % 2**32, x >> 32])) for x in (step, seed)]
    for given in ((step, 9, seed), map(jnp.asarray, (step, 9, seed)), (pairs[0], 9, pairs[1])):
        np.testing.assert_array_equal(run(*given)[0], wanted, strict=True)


@pytest.mark.parametrize("name", ["add", "divide", "remainder", "exp", "power", "maximum", "erf"])
def test_float16_has_numpys_values(name):
    check(function_of(name), *plain(name, "float16"))


def test_special_values_are_cast_as_numpys():
    x = np.array([np.nan, np.inf, -np.inf, 0, 1e-30, 1e30, 70000, 1.5])
    for dtype in ("float64", "float32", "float16", "bool"):
        check(as_dtype(dtype), x)


# --- x64 off: what JAX makes of 64-bit numbers ---------------------------------------------------
def held(x):
    return x.astype(jax.dtypes.canonicalize_dtype(x.dtype))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", [n for n in UFUNCS if n not in SPELLING.unsupported])
def test_a_ufunc_without_x64(name, dtype):
    arrays, (ulps, atol) = plain(name, dtype), ROUGH.get(name, (0, 0))
    with jax.enable_x64(False), np.errstate(all="ignore"):
        try:
            wanted = gw.op(function_of(name))(*arrays)
        except gw.TraceError:
            return
        if wanted.dtype == np.float64:  # JAX computes in float32 what NumPy computes in float64
            wanted = function_of(name)(*[x.astype(np.float32) for x in arrays])
        got = gw.op(function_of(name))(*map(jnp.asarray, arrays))
        assert_near(got, held(wanted), ulps, atol)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_x64(name):
    with jax.enable_x64(False):
        for function in CALLS[name]:
            op, x = gw.op(function), numbers("int32")
            assert_near(op(jnp.asarray(x)), held(np.asarray(op(x))))
