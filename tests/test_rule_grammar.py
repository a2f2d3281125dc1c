"""The grammar of a rule: slots, clocks, keywords and when they arrive, chains, partitions."""

import contextlib

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules, schedules

F4 = np.float32


def slots(optimizer, k=0):
    return optimizer.state_dict()["parameters"][k]["slots"]


# --- slots --------------------------------------------------------------------------------------
def half_rows(w):
    return np.full(w.shape[:-1], 0.5, w.dtype)


@gw.rule
def several(w, g, m=0.25, x0=lambda w: w, r=half_rows, d=gw.shared(2.0), *, lr=1.0):
    return w - lr * g, {"m": m + g, "r": r + np.sum(g, axis=-1), "d": d * lr}


def test_slots_start_as_they_were_declared():
    w = np.float32([[1, 2], [3, 4]])
    optimizer = several.numpy(w)
    np.testing.assert_array_equal(slots(optimizer)["m"], np.full((2, 2), 0.25, F4))
    np.testing.assert_array_equal(slots(optimizer)["x0"], w)
    np.testing.assert_array_equal(slots(optimizer)["r"], F4([0.5, 0.5]))
    assert optimizer.state_dict()["shared"] == {"d": 2.0}
    assert several.slots == ("m", "x0", "r", "d")
    for value in slots(optimizer).values():
        assert value.dtype == F4 and not np.shares_memory(value, w)


def test_a_dict_changes_the_slots_it_names():
    w = np.float32([[1, 2], [3, 4]])
    optimizer = several.numpy(w)
    optimizer.step(np.ones((2, 2), F4), lr=0.5)
    np.testing.assert_array_equal(w, [[0.5, 1.5], [2.5, 3.5]])
    np.testing.assert_array_equal(slots(optimizer)["x0"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(slots(optimizer)["m"], 1.25)
    np.testing.assert_array_equal(slots(optimizer)["r"], 2.5)
    assert optimizer.state_dict()["shared"] == {"d": 1.0}


def test_initial_values_are_overridden_by_keyword():
    w = np.ones((1, 2), F4)
    optimizer = several.numpy(w, m=7.0, d=1e-3, r=lambda w: np.zeros(1, F4), x0=0.0)
    assert slots(optimizer)["m"][0, 0] == 7 and optimizer.state_dict()["shared"] == {"d": 1e-3}
    assert slots(optimizer)["r"][0] == 0 and slots(optimizer)["x0"].tolist() == [[0, 0]]
    preset = several(d=5.0)
    assert preset.numpy(np.ones((1, 2))).state_dict()["shared"] == {"d": 5.0}


def test_slots_of_integers_keep_their_dtype():
    @gw.rule
    def counting(w, g, n=lambda w: np.zeros(w.shape, np.int32)):
        return w - g, n + (g > 0)

    optimizer = counting.numpy(np.zeros(3, F4))
    for _ in range(2):
        optimizer.step(np.float32([1, 0, 2]))
    assert slots(optimizer)["n"].dtype == np.int32 and slots(optimizer)["n"].tolist() == [2, 0, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("engine", ["auto", "numpy"])
@pytest.mark.parametrize(
    "function, w, k",
    [
        (lambda w, g, k=0.0, *, lr=0.25: (w - lr * g, 1.0), 0.75, 1),
        (lambda w, g, k=0.0, *, lr=0.25: (lr, np.sum(g)), 0.25, 6),
        (lambda w, g, k=0.0, *, step: (step, True), 1, 1),
        (lambda w, g, k=0.0: (np.float32(3), np.sum(g, axis=0)), 3, 2),
    ],
)
def test_numbers_and_slots_are_spread(function, w, k, engine, dtype):
    array = np.ones((2, 3), dtype)
    optimizer = gw.rule(function).options(engine=engine).numpy(array)
    optimizer.step(np.ones((2, 3), dtype))
    np.testing.assert_array_equal(array, np.full((2, 3), w, dtype), strict=True)
    np.testing.assert_array_equal(slots(optimizer)["k"], np.full((2, 3), k, dtype), strict=True)


def test_a_number_is_spread_before_the_next_rule_and_the_domain():
    w = np.ones(4, F4)
    gw.chain(gw.rule(lambda g: 1.0), rules.clip_by_global_norm, rules.sgd(lr=1.0)).numpy(w).step(w)
    np.testing.assert_array_equal(w, 0.5)
    gw.rule(domain="[0, 1)")(lambda w, g: 2.0).numpy(w).step(w)
    np.testing.assert_array_equal(w, np.nextafter(F4(1), F4(0)))


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        gw.rule(lambda w, g: np.mean(w - g, axis=0)),
        gw.rule(lambda w, g: np.mean(w - g, axis=0, keepdims=True)),
        gw.rule(lambda w, g: w[:1]),
        gw.chain(gw.rule(lambda g: np.mean(g, axis=0)), rules.sgd),
    ],
)
def test_a_smaller_w_or_g_is_not_spread(rule, eager):
    w = np.ones((2, 3), F4)
    mode = gw.eager if eager else contextlib.nullcontext
    with mode(), pytest.raises(gw.SignatureError, match="gives [wg] "):
        rule.numpy(w).step(np.ones((2, 3), F4))
    np.testing.assert_array_equal(w, 1)


def test_what_is_made_of_an_array_is_no_number():
    norm = gw.rule(lambda w, g: np.linalg.norm(w))
    with pytest.raises(gw.SignatureError, match=r"gives w 0 dimensions \(\), it has 1"):
        norm.numpy(np.ones(3)).step(np.ones(3))
    w = np.full((), 3.0)
    norm.numpy(w).step(w)
    assert w == 3


def test_a_rule_may_take_w_alone_or_g_then_w():
    w = np.full(2, 4.0)
    rules.decay(rate=0.5).numpy(w).step(np.ones(2))
    np.testing.assert_array_equal(w, 2)

    @gw.rule
    def pulled(g, w, n=0.0, *, weight=1.0):
        return g + weight * w, n + 1

    optimizer = gw.chain(pulled, rules.sgd(lr=1.0)).numpy(w)
    optimizer.step(np.zeros(2))
    np.testing.assert_array_equal(w, 0)
    assert slots(optimizer)["n"].tolist() == [1, 1]


# --- clocks -------------------------------------------------------------------------------------
@pytest.mark.parametrize("first", [0, 1, 5])
def test_step_counts_from_its_default(first):
    @gw.rule
    def clocked(w, g, *, step=first):
        return w * 0 + step

    w = np.zeros(1)
    optimizer = clocked.numpy(w)
    seen = []
    for _ in range(3):
        optimizer.step(np.zeros(1))
        seen.append(w[0])
    assert seen == [first, first + 1, first + 2]


def test_step_without_a_default_counts_from_one():
    @gw.rule
    def clocked(w, g, *, step):
        return w * 0 + step

    w = np.zeros(1)
    clocked.numpy(w).step(np.zeros(1))
    assert w[0] == 1


def test_bias_corrections_are_computed_in_float64():
    """float32 1 − b2**t is off by 2e-5 at t = 2."""

    @gw.rule
    def correction(w, g, *, b2=0.999, step=1):
        return w * 0 + (1 - b2**step)

    w = np.zeros(1, F4)
    optimizer = correction.numpy(w)
    for t in range(1, 5):
        optimizer.step(np.zeros(1, F4))
        assert w[0] == F4(1 - 0.999**t)


def test_a_schedule_counts_updates_of_the_optimizer_and_step_those_of_the_parameter():
    @gw.rule
    def clocks(w, g, *, count=0.0, step=1):
        return w * 0 + 100 * count + step

    w = [np.zeros(1), np.zeros(1)]
    optimizer = clocks.numpy(w, count=schedules.of(lambda count: count))
    for k in range(4):
        optimizer.step([np.zeros(1), np.zeros(1) if k == 3 else None])
    assert (w[0][0], w[1][0]) == (304, 301)


# --- schedules ----------------------------------------------------------------------------------
SCHEDULES = [
    (schedules.constant(0.5), [0.5, 0.5, 0.5, 0.5]),
    (schedules.linear(1.0, 0.0, 4), [1, 0.75, 0.5, 0.25, 0, 0]),
    (schedules.linear(1.0, 0.5, 2, warmup=2), [0.5, 1, 1, 0.75, 0.5, 0.5]),
    (schedules.linear(0.0, 1.0, 2), [0, 0.5, 1, 1]),
    (schedules.cosine(1.0, 4), [1, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0, 0]),
    (schedules.cosine(1.0, 2, end=0.2, warmup=4), [0.25, 0.5, 0.75, 1, 1, 0.6, 0.2, 0.2]),
    (schedules.exponential(1.0, 0.5), [1, 0.5, 0.25, 0.125]),
    (schedules.exponential(1.0, 0.5, every=2), [1, 0.5**0.5, 0.5, 0.5**1.5, 0.25]),
    (schedules.exponential(2.0, 0.1, warmup=1), [2, 2, 0.2, 0.02]),
    (schedules.piecewise(1.0, {3: 0.1, 2: 0.5}), [1, 1, 0.5, 0.1, 0.1]),
    (schedules.of(lambda count: 1 / (count + 1)), [1, 1 / 2, 1 / 3]),
]


@pytest.mark.parametrize("schedule, values", SCHEDULES, ids=lambda x: repr(x)[:40])
def test_the_values_of_a_schedule_and_that_a_rule_sees_them(schedule, values):
    np.testing.assert_allclose([schedule(k) for k in range(len(values))], values, atol=1e-12)

    @gw.rule
    def shown(w, g, *, lr):
        return w * 0 + lr

    w = np.zeros(1)
    optimizer = shown.numpy(w, lr=schedule)
    for value in values:
        optimizer.step(np.zeros(1))
        assert w[0] == pytest.approx(value, abs=1e-12)
    assert len(optimizer._preset._plans) == 1


def test_schedules_show_how_they_were_made():
    assert repr(schedules.cosine(0.1, 10, end=0.01)) == "cosine(0.1, 10, end=0.01)"
    assert repr(schedules.linear(1.0, 0.0, 5, warmup=2)) == "linear(1.0, 0.0, 5, warmup=2)"
    assert repr(schedules.exponential(1.0, 0.5)) == "exponential(1.0, 0.5)"


@pytest.mark.parametrize("make", [
    lambda: schedules.linear(1.0, 0.0, 0),
    lambda: schedules.cosine(1.0, -1),
    lambda: schedules.exponential(1.0, 0.5, every=0),
])  # fmt: skip
def test_schedules_over_no_steps_are_refused(make):
    with pytest.raises(gw.SignatureError, match="a schedule over"):
        make()


# --- keywords -----------------------------------------------------------------------------------
@gw.rule
def wants(w, g, *, lr, scale=gw.given, extra=None, offset=0.0):
    w = w - lr * scale * g + offset
    return w if extra is None else w + extra


def test_a_keyword_without_a_default_is_given_when_the_optimizer_is_made():
    w = np.zeros(2)
    with pytest.raises(gw.SignatureError, match="wants has no value for lr"):
        wants.numpy(w).step(np.ones(2), scale=1.0)
    optimizer = wants.numpy(w, lr=1.0)
    with pytest.raises(gw.SignatureError, match="scale arrives at every step, and did not"):
        optimizer.step(np.ones(2))
    assert not w.any() and optimizer.steps == 0
    optimizer.step(np.ones(2), scale=2.0)
    np.testing.assert_array_equal(w, -2)
    optimizer.step(np.ones(2), scale=1.0, extra=10.0)
    np.testing.assert_array_equal(w, 7)
    optimizer.step(np.ones(2), scale=1.0, lr=5.0)  # any keyword, for one step
    optimizer.step(np.ones(2), scale=1.0)
    np.testing.assert_array_equal(w, 1)


def test_an_array_for_one_parameter_and_a_tree_for_many():
    w = np.zeros(2)
    optimizer = wants.numpy(w, lr=1.0)
    optimizer.step(np.ones(2), scale=np.array([1.0, 2.0]), extra=np.array([0.0, 1.0]))
    np.testing.assert_array_equal(w, [-1, -1])
    w = {"a": np.zeros(2), "b": [np.zeros((2, 2)), np.zeros(())]}
    ones = {"a": np.ones(2), "b": [np.ones((2, 2)), np.ones(())]}
    optimizer = wants.numpy(w, lr=1.0)
    scale = {"a": 1.0, "b": [np.float64(2.0), np.ones(())]}
    extra = {"a": np.ones(2), "b": [None, np.full((), 3.0)]}
    optimizer.step(ones, scale=scale, extra=extra)
    np.testing.assert_array_equal(w["a"], 0)
    np.testing.assert_array_equal(w["b"][0], -2)
    np.testing.assert_array_equal(w["b"][1], 2)


def test_a_tuple_is_one_hyperparameter():
    @gw.rule
    def betas(w, g, m=0.0, *, lr=1.0, betas=(0.5, 0.25)):
        m = betas[0] * m + g
        return w - lr * betas[1] * m, m

    w = [np.zeros(2), np.zeros(2)]
    optimizer = betas.numpy(w)
    optimizer.step([np.ones(2)] * 2)
    optimizer.step([np.ones(2)] * 2, betas=(0.0, 1.0))
    np.testing.assert_array_equal(w, [[-1.25] * 2] * 2)
    assert len(optimizer._preset._plans) == 1


def test_per_param_differs_by_parameter_and_may_give_schedules():
    seen = []

    def rate(name, w):
        seen.append((name, w.ndim))
        return schedules.linear(1.0, 0.0, 2) if name == "head.W" else 0.5

    w = {"head": {"W": np.zeros((1, 1))}, "b": np.zeros(1)}
    ones = {"head": {"W": np.ones((1, 1))}, "b": np.ones(1)}
    optimizer = rules.sgd.numpy(w, lr=gw.per_param(rate))
    for _ in range(3):
        optimizer.step(ones)
    assert w["head"]["W"][0, 0] == -1.5 and w["b"][0] == -1.5
    assert set(seen) == {("head.W", 2), ("b", 1)}


def test_per_param_in_a_preset_and_in_a_group():
    rate = gw.per_param(lambda name, w: 2.0 if name == "a" else 1.0)
    w = {"a": np.zeros(1), "b": np.zeros(1)}
    rules.sgd(lr=rate).numpy(w).step({"a": np.ones(1), "b": np.ones(1)})
    assert (w["a"][0], w["b"][0]) == (-2, -1)
    x, y = np.zeros(1), np.zeros(1)
    groups = [{"params": {"a": x}, "lr": rate}, {"params": y, "lr": 3.0}]
    rules.sgd.numpy(groups).step([{"a": np.ones(1)}, np.ones(1)])
    assert (x[0], y[0]) == (-2, -3)


def test_presets_are_defaults_and_rules():
    fast = rules.adam(lr=0.5, b1=0.0)
    assert fast.hyperparams["lr"] == 0.5 and rules.adam.hyperparams["lr"] == 1e-3
    assert fast(lr=0.25).hyperparams == {"lr": 0.25, "b1": 0.0, "b2": 0.999, "eps": 1e-8}
    w = np.zeros(1)
    fast.numpy(w).step(np.ones(1))
    assert w[0] == pytest.approx(-0.5)
    assert rules.sgld(rng=3).seed == 3 and rules.sgld(rng=3).numpy(w)._seed == 3


# --- shared slots, sums, records ----------------------------------------------------------------
def test_a_shared_slot_is_one_number():
    @gw.rule
    def scaled(w, g, d=gw.shared(1.0), *, lr=1.0):
        d = d + gw.global_sum(g)
        return w - lr * d, {"d": d}

    w = [np.zeros(2), np.zeros((2, 2)), np.zeros(1)]
    optimizer = scaled.numpy(w)
    optimizer.step([np.ones(2), np.ones((2, 2)), None])
    assert optimizer.state_dict()["shared"] == {"d": 7.0}
    np.testing.assert_array_equal(w[0], -7)
    np.testing.assert_array_equal(w[1], -7)
    np.testing.assert_array_equal(w[2], 0)


def test_a_global_sum_is_over_all_groups():
    w = [np.zeros(1, F4), np.zeros(1, F4)]
    rule = gw.chain(rules.clip_by_global_norm(max_norm=1.0), rules.sgd)
    optimizer = rule.numpy([{"params": w[0], "lr": 1.0}, {"params": w[1], "lr": 10.0}])
    optimizer.step([np.full(1, 3, F4), np.full(1, 4, F4)])
    np.testing.assert_allclose(w, [[-0.6], [-8.0]], rtol=1e-6)


def test_sums_of_sums():
    """Three phases: each sum is made with the one before."""

    @gw.rule
    def nested(w, g):
        first = gw.global_sum(g)
        second = gw.global_sum(g / first)
        third = gw.global_sum(g * second + first)
        return w + first + 10 * second + 100 * third

    w = [np.zeros(1), np.zeros(2)]
    nested.numpy(w).step([np.ones(1), np.ones(2)])
    total = 3 + 10 * 1 + 100 * (3 * 1 + 3 * 3)
    np.testing.assert_allclose(w[0], total)
    np.testing.assert_allclose(w[1], total)


def test_a_global_sum_of_float32_over_parameters_is_in_double_precision():
    @gw.rule
    def total(w, g):
        return w * 0 + gw.record("total", gw.global_sum(g))

    w = [np.zeros(1, F4) for _ in range(3)]
    optimizer = total.numpy(w)
    optimizer.step([np.full(1, x, F4) for x in (2**24, 1, 1)])
    assert optimizer.recorded["total"] == [2**24 + 2] * 3


def test_what_is_recorded_has_the_structure_of_the_parameters():
    @gw.rule
    def shown(w, g, *, lr=0.5):
        gw.record("unused", 2 * g)
        return w - gw.record("move", lr * g)

    w = {"a": [np.zeros(2), np.zeros(1)], "b": (np.zeros(()),)}
    optimizer = shown.numpy(w)
    assert optimizer.recorded == {}
    optimizer.step({"a": [np.ones(2), None], "b": (np.ones(()),)})
    move = optimizer.recorded["move"]
    assert move["a"][0].tolist() == [0.5, 0.5] and move["a"][1] is None and move["b"] == (0.5,)
    assert optimizer.recorded["unused"]["a"][0].tolist() == [2, 2]


def test_records_are_the_last_steps_values_and_stay_what_they_were():
    @gw.rule
    def shown(w, g):
        return gw.record("w", w) - gw.record("g", g)

    w, g = np.zeros(2), np.ones(2)
    optimizer = shown.numpy(w)
    optimizer.step(g)
    before, gradient = optimizer.recorded["w"], optimizer.recorded["g"]
    g[:] = 7
    optimizer.step(g)
    np.testing.assert_array_equal(before, 0)
    np.testing.assert_array_equal(gradient, 1)
    np.testing.assert_array_equal(optimizer.recorded["w"], -1)


# --- one step -----------------------------------------------------------------------------------
def test_a_rule_called_with_arrays_is_one_step():
    w, g = np.zeros(2, F4), np.ones(2, F4)
    new = rules.sgd(w, g, lr=0.5)
    np.testing.assert_array_equal(new, F4([-0.5, -0.5]))
    assert new.dtype == F4 and not w.any()
    new, m, v = rules.adam(w, g, lr=0.5)
    np.testing.assert_allclose(new, -0.5, rtol=1e-6)
    np.testing.assert_allclose(m, 0.1, rtol=1e-6)
    again, m2, v2 = rules.adam(w, g, m, v)
    np.testing.assert_allclose(m2, 0.19, rtol=1e-6)
    moved, m = rules.momentum(w, g, 2 * np.ones(2, F4), lr=1.0, mu=0.5)
    np.testing.assert_array_equal(moved, -2)


def test_one_step_of_transforms_projections_chains_and_noise():
    np.testing.assert_array_equal(rules.clip(F4([-5, 0.5])), F4([-1, 0.5]))
    np.testing.assert_array_equal(rules.l2(F4([1]), F4([2]), weight=3.0), F4([7]))
    np.testing.assert_array_equal(rules.wrap(F4([1.25])), F4([0.25]))
    both = gw.chain(rules.clip, rules.sgd(lr=1.0))
    np.testing.assert_array_equal(both(F4([0.0]), F4([5.0])), F4([-1]))
    w = np.zeros(3, F4)
    noisy = rules.sgld(w, w, rng=0)
    rules.sgld.numpy(w, rng=0).step(np.zeros(3, F4))
    np.testing.assert_array_equal(noisy, w)
    with gw.eager():
        np.testing.assert_array_equal(rules.clip(F4([-5, 0.5])), F4([-1, 0.5]))


def test_one_step_with_a_shared_slot_gives_it_back():
    w, m, x0, r, d = several(np.ones((1, 2)), np.ones((1, 2)), lr=0.5)
    assert w.tolist() == [[0.5, 0.5]] and m.tolist() == [[1.25, 1.25]] and d == 1.0
    assert r.tolist() == [2.5]


@pytest.mark.parametrize("call", [
    lambda: rules.sgd(0.1),
    lambda: rules.sgd(np.ones(2)),
    lambda: rules.sgd(np.ones(2), np.ones(2), np.ones(2)),
    lambda: rules.clip_by_global_norm(1.0),
])  # fmt: skip
def test_positional_numbers_are_no_preset(call):
    with pytest.raises(gw.SignatureError, match="keywords for a preset"):
        call()


# --- chains -------------------------------------------------------------------------------------
def test_a_chain_threads_g_then_w_through():
    rule = gw.chain(rules.clip(low=-1.0, high=1.0), rules.momentum(mu=0.5), rules.clamp(low=-2.0))
    w = np.zeros(1)
    optimizer = rule.numpy(w, lr=1.0)
    seen = []
    for _ in range(3):
        optimizer.step(np.full(1, 9.0))
        seen.append(w[0])
    assert seen == [-1, -2, -2] and slots(optimizer)["m"][0] == 1.75


def test_later_rules_of_a_chain_see_what_earlier_ones_gave():
    @gw.rule
    def from_both(w, g):
        return w + 10 * g

    w = np.zeros(1)
    gw.chain(rules.clip, rules.sgd(lr=1.0), from_both).numpy(w).step(np.full(1, 9.0))
    assert w[0] == 9  # g is the clipped 1


def test_equal_slots_and_keywords_of_a_chain_get_the_rules_name():
    both = gw.chain(rules.momentum(lr=1.0), rules.nesterov(lr=2.0))
    assert both.slots == ("momentum.m", "nesterov.m")
    assert both.hyperparams == {"momentum.lr": 1.0, "nesterov.lr": 2.0, "mu": 0.9}
    twice = gw.chain(rules.ema(decay=0.5), rules.ema(decay=0.25))
    assert twice.slots == ("ema.avg", "ema2.avg") and twice.name == "ema_ema2"
    assert twice.hyperparams == {"ema.decay": 0.5, "ema2.decay": 0.25}


def test_labelled_names_are_keywords():
    both = gw.chain(rules.ema(decay=0.5), rules.ema(decay=0.25))
    w = np.ones(1)
    optimizer = both.numpy(w, **{"ema.avg": 0.0, "ema2.avg": 0.0, "ema.decay": 0.0})
    optimizer.step(np.zeros(1))
    assert [float(x[0]) for x in slots(optimizer).values()] == [1, 0.75]
    optimizer.step(np.zeros(1), **{"ema2.decay": 1.0})
    assert [float(x[0]) for x in slots(optimizer).values()] == [1, 0.75]


def test_one_name_is_one_hyperparameter_where_no_preset_says_otherwise():
    both = gw.chain(rules.momentum, rules.sgd)
    assert both.hyperparams == {"lr": 0.01, "mu": 0.9}
    w = np.zeros(1)
    both.numpy(w, lr=1.0).step(np.ones(1))
    assert w[0] == -2
    assert gw.chain(rules.momentum(lr=1.0), rules.sgd(lr=1.0)).hyperparams["lr"] == 1.0


def test_a_preset_of_one_rule_of_a_chain_is_its_own():
    rule = gw.chain(rules.momentum(lr=1.0), rules.sgd)
    assert rule.hyperparams == {"momentum.lr": 1.0, "mu": 0.9, "sgd.lr": 0.01}
    w = np.zeros(1)
    rule.numpy(w, lr=0.5).step(np.ones(1))  # a plain name is for all that have it
    assert w[0] == -1


def test_chains_of_chains():
    inner = gw.chain(rules.clip, rules.sgd(lr=1.0))
    w = np.zeros(1)
    gw.chain(rules.l2, inner, rules.decay(rate=0.5)).numpy(w, weight=0.0).step(np.full(1, 9.0))
    assert w[0] == -0.5


# --- partitions ---------------------------------------------------------------------------------
def test_the_first_pattern_that_matches_says_the_rule():
    mixed = gw.partition(
        {"*.W": rules.sgd(lr=1.0), "head*": rules.sgd(lr=2.0), "*": rules.momentum}
    )
    w = {"head": {"W": np.zeros(1), "b": np.zeros(1)}, "x": np.zeros(1)}
    optimizer = mixed.numpy(w)
    for _ in range(2):
        optimizer.step({"head": {"W": np.ones(1), "b": np.ones(1)}, "x": np.ones(1)})
    assert (w["head"]["W"][0], w["head"]["b"][0]) == (-2, -4)
    assert w["x"][0] == pytest.approx(-0.01 * 2.9)
    kept = {p["name"]: list(p["slots"]) for p in optimizer.state_dict()["parameters"]}
    assert kept == {"head.W": [], "head.b": [], "x": ["m"]}


def test_a_partitions_keywords_by_plain_and_by_labelled_name():
    mixed = gw.partition({"a": rules.sgd(lr=1.0), "*": rules.momentum(lr=2.0, mu=0.5)})
    assert mixed.hyperparams == {"sgd.lr": 1.0, "momentum.lr": 2.0, "mu": 0.5}

    def moved(change=None, **keywords):
        w = {"a": np.zeros(1), "b": np.zeros(1)}
        optimizer = mixed.numpy(w, **keywords)
        for _ in range(2):
            optimizer.step({"a": np.ones(1), "b": np.ones(1)}, **(change or {}))
        return w["a"][0], w["b"][0]

    assert moved() == (-2, -5)
    assert moved(mu=0.0) == (-2, -4)
    assert moved(lr=3.0) == (-6, -7.5)
    assert moved(**{"sgd.lr": 3.0}) == (-6, -5)
    assert moved({"sgd.lr": 3.0}) == (-6, -5)
    assert moved({"lr": 0.0}) == (0, 0)
    w = {"a": np.zeros(1), "b": np.zeros(1)}
    optimizer = mixed.numpy(w)
    optimizer.param_groups[0]["momentum.lr"] = 0.0
    optimizer.step({"a": np.ones(1), "b": np.ones(1)})
    assert (w["a"][0], w["b"][0]) == (-1, 0)


def test_a_partition_of_chains_sums_over_the_parameters_of_each_rule():
    clipped = gw.chain(rules.clip_by_global_norm(max_norm=1.0), rules.sgd(lr=1.0))
    w = {"a": np.zeros(1), "b": np.zeros(1), "c": np.zeros(1)}
    mixed = gw.partition({"[ab]": clipped, "*": rules.sgd(lr=1.0)})
    mixed.numpy(w).step({"a": np.full(1, 3.0), "b": np.full(1, 4.0), "c": np.full(1, 5.0)})
    np.testing.assert_allclose([w[n][0] for n in "abc"], [-0.6, -0.8, -5])


def test_one_step_of_a_partition_is_that_of_an_array_named_w():
    mixed = gw.partition({"w": rules.sgd(lr=1.0), "*": rules.sgd(lr=100.0)})
    np.testing.assert_array_equal(mixed(np.zeros(1), np.ones(1)), [-1])


@pytest.mark.parametrize("make, text", [
    (lambda: gw.partition({}), "gw.partition of no rules"),
    (lambda: gw.partition({"*": rules.clip}), "clip rewrites g, and nothing applies it to w"),
    (lambda: gw.partition({"*": 3}), "gw.partition of 3 for '*'"),
    (lambda: gw.chain(gw.partition({"*": rules.sgd})), "a partition of chains, not the reverse"),
])  # fmt: skip
def test_partitions_that_cannot_be(make, text):
    with pytest.raises(gw.SignatureError) as error:
        make()
    assert text in str(error.value)


def test_a_partition_is_saved_and_loaded(tmp_path):
    mixed = gw.partition({"a": rules.sgld(rng=0), "*": rules.adam})

    def run(steps, load=None):
        w = {"a": np.zeros(3, F4), "b": np.zeros(3, F4)}
        optimizer = mixed.numpy(w)
        if load:
            optimizer.load(load)
        for _ in range(steps):
            optimizer.step({"a": np.ones(3, F4), "b": np.ones(3, F4)})
        return w, optimizer

    whole, _ = run(6)
    run(3)[1].save(tmp_path / "a.npz")
    resumed, _ = run(3, tmp_path / "a.npz")
    np.testing.assert_array_equal(whole["a"], resumed["a"])
    np.testing.assert_array_equal(whole["b"], resumed["b"])
