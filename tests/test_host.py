"""Host ops on NumPy arrays: types, checks, memory, rules."""

import builtins
import gc
import pickle
import weakref

import numpy as np
import pytest
from host_ops import RULES, exp, nested, outer, row_sum, sine

import gradwright as gw

X, Y = np.array([0.3, 0.7, 1.2]), np.array([2.0, -1.5, 0.4])
COS, SIN = np.cos(X) * Y, np.sin(X) * Y


def total(f):
    return lambda *xs: np.sum(f(*xs))


# --- rules --------------------------------------------------------------------------------------
@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("kind", RULES)
def test_a_rule_of_each_kind(kind, factor):
    f = sine(kind, factor)
    np.testing.assert_allclose(f(X, Y), SIN)
    for call in (lambda x, y: f(x, y=y), lambda x, y: f(y=y, x=x), lambda x, y: 2 * f(x, y) / 2):
        dx, dy = gw.grad(total(call), (0, 1))(X, Y)
        np.testing.assert_allclose(dx, factor * COS)
        np.testing.assert_allclose(dy, factor * np.sin(X))
    one = np.array(2.0)  # broadcasting is undone
    got = gw.grad(lambda x, y: np.sum(f(x, y)), 1)(X, one)
    np.testing.assert_allclose(got, factor * np.sum(np.sin(X)))


@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("kind", [k for k in RULES if k != "host"])
def test_forward_mode_and_the_second_derivative(kind, factor):
    f = sine(kind, factor)
    _, moved = gw.jvp(f, (X, Y), (np.ones(3), np.zeros(3)))
    np.testing.assert_allclose(moved, factor * COS)
    second = gw.grad(lambda x: np.sum(gw.grad(total(f))(x, Y)))(X)
    np.testing.assert_allclose(second, -factor * SIN)


def test_a_rule_on_the_host_is_for_the_first_reverse_derivative():
    f = sine("host")
    with pytest.raises(gw.TraceError, match="whose rule runs on the host"):
        gw.grad(lambda x: np.sum(gw.grad(total(f))(x, Y)))(X)
    with pytest.raises(gw.TraceError, match="whose rule runs on the host"):
        gw.jvp(f, (X, Y), (X, Y))


def test_both_rules_are_used_each_for_its_mode():
    f = gw.host_op()(lambda x: np.sin(x))
    f.jvp(lambda dx, x: 5 * dx * np.cos(x))
    f.vjp(lambda g, x: 3 * g * np.cos(x))
    np.testing.assert_allclose(gw.grad(total(f))(X), 3 * np.cos(X))
    np.testing.assert_allclose(gw.jvp(f, (X,), (np.ones(3),))[1], 5 * np.cos(X))
    with pytest.raises(gw.SignatureError, match="has its own vjp already"):
        f.jvp(lambda dx, x: dx)


def test_without_a_rule_only_differentiating_raises():
    f = gw.host_op()(lambda x: np.sin(x))
    np.testing.assert_allclose(f(X), np.sin(X))
    for derivative in (gw.grad(total(f)), gw.grad(total(gw.op(lambda x: 2 * f(x))))):
        with pytest.raises(gw.TraceError, match="the host op <lambda>, which has no rule"):
            derivative(X)
    with pytest.raises(gw.TraceError, match="which has no rule"):
        gw.jvp(f, (X,), (X,))
    got = gw.grad(lambda x, y: np.sum(f(x) * y), 1)(X, Y)
    np.testing.assert_allclose(got, np.sin(X))
    np.testing.assert_allclose(gw.grad(lambda x: np.sum(f(gw.stop_gradient(x)) * x))(X), np.sin(X))


def test_rules_within_rules():
    a, d = nested()
    x = np.array([3.0])
    assert gw.grad(total(a))(x) == 3 and gw.grad(total(d))(x) == 3003
    for first, wanted in ((gw.grad(total(a)), 1000), (gw.grad(total(d)), 2000)):
        assert gw.grad(total(first))(x) == wanted
        assert gw.jvp(first, (x,), (np.ones(1),))[1] == wanted


def test_inside_a_traced_op_it_is_an_opaque_call():
    f = sine("vjp", 3)
    g = gw.op(lambda x, y: np.exp(f(x, y)) + f(x, y))
    np.testing.assert_allclose(g(X, Y), np.exp(SIN) + SIN)
    np.testing.assert_allclose(gw.grad(total(g))(X, Y), 3 * COS * (np.exp(SIN) + 1))
    assert "host(c0, x, y)" in g.source() and g.source().count("host(") == 1
    assert "f(x, y)" in g.explain()


def test_outer_product():
    f = outer(3)
    got = f(X[:2], Y)
    np.testing.assert_allclose(got, np.outer(X[:2], Y))
    dx, dy = gw.grad(lambda x, y: np.sum(f(x, y) ** 2), (0, 1))(X[:2], Y)
    np.testing.assert_allclose(dx, 3 * 2 * X[:2] * np.sum(Y**2))
    np.testing.assert_allclose(dy, 3 * 2 * Y * np.sum(X[:2] ** 2))


# --- what is saved ------------------------------------------------------------------------------
@pytest.mark.parametrize("factor", [1, 3])
def test_what_is_saved_reaches_the_rule(factor):
    f = exp(factor)
    np.testing.assert_allclose(gw.grad(lambda x: np.sum(f(x) ** 2))(X), factor * 2 * np.exp(2 * X))


def test_the_function_runs_once_for_its_value_and_its_rule():
    calls = []

    @gw.host_op(saves=True)
    def f(x):
        calls.append(x.copy())
        return x, [float(v) for v in x]

    @f.vjp(host=True)
    def _(g, x, out, saved):
        return g * saved

    np.testing.assert_array_equal(gw.grad(total(f))(X), X)
    assert len(calls) == 1
    for k in range(40):
        f(X + k)
    assert len(f.host.saved) < 20  # not all is kept, for ever


# --- types --------------------------------------------------------------------------------------
def test_what_is_computed_in_float64_has_the_declared_dtype():
    f = exp()
    out = f(np.float32([1, 2]))
    grad = gw.grad(total(f))(np.float32([1, 2]))
    assert out.dtype == grad.dtype == np.float32 and f(np.float16([1])).dtype == np.float16
    np.testing.assert_allclose(grad, np.exp(np.float32([1, 2])))
    assert sine("vjp")(X, 1).dtype == np.float64 and sine("vjp")(np.float32(X), 1).dtype == "f4"


def test_out_is_a_function_a_signature_or_what_the_arguments_broadcast_to():
    assert gw.host_op()(lambda x, y: x + y)(X, Y[:, None]).shape == (3, 3)
    f = gw.host_op(out=lambda x, *, k=2: np.zeros_like(x, dtype=np.int64)[:k])(
        lambda x, *, k=2: np.arange(k)
    )
    assert f(X, k=1).tolist() == [0] and f(X).dtype == np.int64
    pair = gw.host_op(out="(n)->(),(2,n)")(lambda x: (x.sum(), [x, 2 * x]))
    a, b = pair(X)
    assert a == X.sum() and type(a) is np.float64 and b.shape == (2, 3)
    tree = gw.host_op(out=lambda d: {"s": np.sum(d["a"]), "p": (d["a"], d["b"])})(
        lambda d: {"p": (d["a"], d["b"]), "s": d["a"].sum()}
    )
    tree.vjp(lambda g, d: {"a": 3 * g["s"] + g["p"][0], "b": None})
    got = tree({"a": X, "b": 1})
    assert got["s"] == X.sum() and got["p"][1] == 1
    back = gw.grad(lambda d: tree(d)["s"])({"a": X, "b": Y})
    np.testing.assert_array_equal(back["a"], [3, 3, 3])
    np.testing.assert_array_equal(back["b"], 0)
    sizes = gw.host_op(out=lambda x: np.ones(x.shape[0]))(lambda x: np.arange(len(x)))
    assert sizes(X).tolist() == [0, 1, 2] and sizes(X[:2]).tolist() == [0, 1]


def test_options_and_numbers_are_python_values():
    seen = []

    @gw.host_op()
    def f(x, y=2.5, *, k=3, name="a", flag=True, scale=0.5):
        seen[:] = [(type(v), v) for v in (y, k, name, flag, scale)]
        return x * y

    @f.vjp(host=True)
    def _(g, x, y, *, k, scale):
        assert (type(k), type(scale), type(y)) == (int, float, float)
        return 3 * g * y, None

    f(X, k=4)
    assert seen == [(float, 2.5), (int, 4), (str, "a"), (bool, True), (float, 0.5)]
    np.testing.assert_array_equal(gw.grad(total(f))(X), 3 * 2.5)
    with pytest.raises(gw.TraceError, match="with respect to its option scale"):
        gw.grad(lambda s: np.sum(f(X, scale=s)))(np.array(0.5))


def test_integers_have_no_derivative():
    f = gw.host_op(out=lambda x, i: (x, i))(lambda x, i: (x[i], i[::-1]))

    @f.vjp(host=True)
    def _(g, x, i):
        back = np.zeros_like(x)
        np.add.at(back, i, 3 * g[0])
        return back, None

    i = np.array([0, 0, 2])
    value, order = f(X, i)
    assert order.tolist() == [2, 0, 0] and order.dtype == np.int64
    got = gw.grad(lambda x: np.sum(f(x, i)[0]))(X)
    np.testing.assert_array_equal(got, [6, 0, 3])


# --- checks and memory --------------------------------------------------------------------------
def test_what_is_not_as_declared_is_an_error():
    x = np.ones((4, 3))
    assert row_sum()(x).shape == (4, 1)
    with pytest.raises(gw.SignatureError, match=r"shape \(4, 2\) for one of \(4, 1\)"):
        row_sum(2)(x)
    with pytest.raises(gw.SignatureError, match="returned complex128 for float64"):
        gw.host_op()(lambda x: x + 1j)(X)
    with pytest.raises(gw.SignatureError, match="returned float64 for int64"):
        gw.host_op()(lambda x: x / 2)(np.arange(3))
    with pytest.raises(gw.SignatureError, match="returned a tuple where one array"):
        gw.host_op()(lambda x: (x, x))(X)
    with pytest.raises(gw.SignatureError, match="returned object for float64"):
        gw.host_op()(lambda x: None)(X)


def test_inputs_are_contiguous_and_cannot_be_written():
    seen = []

    @gw.host_op()
    def f(x):
        seen.append(x)
        return x * 2

    x = np.arange(6.0).reshape(2, 3)
    for given in (x.T, x[:, ::2], np.array(3), np.float32(3), x):
        f(given)
        assert seen[-1].flags.c_contiguous and not seen[-1].flags.writeable
    assert (
        np.shares_memory(seen[-1], x) and x.flags.writeable and seen[2].shape == seen[3].shape == ()
    )

    @gw.host_op()
    def writes(x):
        x[0] = 7
        return x

    with pytest.raises(ValueError, match="read-only"):
        writes(X)
    assert X[0] == 0.3


def test_results_share_memory_with_nothing():
    kept = np.ones(3)
    outs = gw.host_op(out=lambda x: (x, x, x, x))(lambda x: (x, x, x[::-1], kept))(X)
    arrays = [X, kept, *outs]
    for k, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[k + 1 :])
    for out in outs:
        out += 1  # they may be written
    assert X[0] == 0.3 and kept.tolist() == [1, 1, 1]


def test_exceptions_are_the_bodys_own():
    @gw.host_op()
    def fails(x, *, error="KeyError"):
        raise getattr(builtins, error)("boom")

    traced = gw.op(lambda x, *, error: fails(x, error=error) + 1)
    for error in (KeyError, ValueError, TypeError, StopIteration):
        for call in (fails, traced):
            with pytest.raises(error, match="boom") as caught:
                call(X, error=error.__name__)
            assert type(caught.value) is error and fails.last_error is caught.value
    f = gw.host_op()(lambda x: x)
    assert f.last_error is None


# --- pure or not --------------------------------------------------------------------------------
def test_what_is_not_pure_runs_each_time_and_never_again():
    calls = []

    @gw.host_op(pure=False)
    def noisy(x):
        calls.append(1)
        return x + len(calls)

    noisy.vjp(lambda g, x: 3 * g)
    f = gw.op(lambda x: 10 * noisy(x) + noisy(x))
    assert f(np.zeros(1)) == 12 and len(calls) == 2
    assert gw.grad(total(f))(np.zeros(1)) == 33
    square = gw.op(lambda x: noisy(x) ** 2)
    calls.clear()
    assert gw.grad(total(square))(np.zeros(1)) == 6 and len(calls) == 1
    other = gw.op(lambda x: x)
    other.surrogate(lambda x: noisy(x) ** 2)  # whose derivative is a program of its own
    with pytest.raises(gw.TraceError, match="runs noisy again, which is not pure"):
        gw.grad(total(other))(X)
    with pytest.raises(gw.TraceError, match="runs noisy again"):
        gw.jvp(other, (X,), (X,))
    squared = gw.op(lambda x: noisy(x) ** 2)
    squared.vjp(lambda g, x, out: 3 * g * np.sqrt(out))
    calls.clear()
    assert gw.grad(total(squared))(np.zeros(1)) == 3 and len(calls) == 1


def test_what_the_body_captures_may_change():
    scale = 2.0
    f = gw.host_op()(lambda x: scale * x)
    assert f(np.ones(1)) == 2
    made = f.example().function
    scale = 3.0
    assert f(np.ones(1)) == 3 and f.example().function is made


def test_in_eager_mode_it_is_the_same():
    f = gw.op(lambda x: 2 * exp_op(x))
    exp_op = exp()
    with gw.eager():
        np.testing.assert_allclose(f(X), 2 * np.exp(X))
        assert exp_op(np.float32(X)).dtype == np.float32


def test_elementwise_partials_and_what_is_said_of_an_op():
    f = sine("vjp", 3)
    assert repr(f) == "<op f(x, y) with its own vjp>"
    assert "f(x, y) = host(x, y)" in f.explain() and "its own vjp" in f.explain()
    assert "host(c0, x, y)" in f.source()
    assert "no derivative" in gw.host_op()(lambda x: x).explain()
    assert pickle.loads(pickle.dumps(module_op)) is module_op


@gw.host_op()
def module_op(x):
    return x


def test_the_checker_knows_them():
    for f, xs in ((sine("vjp"), (X, Y)), (sine("host"), (X, Y)), (exp(), (X,)), (outer(), (X, Y))):
        gw.check(f, *xs, frameworks=["numpy"])
    for kind in ("vjp", "host", "jvp", "partials"):
        with pytest.raises(gw.CheckFailure, match="off by a factor of 3"):
            gw.check(sine(kind, 3), X, Y, frameworks=["numpy"])


def test_ops_that_are_gone_leave_nothing_behind():
    f = exp()
    gw.grad(total(f))(X)
    alive = weakref.ref(f), weakref.ref(f.host)
    del f
    gc.collect()
    assert [r() for r in alive] == [None, None]
