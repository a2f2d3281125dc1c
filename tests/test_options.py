"""What happens around an update: skipping, accumulating, what this version refuses; eager mode."""

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

F4 = np.float32
BAD = [np.nan, np.inf, -np.inf]


@gw.rule
def noisy(w, g, m=0.0, d=gw.shared(1.0), *, lr=0.1, rng=0):
    m = gw.record("m", 0.9 * m + g)
    return w - lr * d * m + 0.1 * rng.normal(), {"m": m, "d": 0.9 * d}


def arrays():
    return {"a": np.ones((2, 3), F4), "b": np.ones(4, F4)}


def gradients(k):
    r = np.random.default_rng(k)
    return {"a": r.normal(size=(2, 3)).astype(F4), "b": r.normal(size=4).astype(F4)}


def everything(optimizer):
    kept = {name: repr(value) for name, value in optimizer.state_dict().items()}
    return kept, repr([p.array for p in optimizer._parameters]), repr(optimizer.recorded)


# --- skip_nonfinite -----------------------------------------------------------------------------
@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_a_gradient_that_is_not_finite_changes_nothing(value, accumulate):
    """Weights, slots, clocks, noise, shared slots, sums of gradients: as if it had not come."""
    rule = noisy.options(skip_nonfinite=True, accumulate=accumulate)
    w, plain = arrays(), arrays()
    optimizer, other = rule.numpy(w), rule.numpy(plain)
    for k in range(6):
        before = everything(optimizer)
        bad = gradients(100 + k)
        bad["b"][2] = value
        optimizer.step(bad)
        assert everything(optimizer) == before
        optimizer.step(gradients(k))
        other.step(gradients(k))
    for name in w:
        np.testing.assert_array_equal(w[name], plain[name])
    assert everything(optimizer) == everything(other)


def test_without_skip_nonfinite_a_nan_goes_through():
    w = arrays()
    g = gradients(0)
    g["b"][2] = np.nan
    noisy.numpy(w).step(g)
    assert np.isnan(w["b"]).tolist() == [False, False, True, False]


def test_skip_nonfinite_looks_at_present_gradients_of_any_shape():
    w = [np.ones((), F4), np.ones(0, F4), np.ones(2, np.float16)]
    optimizer = rules.sgd.options(skip_nonfinite=True).numpy(w, lr=1.0)
    optimizer.step([np.ones((), F4), np.ones(0, F4), None])
    optimizer.step([np.array(np.inf, F4), None, np.ones(2, np.float16)])
    np.testing.assert_array_equal(w[2], 1)
    assert w[0] == 0 and optimizer.steps == 1


# --- accumulate ---------------------------------------------------------------------------------
@pytest.mark.parametrize("k", [2, 3, 4])
def test_accumulating_is_one_step_with_the_mean_gradient(k):
    rule = gw.chain(rules.clip_by_global_norm(max_norm=0.5), rules.adam(lr=0.1))
    w, plain = arrays(), arrays()
    optimizer, other = rule.options(accumulate=k).numpy(w), rule.numpy(plain)
    for start in range(0, 4 * k, k):
        gs = [gradients(start + j) for j in range(k)]
        for j, g in enumerate(gs):
            before = {name: a.copy() for name, a in w.items()}
            optimizer.step(g)
            moved = any((w[name] != before[name]).any() for name in w)
            assert moved == (j == k - 1)
        total = {name: sum((g[name] for g in gs[1:]), gs[0][name]) for name in w}
        other.step({name: np.asarray(t / k, F4) for name, t in total.items()})
    for name in w:
        np.testing.assert_array_equal(w[name], plain[name])
    assert optimizer.steps == other.steps == 4


def test_schedules_count_updates_not_gradients():
    seen = []
    schedule = gw.schedules.of(lambda count: seen.append(count) or 0.1)
    optimizer = rules.sgd.options(accumulate=2).numpy(arrays(), lr=schedule)
    for k in range(6):
        optimizer.step(gradients(k))
    assert seen[::2] == [0, 1, 2] or sorted(set(seen)) == [0, 1, 2]


def test_a_gradient_that_is_missing_once_counts_as_zero_and_always_as_none():
    w = arrays()
    optimizer = rules.momentum.options(accumulate=2).numpy(w, lr=1.0)
    optimizer.step({"a": None, "b": np.full(4, 2, F4)})
    optimizer.step({"a": None, "b": None})
    np.testing.assert_array_equal(w["a"], 1)
    np.testing.assert_array_equal(w["b"], 0)
    assert [p["steps"] for p in optimizer.state_dict()["parameters"]] == [0, 1]


def test_a_gradient_may_be_reused_by_the_caller_after_a_step():
    """What is accumulated is a copy."""
    w = arrays()
    optimizer = rules.sgd.options(accumulate=2).numpy(w, lr=1.0)
    g = {"a": np.ones((2, 3), F4), "b": np.ones(4, F4)}
    optimizer.step(g)
    g["a"][:], g["b"][:] = 0, 0
    optimizer.step(g)
    np.testing.assert_array_equal(w["a"], 0.5)


# --- what is refused ----------------------------------------------------------------------------
REFUSED = [
    ({"precision": "exact"}, "precision='exact' is not in this version", "precision='nearest' or"),
    ({"sparse": "rows"}, "sparse='rows' is not in this version", "sparse='dense' or 'lazy'"),
    ({"engine": "gpu"}, "engine='gpu' is not in this version", "'numpy' or 'fused'"),
    ({"accumulate": 0}, "accumulate=0", "a number of steps, at least 1"),
    ({"accumulate": 1.5}, "accumulate=1.5", "a number of steps, at least 1"),
    ({"clip": 1}, "no option clip", "one of accumulate, domain, engine, precision"),
    ({"domain": "[0, 1["}, "domain='[0, 1['", 'an interval such as "[0, bound)"'),
    ({"domain": "[0, top)"}, "the bound 'top' of a domain", "one of lr, or a number"),
]


@pytest.mark.parametrize("options, what, instead", REFUSED)
def test_options_are_refused_by_name(options, what, instead):
    for attempt in (lambda: rules.sgd.options(**options), lambda: gw.rule(**options)(plain_sgd)):
        with pytest.raises(gw.SignatureError) as error:
            attempt()
        assert what in str(error.value) and instead in str(error.value)
        assert "test_options.py" in str(error.value)


def plain_sgd(w, g, *, lr=0.1):
    return w - lr * g


def test_the_options_of_this_version_are_accepted():
    rule = rules.sgd.options(precision="nearest", engine="numpy", sparse="dense", domain="[-1, lr]")
    w = np.full(2, 5.0)
    rule.numpy(w, lr=0.5).step(np.zeros(2))
    np.testing.assert_array_equal(w, 0.5)
    assert rules.sgd.settings == rules.sgd.options().settings


def test_options_of_a_chain_come_from_one_of_its_rules_or_from_itself():
    a, b = rules.clip.options(skip_nonfinite=True), rules.sgd.options(accumulate=2)
    assert gw.chain(a, rules.sgd).settings.skip_nonfinite
    assert gw.chain(rules.clip, b).settings.accumulate == 2
    with pytest.raises(gw.SignatureError, match="several rules with options of their own"):
        gw.chain(a, b)
    both = gw.chain(rules.clip, rules.sgd).options(skip_nonfinite=True, accumulate=2)
    assert (both.settings.skip_nonfinite, both.settings.accumulate) == (True, 2)


def test_options_of_a_partition_hold_for_all_of_it():
    mixed = gw.partition({"a": rules.sgd(lr=1.0), "*": rules.momentum(lr=1.0)})
    w = arrays()
    optimizer = mixed.options(accumulate=2, skip_nonfinite=True).numpy(w)
    ones = {"a": np.ones((2, 3), F4), "b": np.ones(4, F4)}
    optimizer.step(ones)
    np.testing.assert_array_equal(w["a"], 1)
    optimizer.step({**ones, "b": np.full(4, np.nan, F4)})
    optimizer.step(ones)
    np.testing.assert_array_equal(w["a"], 0)
    np.testing.assert_array_equal(w["b"], 0)
    with pytest.raises(gw.SignatureError, match=r"rules with different options"):
        gw.partition({"a": rules.sgd.options(accumulate=2), "*": rules.sgd})


def test_a_domain_of_a_chain_is_that_of_its_last_update():
    rule = gw.chain(rules.clip(low=-1.0, high=1.0), rules.sgd).options(domain="[0, 1]")
    w = np.zeros(2)
    rule.numpy(w, lr=1.0).step(np.ones(2))
    np.testing.assert_array_equal(w, 0)


def test_an_option_makes_a_copy():
    limited = rules.sgd.options(accumulate=3)
    assert limited is not rules.sgd and rules.sgd.settings.accumulate == 1
    assert limited(lr=1.0).settings.accumulate == 3  # presets keep options


# --- eager --------------------------------------------------------------------------------------
@gw.rule
def normalised(w, g, s=0.0, d=gw.shared(1.0), *, lr=0.1):
    """Two sums over all parameters, the second made of the first."""
    norm = np.sqrt(gw.global_sum(g * g))
    spread = gw.record("spread", gw.global_sum(np.abs(g / norm)))
    s = 0.9 * s + g / norm
    return w - lr * d * s / spread, {"s": s, "d": 0.5 * d + 0.1 * spread}


EAGER = {
    **{name: getattr(rules, name) for name in rules.__all__},
    "normalised": normalised,
    "chained": gw.chain(rules.clip_by_global_norm(max_norm=0.1), rules.adam, rules.ema),
    "half": rules.compact_sgd(low=-0.1, high=0.1, noise=0.05),
    "partition": gw.partition({"b": rules.sgd, "*": rules.adam}),
}
SEEDED = {"sgld", "compact_sgd", "half"}


@pytest.mark.parametrize("name", EAGER)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_eager_is_equal_to_the_compiled_path(name, dtype):
    """float16 too: it is computed in float32 and rounded once."""
    rule = EAGER[name]
    if not any(e.rewrites == "w" for e in rule.equations):
        rule = gw.chain(rule, rules.sgd)
    seed = {"rng": 4} if name in SEEDED else {}
    w, plain = ({k: a.astype(dtype) for k, a in arrays().items()} for _ in range(2))
    if name == "muon":
        w, plain = ({"a": x["a"]} for x in (w, plain))
    optimizer, other = rule.numpy(w, **seed), rule.numpy(plain, **seed)
    for k in range(5):
        g = {n: x.astype(dtype) for n, x in gradients(k).items() if n in w}
        optimizer.step(g)
        with gw.eager():
            other.step(g)
    for n in w:
        close = {"rtol": {np.float16: 1e-3}.get(dtype, 1e-6)} if name == "muon" else {"rtol": 1e-6}
        np.testing.assert_allclose(plain[n], w[n], **close, atol=1e-7)
    assert optimizer._shared == pytest.approx(other._shared)
    for got, wanted in zip(
        other.state_dict()["parameters"], optimizer.state_dict()["parameters"], strict=True
    ):
        assert got["steps"] == wanted["steps"] == 5
        for slot, value in wanted["slots"].items():
            np.testing.assert_allclose(got["slots"][slot], value, rtol=1e-5, atol=1e-7)
    assert optimizer.recorded.keys() == other.recorded.keys()


def test_eager_shows_numbers(capsys):
    @gw.rule
    def shown(w, g, *, lr=0.1):
        print("g is", g)
        return w - lr * g

    optimizer = shown.numpy(np.ones(2, F4))
    with gw.eager():
        optimizer.step(np.float32([1, 2]))
    assert capsys.readouterr().out == "g is [1. 2.]\n"
    assert len(optimizer._preset._plans) == 0


def test_eager_keeps_the_domain_to_the_last_bit():
    w = np.zeros(3, np.float16)
    with gw.eager():
        gw.chain(rules.sgd(lr=1e-9), rules.wrap).numpy(w).step(np.ones(3, np.float16))
    assert ((w >= 0) & (w < 1)).all()
