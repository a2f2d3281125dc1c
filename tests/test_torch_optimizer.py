"""Rules as torch optimizers: trajectories, noise, and what cannot be optimized."""

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from torch_optimizers import BUILT_IN, MOVES, arrays, assert_equal, parameters, set_gradients, steps  # noqa: E402


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
]


@pytest.mark.parametrize(("make", "error", "text"), REFUSED)
def test_what_cannot_be_optimized_is_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


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
