"""Saved states of torch optimizers: what survives, what is refused, what goes on."""

import copy
import subprocess
import sys

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from torch_optimizers import arrays, assert_equal, parameters, steps, values  # noqa: E402


@gw.rule
def counting(w, g, seen=lambda w: np.zeros((), np.int64), total=lambda w: np.zeros(2), *, lr=0.1):
    return w - lr * g, seen + 16777217, total + 1 / 3


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
