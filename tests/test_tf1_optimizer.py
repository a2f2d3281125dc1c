"""`rule.tf1` moves variables as the NumPy optimizer moves arrays, in every mode."""

import numpy as np
import pytest
from tf1_modes import (
    FULL,
    GRADIENTS,
    MODES,
    START,
    arrays,
    by_function,
    by_numpy,
    by_ref,
    by_session,
    eagerly,
    jump,
    tf,
    v1,
)

import gradwright as gw
from gradwright import rules
from gradwright.targets.tensorflow import compiled

pytestmark = pytest.mark.framework


# --- one trajectory, in every mode ---------------------------------------------------------------
TRAINED = {
    "sgd": (rules.sgd, {"lr": 0.05}),
    "momentum": (rules.momentum, {"lr": 0.01}),
    "adam": (rules.adam, {"lr": 0.01}),
    "compact_sgd": (rules.compact_sgd, {"low": -1.0, "high": 1.0, "rng": 3}),
    "schedule": (rules.sgd, {"lr": gw.schedules.cosine(0.1, 100, warmup=5)}),
    "chain": (FULL, {"lr": 0.01}),
}


def on_the_circle(difference, keywords):
    """The distance of two points of the domain: what crosses its end is near the other one."""
    size = keywords.get("high", np.inf) - keywords.get("low", 0.0)
    return np.minimum(np.abs(difference), size - np.abs(difference))


@pytest.mark.parametrize("mode", MODES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("case", TRAINED)
def test_the_trajectory_is_numpys(case, mode):
    rule, keywords = TRAINED[case]
    for ours, reference in zip(mode(rule, keywords), by_numpy(rule, keywords), strict=True):
        assert on_the_circle(ours - reference, keywords).max(initial=0.0) <= 5e-6


@pytest.mark.parametrize("case", ["sgd", "momentum", "adam", "chain"])
def test_float32_stays_near_the_equation_in_float64(case):
    rule, keywords = TRAINED[case]
    wide = [[g.astype(np.float64) for g in gs] for gs in GRADIENTS]
    exact = by_numpy(rule, keywords, [w.astype(np.float64) for w in START], wide)
    for ours, reference in zip(by_session(rule, keywords), exact, strict=True):
        assert np.abs(ours - reference).max() <= 5e-6


def test_float64_variables_are_updated_in_float64():
    start, gradients = arrays(0, np.float64), [arrays(k + 1, np.float64) for k in range(200)]
    ours = by_session(rules.adam, {"lr": 0.01}, start, gradients)
    exact = by_numpy(rules.adam, {"lr": 0.01}, start, gradients)
    assert all(np.abs(a - b).max() <= 1e-14 for a, b in zip(ours, exact, strict=True))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (rules.sgd(lr=0.05), lambda: v1.train.GradientDescentOptimizer(0.05)),
        (rules.momentum(lr=0.05, mu=0.9), lambda: v1.train.MomentumOptimizer(0.05, 0.9)),
        (
            rules.nesterov(lr=0.05, mu=0.9),
            lambda: v1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
        ),
    ],
)
def test_the_conventions_are_those_of_tensorflows_own_optimizers(ours, theirs):
    ws, theirs = [tf.Variable(a) for a in START], theirs()
    for g in GRADIENTS[:50]:
        theirs.apply_gradients(zip(map(tf.constant, g), ws, strict=True))
    for a, b in zip(eagerly(ours, {}, gradients=GRADIENTS[:50]), ws, strict=True):
        np.testing.assert_allclose(a, b.numpy(), atol=2e-6)


def test_float16_is_computed_in_float32_and_rounded_once():
    w, g = START[0].astype(np.float16), GRADIENTS[0][0].astype(np.float16)
    (ours,) = by_session(rules.sgd, {"lr": 0.1}, [w], [[g]])
    exact = (w.astype(np.float32) - np.float32(0.1) * g.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(ours, exact)


# --- compiled and not ----------------------------------------------------------------------------
@pytest.mark.parametrize("rule", [rules.adamw(lr=0.01), rules.compact_sgd(rng=5), FULL])
@pytest.mark.parametrize("mode", [by_session, by_function], ids=lambda f: f.__name__)
def test_large_parameters_are_compiled_to_the_same_values(rule, mode, monkeypatch):
    monkeypatch.setattr(compiled, "SMALL", 0)
    start, gradients = arrays(0, shapes=[(13, 5)]), [arrays(k, shapes=[(13, 5)]) for k in range(20)]
    (fused,) = mode(rule, {}, start, gradients)
    np.testing.assert_allclose(fused, by_numpy(rule, {}, start, gradients)[0], atol=2e-6)


# --- noise ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES, ids=lambda f: f.__name__)
def test_noise_has_numpys_bits_for_every_shape(mode):
    start = [np.zeros(shape, np.float32) for shape in [(), (1,), (5,), (3, 7), (0, 2), (2, 3, 4)]]
    ours = mode(jump, {"rng": 2**55 + 9}, start, [start] * 3)
    exact = by_numpy(jump, {"rng": 2**55 + 9}, start, [start] * 3)
    for a, b in zip(ours, exact, strict=True):
        np.testing.assert_array_equal(a, b)
    assert ours[1] != ours[2][0], "variables have noise of their own"


def test_the_identity_is_the_position_also_of_what_has_no_gradient_yet():
    ws = [tf.Variable(tf.zeros(4)) for _ in range(3)]
    optimizer = jump.tf1(rng=0)
    optimizer.apply_gradients([(None, ws[0]), (tf.zeros(4), ws[1])])
    optimizer.apply_gradients([(tf.zeros(4), ws[2]), (tf.zeros(4), ws[0])])
    assert [int(optimizer.get_slot(w, "identity")) for w in ws] == [0, 1, 2]


# --- what moves ----------------------------------------------------------------------------------
def test_none_moves_nothing_and_clocks_are_each_parameters_own():
    a, b = tf.Variable(tf.ones(3)), tf.Variable(tf.ones(3))
    optimizer = rules.adam.tf1(lr=0.1)
    optimizer.apply_gradients([(tf.ones(3), a), (tf.ones(3), b)])
    kept = b.numpy(), optimizer.get_slot(b, "m").numpy()
    optimizer.apply_gradients([(tf.ones(3), a), (None, b)])
    np.testing.assert_array_equal(b, kept[0])
    np.testing.assert_array_equal(optimizer.get_slot(b, "m"), kept[1])
    assert [int(optimizer.get_slot(w, "step")) for w in (a, b)] == [2, 1]
    assert optimizer.steps == 2


def test_a_sum_over_all_variables_has_all_of_them():
    a, b = tf.Variable([3.0]), tf.Variable([[4.0]])
    optimizer = gw.chain(rules.clip_by_global_norm(max_norm=1.0), rules.sgd).tf1(lr=1.0)
    optimizer.apply_gradients([(a.read_value(), a), (b.read_value(), b)])
    np.testing.assert_allclose([a[0], b[0, 0]], [3 - 0.6, 4 - 0.8], rtol=1e-6)
    assert [float(x) for x in optimizer.recorded["grad_norm"].values()][0] == 5.0


@gw.rule
def prodigy_like(w, g, x0=lambda w: w, d=gw.shared(1e-3), *, lr=1.0):
    d = np.maximum(d, lr * gw.global_sum(g * (x0 - w)) / gw.global_sum(np.abs(g)))
    return w - d * g, {"d": d}


@pytest.mark.parametrize("mode", MODES, ids=lambda f: f.__name__)
def test_a_shared_slot_is_one_number(mode):
    ours = mode(prodigy_like, {}, gradients=[START] * 20)
    for a, b in zip(ours, by_numpy(prodigy_like, {}, gradients=[START] * 20), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-6)


def test_rows_of_a_sparse_gradient_that_repeat_are_summed():
    w = tf.Variable(tf.zeros([4, 2]))
    slices = tf.IndexedSlices(tf.constant([[1.0, 2.0], [10.0, 20.0]]), tf.constant([1, 1]))
    rules.sgd.tf1(lr=1.0).apply_gradients([(slices, w)])
    np.testing.assert_array_equal(w, [[0, 0], [-11, -22], [0, 0], [0, 0]])


def test_an_embedding_trains_in_a_session():
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.Variable(tf.zeros([5, 2]))
        train = rules.sgd.tf1(lr=1.0).minimize(tf.reduce_sum(tf.gather(table, [0, 3, 3])))
        session.run(v1.global_variables_initializer())
        session.run(train)
        np.testing.assert_array_equal(session.run(table)[:, 0], [-1, 0, 0, -2, 0])


def test_a_constraint_of_a_variable_is_kept():
    w = tf.Variable([1.0, -1.0], constraint=tf.nn.relu)
    rules.sgd.tf1(lr=0.5).apply_gradients([(tf.ones(2), w)])
    np.testing.assert_array_equal(w, [0.5, 0.0])


@pytest.mark.parametrize("mode", [by_session, by_ref, by_function, eagerly])
def test_a_step_that_is_not_finite_is_skipped(mode):
    rule = rules.adam(lr=0.01).options(skip_nonfinite=True)
    bad = [[g[0] * np.float32(np.nan), *g[1:]] for g in GRADIENTS[:1]]
    ours = mode(rule, {}, gradients=[*GRADIENTS[:3], *bad, *GRADIENTS[3:6]])
    for a, b in zip(ours, by_numpy(rules.adam(lr=0.01), {}, gradients=GRADIENTS[:6]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)


# --- the domain ----------------------------------------------------------------------------------
@gw.rule(domain="[low, high)")
def circle(w, g, *, lr=1.0, low=0.0, high=1.0):
    return low + np.mod(w - lr * g - low, high - low)


def awkward(rng, dtype, low, high, size):
    """Bounds, their neighbours, numbers that rounding takes to a bound, subnormals, anything."""
    tiny = np.finfo(dtype).smallest_subnormal
    some = [0.0, -0.0, tiny, -tiny, 1e-9, -1e-9, 1e-38, low, high, high - low, 1e10, -1e10]
    some += [np.nextafter(dtype(high), dtype(low)), np.nextafter(dtype(low), dtype(high))]
    return np.where(
        rng.random(size) < 0.5,
        rng.choice(np.array(some, dtype), size),
        (rng.normal(size=size) * (high - low)).astype(dtype),
    ).astype(dtype)


@pytest.mark.parametrize("small", [0, 1 << 30], ids=["compiled", "not"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 2 * np.pi), (-10.0, 10.0), (3.0, 3.1)])
def test_the_domain_is_never_left(low, high, small, monkeypatch):
    monkeypatch.setattr(compiled, "SMALL", small)
    rng = np.random.default_rng(0)
    least, bound = np.float32(low), np.float32(high)
    start = np.clip(awkward(rng, np.float32, low, high, 10_000), least, np.nextafter(bound, least))
    w = tf.Variable(start)
    assert w.dtype == tf.float32
    optimizer = circle.tf1(low=low, high=high)

    @tf.function
    def step(g):
        optimizer.apply_gradients([(g, w)])

    for k in range(1000):
        g = awkward(rng, np.float32, low, high, 10_000)
        step(g if k % 3 else w.numpy() - least + g * np.float32(1e-9))
        x = w.numpy()
        assert least <= x.min()
        assert x.max() < bound


def test_a_step_just_below_zero_stays_below_the_bound():
    w = tf.Variable([0.0])
    circle.tf1().apply_gradients([(tf.constant([1e-9]), w)])
    assert float(w[0]) == np.nextafter(np.float32(1), np.float32(0))
