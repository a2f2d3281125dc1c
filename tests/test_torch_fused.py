"""Steps of torch optimizers by machine code: one call on the tensors' memory, and what is no such
step."""

import copy

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules, schedules

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

from gradwright.targets.fused import program, threads  # noqa: E402
from gradwright.targets.torch import fused  # noqa: E402

SHAPES = [(40,), (3, 5), (2, 3, 4, 5), (0, 3), (1,)]


def arrays(seed, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s).astype(np.float32) for s in shapes]


class Pair:
    """The same steps on tensors and on NumPy's arrays."""

    def __init__(self, rule, shapes=SHAPES, **keywords):
        self.shapes, self.count = shapes, 0
        self.w = [torch.nn.Parameter(torch.tensor(a)) for a in arrays(0, shapes)]
        self.expected = arrays(0, shapes)
        self.torch = rule.torch(self.w, **keywords)
        self.numpy = rule.options(engine="fused").numpy(self.expected, **keywords)

    def step(self, change=lambda grads: None):
        self.count += 1
        grads = arrays(self.count, self.shapes)
        for w, g in zip(self.w, grads, strict=True):
            w.grad = torch.tensor(g)
        change(self.w)
        self.torch.step()
        self.numpy.step(
            [None if w.grad is None else w.grad.to_dense().numpy(force=True).copy() for w in self.w]
        )
        self.compare()

    def compare(self):
        for got, want in zip(self.w, self.expected, strict=True):
            np.testing.assert_array_equal(got.detach().numpy(), want)
        for w, q in zip(self.w, self.numpy._parameters, strict=True):
            for slot in q.slots:
                if w in self.torch.state:
                    got = self.torch.state[w][slot]
                    np.testing.assert_array_equal(got.numpy(), q.slots[slot])


def steady(rule=rules.adamw, shapes=SHAPES, **keywords):
    pair = Pair(rule, shapes, **keywords)
    pair.step()
    pair.step()
    assert pair.torch._again is not None
    return pair


@pytest.fixture
def looked(monkeypatch):
    """The steps that went the long way."""
    found = []
    update = fused.update
    monkeypatch.setattr(fused, "update", lambda *a: found.append(1) or update(*a))
    return found


@pytest.fixture
def ran(monkeypatch):
    """The programs that were run on tensors, and the number of threads that torch has."""
    found = []
    over = program.Program.over

    def noted(self, rows, work, others=None):
        if others is not None:
            found.append((self, others))
        return over(self, rows, work, others)

    monkeypatch.setattr(program.Program, "over", noted)
    return found


def test_one_call_for_all_tensors(looked, ran):
    pair = steady()
    looked.clear()
    ran.clear()
    for _ in range(3):
        pair.step()
    assert not looked
    assert len(ran) == 3 and len({id(t) for t, _ in ran}) == 1
    assert (
        len(ran[0][0].kernel.arrays) == 4 and len(ran[0][0].kernel.outputs) == 3
    )  # reads w, g, m, v; writes w, m, v


def test_it_says_that_tensors_were_changed():
    pair = steady()
    before = [w._version for w in pair.w]
    pair.step()
    assert all(w._version > v for w, v in zip(pair.w, before, strict=True))
    x = torch.ones(40, requires_grad=True)
    y = (x * pair.w[0]).sum()
    pair.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_numbers_may_change_at_every_step(looked):
    pair = steady(lr=schedules.linear(0.1, 0.0, 10))
    looked.clear()
    for k in range(6):
        for optimizer in (pair.torch, pair.numpy):
            optimizer.param_groups[0]["b1"] = 0.5 + k / 100
            if k == 3:
                optimizer.param_groups[0]["lr"] = 0.25
        pair.step()
    assert not looked


def test_a_tensor_as_a_number():
    lr = torch.tensor(0.1)
    pair = Pair(rules.sgd)
    pair.torch.param_groups[0]["lr"] = lr
    for k in range(5):
        lr.fill_(0.1 / 2**k)
        pair.numpy.param_groups[0]["lr"] = float(lr)
        pair.step()


def test_misspelt_keys_are_still_seen():
    pair = steady()
    pair.torch.param_groups[0]["weight_decai"] = 0.1
    with pytest.raises(gw.SignatureError, match="weight_decay"):
        pair.torch.step()


def without(k):
    def change(ws):
        ws[k].grad = None

    return change


def transposed(ws):
    ws[1].grad = torch.tensor(ws[1].grad.numpy().T.copy()).T


def expanded(ws):
    ws[0].grad = torch.ones(1).expand(40)


def negative(ws):
    ws[0].grad = torch._neg_view(ws[0].grad)
    assert ws[0].grad.is_neg()


def needs_gradient(ws):
    ws[0].grad = ws[0].grad.clone().requires_grad_()


class Own(torch.Tensor):
    pass


def subclass(ws):
    ws[0].grad = ws[0].grad.as_subclass(Own)


def sparse(ws):
    ws[0].grad = ws[0].grad.to_sparse()


@pytest.mark.parametrize("change", [without(1), transposed, expanded, negative, subclass, sparse])
def test_a_gradient_that_is_no_plain_memory_of_the_parameters_shape(change, looked):
    pair = steady()
    looked.clear()
    pair.step()
    pair.step(change)
    assert looked
    pair.step()
    pair.step()


def test_a_gradient_with_a_graph(looked):
    pair = steady()
    looked.clear()
    pair.step(needs_gradient)
    assert not looked


def test_gradients_on_the_memory_of_parameters():
    pair = steady(shapes=[(16,)] * 3)

    def tied(ws):
        ws[0].grad, ws[1].grad = ws[1].detach(), ws[1].detach()

    for _ in range(3):
        before = [w.detach().numpy().copy() for w in pair.w]
        pair.count += 1
        for w, g in zip(pair.w, arrays(pair.count, pair.shapes), strict=True):
            w.grad = torch.tensor(g)
        third = pair.w[2].grad.numpy().copy()
        tied(pair.w)
        pair.torch.step()
        pair.numpy.step([before[1], before[1], third])
        pair.compare()


def moved_state(pair):
    own = pair.torch.state[pair.w[0]]
    own["m"] = own["m"] * 2
    pair.numpy._parameters[0].slots["m"] *= 2


def moved_data(pair):
    pair.w[0].data = pair.w[0].data.clone() + 1
    pair.expected[0] += 1


def other_count(pair):
    pair.torch.state[pair.w[3]]["step"] = 7
    pair.numpy._parameters[3].steps = 7
    pair.numpy._steady = None


def loaded(pair):
    pair.torch.load_state_dict(copy.deepcopy(pair.torch.state_dict()))


@pytest.mark.parametrize("change", [moved_state, moved_data, other_count, loaded])
def test_what_others_changed_is_seen(change, looked):
    pair = steady()
    change(pair)
    looked.clear()
    pair.step()
    assert looked
    pair.step()
    looked.clear()
    pair.step()
    assert not looked


def test_memory_that_became_shorter():
    pair = steady(shapes=[(100,)])
    pair.w[0].grad = torch.ones(100)
    pair.torch.state[pair.w[0]]["m"].resize_(50)
    with pytest.raises((gw.SignatureError, RuntimeError)):
        pair.torch.step()


def test_a_copy_has_tensors_of_its_own():
    pair = steady()
    other = copy.deepcopy(pair.torch)
    for w in other.param_groups[0]["params"]:
        w.grad = torch.ones_like(w)
    for _ in range(3):
        other.step()
    pair.compare()
    pair.step()


def test_another_group():
    pair = steady()
    extra = [arrays(7)[0], arrays(7)[0]]
    pair.w.append(torch.nn.Parameter(torch.tensor(extra[0])))
    pair.expected.append(extra[1])
    pair.shapes = [*SHAPES, (40,)]
    pair.torch.add_param_group({"params": [pair.w[-1]], "lr": 0.5})
    pair.numpy.add_param_group({"params": extra[1], "lr": 0.5})
    for k in range(4):
        grads = arrays(k, pair.shapes)
        for w, g in zip(pair.w, grads, strict=True):
            w.grad = torch.tensor(g)
        pair.torch.step()
        pair.numpy.step([grads[:-1], grads[-1]])
        pair.compare()


def test_channels_last_is_left_to_torch(ran):
    w = torch.nn.Parameter(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last))
    w.grad = torch.ones(2, 3, 4, 5)
    rules.sgd.torch([w]).step()
    assert not ran
    torch.testing.assert_close(w.detach(), torch.full((2, 3, 4, 5), 1 - 0.01))


def test_the_engine_may_be_chosen(ran):
    w = torch.nn.Parameter(torch.ones(5))
    w.grad = torch.ones(5)
    rules.sgd.options(engine="numpy").torch([w]).step()
    assert not ran
    for engine in ("auto", "fused"):
        rules.sgd.options(engine=engine).torch([w]).step()
    assert len(ran) == 2


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.ones(3, device="meta"), "on meta"),
        (lambda: torch.ones(4, 4).T[:2], "not contiguous"),
    ],
)
def test_a_kernel_that_was_asked_for_is_not_silently_left_out(make, why):
    w = torch.nn.Parameter(make())
    w.grad = torch.ones_like(w)
    with pytest.raises(gw.SignatureError, match=why):
        rules.sgd.options(engine="fused").torch([w]).step()


def test_torchs_number_of_threads(ran, monkeypatch):
    monkeypatch.delenv("GRADWRIGHT_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "SMALL", 1000)
    shared = []
    share = threads.share
    monkeypatch.setattr(threads, "share", lambda *job: shared.append(job[2]) or share(*job))
    before = torch.get_num_threads()
    w = torch.nn.Parameter(torch.ones(50_000))
    w.grad = torch.ones(50_000)
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            optimizer = rules.adam.torch([w])
            for _ in range(3):
                optimizer.step()
        assert [n for _, n in ran] == [1] * 3 + [2] * 3 + [3] * 3
        assert shared == [2] * 3 + [3] * 3
        monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", "1")
        assert threads.count(3) == 1
    finally:
        torch.set_num_threads(before)


def test_records_and_noise():
    @gw.rule
    def watched(w, g, *, lr=0.1, rng):
        return w - gw.record("move", lr * g) + rng.uniform()

    pair = Pair(watched, rng=3)
    for _ in range(3):
        pair.step()
        got, want = pair.torch.recorded["move"], pair.numpy.recorded["move"]
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)
