"""`rule.tf1`: hyperparameters, slots and checkpoints."""

import numpy as np
import pytest
from tf1_modes import by_function, by_numpy, by_session, eagerly, jump, tf, v1

import gradwright as gw
from gradwright import rules

pytestmark = pytest.mark.framework


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


FULL_NOISY = gw.chain(rules.adam(lr=0.1), jump)
