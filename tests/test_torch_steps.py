"""Steps of torch optimizers: clocks, failures, keywords, closures, slots."""

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from torch_optimizers import arrays, assert_equal, parameters, set_gradients, steps, values  # noqa: E402


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
def hessian(w, g, *, h=None, lr=0.1):
    return w - lr * g if h is None else w - lr * g / h


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
