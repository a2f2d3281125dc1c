"""Groups of torch optimizers: names, schedules, torch's own schedulers."""

import warnings

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from torch.optim import lr_scheduler  # noqa: E402
from torch_optimizers import BUILT_IN, MOVES, arrays, parameters, set_gradients, steps, values  # noqa: E402


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


def test_a_scheduler_may_wrap_it_without_a_warning():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = rules.sgd.torch([p])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler = lr_scheduler.StepLR(optimizer, 1)
        p.grad = torch.ones(2)
        optimizer.step()
        scheduler.step()


def test_a_key_that_is_misspelt_is_refused_and_notes_are_not():
    w = torch.nn.Parameter(torch.ones(3))
    w.grad = torch.ones(3)
    optimizer = rules.sgd.torch([w])
    optimizer.param_groups[0].update(initial_lr=1, swa_lr=1, base_lr=1, last_lr=1, note="mine")
    optimizer.step()
    optimizer.param_groups[0]["lrr"] = 1.0
    with pytest.raises(gw.SignatureError, match="a param group has 'lrr'"):
        optimizer.step()
