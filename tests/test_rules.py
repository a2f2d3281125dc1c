"""Update rules on NumPy arrays: the numbers, the domain, what is traced when, arrays, gradients."""

import numpy as np
import pytest
from reference import random_bits

import gradwright as gw
from gradwright import rules
from gradwright.targets.numpy import engines

SHAPES = [(6, 4), (4,), (), (3, 5)]
STEPS = 200
TOLERANCE = 5e-6


# --- the equations once more, in float64 and without gradwright ---------------------------------
class Memory(dict):
    """What a rule remembers of one parameter: zeros at first."""

    def __missing__(self, name):
        return 0.0


def normals(shape, step, identity, seed=0):
    """The draw that the published layout says, by Box and Muller in float64."""
    lanes = "even", "odd", "place"
    even, odd, place = (random_bits(step, identity, seed, 0, lane, shape) for lane in lanes)
    radius = np.sqrt(-2 * np.log(((even >> 8) + 1.0) / 2**24))
    return radius * np.cos(2 * np.pi * ((odd >> 8) / 2**24 - place / 4))


def sgd(w, g, s, t, k):
    return w - 0.01 * g


def momentum(w, g, s, t, k):
    s["m"] = 0.9 * s["m"] + g
    return w - 0.01 * s["m"]


def nesterov(w, g, s, t, k):
    s["m"] = 0.9 * s["m"] + g
    return w - 0.01 * (g + 0.9 * s["m"])


def rmsprop(w, g, s, t, k):
    s["v"] = 0.99 * s["v"] + 0.01 * g * g
    return w - 0.01 * g / (np.sqrt(s["v"]) + 1e-8)


def adagrad(w, g, s, t, k):
    s["s"] = s["s"] + g * g
    return w - 0.01 * g / (np.sqrt(s["s"]) + 1e-10)


def adam(w, g, s, t, k, decay=0.0):
    s["m"] = 0.9 * s["m"] + 0.1 * g
    s["v"] = 0.999 * s["v"] + 0.001 * g * g
    mhat, vhat = s["m"] / (1 - 0.9**t), s["v"] / (1 - 0.999**t)
    return w - 0.01 * (mhat / (np.sqrt(vhat) + 1e-8) + decay * w)


def adamw(w, g, s, t, k):
    return adam(w, g, s, t, k, decay=0.1)


def lion(w, g, s, t, k):
    direction = np.sign(0.9 * s["m"] + 0.1 * g)
    s["m"] = 0.99 * s["m"] + 0.01 * g
    return w - 0.01 * (direction + 0.1 * w)


def sgld(w, g, s, t, k):
    return w - 0.01 * g + 0.01 * normals(w.shape, t, k)


def compact_sgd(w, g, s, t, k):
    moved = w - 0.01 * g + 0.01 * normals(w.shape, t, k)
    return (moved + 2) % 4 - 2


def muon(w, g, s, t, k):
    s["m"] = 0.95 * s["m"] + g
    x = g + 0.95 * s["m"]
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return w - 0.01 * np.sqrt(max(1, w.shape[0] / w.shape[1])) * x


def clip(w, g, s, t, k):
    return sgd(w, np.minimum(np.maximum(g, -0.5), 0.5), s, t, k)


def l2(w, g, s, t, k):
    return sgd(w, g + 0.1 * w, s, t, k)


def decay(w, g, s, t, k):
    return sgd(w, g, s, t, k) * 0.99


def wrap(w, g, s, t, k):
    return sgd(w, g, s, t, k) % 1.0


def clamp(w, g, s, t, k):
    return np.minimum(np.maximum(sgd(w, g, s, t, k), -0.1), 0.1)


EQUATIONS = {
    "sgd": (sgd, rules.sgd),
    "momentum": (momentum, rules.momentum),
    "nesterov": (nesterov, rules.nesterov),
    "rmsprop": (rmsprop, rules.rmsprop),
    "adagrad": (adagrad, rules.adagrad),
    "adam": (adam, rules.adam),
    "adamw": (adamw, rules.adamw(weight_decay=0.1)),
    "lion": (lion, rules.lion(weight_decay=0.1)),
    "sgld": (sgld, rules.sgld(rng=0)),
    "compact_sgd": (compact_sgd, rules.compact_sgd(low=-2.0, high=2.0, rng=0)),
    "muon": (muon, rules.muon),
    "clip": (clip, gw.chain(rules.clip(low=-0.5, high=0.5), rules.sgd)),
    "l2": (l2, gw.chain(rules.l2(weight=0.1), rules.sgd)),
    "decay": (decay, gw.chain(rules.sgd, rules.decay(rate=0.01))),
    "wrap": (wrap, gw.chain(rules.sgd, rules.wrap)),
    "clamp": (clamp, gw.chain(rules.sgd, rules.clamp(low=-0.1, high=0.1))),
}
OTHERS = {"ema", "clip_by_global_norm"}  # tested by themselves below


def started(shapes=SHAPES, seed=0, dtype=np.float32):
    r = np.random.default_rng(seed)
    return [np.asarray(r.normal(0, 0.1, shape), dtype) for shape in shapes]


def gradients(shapes=SHAPES, steps=STEPS, seed=1, dtype=np.float32):
    r = np.random.default_rng(seed)
    return [[np.asarray(r.normal(0, 1, s), dtype) for s in shapes] for _ in range(steps)]


def distance(w, wanted, circle=None):
    """The largest difference; on a circle, 0 and its length are one point."""
    apart = np.abs(w.astype(np.float64) - wanted)
    return np.max(apart if circle is None else np.minimum(apart, circle - apart), initial=0.0)


def test_every_rule_of_the_library_is_tested():
    assert set(EQUATIONS) | OTHERS == set(rules.__all__)


@pytest.mark.parametrize("name", EQUATIONS)
def test_a_float32_rule_stays_with_its_equation_in_float64(name):
    equation, rule = EQUATIONS[name]
    shapes = [s for s in SHAPES if len(s) == 2] if name == "muon" else SHAPES
    w = started(shapes)
    exact, memory = [a.astype(np.float64) for a in w], [Memory() for _ in w]
    optimizer = rule.numpy(w, lr=0.01)
    for t, gs in enumerate(gradients(shapes), 1):
        optimizer.step(gs)
        exact = [
            equation(a, g.astype(np.float64), s, t, k)
            for k, (a, g, s) in enumerate(zip(exact, gs, memory, strict=True))
        ]
    circle = {"wrap": 1.0, "compact_sgd": 4.0}.get(name)
    assert max(distance(a, b, circle) for a, b in zip(w, exact, strict=True)) <= TOLERANCE
    assert max(distance(a, b) for a, b in zip(w, started(shapes), strict=True)) > 1e-2  # it moved
    for slot in optimizer.state_dict()["parameters"][0]["slots"]:
        got = [p["slots"][slot] for p in optimizer.state_dict()["parameters"]]
        for a, s in zip(got, memory, strict=True):
            np.testing.assert_allclose(a, s[slot], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", EQUATIONS)
def test_a_float64_rule_is_its_equation(name):
    equation, rule = EQUATIONS[name]
    shapes = [s for s in SHAPES if len(s) == 2] if name == "muon" else SHAPES
    w = started(shapes, dtype=np.float64)
    exact, memory = [a.copy() for a in w], [Memory() for _ in w]
    optimizer = rule.numpy(w, lr=0.01)
    for t, gs in enumerate(gradients(shapes, 20, dtype=np.float64), 1):
        optimizer.step(gs)
        exact = [equation(*p, t, k) for k, p in enumerate(zip(exact, gs, memory, strict=True))]
    noise = 1e-7 if name in ("sgld", "compact_sgd") else 1e-12  # normals are float32
    assert max(distance(a, b) for a, b in zip(w, exact, strict=True)) <= noise


def test_the_global_norm_is_over_all_parameters():
    w = started()
    exact = [a.astype(np.float64) for a in w]
    optimizer = gw.chain(rules.clip_by_global_norm(max_norm=1.5), rules.sgd).numpy(w, lr=0.01)
    for gs in gradients():
        optimizer.step(gs)
        norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in gs))
        exact = [a - 0.01 * g * min(1, 1.5 / norm) for a, g in zip(exact, gs, strict=True)]
        assert optimizer.recorded["grad_norm"][0] == pytest.approx(norm, rel=1e-6)
    assert max(distance(a, b) for a, b in zip(w, exact, strict=True)) <= TOLERANCE


def test_small_gradients_are_not_scaled_up_and_zero_ones_stay_zero():
    w = [np.zeros(2, np.float32)]
    optimizer = gw.chain(rules.clip_by_global_norm, rules.sgd).numpy(w, lr=1.0)
    optimizer.step([np.zeros(2, np.float32)])
    assert not w[0].any()
    optimizer.step([np.full(2, 0.1, np.float32)])
    np.testing.assert_allclose(w[0], -0.1)


def test_an_average_follows_and_leaves_w_alone():
    w, plain = started([(4,)]), started([(4,)])
    averaged = gw.chain(rules.sgd, rules.ema(decay=0.9)).numpy(w, lr=0.01)
    sgd_only = rules.sgd.numpy(plain, lr=0.01)
    average = w[0].astype(np.float64)
    for gs in gradients([(4,)]):
        averaged.step(gs)
        sgd_only.step(gs)
        average = 0.9 * average + 0.1 * w[0]
    np.testing.assert_array_equal(w[0], plain[0])
    with averaged.swapped("avg"):
        np.testing.assert_allclose(w[0], average, atol=TOLERANCE)
    np.testing.assert_array_equal(w[0], plain[0])


# --- the domain ---------------------------------------------------------------------------------
F4 = np.float32
HUGE, SMALL = np.finfo(F4).max, np.finfo(F4).smallest_subnormal


def adversarial(low, high, size, dtype=np.float32, seed=0):
    """Bounds and their neighbours, what is far outside, subnormals; the rest uniform."""
    low, high = np.asarray([low, high], dtype)
    top, least = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    edges = [low, high, 0, -0.0, top, -top, np.inf, -np.inf, least, -least, np.nan]
    for bound in (low, high):
        edges += [np.nextafter(bound, dtype(s * np.inf)) for s in (1, -1)]
    w = np.random.default_rng(seed).uniform(low, high, size).astype(dtype)
    w[: len(edges)] = edges
    return w


def inside(w, low, high, text):
    w, (low, high) = w.astype(np.float64), np.asarray([low, high], w.dtype).astype(np.float64)
    above = w >= low if text[0] == "[" else w > low
    below = w <= high if text[-1] == "]" else w < high
    return above & below


@pytest.mark.parametrize("bounds", [(-10.0, 10.0), (0.0, 20.0), (0.1, 0.7), (0.0, 2 * np.pi)])
def test_a_domain_is_kept_for_a_thousand_steps(bounds):
    low, high = bounds
    w = adversarial(low, high, 10_000)
    lost = np.isnan(w) | np.isinf(w)  # inf mod b is NaN
    r = np.random.default_rng(1)
    optimizer = rules.compact_sgd.numpy(w, low=low, high=high, lr=0.1, noise=0.1, rng=3)
    for step in range(1000):
        g = r.normal(0, 10.0 ** (step % 8 - 4), w.shape).astype(F4)
        optimizer.step(g)
        kept = inside(w, low, high, "[)")
        assert kept[~lost].all() and np.isnan(w[lost]).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_weight_just_below_zero_does_not_round_to_the_bound(dtype):
    """float32: mod(-1e-9, 1) is 1, which is not in [0, 1)."""

    @gw.rule(domain="[0, bound)")
    def ring(w, g, *, lr=1.0, bound=1.0):
        return np.mod(w - lr * g, bound)

    w = np.zeros(3, dtype)
    ring.numpy(w, lr=1e-9).step(np.ones(3, dtype))
    assert ((w >= 0) & (w < 1)).all()
    w[:] = 0
    ring.numpy(w, lr=1e-30).step(np.ones(3, dtype))
    assert ((w >= 0) & (w < 1)).all() and (w > 0.9).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("text", ["[-1, 1]", "[-1, 1)", "(-1, 1]", "(-1, 1)", "( low , 1e0 ]"])
def test_bounds_are_open_or_closed_as_written(text, dtype):
    rule = rules.sgd.options(domain=text) if "low" not in text else None
    if rule is None:

        @gw.rule(domain=text)
        def rule(w, g, *, lr=1.0, low=-1.0):
            return w - lr * g

    w = adversarial(-1, 1, 64, dtype)
    nan = np.isnan(w)
    rule.numpy(w, lr=1.0).step(np.zeros(64, dtype))
    assert inside(w, -1, 1, text.strip())[~nan].all() and np.isnan(w[nan]).all()
    if text[0] == "[":
        assert (w == -1).any()
    else:
        assert w[~nan].min() == np.nextafter(dtype(-1), dtype(0))
    if text[-1] == "]":
        assert (w == 1).any()
    else:
        assert w[~nan].max() == np.nextafter(dtype(1), dtype(0))


def test_a_domain_with_one_bound_at_infinity():
    w = np.float32([-1, 0, 5, np.inf, -np.inf])
    rules.sgd.options(domain="(0, inf]").numpy(w).step(np.zeros(5, F4))
    np.testing.assert_array_equal(w, F4([SMALL, SMALL, 5, np.inf, SMALL]))


def test_what_lies_inside_a_domain_is_not_changed():
    w = np.random.default_rng(0).uniform(-1, 1, 1000).astype(F4)
    before = w.copy()
    rules.sgd.options(domain="[-1, 1)").numpy(w).step(np.zeros(1000, F4))
    np.testing.assert_array_equal(w, before)


def test_a_domain_holds_in_half_precision():
    """Computed in float32, rounded to float16 once, and then put into the set."""
    w = adversarial(-0.1, 0.1, 1000, np.float16)
    lost = ~np.isfinite(w)
    optimizer = rules.compact_sgd.numpy(w, low=-0.1, high=0.1, noise=0.05, rng=0)
    for _ in range(100):
        optimizer.step(np.ones(1000, np.float16))
        assert inside(w, -0.1, 0.1, "[)")[~lost].all()


def test_a_domain_holds_for_bounds_that_change():
    w = np.zeros(1000, F4)
    optimizer = rules.compact_sgd.numpy(w, noise=1.0, rng=0)
    for k in range(50):
        high = 0.1 + 0.37 * k
        optimizer.step(np.zeros(1000, F4), low=-high, high=high)
        assert inside(w, -high, high, "[)").all()


def test_a_projection_in_the_middle_of_a_chain_keeps_its_domain():
    w = np.zeros(3, F4)
    rule = gw.chain(rules.sgd(lr=1e-9), rules.wrap, rules.decay(rate=0.0))
    rule.numpy(w).step(np.ones(3, F4))
    assert ((w >= 0) & (w < 1)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_domain_holds_where_a_later_rule_has_none(dtype):
    """The last rounding is corrected, whoever of the chain declared the domain."""
    w = np.zeros(3, dtype)
    rule = gw.chain(rules.sgd(lr=1e-9), rules.wrap, rules.ema)
    rule.numpy(w).step(np.ones(3, dtype))
    assert ((w >= 0) & (w < 1)).all()


# --- what is traced when ------------------------------------------------------------------------
def traces(optimizer_or_rule):
    return len(optimizer_or_rule._plans)


def test_a_hundred_steps_with_every_hyperparameter_changing_trace_once():
    w = started([(3, 4)])
    optimizer = rules.adamw.numpy(w)
    for k, gs in enumerate(gradients([(3, 4)], 100), 1):
        change = {"lr": 0.01 / k, "b1": 0.9 - 1e-3 * k, "b2": 0.99 + 1e-5 * k, "eps": 1e-8 * k}
        optimizer.step(gs, weight_decay=1e-3 * k, **change)
    assert traces(optimizer._preset) == 1


def test_changes_of_groups_schedules_and_seeds_trace_once():
    calls = []

    @gw.rule
    def noisy(w, g, m=0.0, *, lr=0.1, noise=0.1, step=1, rng):
        calls.append(1)
        m = 0.9 * m + g
        return w - lr / step * m + noise * rng.normal(), m

    w = started([(3,), (5,)])
    groups = [{"params": [a], "lr": 0.1 * k} for k, a in enumerate(w)]
    optimizer = noisy.numpy(groups, noise=gw.schedules.linear(0.1, 0.0, 50), rng=1)
    for k in range(100):
        optimizer.param_groups[0]["lr"] = 0.1 / (k + 1)
        optimizer.step([[np.ones(3, F4)], [np.ones(5, F4)]])
    assert len(calls) == 2  # one trace runs the function twice, to compare


def test_shapes_of_one_rank_share_a_trace():
    optimizer = rules.adam.numpy(started([(3,), (5,), (1,), (0,)]))
    optimizer.step(gradients([(3,), (5,), (1,), (0,)], 1)[0])
    assert traces(optimizer._preset) == 1


def test_presets_and_dtypes():
    """Float values change nothing; another dtype or rank is another trace."""
    w = [np.zeros(2, np.float32), np.zeros(2, np.float64), np.zeros((2, 2), np.float32)]
    optimizer = rules.sgd.numpy(w)
    optimizer.step([np.ones_like(a) for a in w])
    assert traces(optimizer._preset) == 3


def test_an_int_that_the_body_reads_is_traced_once_for_each_value():
    calls = []

    @gw.rule
    def repeated(w, g, *, lr=0.1, times=1, scale=2):
        calls.append(times)
        for _ in range(times):
            w = w - lr * scale * g
        return w

    w = np.zeros(2)
    optimizer = repeated.numpy(w)
    for times in (1, 2, 1, 2, 1):
        optimizer.step(np.ones(2), times=times)
    np.testing.assert_allclose(w, -0.1 * 2 * 7)
    assert traces(optimizer._preset) == 2
    done = len(calls)
    for scale in (3, 4, 5):  # an int that is only calculated with
        optimizer.step(np.ones(2), scale=scale)
    assert len(calls) == done


def test_a_flag_is_traced_once_for_each_value():
    @gw.rule
    def flagged(w, g, *, ascend=False):
        return w + g if ascend else w - g

    w = np.zeros(2)
    optimizer = flagged.numpy(w)
    for ascend in (True, True, False, True):
        optimizer.step(np.ones(2), ascend=ascend)
    np.testing.assert_array_equal(w, 2)
    assert traces(optimizer._preset) == 2


def test_strings_and_none_are_part_of_the_program():
    @gw.rule
    def chosen(w, g, *, mode="down", extra=None):
        g = g if extra is None else g + extra
        return w - g if mode == "down" else w + g

    w = np.zeros(2)
    optimizer = chosen.numpy(w)
    optimizer.step(np.ones(2))
    optimizer.step(np.ones(2), mode="up")
    optimizer.step(np.ones(2), extra=1.0)
    optimizer.step(np.ones(2), extra=2.0)
    np.testing.assert_array_equal(w, -1 + 1 - 2 - 3)
    assert traces(optimizer._preset) == 3


def test_numpy_numbers_are_numbers():
    """np.float64(0.1) and np.array(0.1) are as weak as 0.1, and do not widen float32."""
    w = [np.zeros(2, F4) for _ in range(4)]
    for a, lr in zip(w, [0.1, np.float64(0.1), np.array(0.1), np.float32(0.1)], strict=True):
        rules.sgd.numpy(a, lr=lr).step(np.ones(2, F4))
        assert a.dtype == F4
        np.testing.assert_allclose(a, -0.1, rtol=1e-7)


# --- arrays -------------------------------------------------------------------------------------
def test_parameters_of_one_element_none_and_no_axis():
    """A zero-size tensor in the list made torch's neighbours skip (pytorch#100701)."""
    shapes = [(1,), (1,), (0,), (1,), (0,), ()]
    w = [np.ones(s, F4) for s in shapes]
    optimizer = rules.adam.numpy(w, lr=0.1)
    for _ in range(3):
        optimizer.step([np.ones(s, F4) for s in shapes])
    alone = np.ones(1, F4)
    single = rules.adam.numpy(alone, lr=0.1)
    for _ in range(3):
        single.step(np.ones(1, F4))
    for a in w:
        np.testing.assert_array_equal(a, np.broadcast_to(alone[:1].reshape(()), a.shape))
    assert optimizer.steps == 3


@pytest.mark.parametrize("rule", [rules.sgd, rules.adam, rules.compact_sgd(rng=0)])
def test_rules_on_zero_size_parameters_only(rule):
    w = [np.ones((0,), F4), np.ones((3, 0), F4)]
    rule.numpy(w).step([np.ones((0,), F4), np.ones((3, 0), F4)])
    assert [a.shape for a in w] == [(0,), (3, 0)]


LAYOUTS = {
    "transposed": lambda a: a.T,
    "strided": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "reversed": lambda a: a[::-1, ::-1],
    "fortran": np.asfortranarray,
    "inner": lambda a: np.pad(a, 1)[1:-1, 1:-1],
    "unaligned": lambda a: np.frombuffer(bytearray(b"\0" + a.tobytes()), a.dtype, offset=1).reshape(
        a.shape
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_memory_gives_the_same_numbers(layout):
    change = LAYOUTS[layout]
    (start,), (g,) = started([(4, 6)]), gradients([(4, 6)], 1)[0:1][0:1] or [None]
    g = g[0] if isinstance(g, list) else g
    plain = np.ascontiguousarray(change(start))
    odd, odd_g = change(start.copy()), change(g.copy())
    same = rules.compact_sgd.numpy(plain, rng=0), rules.compact_sgd.numpy(odd, rng=0)
    for _ in range(3):
        same[0].step(np.ascontiguousarray(odd_g))
        same[1].step(odd_g)
    np.testing.assert_array_equal(odd, plain)
    assert not np.array_equal(plain, change(start))


def test_only_the_view_is_written():
    whole = np.zeros((4, 6), F4)
    rules.sgd.numpy(whole[::2, 1:3], lr=1.0).step(np.ones((2, 2), F4))
    wanted = np.zeros((4, 6), F4)
    wanted[::2, 1:3] = -1
    np.testing.assert_array_equal(whole, wanted)


def test_a_gradient_may_be_read_only_and_is_not_changed():
    g = np.ones(3, F4)
    g.flags.writeable = False
    w = np.zeros(3, F4)
    rules.momentum.numpy(w).step(g)
    np.testing.assert_array_equal(g, 1)


def test_a_gradient_that_is_the_parameter_itself():
    """w ← w − lr·w, q11's test of a loss ½‖w‖²: nothing is read after it was written."""
    w = np.float32([1, 2, 3])
    optimizer = rules.adam.numpy(w, lr=0.1)
    other = w.copy()
    apart = rules.adam.numpy(other, lr=0.1)
    for _ in range(3):
        optimizer.step(w)
        apart.step(other.copy())
    np.testing.assert_array_equal(w, other)


def test_a_gradient_that_is_the_other_parameter():
    w = [np.ones(3, F4), np.full(3, 2, F4)]
    rules.sgd.numpy(w, lr=1.0).step([w[1], w[0]])
    np.testing.assert_array_equal(w, [[-1] * 3, [1] * 3])


def test_halves_of_one_array_are_two_parameters():
    whole = np.ones(6, F4)
    rules.sgd.numpy([whole[:3], whole[3:]], lr=1.0).step([np.ones(3, F4), np.zeros(3, F4)])
    np.testing.assert_array_equal(whole, [0, 0, 0, 1, 1, 1])


def test_interleaved_views_are_two_parameters():
    whole = np.ones(6, F4)
    rules.sgd.numpy([whole[::2], whole[1::2]], lr=1.0).step([np.ones(3, F4), np.zeros(3, F4)])
    np.testing.assert_array_equal(whole, [0, 1, 0, 1, 0, 1])


def test_a_gradient_of_another_precision_is_used_in_the_parameters():
    w = np.zeros(3, F4)
    rules.sgd.numpy(w, lr=1.0).step(np.full(3, 0.1, np.float64))
    assert w.dtype == F4
    np.testing.assert_allclose(w, -0.1, rtol=1e-7)


def test_arithmetic_in_half_precision_is_float32_rounded_once():
    w = np.full(3, 1000.0, np.float16)
    rules.adam.numpy(w, lr=1.0).step(np.full(3, 1000.0, np.float16))  # g² overflows float16
    np.testing.assert_array_equal(w, np.float16(999))


def read_only():
    w = np.ones(3, F4)
    w.flags.writeable = False
    return w


def halves():
    w = np.ones(6, F4)
    return [w[:4], w[2:]]


W3 = np.ones(3, F4)
REFUSED_PARAMETERS = {
    "int": (lambda: np.arange(3), "the parameter w is int64", "float32 or float64"),
    "complex": (lambda: np.ones(3, complex), "the parameter w is complex128", "float32"),
    "object": (lambda: np.ones(3, object), "the parameter w is object", "float32"),
    "bool": (lambda: np.ones(3, bool), "the parameter w is bool", "float32"),
    "number": (lambda: [1.0, 2.0], "the parameter 0 is a float", "a NumPy array of floats"),
    "masked": (lambda: np.ma.ones(3, F4), "the parameter w is a MaskedArray", "a NumPy array"),
    "read-only": (read_only, "the parameter w is read-only", "a copy: np.array(w)"),
    "broadcast": (lambda: np.lib.stride_tricks.as_strided(np.ones(1, F4), (3,), (0,)),
                  "is a view whose elements share memory", "a copy"),
    "same twice": (lambda: [W3, W3], "0 and 1 share memory: it would be updated twice", "copies"),
    "overlap": (halves, "0 and 1 share memory", "each array once"),
    "itself": (lambda: np.lib.stride_tricks.as_strided(np.ones(8, F4), (3, 3), (8, 4)),
               "is a view whose elements share memory", "a copy"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_PARAMETERS)
def test_a_parameter_that_cannot_be_is_refused_by_name(case):
    make, *texts = REFUSED_PARAMETERS[case]
    with pytest.raises(gw.StateError) as error:
        rules.sgd.numpy(make())
    for text in texts:
        assert text in str(error.value)


def test_a_second_group_may_not_share_memory_with_the_first():
    w = np.ones(6, F4)
    optimizer = rules.sgd.numpy([{"params": [w[:3]]}])
    with pytest.raises(gw.StateError, match=r"0 and 1\.0 share memory"):
        optimizer.add_param_group({"params": [w[2:]]})
    assert len(optimizer.param_groups) == 1
    optimizer.step([[np.ones(3, F4)]])  # as before


REFUSED_GRADIENTS = {
    "shape": (np.ones(4, F4), "the gradient of w has shape (4,), the parameter (3,)"),
    "broadcast": (np.ones(1, F4), "the gradient of w has shape (1,)"),
    "int": (np.ones(3, int), "the gradient of w is int64"),
    "complex": (np.ones(3, complex), "the gradient of w is complex128"),
    "object": (np.ones(3, object), "the gradient of w is object"),
    "list": ([1.0, 1.0, 1.0], "the gradient of w is a list"),
    "number": (1.0, "the gradient of w is a float"),
    "dict": ({"w": np.ones(3, F4)}, "grads has a dict where one array is expected"),
    "tuple": ((np.ones(3, F4),), "grads has a tuple where one array is expected"),
    "masked": (np.ma.ones(3, F4), "the gradient of w is a MaskedArray"),
}


@pytest.mark.parametrize("case", REFUSED_GRADIENTS)
def test_a_gradient_that_does_not_fit_is_refused_and_nothing_changes(case):
    g, text = REFUSED_GRADIENTS[case]
    w = np.ones(3, F4)
    optimizer = rules.adam.numpy(w)
    with pytest.raises(gw.StateError) as error:
        optimizer.step(g)
    assert text in str(error.value)
    np.testing.assert_array_equal(w, 1)
    assert optimizer.steps == 0 and not optimizer.state_dict()["parameters"][0]["slots"]["m"].any()


STRUCTURES = [
    ([W3], "a list of 1 where a dict with keys ['b', 'w'] is expected"),
    ({"w": W3}, "a dict with keys ['w'] where a dict with keys ['b', 'w'] is expected"),
    ({"w": W3, "b": [W3], "c": W3}, "a dict with keys ['b', 'c', 'w']"),
    ({"w": W3, "b": W3}, "one array where a list of 1 is expected"),
    ({"w": W3, "b": [W3, W3]}, "a list of 2 where a list of 1 is expected"),
    ({"w": {"x": W3}, "b": [W3]}, "a dict where one array is expected"),
]


@pytest.mark.parametrize("grads, text", STRUCTURES)
def test_gradients_have_the_structure_of_the_parameters(grads, text):
    optimizer = rules.sgd.numpy({"w": np.ones(3, F4), "b": [np.ones(3, F4)]})
    with pytest.raises(gw.StateError) as error:
        optimizer.step(grads)
    assert text in str(error.value) and "the structure of params" in str(error.value)


def test_trees_of_any_kind():
    w = {
        "layers": [{"W": np.zeros((2, 2), F4), "b": np.zeros(2, F4)}, (np.zeros(1, F4),)],
        "n": None,
    }
    optimizer = rules.sgd.numpy(w, lr=1.0)
    g = {
        "n": None,
        "layers": [{"b": np.ones(2, F4), "W": np.full((2, 2), 2, F4)}, [np.ones(1, F4)]],
    }
    optimizer.step(g)
    np.testing.assert_array_equal(w["layers"][0]["W"], -2)
    np.testing.assert_array_equal(w["layers"][0]["b"], -1)
    np.testing.assert_array_equal(w["layers"][1][0], -1)
    names = [p["name"] for p in optimizer.state_dict()["parameters"]]
    assert names == ["layers.0.W", "layers.0.b", "layers.1.0"]


# --- no gradient --------------------------------------------------------------------------------
def test_none_moves_nothing_of_a_parameter():
    """Neither w, slots, its clock nor its noise: the other parameter's numbers are its own."""

    @gw.rule
    def noisy(w, g, m=0.0, *, lr=0.1, step=1, rng):
        m = 0.9 * m + g
        return w - lr * m / step + rng.normal(), m

    w, alone = started([(3,), (3,)]), started([(3,), (3,)])
    with_pauses, without = noisy.numpy(w, rng=0), noisy.numpy(alone, rng=0)
    gs = gradients([(3,), (3,)], 4)
    for k in range(4):
        before, slots = w[1].copy(), with_pauses.state_dict()["parameters"][1]
        with_pauses.step([gs[k][0], gs[k][1] if k % 2 else None])
        if k % 2 == 0:
            np.testing.assert_array_equal(w[1], before)
            after = with_pauses.state_dict()["parameters"][1]
            assert after["steps"] == slots["steps"]
            np.testing.assert_array_equal(after["slots"]["m"], slots["slots"]["m"])
    for k in (1, 3):
        without.step([None, gs[k][1]])
    for k in range(4):
        without.step([gs[k][0], None])
    np.testing.assert_array_equal(w, alone)
    assert [p["steps"] for p in with_pauses.state_dict()["parameters"]] == [4, 2]
    assert with_pauses.steps == 4 and without.steps == 6


def test_none_differs_from_zero():
    w = [np.ones(2, F4), np.ones(2, F4)]
    optimizer = rules.momentum.numpy(w, lr=0.1)
    optimizer.step([np.ones(2, F4), np.ones(2, F4)])
    before = w[0].copy()
    optimizer.step([None, np.zeros(2, F4)])
    np.testing.assert_array_equal(w[0], before)
    assert (w[1] < before).all()


def test_none_for_all_and_none_for_a_part_of_the_tree():
    w = {"a": [np.ones(2, F4), np.ones(2, F4)], "b": np.ones(2, F4)}
    optimizer = rules.sgd.numpy(w, lr=1.0)
    optimizer.step({"a": None, "b": np.ones(2, F4)})
    np.testing.assert_array_equal(w["a"], 1)
    np.testing.assert_array_equal(w["b"], 0)
    optimizer.step(None)
    np.testing.assert_array_equal(w["b"], 0)


def test_a_global_sum_leaves_out_parameters_without_a_gradient():
    w = [np.zeros(1, F4), np.zeros(1, F4)]
    optimizer = gw.chain(rules.clip_by_global_norm, rules.sgd).numpy(w)
    optimizer.step([np.full(1, 3, F4), np.full(1, 4, F4)])
    assert optimizer.recorded["grad_norm"] == [5, 5]
    optimizer.step([np.full(1, 3, F4), None])
    assert optimizer.recorded["grad_norm"] == [3, None]


# --- a step that fails changes nothing ----------------------------------------------------------
def everything(optimizer):
    state = optimizer.state_dict()
    arrays = [p.array.copy() for p in optimizer._parameters]
    return arrays, state, dict(optimizer._recorded), optimizer.steps


def assert_unchanged(optimizer, before):
    after = everything(optimizer)
    for a, b in zip(after[0], before[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert repr(after[1]) == repr(before[1])
    assert repr(after[2]) == repr(before[2]) and after[3] == before[3]


@gw.rule
def picky(w, g, m=0.0, d=gw.shared(1.0), *, lr=0.1, k=1.0, rng=0):
    if w.ndim == 2:
        raise RuntimeError("no matrices")
    gw.record("g", g)
    return w - lr * k * g + rng.normal(), {"m": m + g, "d": d * 2}


def test_a_rule_that_fails_on_its_second_parameter():
    w = [np.ones(3, F4), np.ones((2, 2), F4), np.ones(3, F4)]
    optimizer = picky.numpy(w)
    g = [np.ones_like(a) for a in w]
    optimizer.step([g[0], None, g[2]])
    before = everything(optimizer)
    with pytest.raises(RuntimeError, match="no matrices"):
        optimizer.step(g)
    assert_unchanged(optimizer, before)
    with gw.eager(), pytest.raises(RuntimeError, match="no matrices"):
        optimizer.step(g)
    assert_unchanged(optimizer, before)
    optimizer.step([g[0], None, g[2]])


def fails(*_):
    raise ZeroDivisionError("of the user")


@pytest.mark.parametrize(
    "change, error",
    [
        ({"lrr": 1.0}, TypeError),
        ({"lr": gw.schedules.of(fails)}, ZeroDivisionError),
        ({"lr": gw.per_param(fails)}, ZeroDivisionError),
        ({"lr": gw.per_param(lambda name, w: 1 / 0 if name == "1" else 0.1)}, ZeroDivisionError),
        ({"lr": {"a": 1.0}}, ValueError),
        ({"lr": [0.1]}, ValueError),
        ({"lr": 1j}, TypeError),
    ],
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_keyword_that_fails(change, error, accumulate):
    w = [np.ones(3, F4), np.ones(3, F4)]
    optimizer = picky.options(accumulate=accumulate).numpy(w)
    g = [np.ones_like(a) for a in w]
    for _ in range(2 * accumulate - 1):
        optimizer.step(g)
    before = everything(optimizer)
    with pytest.raises(error):
        optimizer.step(g, **change)
    assert_unchanged(optimizer, before)


def test_an_optimizer_that_is_not_made():
    """A bad keyword of a second group, or of the constructor."""
    w = np.ones(3, F4)
    optimizer = rules.sgd.numpy([{"params": [w]}])
    with pytest.raises(gw.SignatureError, match="sgd has no keyword lrr"):
        optimizer.add_param_group({"params": [np.ones(2, F4)], "lrr": 1.0})
    assert len(optimizer.param_groups) == 1 and len(optimizer.state_dict()["parameters"]) == 1


def test_an_interrupt_between_computing_and_writing_cannot_leave_half_a_step(monkeypatch):
    w = [np.ones(3, F4), np.ones(4, F4)]
    optimizer = rules.adam.numpy(w)
    before = everything(optimizer)
    monkeypatch.setattr(engines, "check_shapes", fails)
    with pytest.raises(ZeroDivisionError):
        optimizer.step([np.ones_like(a) for a in w])
    assert_unchanged(optimizer, before)
