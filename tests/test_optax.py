"""Rules as optax transformations: trajectories, noise, states, what JAX does with them."""

import numpy as np
import pytest
from jax_modes import jax, jnp

import gradwright as gw
from gradwright import rules
from gradwright.philox import random_bits

optax = pytest.importorskip("optax")
pytestmark = pytest.mark.framework

SHAPES = {"a": (3, 4), "b": [(5,), (), (0,)], "c": (2, 1, 3)}
MOVES = {
    "sgd": (rules.sgd, {"lr": 1e-2}, lambda: optax.sgd(1e-2)),
    "momentum": (rules.momentum, {"lr": 1e-2}, lambda: optax.sgd(1e-2, 0.9)),
    "nesterov": (rules.nesterov, {"lr": 1e-2}, lambda: optax.sgd(1e-2, 0.9, nesterov=True)),
    "adam": (rules.adam, {"lr": 1e-2}, lambda: optax.adam(1e-2)),
    "adamw": (
        rules.adamw,
        {"lr": 1e-2, "weight_decay": 0.1},
        lambda: optax.adamw(1e-2, weight_decay=0.1),
    ),
    "lion": (
        rules.lion,
        {"lr": 1e-3, "weight_decay": 0.1},
        lambda: optax.lion(1e-3, weight_decay=0.1),
    ),
}


def is_shape(x):
    return isinstance(x, tuple)


def arrays(seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: np.asarray(rng.normal(size=shape), dtype), SHAPES, is_leaf=is_shape
    )


def copied(tree):
    """On the device, with memory of its own."""
    return jax.tree.map(lambda x: jnp.array(x, copy=True), tree)


def assert_near(tree, other, atol=0.0):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), tree, other)


def run(tx, params, count, first=0, state=None, **keywords):
    """Steps under jit, with the gradients of `arrays`."""
    state = tx.init(params) if state is None else state
    step = jax.jit(tx.step)
    for k in range(first, first + count):
        params, state = step(arrays(k + 1), state, params, **keywords)
    assert step._cache_size() == (count > 0)
    return params, state


# --- trajectories --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", MOVES)
def test_the_trajectory_is_that_of_numpy_of_the_equation_and_of_optax(name):
    rule, keywords, built_in = MOVES[name]
    single, double = arrays(), jax.tree.map(np.float64, arrays())
    double = jax.tree.map(np.array, double)
    tx, theirs = rule.optax(**keywords), built_in()
    by_numpy, equation = rule.numpy(single, **keywords), rule.numpy(double, **keywords)
    exact = delta = other = copied(arrays())
    states = [tx.init(exact), tx.init(exact), theirs.init(exact)]
    step, update, builtin = map(jax.jit, (tx.step, tx.update, theirs.update))
    for k in range(200):
        g = arrays(k + 1)
        exact, states[0] = step(g, states[0], exact)
        moved, states[1] = update(g, states[1], delta)
        delta = optax.apply_updates(delta, moved)
        moved, states[2] = builtin(g, states[2], other)
        other = optax.apply_updates(other, moved)
        by_numpy.step(g)
        equation.step(jax.tree.map(lambda x: np.asarray(x, np.float64), g))
    assert step._cache_size() == update._cache_size() == 1
    assert_near(exact, single, 5e-6)
    assert_near(exact, double, 5e-6)
    assert_near(delta, double, 5e-6)
    assert_near(exact, other, 2e-5)  # optax computes 1 - b2**t in float32


def test_a_rule_three_times_as_long_moves_three_times_as_far():
    tripled = gw.rule(lambda w, g, *, lr=0.1: w - 3 * lr * g)
    start = copied(arrays())
    once, thrice = run(rules.sgd.optax(lr=0.1), start, 1)[0], run(tripled.optax(), start, 1)[0]
    moved = jax.tree.map(lambda a, b: a - b, thrice, start)
    assert_near(moved, jax.tree.map(lambda a, b: 3 * (a - b), once, start), 1e-6)


@pytest.mark.parametrize("seed", [3, 2**40 + 3])
def test_noise_is_that_of_numpy(seed):
    keywords = {"lr": 0.1, "noise": 0.5, "low": -2.0, "high": 2.0, "rng": seed}
    mine, tx = arrays(), rules.compact_sgd.optax(**keywords)
    params, state = run(tx, copied(mine), 50)
    by_numpy = rules.compact_sgd.numpy(mine, **keywords)
    for k in range(50):
        by_numpy.step(arrays(k + 1))
    distance = jax.tree.map(lambda a, b: np.abs(a - b), params, mine)
    for d in jax.tree.leaves(distance):
        assert np.all(np.minimum(d, 4.0 - d) <= 2e-5)  # on the circle


def test_random_integers_are_those_of_the_layout_beyond_32_bits():
    @gw.rule
    def draws(w, g, b=lambda w: np.zeros(w.shape, np.uint32), *, rng):
        return rng.normal(), rng.bits()

    seed, step = 2**55 + 2**31 + 3, 2**33 - 1
    tx = draws.optax(rng=seed)
    params = [jnp.zeros(7), jnp.zeros((2, 5))]
    words = jnp.asarray([step & 0xFFFFFFFF, step >> 32], jnp.uint32)
    state = tx.init(params)._replace(steps=jnp.stack([words] * 2))
    for k in (1, 2):
        params, state = jax.jit(tx.step)(params, state, params)
        for identity, got in enumerate(state.slots["b"]):
            wanted = random_bits(step + k, identity, seed, draw=1, lane="own", shape=got.shape)
            np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(state.steps, [[1, 2]] * 2)


# --- what a step is given ------------------------------------------------------------------------
def test_none_is_no_parameter_and_no_gradient():
    tx = rules.adam.optax(lr=0.1)
    params = {"a": jnp.ones(3), "b": None, "c": jnp.ones(2)}
    state = tx.init(params)
    step = jax.jit(tx.update)
    moved, state = step({"a": jnp.ones(3), "b": None, "c": None}, state, params)
    assert moved["b"] is None
    np.testing.assert_array_equal(moved["c"], [0, 0])
    assert moved["a"][0] == pytest.approx(-0.1)
    np.testing.assert_array_equal(state.steps[:, 0], [1, 0])
    after = optax.apply_updates(params, moved)
    moved, state = step({"a": jnp.ones(3), "b": None, "c": jnp.ones(2)}, state, after)
    assert moved["c"][0] == pytest.approx(-0.1)  # its first step
    np.testing.assert_array_equal(state.steps[:, 0], [2, 1])


def test_hyperparameters_change_in_the_state_without_compiling():
    tx = rules.sgd.optax(lr=0.5)
    w, state = jnp.zeros(1), tx.init(jnp.zeros(1))
    step = jax.jit(tx.step)
    for k in range(100):
        state.hyperparams["lr"] = jnp.float32(k)
        w, state = step(jnp.ones(1), state, w)
    assert w[0] == -sum(range(100))
    assert step._cache_size() == 1


def test_numbers_are_float64_until_the_state_is_given_another():
    @gw.rule
    def tell(w, g, *, b=0.999, step=1):
        return w * 0 + (1 - b**step)

    tx = tell.optax()
    w, state = jnp.zeros(1), tx.init(jnp.zeros(1))
    for k in (1, 2, 3):
        w, state = jax.jit(tx.step)(w, state, w)
        assert w[0] == np.float32(1 - 0.999**k)
    state.hyperparams["b"] = jnp.float32(0.5)
    assert jax.jit(tx.step)(w, state, w)[0][0] == 1 - 0.5**4


def test_schedules_follow_the_count_and_show_their_value():
    schedule = gw.schedules.cosine(0.1, 10, warmup=3)
    single = {"w": np.ones(3, np.float32)}
    tx, by_numpy = rules.adam.optax(lr=schedule), rules.adam.numpy(single, lr=schedule)
    params = copied(single)
    state = tx.init(params)
    step = jax.jit(tx.step)
    for k in range(15):
        params, state = step({"w": params["w"] * 0 + 1}, state, params)
        by_numpy.step({"w": np.ones(3, np.float32)})
        assert state.hyperparams["lr"] == np.float32(schedule(k))
    assert_near(params, single, 1e-6)
    assert step._cache_size() == 1


def test_per_param_and_partition():
    rate = gw.per_param(lambda name, w: 0.1 if name == "b.0" else gw.schedules.linear(1.0, 0.0, 2))
    tx = rules.sgd.optax(lr=rate)
    params = {"a": jnp.zeros(2), "b": [jnp.zeros(1)]}
    state = tx.init(params)
    assert state.hyperparams["lr"] == {"a": 1.0, "b": [jnp.float32(0.1)]}
    params, state = jax.jit(tx.step)(jax.tree.map(jnp.ones_like, params), state, params)
    params, state = jax.jit(tx.step)(jax.tree.map(jnp.ones_like, params), state, params)
    assert_near(params, {"a": np.full(2, -1.5), "b": [np.full(1, -0.2)]}, 1e-6)

    mixed = gw.partition({"a": rules.sgd(lr=1.0), "*": rules.momentum(lr=0.1)}).optax()
    state = mixed.init(params)
    assert state.slots["m"]["a"] is None
    params, state = jax.jit(mixed.step)(jax.tree.map(jnp.ones_like, params), state, params)
    assert_near(params, {"a": np.full(2, -2.5), "b": [np.full(1, -0.3)]}, 1e-6)


def test_values_that_are_given_are_extra_arguments():
    @gw.rule
    def polyak(w, g, *, value=gw.given, most=1.0):
        rate = gw.record("rate", np.minimum(most, value / (gw.global_sum(g * g) + 1e-12)))
        return w - rate * g

    tx = polyak.optax(most=0.5)
    params = {"a": jnp.ones(3), "b": jnp.ones(1)}
    state = tx.init(params)
    update = jax.jit(tx.update)
    for value in (0.4, 0.8):
        moved, state = update(params, state, params, value=value, another=1)
        assert moved["a"][0] == pytest.approx(-value / 4)
        assert state.recorded["rate"]["b"] == pytest.approx(value / 4)
    assert update._cache_size() == 1
    with pytest.raises(gw.SignatureError, match="value arrives at every step"):
        tx.update(params, state, params)
    with pytest.raises(gw.SignatureError, match="polyak has no keyword another"):
        tx.step(params, state, params, value=1.0, another=1)
    moved, _ = tx.update(params, state, params, value={"a": jnp.full(3, 0.4), "b": 0.8})
    np.testing.assert_allclose(moved["b"], [-0.2])


def test_shared_slots_and_sums_over_all_parameters():
    @gw.rule
    def growing(w, g, d=gw.shared(1.0)):
        d = d + np.sqrt(gw.global_sum(g * g))
        return w - d * g, d

    params = {"a": np.ones(3, np.float32), "b": np.ones(1, np.float32)}
    tx, by_numpy = growing.optax(), growing.numpy(jax.tree.map(np.array, params))
    mine, state = copied(params), tx.init(params)
    for _ in range(3):
        mine, state = jax.jit(tx.step)(params, state, mine)
        by_numpy.step(params)
    assert state.shared["d"] == pytest.approx(1 + 3 * 2)
    np.testing.assert_allclose(mine["a"], np.full(3, 1 - (3 + 5 + 7)))


# --- options -------------------------------------------------------------------------------------
def test_a_gradient_that_is_not_finite_changes_nothing():
    tx = rules.compact_sgd.options(skip_nonfinite=True).optax(
        lr=gw.schedules.linear(0.1, 0.0, 10), rng=0
    )
    params = copied(arrays())
    state = tx.init(params)
    step = jax.jit(tx.step)
    for k in range(3):
        params, state = step(arrays(k), state, params)
    bad = arrays(3)
    bad["a"][0, 0] = np.inf
    for do in (step, tx.step):
        after = do(bad, state, params)
        jax.tree.map(np.testing.assert_array_equal, after, (params, state))
    moved, after = tx.update(bad, state, params)
    assert not any(np.any(x) for x in jax.tree.leaves(moved))
    assert step._cache_size() == 1


def test_accumulated_gradients_are_one_update_by_their_mean():
    tx, plain = rules.adam.options(accumulate=3).optax(lr=0.1), rules.adam.optax(lr=0.1)
    params = start = copied(arrays())
    state = tx.init(params)
    step = jax.jit(tx.step)
    for k in range(6):
        params, state = step(arrays(k), state, params)
        assert int(state.updates[0]) == (k + 1) // 3
    assert step._cache_size() == 1
    wanted, after = start, plain.init(start)
    for first in (0, 3):
        mean = jax.tree.map(lambda *g: sum(g) / 3, *map(arrays, range(first, first + 3)))
        wanted, after = plain.step(mean, after, wanted)
    assert_near(params, wanted, 1e-6)


@pytest.mark.parametrize("precision, far", [("nearest", 1), ("master", 1e-3), ("kahan", 1e-3)])
def test_precision_of_bfloat16(precision, far):
    tx = rules.sgd.options(precision=precision).optax(lr=1.0)
    w, state = jnp.ones(8, jnp.bfloat16), tx.init(jnp.ones(8, jnp.bfloat16))
    step = jax.jit(lambda w, s: tx.step(jnp.full(8, 1e-3), s, w))
    w, state = jax.lax.fori_loop(0, 1000, lambda _, both: step(*both), (w, state))
    assert w.dtype == jnp.bfloat16
    assert np.all(np.abs(w.astype(np.float32)) <= far)
    assert (w[0] == 1) == (precision == "nearest")


def test_rounding_at_random_is_right_on_average():
    tx = rules.sgd.options(precision="stochastic").optax(lr=1.0, rng=0)
    start = jnp.ones(4096, jnp.bfloat16)
    once = lambda both, _: (tx.step(jnp.full(4096, 1e-3), both[1], both[0]), None)
    ends = [jax.lax.scan(once, (start, tx.init(start)), None, 1000)[0][0] for _ in range(2)]
    assert abs(ends[0].astype(jnp.float32).mean()) < 0.01
    np.testing.assert_array_equal(*ends)


# --- domains -------------------------------------------------------------------------------------
@gw.rule(domain="[low, high)")
def wrapped(w, g, *, lr=1.0, low=0.0, high=1.0):
    return low + np.mod(w - lr * g - low, high - low)


@gw.rule(domain="(low, high]")
def clipped(w, g, *, lr=1.0, low=0.0, high=1.0):
    return np.clip(w - lr * g, low, high)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "rule, low, high", [(wrapped, 0.1, 1.0), (wrapped, -10, 10), (clipped, 0, 1)]
)
def test_a_domain_is_kept_by_both_forms(rule, low, high, dtype):
    rng, n = np.random.default_rng(0), 10_000
    tx = rule.optax(low=low, high=high)
    least, top = jnp.asarray(low, dtype), jnp.asarray(high, dtype)
    starts = [float.fromhex("0x1.1e12cap-2"), float.fromhex("0x1.62fd76p-2"), low + 1e-6]
    w = jnp.asarray([*starts, *rng.uniform(low, high, n)], dtype)
    w = jnp.clip(w, jnp.nextafter(least, top), jnp.nextafter(top, least))
    g = rng.choice([1e-9, -1e-9, 1e-4, -1e-4, 1.0, -1.0, 0.5, 20.0], (20, n + 3)).astype(np.float32)
    g[::2] = rng.normal(size=(10, n + 3))

    def inside_of(x):
        return (x >= least) & (x < top) if rule is wrapped else (x > least) & (x <= top)

    def step(both, g):
        w, state = both
        exact, _ = tx.step(g, state, w)
        moved, state = tx.update(g, state, w)
        w = optax.apply_updates(w, moved)
        inside = [
            (x >= least) & (x < top) if rule is wrapped else (x > least) & (x <= top)
            for x in (w, exact)
        ]
        return (w, state), (jnp.stack(inside).all(), jnp.abs(w - exact).max())

    _, (inside, off) = jax.lax.scan(step, (w, tx.init(w)), jnp.asarray(g))
    assert inside.all()
    assert off.max() <= jnp.finfo(dtype).eps * max(abs(low), high)


def test_a_small_step_below_zero_stays_in_the_domain():
    tx = wrapped.optax(lr=1.0)
    for form in (tx.step, lambda *a: (optax.apply_updates(a[2], tx.update(*a)[0]), None)):
        w, _ = form(jnp.full(1, 1e-9), tx.init(jnp.zeros(1)), jnp.zeros(1))
        assert 0 <= w[0] < 1


# --- states --------------------------------------------------------------------------------------
def test_ten_steps_are_five_and_five_from_saved_leaves():
    make = lambda: gw.chain(rules.compact_sgd, rules.ema).optax(
        lr=gw.schedules.cosine(0.1, 20), rng=7
    )
    start = copied(arrays())
    ten, after = run(make(), start, 10)
    five, state = run(make(), start, 5)
    saved = [np.array(x) for x in jax.tree.leaves((five, state))]  # every leaf is an array
    fresh = (start, make().init(start))
    five, state = jax.tree.unflatten(jax.tree.structure(fresh), map(jnp.asarray, saved))
    again, end = run(make(), five, 5, first=5, state=state)
    jax.tree.map(np.testing.assert_array_equal, (ten, after), (again, end))


def test_init_of_shapes_and_under_jit():
    tx = gw.chain(rules.adam, rules.ema).optax()
    params = copied(arrays())
    shapes = jax.eval_shape(lambda: params)
    state = tx.init(params)
    like = jax.eval_shape(tx.init, shapes)
    assert jax.tree.structure(like) == jax.tree.structure(state)
    jax.tree.map(np.testing.assert_array_equal, jax.jit(tx.init)(params), state)
    jax.tree.map(
        np.testing.assert_array_equal,
        rules.adam.optax().init(shapes),
        rules.adam.optax().init(params),
    )
    with pytest.raises(gw.SignatureError, match="avg starts from the values of a, of which"):
        tx.init(shapes)


def test_donation_vmap_and_scan():
    tx = gw.chain(rules.adam, rules.ema).optax(lr=0.1)
    stacked = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
    rows = [run_once(tx, w) for w in stacked]
    ends = jax.vmap(lambda w: run_once(tx, w))(stacked)
    np.testing.assert_allclose(ends, jnp.stack(rows), rtol=1e-6)
    w = jnp.array(stacked)
    step = jax.jit(tx.step, donate_argnums=(1, 2))
    w, state = step(stacked, tx.init(w), w)
    assert step(stacked, state, w)[0].shape == (4, 3)


def run_once(tx, w):
    once = lambda both, _: (tx.step(jnp.ones(3), both[1], both[0]), None)
    return jax.lax.scan(once, (w, tx.init(w)), None, 3)[0][0]


def test_it_is_an_optax_transformation():
    tx = rules.adam.optax(lr=0.1)
    assert isinstance(tx, rules.adam.optax)
    assert isinstance(tx, optax.GradientTransformationExtraArgs)
    params = {"a": jnp.ones(3), "b": jnp.ones(2)}
    both = optax.chain(optax.clip_by_global_norm(1.0), tx)
    moved, _ = both.update(params, both.init(params), params)
    assert moved["a"][0] == pytest.approx(-0.1, rel=1e-3)
    some = optax.masked(tx, {"a": True, "b": False})
    moved, _ = some.update(params, some.init(params), params)
    assert (moved["a"][0], moved["b"][0]) == (pytest.approx(-0.1, rel=1e-3), 1)


def test_shardings_are_kept():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    w = jax.device_put(jnp.ones(8), spread)
    tx = rules.compact_sgd.optax(rng=0)
    new, state = jax.jit(tx.step)(w, tx.init(w), w)
    assert new.sharding.is_equivalent_to(spread, 1)


def test_eager_runs_the_plain_equation():
    seen = []

    @gw.rule
    def look(w, g, m=0.0, *, lr=0.5, step=1, rng):
        seen.append((type(w), step, lr))
        return w - lr * g + 0 * rng.normal(), m + 1

    tx = look.optax(rng=0)
    w, state = jnp.ones(2), tx.init(jnp.ones(2))
    with gw.eager():
        for _ in range(2):
            w, state = tx.step(jnp.ones(2), state, w)
        with pytest.raises(gw.GradwrightError, match="a step inside gw.eager"):
            jax.jit(tx.step)(w, state, w)
    assert seen[-2:] == [(np.ndarray, 1, 0.5), (np.ndarray, 2, 0.5)]  # init traced it
    np.testing.assert_array_equal(w, [0, 0])
    np.testing.assert_array_equal(state.slots["m"], [2, 2])


def test_one_step_of_a_rule_on_jax_arrays():
    w = jnp.ones(3)
    new, m, v = rules.adam(w, w, lr=0.1)
    assert isinstance(new, jax.Array)
    np.testing.assert_allclose(new, rules.adam(*[np.ones(3, np.float32)] * 2, lr=0.1)[0], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda w, g: rules.adam(w, g)[0])(w, w), [0.999] * 3)
