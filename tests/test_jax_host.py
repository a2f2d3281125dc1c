"""Host ops on JAX arrays: in every transform, compiled and not."""

import jax.test_util
import numpy as np
import pytest
from host_ops import RULES, exp, nested, outer, resident, row_sum, sine
from jax_modes import SECOND, jax, jnp, rev_rev, x64  # noqa: F401 - a fixture

import gradwright as gw

pytestmark = pytest.mark.framework
X, Y = np.float32([0.3, 1.1]), np.float32([2.0, -1.5])
SIN, COS = np.sin(X) * Y, np.cos(X) * Y
RUNS = pytest.mark.parametrize("run", [lambda f: f, jax.jit], ids=["eager", "jit"])


def total(f, *rest):
    return lambda x: f(x, *rest).sum()


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=2e-6)


@RUNS
@pytest.mark.parametrize("kind, factor", [(k, 3) for k in RULES] + [("vjp", 1)])
def test_values_and_first_derivatives(kind, factor, run):
    f, x = sine(kind, factor), jnp.asarray(X)
    close(run(f)(x, Y), SIN)
    for call in (f, lambda x, y: f(x, y=y), lambda x, y: f(y=y, x=x)):
        dx, dy = run(jax.grad(lambda x, y, call=call: call(x, y).sum(), (0, 1)))(x, Y)
        close(dx, factor * COS)
        close(dy, factor * np.sin(X))
    close(run(jax.vmap(f, (0, None)))(np.stack([X, X]), Y), [SIN, SIN])
    close(run(jax.vmap(jax.grad(f)))(x, Y), factor * COS)
    close(run(jax.jacrev(lambda x: f(x, Y)))(x), np.diag(factor * COS))
    if kind != "host":
        close(run(jax.jacfwd(lambda x: f(x, Y)))(x), np.diag(factor * COS))
        close(run(lambda x, t: jax.jvp(total(f, Y), (x,), (t,))[1])(x, x), factor * X @ COS)


@RUNS
@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("kind", [k for k in RULES if k != "host"])
def test_second_derivatives(kind, second, run):
    close(run(second(total(sine(kind, 3), Y)))(jnp.asarray(X)), np.diag(-3 * SIN))


def test_a_rule_on_the_host_has_no_second_derivative_and_no_forward_mode():
    f = sine("host", 3)
    with pytest.raises(gw.TraceError, match="whose rule runs on the host"):
        rev_rev(total(f, Y))(jnp.asarray(X))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jacfwd(total(f, Y))(jnp.asarray(X))


@pytest.mark.parametrize("second", SECOND)
def test_rules_within_rules(second):
    for f, wanted in zip(nested(), (1000, 2000), strict=True):
        assert jax.jit(second(total(f)))(jnp.ones(1) * 3) == wanted


def test_check_grads(x64):  # noqa: F811
    x, y = (jnp.asarray(z, np.float64) for z in (X, Y))
    jax.test_util.check_grads(sine("vjp"), (x, y), order=2)
    jax.test_util.check_grads(exp(), (x,), order=1, modes=["rev"])
    assert exp()(x).dtype == np.float64 and exp()(x.astype(np.float32)).dtype == np.float32


@RUNS
def test_outer_product_in_batches(run):
    f = outer(3)
    x, y, ys = np.random.default_rng(0).random((5, 3)), Y, np.stack([Y, 2 * Y])
    wanted = np.stack([np.outer(v, y) for v in x])
    close(run(jax.vmap(f, (0, None)))(x, y), wanted)
    close(run(jax.vmap(f, (1, None), 2))(x.T, y), np.moveaxis(wanted, 0, 2))
    twice = run(jax.vmap(jax.vmap(f, (0, None)), (None, 0)))(x, ys)
    close(twice, np.stack([wanted, 2 * wanted]))

    def loss(x, y):
        return (f(x, y) ** 2).sum()

    close(run(jax.vmap(jax.grad(loss), (0, None)))(x, y), 6 * x * np.sum(y**2))


def test_an_elementwise_function_gets_the_whole_batch():
    seen = []

    @gw.host_op(batch="elementwise")
    def f(x, y):
        seen.append((x.shape, y.shape))
        return x * y

    f.partials(lambda x, y: (3 * y, 3 * x))
    x, y = np.random.default_rng(0).random((5, 3)), np.ones((2, 1))
    wanted = np.stack([v * y for v in x])
    close(jax.jit(jax.vmap(f, (0, None)))(x, y), wanted)
    close(jax.vmap(jax.vmap(f, (0, None)), (None, 0))(x, np.stack([y, y])), [wanted, wanted])
    assert seen[0] == ((5, 1, 3), (1, 2, 1)) and len(seen) == 2


@RUNS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_results_and_gradients_have_the_dtype_of_the_arguments(dtype, run):
    f, x = exp(3), jnp.asarray([0.5, 1.0], dtype)
    out, grad = run(f)(x), run(jax.grad(total(f)))(x)
    assert out.dtype == grad.dtype == x.dtype
    rtol = 1e-2 if "16" in dtype else 1e-6
    np.testing.assert_allclose(np.asarray(out, np.float32), np.exp([0.5, 1.0]), rtol=rtol)
    np.testing.assert_allclose(np.asarray(grad, np.float32), 3 * np.exp([0.5, 1.0]), rtol=rtol)


@RUNS
def test_integers_are_as_wide_as_jax_has_them(run):
    f = gw.host_op(out=lambda x: (x, np.sum(x > 0)))(lambda x: (x[::-1], (x > 0).sum()))
    back, count = run(f)(jnp.asarray([3, -1]))
    assert back.tolist() == [-1, 3] and count == 1 and count.dtype == np.int32


@RUNS
def test_what_is_not_as_declared_is_an_error(run):
    x = jnp.ones((4, 3))
    assert run(row_sum())(x).shape == (4, 1)
    with pytest.raises(Exception, match=r"shape \(4, 2\) for one of \(4, 1\)"):
        jax.block_until_ready(run(row_sum(2))(x))


def test_exceptions():
    @gw.host_op()
    def fails(x):
        raise KeyError("boom")

    run = jax.jit(fails)
    for _ in range(3):
        with pytest.raises(KeyError, match="boom") as caught:
            fails(jnp.asarray(X))
        assert fails.last_error is caught.value
        with pytest.raises(jax.errors.JaxRuntimeError, match="op fails raised KeyError: 'boom'"):
            jax.block_until_ready(run(X))
        assert isinstance(fails.last_error, KeyError)


def test_a_body_that_calls_jax_raises():
    weights = jnp.ones((300, 300))

    @gw.host_op()
    def reentrant(a):
        return np.asarray(jnp.asarray(a) @ weights)

    run = jax.jit(reentrant)
    for k in range(40):
        with pytest.raises(Exception, match="reentrant was called by JAX, and calls JAX itself"):
            jax.block_until_ready((run if k % 2 else reentrant)(weights))
        assert isinstance(reentrant.last_error, gw.GradwrightError)
    for body in (jnp.asarray, lambda x: (jnp.sin(weights), x)[1], lambda x: jax.jit(jnp.sin)(x)):
        with pytest.raises(gw.GradwrightError, match="calls JAX itself"):
            gw.host_op()(body)(jnp.asarray(X))
    inner = exp()
    op_in_op = gw.host_op()(lambda x: inner(x) + 1)  # on arrays it may
    close(op_in_op(jnp.asarray(X)), np.exp(X) + 1)
    close(jax.jit(op_in_op)(X), np.exp(X) + 1)


def test_inputs_are_not_written_and_results_share_nothing():
    @gw.host_op()
    def writes(x):
        x[0] = 7
        return x

    kept = np.ones(3, np.float32)
    x = jnp.asarray(kept.copy())
    for run in (writes, jax.jit(writes)):
        with pytest.raises(Exception, match="read-only"):
            jax.block_until_ready(run(x))
        assert x.tolist() == [1, 1, 1]
    lent = gw.host_op()(lambda x: kept)
    out, compiled = lent(x), jax.jit(lent)(x)
    jax.block_until_ready(compiled)
    kept[:] = 5
    assert out.tolist() == compiled.tolist() == [1, 1, 1]


@RUNS
def test_what_is_not_pure_runs_once_for_each_call(run):
    calls = []

    @gw.host_op(pure=False)
    def noisy(x):
        calls.append(1)
        return x + len(calls)

    noisy.vjp(lambda g, x: 3 * g)

    def f(x):
        return (10 * noisy(x) + noisy(x) ** 2).sum()

    compiled, gradient = run(f), run(jax.grad(f))
    for _ in range(2):
        calls.clear()
        assert compiled(jnp.zeros(1)) == 14 and len(calls) == 2
        calls.clear()
        assert gradient(jnp.zeros(1)) == 42 and len(calls) == 2
    square = gw.op(lambda x: noisy(x) ** 2)
    square.surrogate(lambda x: noisy(x) ** 2)
    with pytest.raises(gw.TraceError, match="runs noisy again, which is not pure"):
        run(jax.grad(total(square)))(jnp.ones(1))


@RUNS
def test_without_a_rule_a_derivative_raises_and_names_the_op(run):
    @gw.host_op()
    def bare(x):
        return x * 2

    for f in (bare, gw.op(lambda x: bare(x) * x)):
        for derivative in (jax.grad, jax.jacfwd, jax.hessian):
            with pytest.raises((gw.TraceError, TypeError), match="no rule|forward-mode"):
                run(derivative(total(f)))(jnp.asarray(X))
        with pytest.raises(gw.TraceError, match="the host op bare, which has no rule"):
            run(jax.grad(total(f)))(jnp.asarray(X))
    close(run(bare)(X), 2 * X)


def test_compiled_code_is_compiled_once():
    f, count = sine("vjp"), []

    @jax.jit
    def run(x):
        count.append(1)
        return f(x, Y)

    for _ in range(3):
        run(X)
    assert len(count) == 1
    close(jax.lax.scan(lambda c, _: (f(c, Y), c), jnp.asarray(X), None, length=2)[1][1], SIN)


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ops_that_are_gone_leave_nothing_behind(count):
    x = jnp.asarray(X)

    def use(k):
        jax.grad(total(exp(k)))(x)

    for k in range(100):
        use(k)
    before = resident()
    for k in range(count):
        use(k)
    assert resident() - before < (20e6 if count == 10_000 else 4e6)


def test_the_checker_takes_what_jax_refuses_for_refused():
    gw.check(exp(), X, frameworks=["jax"])
    with pytest.raises(gw.CheckFailure, match="off by a factor of 3"):
        gw.check(exp(3), X, frameworks=["jax"])
