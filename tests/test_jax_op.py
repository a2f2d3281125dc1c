"""Ops on JAX arrays: what goes in, what comes out, and what JAX does with an op."""

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest
from jax_modes import KINDS, jax, jnp, sine

import gradwright as gw

export = pytest.importorskip("jax.export")
pytestmark = pytest.mark.framework


@gw.op
def mod(x, y):
    return np.mod(x, y)


@mod.partials
def _(x, y):
    return 1, -np.floor_divide(x, y)


@gw.op
def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


# --- arguments and results -----------------------------------------------------------------------
def test_an_op_on_jax_arrays_gives_jax_arrays():
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    for compiled in (lambda f: f, jax.jit):
        out = compiled(gelu)(jnp.asarray(x))
        assert isinstance(out, jax.Array)
        assert out.dtype == jnp.float32
        np.testing.assert_allclose(out, gelu(x), rtol=1e-6, atol=1e-6)


def test_numpy_arrays_and_numbers_may_be_among_the_arguments():
    x, y = np.float32([5, -3]), np.float32([3, 2])
    wanted = np.mod(x, y)
    for given in ((jnp.asarray(x), y), (x, jnp.asarray(y))):
        out = mod(*given)
        assert isinstance(out, jax.Array)
        np.testing.assert_array_equal(out, wanted)
    assert mod(jnp.asarray(x), 3).dtype == jnp.float32
    assert mod(np.float32(5), jnp.asarray(y)).shape == (2,)


def test_a_number_that_went_through_jax_is_as_weak_as_before():
    x = jnp.ones(3, jnp.bfloat16)
    times = gw.op(lambda x, k: x * k)
    seen = jax.jit(times)(x, 2.0), times(x, jnp.asarray(2.0)), jax.jit(times)(x, 3)
    assert {out.dtype.name for out in seen} == {"bfloat16"}
    assert times(x, jnp.float32(2)).dtype == jnp.float32
    assert jax.grad(lambda k: times(x, k).astype(jnp.float32).sum())(2.0) == 3
    assert times(jnp.int32([1]), jnp.asarray(2)).dtype == jnp.int32


def test_trees_of_arrays_and_options():
    @gw.op
    def affine(p, x, *, mode="plain", times=1):
        for _ in range(times):
            x = x @ p["w"] + p["b"][0]
        return {"y": np.exp(x) if mode == "exp" else x, "n": x.shape[0]}

    p = {"w": jnp.eye(2), "b": [jnp.ones(2)]}
    out = jax.jit(lambda p, x: affine(p, x, times=3))(p, jnp.zeros((4, 2)))
    np.testing.assert_array_equal(out["y"], np.full((4, 2), 3))
    assert out["n"] == 4
    assert affine(p, jnp.zeros((4, 2)), mode="exp")["y"][0, 0] == pytest.approx(np.e)
    gradient = jax.grad(lambda p: affine(p, jnp.ones((4, 2)), times=2)["y"].sum())(p)
    np.testing.assert_array_equal(gradient["b"][0], [8, 8])
    assert affine(p, jnp.zeros((4, 2)), times=jnp.asarray(2))["y"][0, 0] == 2


def test_bfloat16_is_computed_in_float32_and_rounded_once():
    x = jnp.linspace(-3, 3, 200, dtype=jnp.bfloat16)
    wide = np.asarray(x.astype(jnp.float32))
    for f in (gelu, jax.jit(gelu)):
        out = f(x)
        assert out.dtype == jnp.bfloat16
        np.testing.assert_array_equal(out, jnp.asarray(gelu(wide)).astype(jnp.bfloat16))
    gradient = jax.grad(lambda x: gelu(x).astype(jnp.float32).sum())(x)
    wanted = gw.grad(lambda x: np.sum(gelu(x)))(wide)
    assert gradient.dtype == jnp.bfloat16
    np.testing.assert_allclose(gradient.astype(jnp.float32), wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("on", [False, True])
def test_dtypes_with_and_without_x64(on):
    with jax.enable_x64(on):
        wide = np.dtype(np.float64 if on else np.float32)
        x = jnp.float32([1, 2])
        assert gelu(x).dtype == np.float32
        assert gelu(np.ones(2) * jnp.ones(2)).dtype == wide
        assert gw.op(lambda x: np.where(x > 1, 1.0, 0.0))(x).dtype == wide
        assert gw.op(lambda x: x.astype(np.float64) * 2)(x).dtype == wide
        assert gw.op(lambda x: x + np.ones(2))(x).dtype == wide
        assert gw.op(np.argmax)(x).dtype == np.dtype(np.int64 if on else np.int32)
        assert jax.grad(lambda x: (x * np.ones(2) * gelu(x)).sum())(x).dtype == np.float32
        for f in (gelu, mod):
            out = jax.grad(lambda x, f=f: f(x, 3.0) if f is mod else f(x))(2.0)
            assert out.dtype == wide


def test_an_option_that_a_body_reads():
    @gw.op
    def repeated(x, *, n=1, flag=False):
        for _ in range(n):
            x = x + x
        return x * 10 if flag else x

    x = jnp.ones(2)
    assert repeated(x, n=jnp.asarray(3), flag=jnp.asarray(True))[0] == 80
    assert repeated(x, flag=np.bool_(True))[0] == 20
    assert jax.jit(repeated, static_argnames="n")(x, n=2)[0] == 4
    with pytest.raises(gw.TraceError, match="(?s)repeated reads argument 1 as a num.*static"):
        jax.jit(lambda x, n: repeated(x, n=n))(x, 3)


def test_a_program_follows_x64_when_it_changes():
    f = gw.op(lambda x: x * np.array([0.1, 0.2]))
    for on in (False, True, False):
        with jax.enable_x64(on):
            assert f(jnp.float32([1, 1])).dtype == (np.float64 if on else np.float32)


def test_captured_integers_that_jax_does_not_hold_are_refused():
    big = np.array([2**40, 1])
    f = gw.op(lambda x: x + big)
    with jax.enable_x64(True):
        assert f(jnp.int64([1, 1]))[0] == 2**40 + 1
    with pytest.raises(gw.TraceError, match="(?s)a captured int64 array.*int32 does not hold"):
        f(jnp.int32([1, 1]))


def test_eager_runs_the_plain_function():
    seen = []

    @gw.op
    def look(x):
        seen.append(type(x))
        return x * 2

    with gw.eager():
        out = look(jnp.ones(2))
        with pytest.raises(gw.GradwrightError, match="look inside gw.eager"):
            jax.grad(look)(1.0)
    assert isinstance(out, jax.Array)
    assert seen == [np.ndarray]


# --- transformations, compilation ----------------------------------------------------------------
def test_a_repeated_signature_is_neither_traced_nor_compiled_again():
    traced = []

    @gw.op
    def f(x, k=2.0):
        traced.append(1)
        return np.sin(x) * k

    compiled = jax.jit(jax.value_and_grad(lambda x, k: f(x, k).sum()))
    for k in range(5):
        f(jnp.ones(3), float(k))
        compiled(jnp.ones(4) * k, float(k))
        jax.grad(lambda x: f(x, 1.0).sum())(jnp.ones(k + 1))  # every size, one trace
    assert compiled._cache_size() == 1
    assert len(traced) == 2  # a function is traced twice, and the graphs compared
    f(jnp.ones((2, 2)))
    assert len(traced) == 4


def test_an_op_in_control_flow():
    step = lambda x, _: (gelu(x) + mod(x, 2.0), x)
    end, path = jax.jit(lambda x: jax.lax.scan(step, x, None, length=3))(jnp.float32([0.5, 1.5]))
    x = np.float32([0.5, 1.5])
    for _ in range(3):
        x = gelu(x) + np.mod(x, np.float32(2))
    np.testing.assert_allclose(end, x, rtol=1e-5)
    chosen = jax.jit(lambda x: jax.lax.cond(x > 1, gelu, lambda x: x * mod(x, 1.0), x))
    np.testing.assert_allclose(jax.grad(chosen)(0.5), 1.0)


@pytest.mark.parametrize("axes", [(0, None), (1, 0), (None, 1)])
def test_vmap_equals_loops(axes):
    outer = gw.op(lambda x, y: x[:, None] * np.tanh(y))
    loss = gw.op(lambda x, y: np.sum(outer(x, y)))
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=3 if axis is None else (3, 3)).astype(np.float32) for axis in axes]
    rows = [
        [x if axis is None else np.take(x, k, axis) for x, axis in zip(xs, axes, strict=True)]
        for k in range(3)
    ]
    got = jax.jit(jax.vmap(outer, axes))(*xs)
    np.testing.assert_allclose(got, [outer(*row) for row in rows], rtol=1e-6)
    slopes = jax.vmap(jax.grad(loss), axes)(*xs)
    np.testing.assert_allclose(slopes, [gw.grad(loss)(*row) for row in rows], rtol=1e-5)
    x, y = rng.normal(size=(2, 3)), rng.normal(size=(4, 3))
    nested = jax.vmap(jax.vmap(outer, (None, 0)), (0, None))(x, y)
    wanted = [[outer(a, b) for b in y] for a in x]
    np.testing.assert_allclose(nested, wanted, rtol=1e-5, atol=1e-6)


def test_shardings_are_kept():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    x = jax.device_put(jnp.ones(8), spread)
    for f in (gelu, jax.jit(gelu), jax.jit(jax.grad(lambda x: gelu(x).sum()))):
        assert f(x).sharding.is_equivalent_to(spread, 1)


LOAD = """
import sys
from jax import export, numpy as jnp
with open(sys.argv[1], "rb") as file:
    f = export.deserialize(bytearray(file.read()))
x, y = jnp.float32([0.5, 1, 2]), jnp.float32([1, 2, 3])
print(*f.call(x, y).tolist(), *f.vjp().call(x, y, jnp.ones(3))[0].tolist())
assert "gradwright" not in sys.modules
"""


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_an_exported_op_has_its_gradient_without_gradwright(kind, tmp_path):
    f = sine(kind, 3 if kind else 1)
    sizes = export.symbolic_shape("n")
    like = [jax.ShapeDtypeStruct(sizes, jnp.float32)] * 2
    saved = export.export(jax.jit(f))(*like).serialize(vjp_order=1)
    (tmp_path / "f.bin").write_bytes(saved)
    args = [sys.executable, "-c", LOAD, str(tmp_path / "f.bin")]
    out = subprocess.run(args, capture_output=True, text=True, check=True).stdout
    x, y = np.float32([0.5, 1, 2]), np.float32([1, 2, 3])
    wanted = [*np.sin(x) * y, *(3 if kind else 1) * np.cos(x) * y]
    np.testing.assert_allclose([float(word) for word in out.split()], wanted, rtol=1e-5)
    with pytest.raises(ValueError, match="No VJP is available"):
        export.deserialize(bytearray(saved)).vjp().vjp()


def test_an_exported_op_of_unknown_sizes_may_use_them():
    f = gw.op(lambda x: np.mean(x[:, 1:], 0) / x.shape[0] + x.size)
    like = jax.ShapeDtypeStruct(export.symbolic_shape("n, m"), jnp.float32)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = export.export(jax.jit(f))(like).call(x)
    np.testing.assert_allclose(got, f(x), rtol=1e-6)
    reads = gw.op(lambda x: sum(x[k] for k in range(x.shape[0])))
    with pytest.raises(gw.TraceError, match="needs the size of axis 0 of argument 0"):
        export.export(jax.jit(reads))(like)


def test_what_a_deleted_op_made_is_gone():
    def used():
        f = sine("vjp", 3)
        x = jnp.ones(3)
        f(x, x)
        jax.grad(lambda x: f(x, x).sum())(x)
        jax.jit(jax.vmap(jax.grad(f)))(x, x).block_until_ready()
        made = f._made.first().function
        return [weakref.ref(made.primal), weakref.ref(made.vjp.primal), weakref.ref(f)]

    refs = [ref for _ in range(3) for ref in used()]
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)
