"""Derivatives of ops in JAX, in every mode and order, under jit and vmap."""

import numpy as np
import pytest
from jax_modes import KINDS, SECOND, fwd_rev, jax, jnp, rev_rev, sine, x64

import gradwright as gw
from gradwright.primitives import PRIMITIVES
from gradwright.targets.jax import SPELLING

check_grads = pytest.importorskip("jax.test_util").check_grads
pytestmark = [pytest.mark.framework, pytest.mark.usefixtures(x64.__name__)]

# --- derivatives of the primitives ---------------------------------------------------------------
UNKNOWN = {"nextafter": (0, 1), "zeta": (0,)}  # the table has no derivative by these arguments
CASES = [
    (name, k)
    for name, row in PRIMITIVES.items()
    if row.kind == "elementwise" and name not in SPELLING.unsupported
    for k in range(row.ufunc.nin)
    if k not in UNKNOWN.get(name, ())
]


def points(name, count=3):
    rng = np.random.default_rng(len(name))
    row = PRIMITIVES[name]
    return [rng.uniform(a, b, count) for a, b in row.domain[: row.ufunc.nin]]


def function_of(name):
    ufunc = PRIMITIVES[name].ufunc
    return (lambda x: ufunc(x)) if ufunc.nin == 1 else (lambda x, y: ufunc(x, y))


def slope(f, k):
    return gw.grad(lambda *xs: np.sum(f(*xs)), argnums=k)


def forward(f, k):
    def push(*xs):
        moved = lambda x: f(*xs[:k], x, *xs[k + 1 :])
        return jax.jvp(moved, (xs[k],), (jnp.ones_like(xs[k]),))[1]

    return push


@pytest.mark.parametrize("name, k", CASES)
def test_derivatives_in_every_mode_are_numpys(name, k):
    xs, f = points(name), function_of(name)
    op = gw.op(f)
    first, second = slope(f, k), slope(slope(f, k), k)

    @jax.jit
    def found(*xs):
        reverse, push = jax.grad(op, k), forward(op, k)
        each = [reverse, push, jax.grad(reverse, k), forward(reverse, k), jax.grad(push, k)]
        return [jax.vmap(g)(*xs) for g in [*each, forward(push, k)]]

    for n, got in enumerate(found(*xs)):
        wanted = (first if n < 2 else second)(*xs)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(jax.grad(lambda *xs: op(*xs).sum(), k)(*xs), first(*xs), rtol=1e-9)


# Compositions whose derivatives use shapes, reductions, indexing and products.
AT = np.array([[2, 0, 0], [1, 2, -1]])
SHAPED = {
    "column by row": (lambda x, y: x * y, (3, 1), (1, 4)),
    "number by array": (lambda x, y: x * y - y / (2 + x * x), (), (4,)),
    "sum": (lambda x: np.sum(x * x, axis=(0, -1), keepdims=True), (2, 3, 4)),
    "mean": (lambda x: np.mean(x * x, axis=1), (3, 4)),
    "softmax": (lambda x: np.exp(x) / np.sum(np.exp(x), -1, keepdims=True), (3, 4)),
    "prod with zeros": (lambda x: np.prod(x * np.array([0.0, 1.0, 2.0])), (3,)),
    "max": (lambda x: np.max(x * x, axis=1), (3, 4)),
    "cumsum": (lambda x: np.cumsum(x * x, axis=0), (3, 2)),
    "take": (lambda x: np.take(x * x, AT, axis=1), (2, 3, 2)),
    "index": (lambda x: x[1:, ::-1] * x[:-1, 0:1], (3, 4)),
    "roll": (lambda x: np.roll(x, 1, axis=0) * x, (3, 4)),
    "stack": (lambda x, y: np.stack([x * y, y]), (3,), (3,)),
    "matmul": (lambda x, y: x @ y, (2, 3, 4), (4, 2)),
    "einsum": (lambda x, y: np.einsum("ij,kj,i->ki", x, y, x[:, 0]), (2, 3), (4, 3)),
    "where": (lambda x, y: np.where(x > 0, x * y, x / (2 + y * y)), (4,), (4,)),
    "sizes": (lambda x: x * x / x.shape[0] + np.sqrt(x.size) * x, (3, 4)),
    "broadcast": (lambda x: np.broadcast_to(x * x, (2, *x.shape)), (3,)),
}


@pytest.mark.parametrize("name", SHAPED)
def test_check_grads_in_both_modes_to_second_order(name):
    f, *shapes = SHAPED[name]
    rng = np.random.default_rng(1)
    xs = [jnp.asarray(rng.uniform(0.2, 2, shape)) for shape in shapes]
    check_grads(jax.jit(gw.op(f)), xs, order=2, modes=["fwd", "rev"])


@pytest.mark.parametrize("kind", KINDS)
def test_check_grads_sees_that_a_rule_is_wrong(kind):
    xs = jnp.array([0.3, 1.1]), jnp.array([2.0, -1.5])
    check_grads(sine(kind, 1), xs, order=2)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_grads(sine(kind, 3), xs, order=1)


# --- rules of the user's: the true one, and three times it ----------------------------------------
def first_orders(f, x, y):
    """The derivative of f(x, y) by x, in every way that JAX has."""
    t = jnp.ones_like(x)
    pull = jax.vjp(f, x, y)[1]
    push = jax.linearize(lambda x: f(x, y), x)[1]
    total = lambda x: f(x, y).sum()
    scanned = lambda x: jax.lax.scan(lambda s, x: (s + f(*x), None), 0.0, (x, y))[0]
    return {
        "grad": jax.grad(total)(x),
        "value_and_grad": jax.value_and_grad(total)(x)[1],
        "vjp": pull(t)[0],
        "jvp": jax.jvp(lambda x: f(x, y), (x,), (t,))[1],
        "linearize": push(t),
        "jacfwd": jnp.diagonal(jax.jacfwd(f)(x, y)),
        "jacrev": jnp.diagonal(jax.jacrev(f)(x, y)),
        "vmap(grad)": jax.vmap(jax.grad(f))(x, y),
        "grad(vmap)": jax.grad(lambda x: jax.vmap(f)(x, y).sum())(x),
        "vmap, an axis in one": jax.vmap(jax.grad(f), (0, None))(x, y[1])[1:],
        "checkpoint": jax.grad(jax.checkpoint(total))(x),
        "scan": jax.grad(scanned)(x),
    }


@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_is_used_in_every_derivative(kind, factor):
    f = sine(kind, factor)
    x, y = jnp.array([0.3, 1.1]), jnp.array([2.0, -1.5])
    np.testing.assert_allclose(f(x, y), np.sin(x) * y, rtol=1e-12)
    for g in (f, jax.jit(f)):
        for way, got in first_orders(g, x, y).items():
            wanted = (factor * np.cos(x) * y)[-len(got) :]
            np.testing.assert_allclose(got, wanted, rtol=1e-12, err_msg=way)
        np.testing.assert_allclose(jax.vmap(jax.grad(g, 1))(x, y), factor * np.sin(x), rtol=1e-12)
    # the rule itself is NumPy's own functions: its derivatives are the true ones, times factor
    for second in SECOND:
        got = jax.vmap(jax.jit(second(f)))(x, y)
        np.testing.assert_allclose(got, -factor * np.sin(x) * y, rtol=1e-12)
    third = jax.vmap(jax.grad(jax.grad(jax.grad(f))))(x, y)
    np.testing.assert_allclose(third, -factor * np.cos(x) * y, rtol=1e-12)


@pytest.mark.parametrize("second", SECOND)
def test_wrong_rules_inside_rules_are_used_at_second_order(second):
    @gw.op
    def b(x):
        return x

    @b.vjp
    def _(g, x):
        return 1000 * g

    @gw.op
    def a(x):
        return x * x

    @a.vjp
    def _(g, x):
        return g * b(x)

    @gw.op
    def d(x):
        return b(x) * x

    assert jax.grad(b)(3.0) == 1000
    assert jax.grad(a)(3.0) == 3
    assert jax.grad(d)(3.0) == 3003
    for compiled in (lambda f: f, jax.jit):
        assert compiled(second(a))(3.0) == 1000
        assert compiled(second(compiled(d)))(jnp.float32(3)) == 2000


@pytest.mark.parametrize("second", SECOND)
def test_an_output_that_a_rule_reads_carries_its_derivative(second):
    @gw.op
    def exp(x):
        return np.exp(x)

    @exp.vjp
    def _(g, x, out):
        return g * out

    assert second(lambda x: exp(x) ** 2)(0.5) == pytest.approx(10.873127, rel=1e-7)


@pytest.mark.parametrize("second", [fwd_rev, rev_rev])
def test_a_hessian_of_an_op_with_a_vjp_only(second):
    @gw.op
    def sin(x):
        return np.sin(x)

    @sin.vjp
    def _(g, x):
        return g * np.cos(x)

    loss = lambda x: jnp.sum(sin(x) * jnp.array([2.0, 3.0]))
    wanted = [[-0.958851, 0], [0, -2.524413]]
    np.testing.assert_allclose(second(loss)(jnp.array([0.5, 1.0])), wanted, atol=1e-6)


def test_a_rule_holds_for_positional_keyword_and_default_calls():
    @gw.op
    def times(x, y=1.0):
        return x * y

    @times.vjp
    def _(g, x, y):
        return 1000 * g, 2000 * g

    for compiled in (lambda f: f, jax.jit):
        for call in (lambda x: times(x, 2.0), lambda x: times(y=2.0, x=x), lambda x: times(x)):
            assert compiled(jax.grad(call))(3.0) == 1000
        assert compiled(jax.grad(lambda y: times(3.0, y=y)))(2.0) == 2000


@pytest.mark.parametrize("factor", [1, 3])
def test_a_rule_need_not_sum_what_broadcasting_repeated(factor):
    @gw.op
    def times(x, y):
        return x * y

    @times.vjp
    def _(g, x, y):
        return factor * 1000 * g, factor * 2000 * g

    x, y = jnp.ones((3, 1)), jnp.ones((2, 1, 4))
    dx, dy = jax.jit(jax.grad(lambda x, y: times(x, y).sum(), (0, 1)))(x, y)
    np.testing.assert_array_equal(dx, np.full((3, 1), factor * 8000.0))
    np.testing.assert_array_equal(dy, np.full((2, 1, 4), factor * 6000.0))


# --- rules that hold in one mode only -----------------------------------------------------------
def clipped():
    """An identity whose cotangents are clipped: no linear rule."""

    @gw.op
    def clipped(x):
        return x * 1.0

    @clipped.vjp
    def _(g, x):
        return np.clip(g, -1, 1)

    return clipped


def test_a_rule_that_is_not_linear_holds_in_reverse_mode():
    f = clipped()
    square = gw.op(lambda x: f(x) * x)  # derived, with the rule inside
    for compiled in (lambda f: f, jax.jit):
        assert compiled(jax.grad(lambda x: 5 * f(x)))(2.0) == 1
        assert compiled(jax.grad(square))(3.0) == 1 + 3
        assert compiled(jax.grad(lambda x: 5 * square(x)))(3.0) == 1 + 15
        np.testing.assert_array_equal(
            compiled(jax.vmap(jax.grad(lambda x: 5 * f(x))))(jnp.ones(2)), [1, 1]
        )
    assert jax.grad(jax.grad(lambda x: 0.1 * f(x) ** 2))(2.0) == pytest.approx(0.2)
    for transform in (jax.jacfwd, jax.hessian):
        with pytest.raises(TypeError, match="forward-mode"):
            transform(f)(2.0)


@pytest.mark.parametrize("kink", [np.abs, np.square, np.sign, lambda t: np.where(t > 0, t, 0)])
def test_a_jvp_that_is_not_linear_holds_in_forward_mode(kink):
    @gw.op
    def f(x):
        return x * 1.0

    @f.jvp
    def _(dx, x):
        return kink(dx)

    assert jax.jvp(f, (2.0,), (3.0,))[1] == kink(3.0)
    with pytest.raises((NotImplementedError, AssertionError)):
        jax.grad(f)(2.0)


def test_a_derivative_by_an_option_is_refused():
    @gw.op
    def scale(x, *, k=2.0):
        return x * k

    @scale.vjp
    def _(g, x, *, k):
        return g * k

    outer = gw.op(lambda x, k: scale(x, k=k) + x)
    clip = clipped()
    both = gw.op(lambda x, k: clip(scale(x, k=k)))
    for f in (lambda x, k: scale(x, k=k), outer, both):
        assert jax.grad(lambda x, f=f: f(x, 5.0))(2.0) in (5, 6)
        for k in (5.0, jnp.float32(5)):
            assert jax.jit(jax.grad(f))(2.0, k) in (5, 6)
            with pytest.raises(gw.TraceError, match="scale with respect to its option k"):
                jax.grad(f, 1)(2.0, k)


def test_a_derivative_that_is_not_asked_for_does_not_poison_the_other():
    power = gw.op(lambda x, y: np.power(x, y))  # by y it is out * log(x)
    x = jnp.array([-2.0, 3.0])
    np.testing.assert_allclose(jax.grad(lambda x: power(x, 2.0).sum())(x), [-4, 6])
    np.testing.assert_allclose(jax.jvp(lambda x: power(x, 2.0), (x,), (jnp.ones(2),))[1], [-4, 6])


def test_derivatives_of_several_outputs_and_of_integers():
    @gw.op
    def parts(x, n):
        return x * n, np.argmax(x), {"sum": np.sum(x)}

    x = jnp.array([1.0, 5.0, 2.0])
    loss = lambda x: parts(x, 3)[0].sum() + 10 * parts(x, 3)[2]["sum"]
    np.testing.assert_array_equal(jax.grad(loss)(x), [13, 13, 13])
    out, (dx, at, rest) = jax.jvp(lambda x: parts(x, jnp.int32(3)), (x,), (jnp.ones(3),))
    np.testing.assert_array_equal(dx, [3, 3, 3])
    assert (int(out[1]), at.dtype, rest["sum"]) == (1, jax.dtypes.float0, 3)


def test_gradwrights_derivatives_run_on_jax_arrays():
    x = jnp.array([1.0, 2.0])
    gradient = gw.grad(lambda x: np.sum(x**3))
    np.testing.assert_allclose(jax.jit(gradient)(x), [3, 12])
    np.testing.assert_allclose(jax.jacfwd(gradient)(x), np.diag([6.0, 12]))
    out, moved = gw.jvp(np.square, (x,), (x,))
    assert isinstance(moved, jax.Array)
    np.testing.assert_allclose(moved, 2 * x * x)


@pytest.mark.parametrize("factor", [1, 3])
def test_stop_gradient_and_ties(factor):
    halves = gw.op(lambda x: factor * np.maximum(x, 1.0) * gw.stop_gradient(x))
    assert jax.grad(halves)(1.0) == 0.5 * factor
    assert jax.grad(jax.grad(lambda x: x * halves(x)))(1.0) == factor
