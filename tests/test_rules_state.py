"""Checkpoints: what is saved, loaded in a new process, refused; groups and swapped slots."""

import copy
import json
import os
import pickle
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

F4 = np.float32

# Noise, a schedule, accumulation over steps, groups, and a group that comes later: a whole run.
RUN = textwrap.dedent("""
    import sys
    import numpy as np
    import gradwright as gw

    @gw.rule(domain="[low, high)")
    def noisy(w, g, m=0.0, d=gw.shared(1.0), *, lr=0.1, noise=0.01, low=-1, high=1, step=1, rng):
        m = 0.9 * m + g
        d = 0.99 * d + 0.01 * gw.global_sum(g * g)
        w = w - lr * m / (1 - 0.9**step) + noise * d * rng.normal()
        return low + np.mod(w - low, high - low), {"m": m, "d": d}

    RULE = gw.chain(gw.rules.clip_by_global_norm(max_norm=0.5), noisy).options(accumulate=2)
    LR = gw.schedules.cosine(0.1, 10, warmup=2)

    def arrays():
        r = np.random.default_rng(0)
        shapes = ((4, 3), (5,), (), (7,))
        return [np.asarray(r.uniform(-1, 1, s), t) for s, t in zip(shapes, "fffd")]

    def made(w):
        groups = [{"params": {"W": w[0], "b": w[1]}}, {"params": [w[2]], "lr": 0.05, "noise": 0.0}]
        return RULE.numpy(groups, lr=LR, rng=11)

    def joined(optimizer, w):
        optimizer.add_param_group({"params": w[3], "lr": 0.2, "m": 0.5})

    def gradients(k, count):
        r = np.random.default_rng(100 + k)
        a, b, c, d = (np.asarray(r.normal(size=s), t)
                      for s, t in (((4, 3), "f"), ((5,), "f"), ((), "f"), ((7,), "d")))
        return [{"W": a, "b": b if k % 3 else None}, [c], d][:count]

    def run(optimizer, w, first, last):
        for k in range(first, last):
            if k == 6:
                joined(optimizer, w)
            optimizer.step(gradients(k, len(optimizer.param_groups)))
""")

SECOND_HALF = """
w = [np.zeros_like(a) for a in arrays()]
optimizer = made(w)
joined(optimizer, w)
optimizer.load(sys.argv[1])
run(optimizer, w, int(sys.argv[2]), 20)
np.savez(sys.argv[3], *w)
"""


@pytest.fixture(scope="module")
def program():
    scope = {}
    exec(compile(RUN, "run.py", "exec"), scope)
    return scope


@pytest.mark.parametrize("at", [10, 11])  # at 11, a gradient waits for its second half
def test_ten_steps_are_five_a_new_process_and_five(at, program, tmp_path):
    """Twenty gradients, two for each update; the group comes at update 3."""
    w = program["arrays"]()
    program["run"](program["made"](w), w, 0, 20)
    half = program["arrays"]()
    optimizer = program["made"](half)
    program["run"](optimizer, half, 0, at)
    optimizer.save(tmp_path / "run.npz")
    (tmp_path / "second.py").write_text(RUN + SECOND_HALF)
    arguments = [sys.executable, "second.py", "run.npz", str(at), "w.npz"]
    subprocess.run(arguments, cwd=tmp_path, check=True)
    with np.load(tmp_path / "w.npz") as file:
        for k, a in enumerate(w):
            np.testing.assert_array_equal(file[f"arr_{k}"], a)
            assert file[f"arr_{k}"].dtype == a.dtype and not np.array_equal(a, half[k])


def test_a_state_dict_carries_all_but_the_weights(program):
    w = program["arrays"]()
    optimizer = program["made"](w)
    program["run"](optimizer, w, 0, 11)
    state, copies = optimizer.state_dict(), [a.copy() for a in w]
    other = program["made"](copies)
    program["joined"](other, copies)
    other.load_state_dict(state)
    for k in range(11, 20):
        optimizer.step(program["gradients"](k, 3))
        other.step(program["gradients"](k, 3))
    for a, b in zip(w, copies, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_state_dict_is_a_copy():
    w = np.ones(3, F4)
    optimizer = rules.momentum.numpy(w)
    optimizer.step(np.ones(3, F4))
    state = optimizer.state_dict()
    optimizer.step(np.ones(3, F4))
    np.testing.assert_array_equal(state["parameters"][0]["slots"]["m"], 1)
    state["parameters"][0]["slots"]["m"][:] = 7
    assert optimizer.state_dict()["parameters"][0]["slots"]["m"][0] != 7


# --- the file -----------------------------------------------------------------------------------
def saved(path, rule=rules.adam, w=None, steps=3):
    w = np.ones(3, F4) if w is None else w
    optimizer = rule.numpy(w)
    for _ in range(steps):
        optimizer.step(np.ones_like(w))
    optimizer.save(path)
    return optimizer


def test_a_file_is_data_only(tmp_path):
    saved(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        kinds = {name: file[name].dtype.kind for name in file.files}
    assert kinds == {"w/w": "f", "slot/w/m": "f", "slot/w/v": "f", "state": "U"}


def test_a_file_that_needs_pickle_is_refused(tmp_path):
    np.savez(tmp_path / "evil.npz", state=np.array([object()], object))
    w = np.ones(3, F4)
    with pytest.raises(gw.StateError, match="allow_pickle=False"):
        rules.adam.numpy(w).load(tmp_path / "evil.npz")


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    optimizer = saved(path)
    before = path.read_bytes()

    def fail(file, **arrays):
        file.write(b"half of it")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", fail)
        with pytest.raises(OSError, match="disk full"):
            optimizer.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.npz"]  # and nothing else lies about
    optimizer.step(np.ones(3, F4))
    optimizer.save(path)
    assert path.read_bytes() != before


def test_a_file_gets_the_name_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "b.ckpt", str(tmp_path / "c.npz")):
        optimizer = saved(name)
        w = np.zeros(3, F4)
        rules.adam.numpy(w).load(name)
        np.testing.assert_array_equal(w, optimizer._parameters[0].array)
    assert sorted(os.listdir(tmp_path)) == ["b.ckpt", "c.npz", "plain"]


def test_a_file_is_readable_by_those_who_may_read_others(tmp_path):
    """mkstemp makes files for one user only; a checkpoint is like any other file."""
    saved(tmp_path / "a.npz")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "a.npz").stat().st_mode == (tmp_path / "other").stat().st_mode


def unchanged_by(w, optimizer, action):
    """The error of an action, after which weights and state are what they were."""
    before = w.copy(), repr(optimizer.state_dict())
    with pytest.raises(gw.StateError) as error:
        action()
    np.testing.assert_array_equal(w, before[0])
    assert repr(optimizer.state_dict()) == before[1]
    return str(error.value)


def test_another_rules_state_is_refused_by_name(tmp_path):
    saved(tmp_path / "a.npz", rules.adam)
    w = np.zeros(3, F4)
    optimizer = rules.momentum.numpy(w)
    text = unchanged_by(w, optimizer, lambda: optimizer.load(tmp_path / "a.npz"))
    assert "the state of adam for the rule momentum" in text and "the same rule" in text


OTHER_FILES = {
    "other arrays": lambda path: np.savez(path, x=np.ones(3)),
    "one array": lambda path: np.save(path, np.ones(3)),
    "text": lambda path: path.write_text("lr: 0.1"),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:300]),
    "other state": lambda path: np.savez(path, state=np.array("[1]")),
}


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_another_file_is_refused(kind, tmp_path):
    path = tmp_path / "x.npy"
    saved(path, rules.momentum)
    OTHER_FILES[kind](path if "arrays" not in kind and "state" not in kind else path.open("wb"))
    w = np.zeros(3, F4)
    optimizer = rules.momentum.numpy(w)
    text = unchanged_by(w, optimizer, lambda: optimizer.load(path))
    assert "x.npy is no saved optimizer" in text and "a file that .save wrote" in text


def test_no_file_is_pythons_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        rules.sgd.numpy(np.zeros(3)).load(tmp_path / "none.npz")


@pytest.mark.parametrize(
    "w, text",
    [
        (np.zeros(4, F4), "the state has w as float32(3,), here it is float32(4,)"),
        (np.zeros((3, 1), F4), "the state has w as float32(3,), here it is float32(3, 1)"),
        (np.zeros(3), "the state has w as float32(3,), here it is float64(3,)"),
    ],
)
@pytest.mark.parametrize("rule", [rules.adam, rules.sgd])
def test_other_shapes_and_dtypes_are_refused(w, text, rule, tmp_path):
    saved(tmp_path / "a.npz", rule)
    optimizer = rule.numpy(w)
    shown = unchanged_by(w, optimizer, lambda: optimizer.load(tmp_path / "a.npz"))
    assert text in shown and "parameters of the same shapes and dtypes" in shown


def test_other_slots_are_refused():
    w = np.zeros(3, F4)
    optimizer = rules.adam.numpy(w)
    state = optimizer.state_dict()
    state["parameters"][0]["slots"]["m"] = np.zeros(4, F4)
    text = unchanged_by(w, optimizer, lambda: optimizer.load_state_dict(state))
    assert "the state has w.m as float32(4,), here it is float32(3,)" in text
    state["parameters"][0]["slots"] = {"m": np.zeros(3, F4), "v": np.zeros(3)}
    text = unchanged_by(w, optimizer, lambda: optimizer.load_state_dict(state))
    assert "the state has w.v as float64(3,), here it is float32(3,)" in text
    state = optimizer.state_dict()
    state["parameters"][0]["slots"]["u"] = np.zeros(3, F4)
    text = unchanged_by(w, optimizer, lambda: optimizer.load_state_dict(state))
    assert "the state has a slot w.u, which is not here" in text


def named(*names):
    return {name: np.zeros(3, F4) for name in names}


def test_missing_and_extra_parameters_are_errors_unless_they_are_allowed(tmp_path):
    old = named("a", "b")
    optimizer = rules.momentum.numpy(old)
    optimizer.step({name: np.ones(3, F4) for name in old})
    optimizer.save(tmp_path / "a.npz")
    w = named("b", "c")
    new = rules.momentum.numpy(w)
    with pytest.raises(gw.StateError) as error:
        new.load(tmp_path / "a.npz")
    assert "the state has nothing for c and a, which is not here" in str(error.value)
    assert "strict=False to load the rest" in str(error.value)
    assert not w["b"].any() and new.steps == 0
    with pytest.warns(UserWarning, match="nothing for c and a, which is not here; the rest was"):
        new.load(tmp_path / "a.npz", strict=False)
    np.testing.assert_array_equal(w["b"], old["b"])
    assert not w["c"].any() and new.steps == 1
    clocks = {p["name"]: p["steps"] for p in new.state_dict()["parameters"]}
    assert clocks == {"b": 1, "c": 0}


def test_a_parameter_without_a_state_keeps_an_identity_of_its_own():
    """Two parameters with one identity would draw the same noise."""

    @gw.rule
    def noise(w, g, *, rng=0):
        return w + rng.normal()

    first = noise.numpy(named("a", "b"))
    w = named("b", "c")  # b is 1 in the state, and so is c in the new optimizer
    second = noise.numpy(w)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        second.load_state_dict(first.state_dict(), strict=False)
    second.step({name: np.ones(3, F4) for name in w})
    assert not np.array_equal(w["b"], w["c"])


def test_a_missing_slot_keeps_its_first_value():
    optimizer = rules.adam.numpy(np.zeros(3, F4))
    optimizer.step(np.ones(3, F4))
    state = optimizer.state_dict()
    del state["parameters"][0]["slots"]["v"]
    other = rules.adam.numpy(np.zeros(3, F4))
    with pytest.raises(gw.StateError, match=r"nothing for w\.v"):
        other.load_state_dict(state)
    assert not other.state_dict()["parameters"][0]["slots"]["m"].any()
    with pytest.warns(UserWarning, match=r"nothing for w\.v"):
        other.load_state_dict(state, strict=False)
    slots = other.state_dict()["parameters"][0]["slots"]
    assert slots["m"].any() and not slots["v"].any()


def test_parameters_are_matched_by_name_not_by_position(tmp_path):
    """torch matches by position (pytorch#1489)."""
    w = {"a": np.zeros(3, F4), "b": np.zeros(3, F4)}
    optimizer = rules.momentum.numpy(w)
    optimizer.step({"a": np.ones(3, F4), "b": np.full(3, 2, F4)})
    optimizer.save(tmp_path / "a.npz")
    turned = {"z": {"a": None}, "b": np.zeros(3, F4), "a": np.zeros(3, F4)}
    other = rules.momentum.numpy(turned)
    other.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(turned["a"], w["a"])
    np.testing.assert_array_equal(turned["b"], w["b"])


def test_names_with_slashes_do_not_collide(tmp_path):
    w = {"a": np.zeros(1, F4), "a/m": np.zeros(1, F4)}
    optimizer = rules.adam.numpy(w)
    optimizer.step({"a": np.ones(1, F4), "a/m": np.full(1, 2, F4)})
    optimizer.save(tmp_path / "a.npz")
    other = rules.adam.numpy({"a": np.zeros(1, F4), "a/m": np.zeros(1, F4)})
    other.load(tmp_path / "a.npz")
    assert repr(other.state_dict()) == repr(optimizer.state_dict())


def test_two_parameters_of_one_name_are_refused():
    """Dots join keys, so two keys may make one name: a checkpoint could not tell them apart."""
    with pytest.raises(gw.StateError, match=r"two parameters have the name a\.b"):
        rules.sgd.numpy({"a": {"b": np.zeros(1, F4)}, "a.b": np.zeros(1, F4)})


def test_a_broken_state_changes_nothing():
    w = np.zeros(3, F4)
    optimizer = rules.adam.numpy(w)
    state = rules.adam.numpy(np.zeros(3, F4)).state_dict()
    before = repr(optimizer.state_dict())
    del state["micro"]
    state["parameters"][0]["slots"]["m"] = np.ones(3, F4)
    with pytest.raises(gw.StateError, match="micro"):
        optimizer.load_state_dict(state)
    assert repr(optimizer.state_dict()) == before


def test_a_file_of_a_later_format_is_refused(tmp_path):
    saved(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    arrays["state"] = np.array(json.dumps({**json.loads(str(arrays["state"])), "format": 99}))
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(gw.StateError, match="format 99"):
        rules.adam.numpy(np.zeros(3, F4)).load(tmp_path / "a.npz")


# --- groups -------------------------------------------------------------------------------------
def test_groups_have_keywords_of_their_own():
    w = [np.zeros(2, F4), np.zeros(2, F4), np.zeros(2, F4)]
    groups = [{"params": [w[0], w[1]]}, {"params": {"head": w[2]}, "lr": 1.0}]
    optimizer = rules.sgd.numpy(groups, lr=0.1)
    ones = np.ones(2, F4)
    optimizer.step([[ones, ones], {"head": ones}])
    np.testing.assert_allclose(w, [[-0.1] * 2, [-0.1] * 2, [-1] * 2], rtol=1e-6)
    optimizer.param_groups[0]["lr"] = 0.2  # as torch's schedulers do
    optimizer.step([[ones, None], {"head": None}])
    np.testing.assert_allclose(w, [[-0.3] * 2, [-0.1] * 2, [-1] * 2], rtol=1e-6)
    optimizer.step([[ones, ones], {"head": ones}], lr=0.0)
    np.testing.assert_allclose(w, [[-0.3] * 2, [-0.1] * 2, [-1] * 2], rtol=1e-6)
    names = [p["name"] for p in optimizer.state_dict()["parameters"]]
    assert names == ["0", "1", "1.head"]


def test_one_group_is_still_a_list_of_groups():
    w = np.zeros(2, F4)
    optimizer = gw.chain(rules.clip_by_global_norm, rules.sgd(lr=1.0)).numpy([{"params": {"a": w}}])
    optimizer.step([{"a": np.ones(2, F4)}])
    assert w.any() and list(optimizer.recorded["grad_norm"][0]) == ["a"]


def test_a_group_that_is_added_starts_at_its_first_step():
    w = [np.zeros(1, F4), np.zeros(1, F4)]
    optimizer = rules.adam.numpy([{"params": w[0]}], lr=0.1)
    for _ in range(3):
        optimizer.step([np.ones(1, F4)])
    optimizer.add_param_group({"params": w[1], "lr": 0.5})
    optimizer.step([None, np.ones(1, F4)])
    np.testing.assert_allclose(w[1], -0.5, rtol=1e-5)  # Adam's first step is lr
    assert [p["steps"] for p in optimizer.state_dict()["parameters"]] == [3, 1]
    assert optimizer.steps == 4


def test_groups_may_have_schedules_and_slots_of_their_own():
    w = [np.zeros(1), np.zeros(1)]
    groups = [
        {"params": w[0], "lr": gw.schedules.piecewise(1.0, {1: 0.0})},
        {"params": w[1], "m": 2.0},
    ]
    optimizer = rules.momentum.numpy(groups, lr=1.0, mu=0.5)
    for _ in range(2):
        optimizer.step([np.ones(1), np.ones(1)])
    np.testing.assert_allclose(w, [[-1.0], [-(1 + 1) - (1 + 1)]])


def test_a_group_without_a_keyword_of_its_own_follows_the_optimizer():
    w = [np.zeros(1), np.zeros(1)]
    optimizer = rules.sgd.numpy([{"params": w[0]}, {"params": w[1], "lr": 3.0}], lr=2.0)
    assert [g["lr"] for g in optimizer.param_groups] == [2.0, 3.0]
    assert [g["params"] for g in optimizer.param_groups] == [[w[0]], [w[1]]]


def test_a_wrong_number_of_groups_is_said():
    w = [np.zeros(1), np.zeros(1)]
    optimizer = rules.sgd.numpy([{"params": w[0]}, {"params": w[1]}])
    with pytest.raises(gw.StateError, match="grads has no list of 2, one entry for each group"):
        optimizer.step([np.ones(1)])


# --- swapped ------------------------------------------------------------------------------------
AVERAGED = gw.chain(rules.sgd(lr=0.1), rules.ema(decay=0.5))


def test_swapped_puts_a_slot_in_place_and_takes_it_out():
    w = [np.zeros(2, F4), np.zeros((), F4)]
    optimizer = AVERAGED.numpy(w)
    for _ in range(3):
        optimizer.step([np.ones(2, F4), np.ones((), F4)])
    own, average = [a.copy() for a in w], [p.slots["avg"].copy() for p in optimizer._parameters]
    with optimizer.swapped("avg"):
        for a, b in zip(w, average, strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(w, own, strict=True):
        np.testing.assert_array_equal(a, b)


def test_swapped_is_taken_out_after_an_error_too():
    w = np.zeros(2, F4)
    optimizer = AVERAGED.numpy(w)
    optimizer.step(np.ones(2, F4))
    own = w.copy()
    with pytest.raises(KeyboardInterrupt), optimizer.swapped("avg"):
        raise KeyboardInterrupt
    np.testing.assert_array_equal(w, own)
    optimizer.step(np.ones(2, F4))


def test_no_step_save_or_load_while_swapped(tmp_path):
    """The weights are not the weights then."""
    w = np.zeros(2, F4)
    optimizer = AVERAGED.numpy(w)
    optimizer.step(np.ones(2, F4))
    optimizer.save(tmp_path / "a.npz")
    with optimizer.swapped("avg"):
        for action in (
            lambda: optimizer.step(np.ones(2, F4)),
            lambda: optimizer.save(tmp_path / "b.npz"),
            lambda: optimizer.load(tmp_path / "a.npz"),
        ):
            with pytest.raises(RuntimeError, match=r"inside swapped\('avg'\)"):
                action()
    assert os.listdir(tmp_path) == ["a.npz"]


def test_swapped_slots_must_exist():
    for rule, slot, known in ((AVERAGED, "ema", "one of avg"), (rules.sgd, "m", "it has no slots")):
        with pytest.raises(KeyError) as error, rule.numpy(np.zeros(2)).swapped(slot):
            pass
        assert f"no slot '{slot}' in {rule.name}" in str(error.value) and known in str(error.value)


def test_a_slot_of_another_shape_cannot_be_swapped_in():
    @gw.rule
    def summed(w, g, s=lambda w: np.zeros((), w.dtype)):
        return w - g, s + np.sum(g)

    w = np.ones(3)
    optimizer = summed.numpy(w)
    with pytest.raises(gw.StateError) as error, optimizer.swapped("s"):
        pass
    assert "the slot s of w has shape (), the parameter (3,)" in str(error.value)
    np.testing.assert_array_equal(w, 1)
    optimizer.step(np.ones(3))


# --- copies -------------------------------------------------------------------------------------
def test_rules_are_their_own_copies():
    assert copy.deepcopy(AVERAGED) is AVERAGED and copy.copy(AVERAGED) is AVERAGED


@pytest.mark.parametrize(
    "rule",
    [
        rules.adam,
        rules.momentum(lr=gw.schedules.linear(1.0, 0.0, 9)),
        gw.partition({"w": rules.sgd(lr=gw.per_param(lambda name, w: 0.5)), "*": rules.adam}),
        rules.sgld(rng=3).options(accumulate=2),
    ],
)
def test_a_deep_copy_goes_on_by_itself(rule):
    w, alone = np.ones(3, F4), np.ones(3, F4)
    optimizer, reference = rule.numpy(w), rule.numpy(alone)
    for o in (optimizer, reference):
        o.step(np.full(3, 0.5, F4))
    twin = copy.deepcopy(optimizer)
    (other,) = twin.param_groups[0]["params"]
    before = w.copy()
    for k in range(3):
        twin.step(np.full(3, k, F4))
        reference.step(np.full(3, k, F4))
    np.testing.assert_array_equal(other, alone)
    np.testing.assert_array_equal(w, before)
    assert twin.steps == reference.steps > optimizer.steps
    for k in range(3):
        optimizer.step(np.full(3, k, F4))
    np.testing.assert_array_equal(w, alone)


def test_names_that_repeat_get_the_groups_number():
    for first, names in ((np.ones(2), ["w", "1.w"]), ({"a": np.ones(2)}, ["a", "1.a"])):
        optimizer = rules.momentum.numpy(first)
        optimizer.add_param_group({"params": copy.deepcopy(first)})
        assert [p["name"] for p in optimizer.state_dict()["parameters"]] == names


# --- pickling: by import path ---------------------------------------------------------------------
def again(x):
    return pickle.loads(pickle.dumps(x))


@gw.rule(domain="[low, high)")
def importable(w, g, m=0.0, *, lr=0.1, low=0.0, high=1.0, rng):
    m = 0.9 * m + g
    return w - lr * m + rng.uniform(), m


@pytest.mark.parametrize(
    "rule",
    [
        importable(rng=2),
        importable(lr=0.3, rng=2, m=1.0).options(domain="(low, high)", skip_nonfinite=True),
        gw.chain(rules.clip_by_global_norm(max_norm=0.1), rules.adam(lr=0.2), rules.wrap),
        rules.adam(lr=gw.schedules.cosine(0.1, 10, warmup=2)),
        rules.sgd(lr=gw.schedules.piecewise(0.1, {2: 0.01})).options(accumulate=2),
        gw.partition({"x": rules.sgd, "*": rules.momentum(mu=0.5)}),
    ],
)
def test_a_pickled_rule_takes_the_same_steps(rule):
    w, v = np.full(5, 0.5), np.full(5, 0.5)
    optimizers = rule.numpy({"x": w}), again(rule).numpy({"x": v})
    for k in range(6):
        for optimizer in optimizers:
            optimizer.step({"x": np.linspace(-1, 1, 5) * k})
    np.testing.assert_array_equal(w, v)
    assert repr(again(rule)) == repr(rule)


def test_a_rule_that_has_a_name_is_itself():
    assert again(rules.adam) is rules.adam
    assert again(importable) is importable


@pytest.mark.parametrize("schedule", ["constant(0.1)", "linear(1.0, 0.0, 4, warmup=2)"])
def test_schedules_are_pickled(schedule):
    made = eval(f"gw.schedules.{schedule}")
    assert repr(again(made)) == schedule
    assert [float(again(made)(k)) for k in range(8)] == [float(made(k)) for k in range(8)]


# --- numbers that were changed ---
def test_a_number_that_was_changed_is_resumed_with(tmp_path):
    rule = rules.momentum(lr=0.1)
    w, v = np.zeros(2), np.zeros(2)
    optimizer = rule.numpy(w)
    optimizer.param_groups[0]["lr"] = 0.001
    optimizer.step(np.ones(2))
    optimizer.save(tmp_path / "run.npz")
    other, third = rule.numpy(v), rule.numpy(np.zeros(2))
    other.load(tmp_path / "run.npz")
    third.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == third.param_groups[0]["lr"] == 0.001
    for each in (optimizer, other):
        each.step(np.ones(2))
    np.testing.assert_array_equal(w, v)


def test_a_schedule_is_no_state():
    scheduled = rules.sgd.numpy(np.zeros(2), lr=gw.schedules.constant(0.5))
    scheduled.load_state_dict(rules.sgd.numpy(np.zeros(2), lr=0.1).state_dict())
    assert repr(scheduled.param_groups[0]["lr"]) == "constant(0.5)"
