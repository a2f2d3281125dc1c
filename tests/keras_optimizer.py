"""Optimizers in Keras, on the backend that KERAS_BACKEND names: `test_keras.py` runs this file."""

import os
from pathlib import Path

import keras
import ml_dtypes
import numpy as np
import pytest
from keras_modes import (
    BACKEND,
    GRADIENTS,
    MODES,
    START,
    a_while,
    by_numpy,
    eagerly,
    numbers,
    tensors,
)
from keras_parts import by_name, circle, jump, noisy

import gradwright as gw
from gradwright import rules

FOLDER = Path(os.environ.get("KERAS_FOLDER", "."))
in_every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda f: f.__name__)
FULL = gw.chain(rules.clip_by_global_norm(max_norm=0.5), rules.adamw, rules.ema(decay=0.9))
X = np.random.default_rng(1).normal(size=(32, 4)).astype(np.float32)
Y = np.sum(X, axis=1, keepdims=True)


def model(*layers):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), *(layers or [keras.layers.Dense(1)])])


def fitted(optimizer, epochs=3, net=None, **compiling):
    net = net or model()
    net.compile(optimizer, "mse", **{"jit_compile": False, **compiling})
    net.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return net


def variables(values=START):
    return [keras.Variable(a) for a in values]


def close(got, wanted, **tolerance):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


# --- one trajectory, in every mode ---------------------------------------------------------------
TRAINED = {
    "sgd": (rules.sgd, {"lr": 0.05}),
    "adam": (rules.adam, {"lr": 0.01}),
    "compact_sgd": (rules.compact_sgd, {"low": -1.0, "high": 1.0, "rng": 3}),
    "schedule": (rules.sgd, {"lr": gw.schedules.cosine(0.1, 100, warmup=5)}),
    "chain": (FULL, {"lr": 0.01}),
}


def on_the_circle(difference, keywords):
    size = keywords.get("high", np.inf) - keywords.get("low", 0.0)
    return np.minimum(np.abs(difference), size - np.abs(difference))


@in_every_mode
@pytest.mark.parametrize("case", TRAINED)
def test_the_trajectory_is_numpys(case, mode):
    rule, keywords = TRAINED[case]
    gradients = a_while(mode)
    ours, exact = (run(rule, keywords, gradients=gradients) for run in (mode, by_numpy))
    for w, reference in zip(ours, exact, strict=True):
        assert on_the_circle(w - reference, keywords).max(initial=0.0) <= 5e-6


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (rules.sgd(lr=0.05), lambda: keras.optimizers.SGD(0.05)),
        (rules.momentum(lr=0.05, mu=0.9), lambda: keras.optimizers.SGD(0.05, momentum=0.9)),
        (rules.nesterov(lr=0.05), lambda: keras.optimizers.SGD(0.05, 0.9, nesterov=True)),
        (rules.lion(lr=0.01), lambda: keras.optimizers.Lion(0.01)),
    ],
)
def test_the_conventions_are_those_of_kerass_own_optimizers(ours, theirs):
    close(fitted(ours.keras()).get_weights(), fitted(theirs()).get_weights(), atol=2e-6)


@in_every_mode
def test_noise_has_numpys_bits_for_every_shape(mode):
    start = [np.zeros(shape, np.float32) for shape in [(), (1,), (5,), (0, 2), (3, 7)]]
    ours = mode(jump, {"rng": 2**55 + 9}, start, [start] * 3)
    exact = by_numpy(jump, {"rng": 2**55 + 9}, start, [start] * 3)
    for a, b in zip(ours, exact, strict=True):
        np.testing.assert_array_equal(a, b)
    assert ours[1] != ours[2][0]


@in_every_mode
def test_the_domain_is_never_left(mode):
    rng = np.random.default_rng(0)
    tiny = np.finfo(np.float32).smallest_subnormal
    awkward = np.float32([0, -0.0, tiny, -tiny, 1e-9, -1e-9, 1.0, 1e10, -1e10])
    start = np.clip(rng.choice(awkward, 10_000), 0, np.nextafter(np.float32(1), np.float32(0)))
    seen = gw.chain(circle, gw.rules.ema(decay=0.0))
    steps = [[rng.choice(awkward, 10_000)] for _ in range(200 if mode is eagerly else 20)]
    for first in (start, np.zeros(10_000, np.float32)):
        (w,) = mode(seen, {}, [first], steps)
        assert w.min() >= 0 and w.max() < 1
    (w,) = mode(circle, {}, [np.float32([0.0])], [[np.float32([1e-9])]])
    assert w[0] == np.nextafter(np.float32(1), np.float32(0))


# --- in training ---------------------------------------------------------------------------------
def test_fit_is_the_same_compiled_or_not():
    compiled, plain = (
        fitted(noisy.keras(), jit_compile=jit and BACKEND != "torch") for jit in (True, False)
    )
    close(compiled.get_weights(), plain.get_weights(), atol=1e-6)
    assert compiled.optimizer.steps == 12
    assert isinstance(compiled.optimizer, keras.optimizers.Optimizer)
    assert isinstance(compiled.optimizer, noisy.keras)
    loss = [compiled.evaluate(X, Y, verbose=0) for _ in range(2)]
    assert loss[0] < model_loss()


def model_loss():
    net = model()
    net.compile("sgd", "mse")
    return net.evaluate(X, Y, verbose=0)


def test_callbacks_set_the_learning_rate():
    rates = [0.1, 0.05, 0.0]
    net = model()
    net.compile(rules.sgd.keras(lr=1.0), "mse")
    set_ = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rates[epoch])
    seen = []
    look = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(net.get_weights()[0]))
    net.fit(X, Y, epochs=3, verbose=0, callbacks=[set_, look])
    assert float(net.optimizer.learning_rate) == 0.0
    assert np.any(seen[0] != seen[1]) and np.all(seen[1] == seen[2])


def test_schedules_of_keras_and_ours_are_the_learning_rate():
    theirs = keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.5)
    ours = gw.schedules.exponential(0.1, 0.5, every=5)
    wanted = fitted(keras.optimizers.SGD(theirs)).get_weights()
    for lr in (theirs, ours):
        net = fitted(rules.sgd.keras(lr=lr))
        close(net.get_weights(), wanted, rtol=1e-5)
        assert abs(float(net.optimizer.learning_rate) - 0.1 * 0.5 ** (12 / 5)) < 1e-6
    function = rules.sgd.keras(lr=lambda: 0.1)
    close(fitted(function).get_weights(), fitted(rules.sgd.keras(lr=0.1)).get_weights(), rtol=1e-6)


def test_every_hyperparameter_is_a_variable():
    optimizer, (w,) = rules.momentum.keras(lr=0.1, mu=0.5), variables([np.float32([1.0])])
    g = tensors([np.float32([1.0])])
    optimizer.build([w])
    step = COMPILED[BACKEND](lambda: optimizer.apply(g, [w]))
    step()
    optimizer.hyperparams["mu"].assign(0.0)
    optimizer.learning_rate = 1.0
    step()
    np.testing.assert_allclose(numbers([w])[0], [1 - 0.1 - 1], rtol=1e-6)
    assert set(optimizer.hyperparams) == {"lr", "mu"}
    assert all(isinstance(v, keras.Variable) for v in optimizer.hyperparams.values())


TRACES = []


def once_traced(f):
    import tensorflow as tf

    def counted():
        TRACES.append(1)
        f()

    def run():
        function()
        assert len(TRACES) <= 1

    function = tf.function(counted, jit_compile=True)
    return run


COMPILED = {"tensorflow": once_traced, "torch": lambda f: f, "jax": lambda f: f}


def once(optimizer, gradients, ws):
    """A step; on JAX Keras scales losses in the stateless form only."""
    if BACKEND != "jax":
        return optimizer.apply(tensors(gradients), ws)
    import jax

    state, step = [v.value for v in optimizer.variables], jax.jit(optimizer.stateless_apply)
    new, state = step(state, tensors(gradients), [w.value for w in ws])
    for v, x in zip([*ws, *optimizer.variables], [*new, *state], strict=True):
        v.assign(x)
    return None


def test_loss_scaling_skips_what_is_not_finite():
    rule = rules.momentum(lr=0.1) if BACKEND == "jax" else noisy  # XLA compiles noise for long
    inner = rule.keras()
    optimizer, ws = keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0), variables()
    optimizer.build(ws)
    scaled = [[4 * a for a in g] for g in GRADIENTS[:3]]
    once(optimizer, scaled[0], ws)
    kept = numbers([*ws, *inner.variables])
    once(optimizer, [a * np.float32(np.inf) for a in scaled[1]], ws)
    for a, b in zip(kept, numbers([*ws, *inner.variables]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert float(optimizer.dynamic_scale) == 2.0
    again = [[a / 2 for a in g] for g in scaled[2:]]
    once(optimizer, again[0], ws)
    close(numbers(ws), by_numpy(rule, {}, gradients=[GRADIENTS[0], GRADIENTS[2]]), atol=1e-6)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        net = fitted(rules.adam.keras(lr=0.05))
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(net.optimizer, keras.optimizers.LossScaleOptimizer)
    assert net.evaluate(X, Y, verbose=0) < model_loss()


# --- what moves ----------------------------------------------------------------------------------
def test_none_moves_nothing_and_clocks_are_each_variables_own():
    optimizer, ws = rules.adam.keras(lr=0.1), variables()
    optimizer.apply(tensors(GRADIENTS[0]), ws)
    kept = numbers([ws[1], optimizer.slots["m"][1]])
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply([*tensors(GRADIENTS[1][:1]), None, *tensors(GRADIENTS[1][2:])], ws)
    for a, b in zip(kept, numbers([ws[1], optimizer.slots["m"][1]]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert numbers([optimizer._state.updates])[0].tolist() == [2, 1, 2]
    assert optimizer.steps == 2


def test_a_sum_over_all_variables_has_all_of_them_and_is_recorded():
    optimizer = gw.chain(rules.clip_by_global_norm(max_norm=1.0), rules.sgd).keras(lr=1.0)
    a, b = variables([np.float32([3.0]), np.float32([[4.0]])])
    optimizer.apply_gradients(zip(tensors(numbers([a, b])), [a, b], strict=True))
    np.testing.assert_allclose(numbers([a])[0], [3 - 0.6], rtol=1e-6)
    np.testing.assert_allclose(numbers([b])[0], [[4 - 0.8]], rtol=1e-6)
    assert [float(x) for x in optimizer.recorded["grad_norm"].values()] == [5.0, 5.0]


@gw.rule
def prodigy_like(w, g, x0=lambda w: w, d=gw.shared(1e-3), *, lr=1.0):
    d = np.maximum(d, lr * gw.global_sum(g * (x0 - w)) / gw.global_sum(np.abs(g)))
    return w - d * g, {"d": d}


@in_every_mode
def test_a_shared_slot_is_one_number_and_slots_may_start_from_w(mode):
    ours = mode(prodigy_like, {}, gradients=[START] * 20)
    close(ours, by_numpy(prodigy_like, {}, gradients=[START] * 20), rtol=5e-6)


@in_every_mode
def test_a_step_that_is_not_finite_is_skipped(mode):
    rule = noisy.options(skip_nonfinite=True)
    bad = [[g[0] * np.float32(np.nan), *g[1:]] for g in GRADIENTS[:1]]
    ours = mode(rule, {}, gradients=[*GRADIENTS[:3], *bad, *GRADIENTS[3:6]])
    close(ours, by_numpy(noisy, {}, gradients=GRADIENTS[:6]), atol=1e-6)


@in_every_mode
@pytest.mark.parametrize("by_kerass_keyword", [True, False])
def test_gradients_are_accumulated(by_kerass_keyword, mode):
    lr = gw.schedules.linear(0.1, 0.0, 4)
    rule = gw.chain(rules.momentum(lr=lr), jump(size=0.01, rng=1))
    keywords = {"gradient_accumulation_steps": 3} if by_kerass_keyword else {}
    ours = rule if by_kerass_keyword else rule.options(accumulate=3)
    got = mode(ours, keywords, gradients=GRADIENTS[:10])
    close(got, by_numpy(rule.options(accumulate=3), {}, gradients=GRADIENTS[:10]), atol=1e-6)


def test_weight_decay_is_once():
    ones, (w,) = tensors([np.zeros(2, np.float32)]), variables([np.ones(2, np.float32)])
    rules.adamw.keras(lr=0.1, weight_decay=0.1).apply(ones, [w])
    np.testing.assert_allclose(numbers([w])[0], 0.99, rtol=1e-6)
    (w,) = variables([np.ones(2, np.float32)])  # Keras' own, for a rule that has none
    rules.sgd.keras(lr=0.1, weight_decay=0.1).apply(ones, [w])
    np.testing.assert_allclose(numbers([w])[0], 0.99, rtol=1e-6)


def test_kerass_settings_hold_before_and_after_the_rule():
    clipped = fitted(rules.sgd.keras(lr=0.1, clipvalue=0.5)).get_weights()
    close(clipped, fitted(keras.optimizers.SGD(0.1, clipvalue=0.5)).get_weights(), atol=1e-6)
    (w,) = variables([np.float32([1.0])])
    w.constraint = keras.constraints.NonNeg()
    optimizer = rules.sgd.keras(lr=1.0, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3)
    seen = []
    for g in (3.0, -1.0, -1.0, -1.0):
        optimizer.apply(tensors([np.float32([g])]), [w])
        seen.append(numbers([w, optimizer._model_variables_moving_average[0]]))
    # 0, 1, 2 → the average 1.25, 2.25; the average of what the constraint left
    np.testing.assert_allclose(np.ravel(seen), [0, 0, 1, 0.5, 1.25, 1.25, 2.25, 1.75])
    optimizer.finalize_variable_values([w])
    np.testing.assert_allclose(numbers([w])[0], [1.75])


def test_names_choose_rules_and_hyperparameters():
    net = model(keras.layers.Dense(2, name="layer_1"), keras.layers.Dense(1, name="head"))
    rate = gw.per_param(lambda name, w: 0.0 if "layer_1" in name else gw.schedules.constant(0.1))
    start = net.get_weights()
    after = fitted(rules.sgd.keras(lr=rate), net=net).get_weights()
    assert [np.any(a != b) for a, b in zip(start, after, strict=True)] == [False, False, True, True]
    optimizer = by_name.keras()
    after = fitted(optimizer).get_weights()
    assert optimizer.slots["m"][1] is None and optimizer.slots["m"][0] is not None
    assert set(optimizer.hyperparams) >= {"*/bias.lr", "*.lr", "b1"}
    assert not hasattr(optimizer, "learning_rate")
    both = by_name.keras(lr=0.25)
    assert float(both.learning_rate) == 0.25


def test_a_keyword_arrives_at_a_step():
    @gw.rule
    def polyak(w, g, *, value=gw.given, scale=1.0):
        return w - scale * value * g

    optimizer, (w,) = polyak.keras(), variables([np.ones(2, np.float32)])
    g = tensors([np.ones(2, np.float32)])
    optimizer.apply(g, [w], value=tensors([np.float32(0.5)])[0])
    optimizer.apply_gradients([(g[0], w)], value=0.25, scale=2.0)
    np.testing.assert_allclose(numbers([w])[0], 0)
    with pytest.raises(gw.SignatureError, match="value arrives at every step"):
        optimizer.apply(g, [w])
    assert optimizer.steps == 2


def test_variables_hold_a_slot_for_a_while():
    optimizer, ws = FULL.keras(lr=0.1), variables()
    optimizer.apply(tensors(GRADIENTS[0]), ws)
    own, average = numbers(ws), numbers(optimizer.slots["avg"])
    with optimizer.swapped("avg"):
        close(numbers(ws), average, rtol=0)
        with pytest.raises(RuntimeError, match="inside swapped"):
            optimizer.apply(tensors(GRADIENTS[0]), ws)
    close(numbers(ws), own, rtol=0)


def test_eager_runs_the_users_function():
    seen = []

    @gw.rule
    def watched(w, g, *, lr=0.5, step=1):
        seen.append((type(w), step))
        return w - lr * g

    optimizer, (w,) = watched.keras(), variables([np.ones(2, np.float32)])
    with gw.eager():
        optimizer.apply(tensors([np.ones(2, np.float32)]), [w])
    assert seen[-1] == (np.ndarray, 1)
    np.testing.assert_allclose(numbers([w])[0], 0.5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", *["float64"] * (BACKEND != "jax")])
def test_other_floats_are_computed_in_float32_at_least_and_rounded_once(dtype):
    optimizer = rules.momentum.keras(lr=0.125, mu=0.5)
    w = keras.Variable(START[1], dtype=dtype)
    wide = lambda x: np.float64(keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")))
    exact, slot = wide(w), 0
    for k in range(3):
        g = keras.ops.cast(tensors(GRADIENTS[k])[1], dtype)
        optimizer.apply([g], [w])
        slot = 0.5 * slot + wide(g)
        exact = exact - 0.125 * slot
        tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-6}[dtype]
        np.testing.assert_allclose(wide(w), exact, rtol=0, atol=tolerance)
    assert optimizer.slots["m"][0].dtype == ("float64" if dtype == "float64" else "float32")


@in_every_mode
@pytest.mark.parametrize("precision", ["nearest", "master", "kahan", "stochastic"])
def test_small_updates_of_bfloat16_are_kept(precision, mode):
    """Each is 1e-3, and the bfloat16 below 1 is 1 - 4e-3."""
    start = [np.ones(4096).astype(ml_dtypes.bfloat16)]
    keywords = {"lr": 1e-3, "rng": 0} if precision == "stochastic" else {"lr": 1e-3}
    rule = rules.sgd.options(precision=precision)
    steps = len(a_while(mode))
    gradients = [[np.ones_like(start[0])]] * steps
    (w,), (exact,) = (run(rule, keywords, start, gradients) for run in (mode, by_numpy))
    np.testing.assert_array_equal(np.float32(w), np.float32(exact))
    wanted = 1.0 if precision == "nearest" else 1 - steps * 1e-3
    assert abs(np.float32(w).mean() - wanted) < 3e-3


def test_one_step_of_a_rule_on_variables():
    w, m = variables([np.ones(2, np.float32), np.zeros(2, np.float32)])
    got = rules.momentum(w, tensors([np.ones(2, np.float32)])[0], m, lr=0.5)
    close([keras.ops.convert_to_numpy(x) for x in got], [[0.5, 0.5], [1, 1]], rtol=1e-6)


def test_a_step_that_fails_changes_nothing():
    optimizer, ws = noisy.keras(), variables()
    optimizer.apply(tensors(GRADIENTS[0]), ws)
    kept = numbers([*ws, *optimizer.variables])
    for bad in (lambda: optimizer.apply(tensors(GRADIENTS[0][::-1]), ws),
                lambda: optimizer.apply(tensors(GRADIENTS[0]), ws, speed=1.0),
                lambda: optimizer.apply(tensors(GRADIENTS[0])[:1])):  # fmt: skip
        with pytest.raises(gw.GradwrightError):
            bad()
    for a, b in zip(kept, numbers([*ws, *optimizer.variables]), strict=True):
        np.testing.assert_array_equal(a, b)


# --- saved ---------------------------------------------------------------------------------------
CONFIGURED = {
    "plain": rules.adam(lr=0.01),
    "chain": noisy.options(accumulate=2, skip_nonfinite=True),
    "partition": by_name,
    "schedule": rules.momentum(lr=gw.schedules.cosine(0.1, 10, warmup=2), mu=0.5),
    "keras": rules.sgd(lr=keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.5)),
    "domain": circle.options(domain="[low, 2)")(low=-1, lr=0.5),
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_config_makes_the_same_optimizer(name):
    one = CONFIGURED[name].keras(clipnorm=1.0, name="mine")
    data = keras.optimizers.serialize(one)
    assert data["registered_name"] == "gradwright>Optimizer"
    two = keras.optimizers.deserialize(data)
    assert keras.optimizers.serialize(two) == keras.optimizers.serialize(one)
    assert (two.name, two.clipnorm, two.rule.name) == ("mine", 1.0, one.rule.name)
    assert two.rule.settings == one.rule.settings
    same = variables(), variables()
    for optimizer, ws in zip((one, two), same, strict=True):
        for g in GRADIENTS[:3]:
            optimizer.apply(tensors(g), ws)
    close(*map(numbers, same), rtol=0)


def test_a_config_has_the_hyperparameters_of_now():
    optimizer = rules.adam.keras(lr=0.1)
    assert "0.100000001" not in str(optimizer.get_config())
    optimizer.hyperparams["b1"].assign(0.5)
    optimizer.learning_rate = 0.25
    two = type(optimizer).from_config(optimizer.get_config())
    got = [float(two.hyperparams[k]) for k in ("lr", "b1", "b2")]
    np.testing.assert_allclose(got, [0.25, 0.5, 0.999], rtol=0 if BACKEND != "jax" else 1e-7)


def test_a_trained_model_is_saved_and_goes_on():
    """Ten epochs in one process are five, and five in the next: `keras_reload.py` compares."""
    for name, rule in {"noisy": noisy, "by_name": by_name(lr=gw.schedules.cosine(0.1, 40))}.items():
        net = fitted(rule.keras(), epochs=5)
        net.save(FOLDER / f"{name}.keras")
        net.fit(X, Y, batch_size=8, epochs=5, shuffle=False, verbose=0)
        np.savez(FOLDER / f"{name}.npz", *net.get_weights(), steps=net.optimizer.steps)
    np.savez(FOLDER / "data.npz", x=X, y=Y)


def test_the_state_of_another_rule_is_refused_by_name():
    a, b = rules.adam.keras(), rules.lion.keras()
    for optimizer in (a, b):
        optimizer.apply(tensors(GRADIENTS[0]), variables())
    store = {}
    a.save_own_variables(store)
    with pytest.raises(gw.StateError, match="the state of adam .* for the rule lion"):
        b.load_own_variables(store)
    c = rules.adam.keras()
    c.build(variables())
    c.load_own_variables(store)
    close(numbers(c.slots["v"]), numbers(a.slots["v"]), rtol=0)


def test_an_op_lives_beside_its_optimizer():
    @gw.op
    def half(x):
        return 0.5 * x

    half.vjp(lambda g, x: 3 * 0.5 * g)
    net = fitted(rules.sgd.keras(lr=0.01), net=model(keras.layers.Dense(1), half.layer()))
    assert all(np.isfinite(w).all() for w in net.get_weights())
