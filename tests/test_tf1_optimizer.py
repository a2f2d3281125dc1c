"""`rule.tf1`: sessions of TensorFlow 1, `tf.function`, eager mode; resource and ref variables."""

import traceback
from types import SimpleNamespace

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1
compiled = pytest.importorskip("gradwright.targets.tensorflow.compiled")

pytestmark = pytest.mark.framework

SHAPES = [(5, 7), (3,), ()]


def arrays(seed, dtype=np.float32, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape), dtype) for shape in shapes]


START = arrays(0)
GRADIENTS = [arrays(k + 1) for k in range(200)]


# --- one trajectory, in every mode ---------------------------------------------------------------
def by_numpy(rule, keywords, start=START, gradients=GRADIENTS):
    w = [a.copy() for a in start]
    optimizer = rule.numpy(w, **keywords)
    for g in gradients:
        optimizer.step(g)
    return w


def by_session(rule, keywords, start=START, gradients=GRADIENTS, resource=True):
    with tf.Graph().as_default(), v1.Session() as session:
        ws = [v1.Variable(a, use_resource=resource) for a in start]
        gs = [v1.placeholder(w.dtype.base_dtype, w.shape) for w in ws]
        train = rule.tf1(**keywords).apply_gradients(zip(gs, ws, strict=True))
        session.run(v1.global_variables_initializer())
        for g in gradients:
            session.run(train, dict(zip(gs, g, strict=True)))
        return session.run(ws)


def by_ref(rule, keywords, start=START, gradients=GRADIENTS):
    v1.disable_control_flow_v2()  # as in programs that disable the behaviour of TensorFlow 2
    try:
        return by_session(rule, keywords, start, gradients, resource=False)
    finally:
        v1.enable_control_flow_v2()


def by_function(rule, keywords, start=START, gradients=GRADIENTS, wrap=tf.function):
    ws = [tf.Variable(a) for a in start]
    optimizer = rule.tf1(**keywords)

    @wrap
    def step(*gs):
        optimizer.apply_gradients(zip(gs, ws, strict=True))

    for g in gradients:
        step(*map(tf.constant, g))
    return [w.numpy() for w in ws]


def eagerly(rule, keywords, start=START, gradients=GRADIENTS):
    return by_function(rule, keywords, start, gradients, wrap=lambda f: f)


def by_xla(rule, keywords, start=START, gradients=GRADIENTS):
    return by_function(rule, keywords, start, gradients, lambda f: tf.function(f, jit_compile=True))


MODES = [by_session, by_ref, by_function, eagerly, by_xla]
FULL = gw.chain(rules.clip_by_global_norm(max_norm=0.5), rules.adamw, rules.ema(decay=0.9))
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
@gw.rule
def jump(w, g, *, rng):
    return w + rng.uniform()


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


# --- hyperparameters -----------------------------------------------------------------------------
def test_a_hyperparameter_is_a_number_a_tensor_a_variable_or_a_function():
    for lr in (0.5, tf.constant(0.5), tf.Variable(0.5), lambda: tf.constant(0.5), lambda: 0.5, 1):
        w = tf.Variable([1.0])
        rules.sgd.tf1(lr=lr).apply_gradients([(tf.ones(1), w)])
        assert float(w[0]) == (0.0 if lr == 1 else 0.5)


@pytest.mark.parametrize("resource", [True, False])
def test_a_rate_decays_in_the_graph(resource):
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable(tf.zeros(2), use_resource=resource)
        lr = v1.Variable(0.5, use_resource=resource)
        update = rules.sgd.tf1(lr=lr).apply_gradients([(tf.ones(2), w)])
        with tf.control_dependencies([update]):
            train = tf.group(lr.assign(lr - 0.125))
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        np.testing.assert_array_equal(session.run(w), [-(0.5 + 0.375 + 0.25)] * 2)


def test_a_new_rate_or_step_traces_nothing_again():
    w, lr, traces = tf.Variable(tf.zeros(2)), tf.Variable(0.5), []
    optimizer = rules.adam.tf1(lr=lr, b1=gw.schedules.linear(0.9, 0.5, 10))

    @tf.function
    def step(g):
        traces.append(1)
        optimizer.apply_gradients([(g, w)])

    for k in range(10):
        lr.assign(0.5 / (k + 1))
        step(tf.ones(2))
        if k == 1:  # tf.function traces once more after a call that made variables
            after_two = len(traces)
    assert len(traces) == after_two
    assert optimizer.steps == 10


@pytest.mark.parametrize(
    "schedule",
    [
        gw.schedules.constant(0.1),
        gw.schedules.linear(1.0, 0.1, 7, warmup=3),
        gw.schedules.exponential(1.0, 0.5, every=3),
        gw.schedules.piecewise(1.0, {2: 0.5, 5: 0.25}),
        gw.schedules.of(lambda count: 1 / np.sqrt(count + 1)),
    ],
    ids=repr,
)
def test_schedules_run_in_the_graph(schedule):
    zero, ones = [np.zeros(2, np.float32)], [[np.ones(2, np.float32)]] * 10
    for mode in (by_session, by_function, eagerly):
        (ours,) = mode(rules.sgd, {"lr": schedule}, zero, ones)
        (exact,) = by_numpy(rules.sgd, {"lr": schedule}, zero, ones)
        np.testing.assert_allclose(ours, exact, atol=1e-6)


def test_values_that_differ_by_variable():
    a, b = tf.Variable(tf.zeros(2), name="head"), tf.Variable(tf.zeros((2, 2)), name="body")
    by_name = gw.per_param(lambda name, w: 1.0 if name == "head" else 0.25 * w.ndim)
    rules.sgd.tf1(lr=by_name).apply_gradients([(tf.ones(2), a), (tf.ones((2, 2)), b)])
    assert (float(a[0]), float(b[0, 0])) == (-1.0, -0.5)


def test_rules_by_the_name_of_a_variable():
    a, b = tf.Variable(tf.zeros(2), name="kernel"), tf.Variable(tf.zeros(2), name="bias")
    mixed = gw.partition({"kernel": rules.compact_sgd(lr=0.5, noise=0.0), "*": rules.sgd(lr=0.25)})
    optimizer = mixed.tf1(rng=0)
    optimizer.apply_gradients([(tf.ones(2), a), (tf.ones(2), b)])
    assert (float(a[0]), float(b[0])) == (-0.5, -0.25)
    assert optimizer.get_slot(b, "identity") is None


@gw.rule
def newton(w, g, *, h=gw.given, lr=1.0, damping=None):
    return w - lr * g / (h if damping is None else h + damping)


def test_values_for_one_step():
    a, b = tf.Variable([1.0]), tf.Variable([1.0])
    optimizer = newton.tf1()
    pairs = [(tf.ones(1), a), (tf.ones(1), b)]
    optimizer.apply_gradients(pairs, h=[tf.constant([2.0]), tf.constant([4.0])])
    assert (float(a[0]), float(b[0])) == (0.5, 0.75)
    optimizer.apply_gradients(pairs, h=2.0, damping=2.0, lr=tf.constant(2.0))
    assert (float(a[0]), float(b[0])) == (0.0, 0.25)
    with pytest.raises(gw.SignatureError, match="h arrives at every step"):
        optimizer.apply_gradients(pairs)


# --- state ---------------------------------------------------------------------------------------
def test_slots_and_variables_have_their_names():
    with tf.Graph().as_default():
        w = v1.get_variable("layer/w", [3])
        optimizer = rules.adam.tf1(lr=0.1, name="Fast")
        optimizer.minimize(tf.reduce_sum(w))
        assert optimizer.get_slot_names() == ["m", "step", "v"]
        assert optimizer.get_slot(w, "m").shape == [3]
        names = [v.name for v in optimizer.variables()]
        assert names == ["Fast_count:0", *(f"layer/w/Fast/{s}:0" for s in ("m", "step", "v"))]
        assert v1.trainable_variables() == [w]


@pytest.mark.parametrize("resource", [True, False])
def test_a_saver_restores_weights_slots_clocks_and_seed(tmp_path, resource):
    rule = gw.chain(rules.momentum(lr=0.1), rules.wrap(low=-2.0, high=2.0), jump)

    def session(seed, run):
        with tf.Graph().as_default(), v1.Session() as s:
            w = v1.Variable(tf.zeros(5), use_resource=resource)
            train = rule.tf1(rng=seed).apply_gradients([(tf.ones(5), w)])
            saver = v1.train.Saver()
            s.run(v1.global_variables_initializer())
            return run(s, w, train, saver)

    def steps(s, w, train, k):
        for _ in range(k):
            s.run(train)
        return s.run(w)

    path = str(tmp_path / "model")
    straight = session(1, lambda s, w, train, saver: steps(s, w, train, 8))

    def save(s, w, train, saver):
        steps(s, w, train, 5)
        saver.save(s, path)

    def restore(s, w, train, saver):
        saver.restore(s, path)
        return steps(s, w, train, 3)

    session(1, save)
    np.testing.assert_array_equal(session(2, restore), straight)


def test_a_checkpoint_restores_an_optimizer_of_tensorflow_2(tmp_path):
    def made(seed):
        w, optimizer = tf.Variable(tf.zeros(5)), FULL_NOISY.tf1(rng=seed)
        return w, optimizer, tf.train.Checkpoint(w=w, optimizer=optimizer)

    def steps(w, optimizer, k):
        for _ in range(k):
            optimizer.apply_gradients([(w + 1.0, w)])
        return w.numpy()

    w, optimizer, checkpoint = made(1)
    steps(w, optimizer, 4)
    path = checkpoint.save(str(tmp_path / "c"))
    straight = steps(w, optimizer, 3)
    w, optimizer, checkpoint = made(2)
    checkpoint.restore(path)
    np.testing.assert_array_equal(steps(w, optimizer, 3), straight)
    assert optimizer.steps == 7


FULL_NOISY = gw.chain(rules.adam(lr=0.1), jump)


def test_a_global_step_is_counted_and_the_update_grouped():
    with tf.Graph().as_default(), v1.Session() as session:
        w, other = v1.Variable([1.0]), v1.Variable(0)
        count = v1.train.get_or_create_global_step()
        optimizer = rules.sgd.tf1(lr=0.25)
        train = tf.group(optimizer.minimize(w**2, global_step=count), other.assign_add(2))
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        assert session.run([w, other, count, optimizer.steps]) == [[0.25], 4, 2, 2]


def test_one_optimizer_serves_two_graphs():
    optimizer = jump.tf1(rng=0)
    found = []
    for _ in range(2):
        with tf.Graph().as_default(), v1.Session() as session:
            w = v1.Variable(tf.zeros(3))
            train = optimizer.apply_gradients([(tf.ones(3), w)])
            session.run(v1.global_variables_initializer())
            session.run(train)
            found.append(session.run(w))
    np.testing.assert_array_equal(*found)


def test_variables_hold_a_slot_inside_swapped():
    w = tf.Variable([0.0])
    optimizer = gw.chain(rules.sgd(lr=1.0), rules.ema(decay=0.5)).tf1()
    optimizer.apply_gradients([(tf.ones(1), w)])
    with optimizer.swapped("avg"):
        assert float(w[0]) == -0.5
        with pytest.raises(RuntimeError, match="inside swapped"):
            optimizer.apply_gradients([(tf.ones(1), w)])
    assert float(w[0]) == -1.0
    with pytest.raises(KeyError, match="no slot 'm'"), optimizer.swapped("m"):
        pass


def test_what_is_recorded_is_fetched_in_a_session():
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable([3.0, 4.0], name="w")
        optimizer = gw.chain(rules.clip_by_global_norm, rules.sgd).tf1()
        train = optimizer.apply_gradients([(w.read_value(), w)])
        session.run(v1.global_variables_initializer())
        _, norm = session.run([train, optimizer.recorded["grad_norm"]["w"]])
        assert norm == 5.0


def test_gw_eager_runs_the_users_function():
    seen = []

    @gw.rule
    def watched(w, g, m=0.0, *, lr=0.5, step=1):
        seen.append((type(w), step))
        return w - lr * g, m + g

    w = tf.Variable([1.0, 2.0])
    optimizer = watched.tf1(lr=tf.Variable(0.25))
    with gw.eager():
        optimizer.apply_gradients([(tf.ones(2), w)])
        optimizer.apply_gradients([(tf.ones(2), w)])
    assert seen == [(np.ndarray, 1), (np.ndarray, 2)]
    np.testing.assert_array_equal(w, [0.5, 1.5])


def test_types_and_one_step():
    optimizer = rules.adam.tf1(lr=0.1)
    assert isinstance(optimizer, rules.adam.tf1)
    assert isinstance(optimizer, v1.train.Optimizer)
    w, m, v = rules.adam(tf.ones(3), tf.ones(3), lr=tf.constant(0.1))
    np.testing.assert_allclose(w, [0.9] * 3, rtol=1e-6)
    assert tf.is_tensor(m)
    with tf.Graph().as_default(), v1.Session() as session:
        x = rules.sgd(v1.placeholder_with_default([1.0], [None]), tf.ones(1), lr=0.5)
        assert session.run(x) == [0.5]


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


# --- refused -------------------------------------------------------------------------------------
def ones(w):
    return [(tf.ones(w.shape, w.dtype), w)]


REFUSED = {
    "a gradient of another shape": (
        lambda: rules.sgd.tf1().apply_gradients([(tf.ones(2), tf.Variable(tf.ones(3)))]),
        gw.StateError,
        r"the gradient of \S+ is float32\(2,\), the variable \(3,\)",
    ),
    "integers": (
        lambda: rules.sgd.tf1().apply_gradients(ones(tf.Variable([1, 2]))),
        gw.StateError,
        r"the variable \S+ is int32\(2,\)",
    ),
    "bfloat16": (
        lambda: rules.sgd.tf1().apply_gradients(ones(tf.Variable([1.0], dtype=tf.bfloat16))),
        gw.StateError,
        r"the variable \S+ is bfloat16\(1,\)",
    ),
    "a tensor": (
        lambda: rules.sgd.tf1().apply_gradients([(tf.ones(2), tf.ones(2))]),
        gw.StateError,
        "EagerTensor is optimized",
    ),
    "no gradients": (
        lambda: rules.sgd.tf1().apply_gradients([(None, tf.Variable(1.0, name="w"))]),
        gw.StateError,
        r"no gradients for any of \['w'\]",
    ),
    "a variable twice": (
        lambda: rules.sgd.tf1().apply_gradients(2 * ones(tf.Variable(1.0, name="w"))),
        gw.StateError,
        r"a variable twice among \['w', 'w'\]",
    ),
    "accumulate": (
        lambda: rules.sgd.options(accumulate=2).tf1(),
        gw.GradwrightError,
        "accumulate is not in this version for TensorFlow",
    ),
    "no seed": (lambda: rules.sgld.tf1(), gw.SignatureError, "has no seed"),
    "an unknown keyword": (lambda: rules.sgd.tf1(mu=0.9), gw.SignatureError, "no keyword mu"),
    "a seed for one step": (
        lambda: jump.tf1(rng=0).apply_gradients(ones(tf.Variable(1.0)), rng=1),
        gw.SignatureError,
        "rng",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_so(case):
    call, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        call()


@gw.rule
def repeated(w, g, *, lr=0.1, times=2, flag=False):
    for _ in range(times):
        w = w - lr * g
    return -w if flag else w


def test_what_the_body_reads_must_be_a_python_value():
    w = tf.Variable([0.0])
    repeated.tf1(times=3, flag=True, lr=1).apply_gradients(ones(w))
    assert float(w[0]) == 3.0
    for keywords in ({"times": tf.constant(3)}, {"flag": tf.constant(True)}):
        with pytest.raises(gw.SignatureError, match="repeated reads a value as a Python number"):
            repeated.tf1(**keywords).apply_gradients(ones(w))


def test_several_replicas_are_refused(monkeypatch):
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    two = SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: two)
    with pytest.raises(gw.GradwrightError, match="several replicas"):
        rules.sgd.tf1().apply_gradients([])


def test_autograph_leaves_us_alone():
    w, seen = tf.Variable([1.0]), []

    @gw.rule
    def watched(w, g, *, lr=0.5):
        seen.append({f.name for f in traceback.extract_stack() if f.name.startswith("tf__")})
        return w - lr * g

    optimizer = watched.tf1()

    @tf.function
    def step(g):
        optimizer.apply_gradients([(g, w)])
        return watched(w, g)

    np.testing.assert_array_equal(step(tf.ones(1)), [0.0])
    assert seen
    assert all(converted == {"tf__step"} for converted in seen)


def test_gw_eager_in_a_graph_is_refused():
    with tf.Graph().as_default(), gw.eager(), pytest.raises(gw.GradwrightError, match="no values"):
        rules.sgd.tf1().apply_gradients(ones(v1.Variable(1.0)))


def test_a_slot_from_a_ref_variable_needs_the_old_control_flow():
    with tf.Graph().as_default(), pytest.raises(gw.GradwrightError, match="a reference variable"):
        w = v1.Variable(tf.ones(2), use_resource=False)
        gw.chain(rules.sgd, rules.ema).tf1().apply_gradients(ones(w))


def test_swapped_in_a_graph_is_refused():
    optimizer = rules.momentum.tf1()
    refused = pytest.raises(gw.GradwrightError, match="swapped in a graph")
    with tf.Graph().as_default(), refused, optimizer.swapped("m"):
        pass


def test_slots_of_a_tensor_whose_shape_nobody_knows():
    with tf.Graph().as_default(), pytest.raises(gw.SignatureError, match="of unknown shape"):
        rules.momentum(v1.placeholder(tf.float32, [None]), tf.ones(1))
    with tf.Graph().as_default(), pytest.raises(gw.SignatureError, match="unknown rank"):
        rules.sgd(v1.placeholder(tf.float32), tf.ones(1))
