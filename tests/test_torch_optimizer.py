"""Rules as torch optimizers: trajectories, clocks, groups, schedulers, checkpoints, refusals."""

import copy
import subprocess
import sys
import warnings

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from torch.optim import lr_scheduler  # noqa: E402

SHAPES = [(3, 4), (5,), (), (0,), (2, 1, 3)]
NAMES = ["matrix", "vector", "number", "nothing", "block"]


@gw.rule
def fails_on_vectors(w, g, m=0.0, *, lr=0.1):
    if w.ndim == 1:
        raise ArithmeticError("a vector")
    return w - lr * g, m + 1


@gw.rule
def polyak(w, g, *, value=gw.given, max_lr=1.0):
    lr = gw.record("rate", np.minimum(max_lr, value / (gw.global_sum(g * g) + 1e-12)))
    return w - lr * g


@gw.rule
def counting(w, g, seen=lambda w: np.zeros((), np.int64), total=lambda w: np.zeros(2), *, lr=0.1):
    return w - lr * g, seen + 16777217, total + 1 / 3


@gw.rule
def hessian(w, g, *, h=None, lr=0.1):
    return w - lr * g if h is None else w - lr * g / h


def arrays(shapes=SHAPES, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def parameters(values):
    return [torch.nn.Parameter(torch.tensor(x)) for x in values]


def set_gradients(params, gradients):
    for p, g in zip(params, gradients, strict=True):
        p.grad = None if g is None else torch.tensor(g)


def steps(optimizer, params, count, first=0):
    for k in range(first, first + count):
        set_gradients(params, arrays([tuple(p.shape) for p in params], seed=100 + k))
        optimizer.step()


def values(params):
    return [p.detach().clone() for p in params]


def assert_equal(params, others):
    for p, q in zip(params, others, strict=True):
        assert torch.equal(p, q)


# --- trajectories ------------------------------------------------------------------------------
MOVES = {
    "sgd": (rules.sgd, {"lr": 1e-2}),
    "momentum": (rules.momentum, {"lr": 1e-2}),
    "nesterov": (rules.nesterov, {"lr": 1e-2}),
    "adam": (rules.adam, {"lr": 1e-2}),
    "adamw": (rules.adamw, {"lr": 1e-2}),
    "rmsprop": (rules.rmsprop, {"lr": 1e-2}),
    "lion": (rules.lion, {"lr": 1e-3, "weight_decay": 0.1}),
}
BUILT_IN = {
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-2),
    "momentum": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9),
    "nesterov": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9, nesterov=True),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-2),
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-2),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=1e-2),
}


@pytest.mark.parametrize("name", MOVES)
def test_the_trajectory_is_that_of_the_numpy_optimizer_and_of_the_equation(name):
    rule, keywords = MOVES[name]
    single, double = arrays(), arrays(dtype=np.float64)
    for exact, rounded in zip(double, single, strict=True):
        np.copyto(exact, rounded)
    params = parameters(single)
    optimizer = rule.torch(params, **keywords)
    by_numpy = rule.numpy(single, **keywords)
    equation = rule.numpy(double, **keywords)
    for k in range(200):
        gradients = arrays(seed=k + 1)
        set_gradients(params, gradients)
        optimizer.step()
        by_numpy.step(gradients)
        equation.step([g.astype(np.float64) for g in gradients])
    for p, x, exact in zip(params, single, double, strict=True):
        np.testing.assert_allclose(p.detach(), x, rtol=0, atol=5e-6)
        np.testing.assert_allclose(p.detach(), exact, rtol=0, atol=5e-6)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_trajectory_is_that_of_torchs_own_optimizer(name):
    # torch's in double precision: in single, its AdamW is 1e-5 from its own equation
    rule, keywords = MOVES[name]
    ours = parameters(arrays())
    theirs = [torch.nn.Parameter(p.detach().double()) for p in ours]
    optimizer, built_in = rule.torch(ours, **keywords), BUILT_IN[name](theirs)
    for k in range(200):
        gradients = arrays(seed=k + 1)
        set_gradients(ours, gradients)
        set_gradients(theirs, [g.astype(np.float64) for g in gradients])
        optimizer.step()
        built_in.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.double(), q, rtol=0, atol=5e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_is_that_of_numpy(dtype):
    mine = arrays(dtype=dtype)
    params = parameters(mine)
    keywords = {"lr": 0.1, "noise": 0.5, "low": -2.0, "high": 2.0, "rng": 2**40 + 3}
    optimizer = rules.compact_sgd.torch(params, **keywords)
    by_numpy = rules.compact_sgd.numpy(mine, **keywords)
    for k in range(50):
        gradients = arrays(dtype=dtype, seed=k)
        set_gradients(params, gradients)
        optimizer.step()
        by_numpy.step(gradients)
    for p, x in zip(params, mine, strict=True):
        distance = np.abs(p.detach().numpy() - x)
        assert np.all(np.minimum(distance, 4.0 - distance) <= 2e-5)  # on the circle


def test_one_draw_is_that_of_numpy_to_a_few_ulp():
    @gw.rule
    def draws(w, g, u=0.0, b=lambda w: np.zeros(w.shape, np.int64), *, rng):
        return rng.normal(), rng.uniform(), rng.bits().astype(np.int64)

    w = np.zeros(100_001, np.float32)
    p = torch.nn.Parameter(torch.zeros(100_001))
    optimizer, by_numpy = draws.torch([p], rng=5), draws.numpy([w], rng=5)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    by_numpy.step([w.copy()])
    state, slots = optimizer.state[p], by_numpy.state_dict()["parameters"][0]["slots"]
    np.testing.assert_array_equal(state["u"], slots["u"])
    np.testing.assert_array_equal(state["b"], slots["b"])
    np.testing.assert_allclose(p.detach(), w, rtol=8 * 2**-23, atol=2e-6)


def test_the_domain_is_kept():
    p = torch.nn.Parameter(torch.linspace(0, 1, 10_001)[:-1].clone())
    optimizer = rules.compact_sgd.torch([p], lr=1e-3, noise=1e-4, low=0.0, high=1.0, rng=0)
    generator = torch.Generator().manual_seed(0)
    for k in range(1000):
        p.grad = torch.randn(10_000, generator=generator) * 10.0 ** -(k % 9)
        optimizer.step()
        assert p.min() >= 0 and p.max() < 1
    p.grad = torch.full_like(p, 1e-9 / 1e-3)
    with torch.no_grad():
        p.zero_()
    optimizer.step(noise=0.0)
    assert p.min() >= 0 and p.max() < 1


def test_every_hyperparameter_changes_and_nothing_is_traced_again():
    rule = gw.chain(rules.adamw())
    params = parameters(arrays([(3, 4)]))
    optimizer = rule.torch(params)
    for k in range(100):
        for name in ("lr", "b1", "b2", "eps", "weight_decay"):
            optimizer.param_groups[0][name] = 0.5 + k / 1000
        steps(optimizer, params, 1, first=k)
    assert len(rule._plans) + len(optimizer._preset._plans) == 1


def test_one_step_on_tensors():
    w, g = arrays([(3,), (3,)])
    got = rules.adam(torch.tensor(w), torch.tensor(g), lr=torch.tensor(0.5, dtype=torch.float64))
    for x, y in zip(got, rules.adam(w, g, lr=0.5), strict=True):
        assert isinstance(x, torch.Tensor)
        np.testing.assert_allclose(x, y, rtol=1e-6)
    with pytest.raises(gw.SignatureError, match="requires a gradient"):
        rules.sgd(torch.nn.Parameter(torch.ones(3)), torch.ones(3))


# --- steps, clocks -----------------------------------------------------------------------------
def test_it_is_a_torch_optimizer():
    params = parameters(arrays())
    optimizer = rules.adam.torch(params)
    assert isinstance(optimizer, rules.adam.torch)
    assert isinstance(optimizer, torch.optim.Optimizer)
    before = params[0]._version
    steps(optimizer, params, 1)
    assert params[0]._version > before and params[0].grad is not None
    optimizer.zero_grad()
    assert params[0].grad is None
    assert optimizer.steps == 1 and optimizer.state[params[0]]["step"] == 1
    assert set(optimizer.state[params[0]]) == {"m", "v", "step"}


def test_a_parameter_without_a_gradient_is_left_alone():
    mine = arrays([(3,), (4,)])
    params = parameters(mine)
    noisy = gw.chain(rules.momentum, rules.decay)
    optimizer, by_numpy = noisy.torch(params), noisy.numpy(mine)
    for k in range(6):
        gradients = arrays([(3,), (4,)], seed=k)
        gradients[1] = None if k % 2 else gradients[1]
        set_gradients(params, gradients)
        optimizer.step()
        by_numpy.step(gradients)
    assert [optimizer.state[p]["step"] for p in params] == [6, 3]
    for p, x in zip(params, mine, strict=True):
        np.testing.assert_allclose(p.detach(), x, rtol=1e-6)


def test_a_step_that_fails_changes_nothing():
    params = parameters(arrays([(3, 4), (5,)]))
    optimizer = fails_on_vectors.torch(params)
    before = values(params)
    with pytest.raises(ArithmeticError):
        steps(optimizer, params, 1)
    assert_equal(params, before)
    assert optimizer.steps == 0 and not optimizer.state
    params[1].grad = None
    optimizer.step()
    moved = values(params)
    with pytest.raises(ArithmeticError):
        steps(optimizer, params, 1)
    assert_equal(params, moved)
    assert optimizer.steps == 1 and optimizer.state[params[0]]["step"] == 1
    assert torch.equal(optimizer.state[params[0]]["m"], torch.ones(3, 4))


def test_the_closures_result_is_the_value_that_a_rule_asks_for():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = polyak.torch(p)

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3
    assert torch.equal(p, torch.full((3,), 0.5))
    assert optimizer.recorded["rate"].item() == pytest.approx(0.25)
    optimizer.step(value=torch.tensor(0.0))
    assert torch.equal(p, torch.full((3,), 0.5))
    optimizer.step(closure, value=0.0)
    assert torch.equal(p, torch.full((3,), 0.5))
    with pytest.raises(gw.SignatureError, match="value arrives at every step"):
        optimizer.step()
    with pytest.raises(gw.SignatureError, match="no keyword loss"):
        optimizer.step(loss=1.0)
    with pytest.raises(gw.SignatureError, match="when the optimizer is made"):
        rules.momentum.torch([p]).step(m=1.0)


def test_a_keyword_with_a_value_for_each_parameter():
    mine = arrays([(3,), (2,)])
    extra = [np.full(3, 2.0, np.float32), np.full(2, 4.0, np.float32)]
    by_numpy = hessian.numpy(mine)
    params, named = parameters(mine), parameters(mine)
    listed, by_name = hessian.torch(params), hessian.torch(zip("ba", named, strict=True))
    set_gradients(params, mine)
    set_gradients(named, mine)
    listed.step(h=[torch.tensor(h) for h in extra])
    by_name.step(h=dict(zip("ba", map(torch.tensor, extra), strict=True)))
    by_numpy.step([x.copy() for x in mine], h=extra)
    for p, q, x in zip(params, named, mine, strict=True):
        np.testing.assert_allclose(p.detach(), x, rtol=1e-6)
        assert torch.equal(p, q)
    with pytest.raises(gw.StateError, match="h has a list of 1"):
        listed.step(h=[torch.ones(3)])
    with pytest.raises(gw.StateError, match="h has a dict with keys"):
        by_name.step(h={"a": 1.0})


def test_what_is_recorded_has_the_structure_of_params():
    w = arrays([(3,), (2,)])
    for params, wanted in [
        (parameters(w), list),
        (list(zip("ba", parameters(w), strict=True)), dict),
    ]:
        optimizer = polyak.torch(params)
        for p in optimizer.param_groups[0]["params"]:
            p.grad = torch.ones_like(p)
        optimizer.param_groups[0]["params"][1].grad = None
        optimizer.step(value=1.0)
        found = optimizer.recorded["rate"]
        assert isinstance(found, wanted)
        first, second = (found["b"], found["a"]) if wanted is dict else found
        assert second is None and abs(first.item() - 1 / 3) < 1e-6


def test_accumulate_and_skip_nonfinite_are_those_of_numpy():
    rule = gw.chain(rules.clip_by_global_norm, rules.adam).options(
        accumulate=3, skip_nonfinite=True
    )
    mine = arrays([(3,), (2, 2)])
    params = parameters(mine)
    optimizer, by_numpy = rule.torch(params), rule.numpy(mine)
    for k in range(12):
        gradients = arrays([(3,), (2, 2)], seed=k)
        gradients[0] = None if k == 5 else gradients[0]
        gradients[1][0, 0] = np.inf if k == 4 else 1.0
        set_gradients(params, gradients)
        optimizer.step()
        for p in params:  # what was summed is not the gradient itself
            if p.grad is not None:
                p.grad.zero_()
        by_numpy.step(gradients)
        assert optimizer.steps == by_numpy.steps
        assert [float(p.detach().sum()) for p in params] == pytest.approx(
            [float(x.sum()) for x in mine], abs=1e-6
        )
    resumed = rule.torch(copies := [torch.nn.Parameter(x) for x in values(params)])
    resumed.load_state_dict(optimizer.state_dict())
    steps(optimizer, params, 4)
    steps(resumed, copies, 4)
    assert_equal(params, copies)


def test_swapped_shows_a_slot_and_gives_the_weights_back():
    averaged = gw.chain(rules.sgd, rules.ema(decay=0.5))
    params = parameters(arrays([(3,), (2,)]))
    optimizer = averaged.torch(params, lr=0.1)
    with optimizer.swapped("avg"):  # before the first step: as it will start
        assert_equal(params, parameters(arrays([(3,), (2,)])))
    assert not optimizer.state
    steps(optimizer, params, 3)
    trained = values(params)
    with optimizer.swapped("avg"):
        assert_equal(params, [optimizer.state[p]["avg"] for p in params])
        with pytest.raises(RuntimeError, match="inside swapped"):
            optimizer.step()
        with optimizer.swapped("avg"):
            pass
        with pytest.raises(gw.StateError, match="inside swapped"):
            optimizer.step()
    assert_equal(params, trained)
    with pytest.raises(ZeroDivisionError), optimizer.swapped("avg"):
        _ = 1 / 0
    assert_equal(params, trained)
    with pytest.raises(KeyError, match="no slot 'mean'"), optimizer.swapped("mean"):
        pass


def test_inside_eager_the_users_function_runs():
    seen = []

    @gw.rule
    def looking(w, g, m=0.0, *, lr=0.1, rng):
        seen.append(type(w))
        norm = gw.record("norm", np.sqrt(gw.global_sum(g * g)))
        return w - lr * g / norm + rng.normal(), m + g

    params, others = parameters(arrays()), parameters(arrays())
    optimizer, compiled = looking.torch(params, rng=3), looking.torch(others, rng=3)
    with gw.eager():
        steps(optimizer, params, 1)
    assert np.ndarray in seen
    steps(compiled, others, 1)
    for p, q in zip(params, others, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=2e-6)
        torch.testing.assert_close(optimizer.state[p]["m"], compiled.state[q]["m"])
    norms = optimizer.recorded["norm"], compiled.recorded["norm"]
    assert float(norms[0][0]) == pytest.approx(float(norms[1][0]), rel=1e-6)


# --- groups, names, schedulers -----------------------------------------------------------------
def test_groups_have_keywords_of_their_own():
    a, b, c = parameters(arrays([(3,)] * 3))
    optimizer = rules.adam.torch([{"params": [a]}, {"params": b, "lr": 0.0, "m": 2.0}], lr=0.1)
    optimizer.add_param_group({"params": [c], "lr": 1.0})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.0, 1.0]
    before = values([a, b, c])
    steps(optimizer, [a, b, c], 1)
    moved = [(p - q).abs().max().item() for p, q in zip([a, b, c], before, strict=True)]
    assert moved == pytest.approx([0.1, 0.0, 1.0], rel=1e-4)
    assert (optimizer.state[b]["m"] > 1).all()
    for bad, text in [
        ({"params": [torch.ones(2)], "learning_rate": 1.0}, "no keyword learning_rate"),
        ({"params": [torch.ones(2)], "rng": 1}, "rng is one for all groups"),
    ]:
        with pytest.raises(gw.SignatureError, match=text):
            (rules.sgld.torch([a], rng=0) if "rng" in bad else optimizer).add_param_group(bad)


def test_a_parameters_noise_belongs_to_its_position():
    a, b = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(4))
    c, d = np.zeros(4, np.float32), np.zeros(4, np.float32)
    grouped = rules.sgld.torch([{"params": [a]}, {"params": [b]}], rng=1)
    by_numpy = rules.sgld.numpy([c, d], rng=1)
    for _ in range(3):
        set_gradients([a, b], [np.zeros(4, np.float32)] * 2)
        grouped.step()
        by_numpy.step([np.zeros(4, np.float32)] * 2)
    np.testing.assert_allclose(a.detach(), c, atol=2e-6)
    np.testing.assert_allclose(b.detach(), d, atol=2e-6)
    assert not torch.equal(a, b)


def test_a_partition_gives_each_rule_a_group():
    mixed = gw.partition({"*.bias": rules.sgd(lr=0.5), "0.*": rules.adam(lr=0.1), "*": rules.sgld})
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    optimizer = mixed.torch(net.named_parameters(), rng=0)
    names = [group["param_names"] for group in optimizer.param_groups]
    assert names == [["0.weight"], ["0.bias", "1.bias"], ["1.weight"]]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5, 0.1]
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    bias = net[1].bias
    assert torch.equal(bias, before["1.bias"] - 0.5 * bias.grad)
    assert set(optimizer.state[net[0].weight]) == {"m", "v", "step"}
    lr_scheduler.LambdaLR(optimizer, lambda k: 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.25, 0.05]
    other = mixed.torch(reversed(list(net.named_parameters())), rng=5)
    with pytest.raises(gw.StateError, match="the state of adam, sgd, sgld for"):
        other.load_state_dict(optimizer.state_dict())
    with pytest.raises(gw.StateError, match="params has no names"):
        mixed.torch(net.parameters(), rng=0)
    gw.partition({"*": rules.sgd}).torch(net.parameters())


def test_per_param_differs_by_name():
    noise = gw.per_param(lambda name, w: 0.01 if name.startswith("head") else 0.0)
    head, body = parameters([np.zeros(4, np.float32)] * 2)
    optimizer = rules.sgld.torch([("head", head), ("body", body)], noise=noise, rng=0)
    set_gradients([head, body], [np.zeros(4, np.float32)] * 2)
    optimizer.step()
    assert head.any() and not body.any()
    assert optimizer.param_groups[0]["noise"] == 0.01  # of the group's first parameter
    optimizer.param_groups[0]["noise"] = 0.5
    with pytest.warns(UserWarning, match=r"one number for all its parameters, where gw\.per_param"):
        optimizer.step()
    assert body.any()


def test_a_group_shows_a_schedules_number_until_somebody_writes_another():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = rules.sgd.torch([p], lr=gw.schedules.linear(1.0, 0.0, 4))
    group, seen = optimizer.param_groups[0], []
    for k in range(6):
        if k == 3:
            group["lr"] = 10.0
        p.grad = torch.ones(2)
        optimizer.step()
        seen.append(group["lr"])
    assert seen == [1.0, 0.75, 0.5, 10.0, 10.0, 10.0]
    assert torch.equal(p, torch.full((2,), -32.25))


SCHEDULERS = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda k: 0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 12),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 0.1, 3),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("rule", ["momentum", "adam"])
def test_torchs_schedulers_drive_it_as_they_drive_torchs_own(name, rule):
    ours, theirs = parameters(arrays()), parameters(arrays())
    optimizer, built_in = MOVES[rule][0].torch(ours, lr=1e-2), BUILT_IN[rule](theirs)
    mine, own = SCHEDULERS[name](optimizer), SCHEDULERS[name](built_in)
    for k in range(10):
        steps(optimizer, ours, 1, first=k)
        steps(built_in, theirs, 1, first=k)
        mine.step()
        own.step()
        alias = "momentum" if rule == "momentum" else "betas"
        for key in ("lr", alias):
            assert optimizer.param_groups[0][key] == built_in.param_groups[0][key]
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=5e-6)


def test_plateau_and_a_tensor_as_lr():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = rules.adam.torch([p], lr=1e-3)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    scheduler.step(1.0)
    scheduler.step(1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-4)
    optimizer = rules.sgd.torch([p], lr=torch.tensor(1.0))
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda k: 0.5)
    for _ in range(3):
        p.grad = torch.ones(2)
        optimizer.step()
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == 0.5
    assert torch.equal(p, torch.full((2,), -1.5))


def test_hooks_run_and_amp_works():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer, seen = rules.sgd.torch([p], lr=1.0), []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert seen == ["before", "after"]
    assert torch.equal(p, torch.zeros(2))


# --- checkpoints -------------------------------------------------------------------------------
def through_a_file(state, tmp_path):
    torch.save(state, tmp_path / "state.pt")
    return torch.load(tmp_path / "state.pt", weights_only=True)


def test_counters_and_dtypes_survive(tmp_path):
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = counting.torch([p], lr=0.0)
    p.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.state[p]["step"] = 2**24 + 1
    optimizer.steps = 2**40 + 1
    q = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
    loaded = counting.torch([q], lr=0.0)
    loaded.load_state_dict(through_a_file(optimizer.state_dict(), tmp_path))
    state = loaded.state[q]
    assert (state["seen"].dtype, state["seen"].item()) == (torch.int64, 2**24 + 1)
    assert state["total"].dtype == torch.float64
    assert torch.equal(state["total"], torch.full((2,), 1 / 3, dtype=torch.float64))
    assert (state["step"], loaded.steps) == (2**24 + 1, 2**40 + 1)
    assert type(state["step"]) is int
    state["seen"] += 1
    assert optimizer.state[p]["seen"].item() == 2**24 + 1


def test_reordered_parameters_keep_their_state():
    one, two = arrays([(3,), (3,)])
    rule = gw.chain(rules.sgld(noise=0.1), rules.ema)
    a, b = parameters([one, two])
    optimizer = rule.torch([("a", a), ("b", b)], rng=4)
    steps(optimizer, [a, b], 3)
    c, d = (torch.nn.Parameter(x) for x in values([a, b]))
    loaded = rule.torch([("b", d), ("a", c)], rng=9)
    loaded.load_state_dict(optimizer.state_dict())
    assert torch.equal(loaded.state[c]["avg"], optimizer.state[a]["avg"])
    steps(optimizer, [a, b], 3)
    steps(loaded, [c, d], 3)
    assert_equal([a, b], [c, d])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: rules.momentum.torch(p), "the state of adam for momentum"),
        (lambda p: rules.adam.torch(p[:1]), "which is not here"),
        (lambda p: rules.adam.torch([*p, torch.nn.Parameter(torch.ones(1))]), "nothing for 2"),
        (lambda p: rules.adam.torch([p[1], p[0]]), "m of 0 as"),
        (lambda p: rules.adam.torch([q.detach().double() for q in p]), "m of 0 as torch.float32"),
        (lambda p: rules.adam.torch([{"params": p[:1]}, {"params": p[1:]}]), "the same groups"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(make, text):
    params = parameters(arrays([(3,), (4,)]))
    optimizer = rules.adam.torch(params)
    steps(optimizer, params, 2)
    other = make(parameters(arrays([(3,), (4,)])))
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(gw.StateError, match=text):
        other.load_state_dict(optimizer.state_dict())
    assert other.state_dict() == before
    with pytest.raises(gw.StateError, match="no gradwright"):
        optimizer.load_state_dict(torch.optim.Adam(params).state_dict())


def test_two_rules_of_one_name_differ_by_their_slots():
    def made(slots):
        scope = {}
        exec(f"def f(w, g, {slots}, *, lr=0.1): return w, {{}}", scope)
        return gw.rule(scope["f"])

    params = parameters(arrays([(3,)]))
    optimizer = made("m=0.0").torch(params)
    steps(optimizer, params, 1)
    with pytest.raises(gw.StateError, match="the slots"):
        made("v=0.0").torch(params).load_state_dict(optimizer.state_dict())


RESUME = """
import sys
import gradwright as gw, torch
from gradwright import rules

def made():
    w = torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4))
    b = torch.nn.Parameter(torch.linspace(0, 1, 5))
    groups = [{"params": [("w", w)]}, {"params": [("b", b)], "noise": 0.2}]
    rule = gw.chain(rules.compact_sgd, rules.ema)
    return [w, b], rule.torch(groups, lr=gw.schedules.cosine(0.1, 20), rng=7)

def run(params, optimizer, first, stop):
    for k in range(first, stop):
        for p in params:
            p.grad = torch.sin(torch.arange(p.numel(), dtype=p.dtype) + k).reshape(p.shape)
        optimizer.step()
"""


def test_five_steps_and_five_more_in_a_new_process_are_ten(tmp_path):
    scope = {}
    exec(RESUME, scope)
    params, optimizer = scope["made"]()
    scope["run"](params, optimizer, 0, 5)
    torch.save([values(params), optimizer.state_dict()], tmp_path / "five.pt")
    scope["run"](params, optimizer, 5, 10)
    rest = f"""
params, optimizer = made()
weights, state = torch.load({str(tmp_path / "five.pt")!r}, weights_only=True)
with torch.no_grad():
    for p, w in zip(params, weights): p.copy_(w)
optimizer.load_state_dict(state)
run(params, optimizer, 5, 10)
torch.save([p.detach() for p in params], {str(tmp_path / "ten.pt")!r})
"""
    subprocess.run([sys.executable, "-c", RESUME + rest], check=True)
    assert_equal(params, torch.load(tmp_path / "ten.pt", weights_only=True))


def test_a_schedule_that_was_overruled_stays_so():
    def made():
        p = torch.nn.Parameter(torch.zeros(2))
        return p, rules.sgd.torch([p], lr=gw.schedules.linear(1.0, 0.0, 10))

    p, optimizer = made()
    steps(optimizer, [p], 1)
    optimizer.param_groups[0]["lr"] = 7.0
    steps(optimizer, [p], 1)
    q, loaded = made()
    loaded.load_state_dict(optimizer.state_dict())
    steps(loaded, [q], 1)
    assert loaded.param_groups[0]["lr"] == 7.0


def test_a_copy_goes_its_own_way():
    params = parameters(arrays([(3,), (2,)]))
    optimizer = rules.sgld.torch(params, rng=1, lr=gw.schedules.linear(1.0, 0.0, 10))
    steps(optimizer, params, 2)
    copied_params, copied = copy.deepcopy((params, optimizer))
    before = values(params)
    steps(copied, copied_params, 2, first=2)
    assert_equal(params, before)
    steps(optimizer, params, 2, first=2)
    assert_equal(params, copied_params)
    assert copied.steps == 4 and isinstance(copied, rules.sgld.torch)


# --- edges -------------------------------------------------------------------------------------
def test_parameters_that_are_not_contiguous():
    whole, plain = torch.ones(4, 3), torch.ones(3, 4)
    w, v = torch.nn.Parameter(whole.t()), torch.nn.Parameter(plain)
    strided = torch.nn.Parameter(torch.ones(3, 8)[:, ::2])
    for p in (w, v, strided):
        optimizer = rules.adam.torch([p], lr=0.1)
        for k in range(3):
            p.grad = torch.sin(torch.arange(12.0) + k).reshape(3, 4)
            optimizer.step()
    assert torch.equal(w, v) and torch.equal(strided, v)
    assert torch.equal(whole.t(), w)


def test_low_precision_is_computed_in_float32_and_rounded_once():
    for dtype in (torch.float16, torch.bfloat16):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 33).to(dtype))
        g = torch.linspace(1, 3, 33).to(dtype)
        wanted = (p.detach().float() - np.float32(0.3) * g.float()).to(dtype)
        p.grad = g
        rules.sgd.torch([p], lr=0.3).step()
        assert torch.equal(p, wanted) and p.dtype is dtype
    p = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    optimizer = rules.adam.torch([p])
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert optimizer.state[p]["m"].dtype is torch.float32
    loaded = rules.adam.torch([p])
    loaded.load_state_dict(optimizer.state_dict())
    assert loaded.state[p]["m"].dtype is torch.float32
    loaded.step()


TENSOR = torch.ones(3)
REFUSED = [
    (lambda: rules.sgd.torch([TENSOR], mu=1.0), TypeError, "no keyword mu"),
    (lambda: rules.sgld.torch([TENSOR]), TypeError, "no seed"),
    (lambda: rules.sgld.torch([TENSOR], rng=-1), TypeError, "rng=-1"),
    (lambda: rules.sgd.torch([TENSOR, TENSOR]), ValueError, "0 and 1 share memory"),
    (lambda: rules.sgd.torch([TENSOR, TENSOR[1:]]), ValueError, "0 and 1 share memory"),
    (
        lambda: rules.sgd.torch([{"params": [TENSOR]}, {"params": [TENSOR]}]),
        ValueError,
        "0 and 1 share memory",
    ),
    (lambda: rules.sgd.torch([("a", TENSOR), torch.ones(1)]), ValueError, "have no name"),
    (
        lambda: rules.sgd.torch([("a", TENSOR), ("a", torch.ones(1))]),
        ValueError,
        "two parameters are named a",
    ),
    (lambda: rules.sgd.torch({TENSOR}), TypeError, "set"),
    (lambda: rules.sgd.torch([]), ValueError, "empty"),
    (lambda: rules.sgd.torch([np.ones(3)]), TypeError, "is a ndarray"),
    (lambda: rules.sgd.torch([torch.ones(3).to_sparse()]), ValueError, "layout"),
    (lambda: rules.sgd.torch([torch.ones(3, dtype=torch.complex64)]), ValueError, "complex64"),
    (lambda: rules.sgd.torch([torch.ones(3, dtype=torch.int32)]), ValueError, "int32"),
    (lambda: rules.sgd.torch([torch.ones(1).expand(3)]), ValueError, "expanded"),
    (lambda: rules.sgd.torch([TENSOR.clone().requires_grad_() * 2]), ValueError, "non-leaf"),
    (
        lambda: rules.compact_sgd.torch([TENSOR.bfloat16()], rng=0),
        ValueError,
        "cannot keep its domain",
    ),
]


@pytest.mark.parametrize(("make", "error", "text"), REFUSED)
def test_what_cannot_be_optimized_is_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_a_sparse_gradient_is_refused():
    table = torch.nn.Embedding(3, 2, sparse=True)
    optimizer = rules.sgd.torch(table.parameters())
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(gw.StateError, match=r"layout torch\.sparse_coo: not in this version"):
        optimizer.step()


def test_a_keyword_without_default_is_asked_for():
    @gw.rule
    def asks(w, g, *, lr):
        return w - lr * g

    with pytest.raises(gw.SignatureError, match="no value for lr"):
        asks.torch([torch.ones(3)])
    asks.torch([{"params": [torch.ones(3)], "lr": 0.1}])


def test_autocast_does_not_reach_a_rule():
    w, other = parameters(arrays([(4, 4)])), parameters(arrays([(4, 4)]))
    optimizer, plain = rules.muon.torch(w), rules.muon.torch(other)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        steps(optimizer, w, 1)
    steps(plain, other, 1)
    assert_equal(w, other)


def test_a_step_inside_torch_compile_runs_in_eager_mode():
    params, others = parameters(arrays([(3,), (2,)])), parameters(arrays([(3,), (2,)]))
    optimizer, plain = rules.sgld.torch(params, rng=0), rules.sgld.torch(others, rng=0)

    @torch.compile(backend="eager")
    def train():
        optimizer.zero_grad()
        sum((p * p).sum() for p in params).backward()
        optimizer.step()

    for _ in range(3):
        train()
        for q in others:
            q.grad = 2 * q.detach()
        plain.step()
    assert_equal(params, others)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)()
    assert optimizer.steps == 3


def test_a_scheduler_may_wrap_it_without_a_warning():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = rules.sgd.torch([p])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler = lr_scheduler.StepLR(optimizer, 1)
        p.grad = torch.ones(2)
        optimizer.step()
        scheduler.step()
