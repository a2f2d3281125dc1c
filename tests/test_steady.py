"""Steps that are one call: what is checked in it, and that every other step takes the long way."""

import copy
import os
import threading

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules, schedules
from gradwright.targets.fused import headers, program, threads
from gradwright.targets.numpy import engines

F4 = np.float32
SHAPES = [(40,), (3, 5), (2, 3, 4, 5), (0, 3), (1,)]


def arrays(seed, shapes=SHAPES):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s).astype(F4) for s in shapes]


class Pair:
    """The same steps by machine code and by NumPy."""

    def __init__(self, rule, shapes=SHAPES, **keywords):
        made = [arrays(0, shapes), arrays(0, shapes)]
        self.w, self.expected = made
        self.fast = rule.options(engine="fused").numpy(self.w, **keywords)
        self.slow = rule.options(engine="numpy").numpy(self.expected, **keywords)
        self.count = 0

    def step(self, grads=None):
        self.count += 1
        grads = arrays(self.count, [a.shape for a in self.w]) if grads is None else grads
        self.slow.step(copy.deepcopy(grads))
        self.fast.step(grads)
        self.compare()

    def compare(self):
        for got, want in zip(self.w, self.expected, strict=True):
            np.testing.assert_array_equal(got, want)
        for p, q in zip(self.fast._parameters, self.slow._parameters, strict=True):
            assert p.steps == q.steps
            for slot in p.slots:
                np.testing.assert_array_equal(p.slots[slot], q.slots[slot])


@pytest.fixture
def looked(monkeypatch):
    """The steps that went the long way, if machine code was wanted."""
    found = []
    update = engines.update

    def noted(entries, *rest):
        if entries[0].rule.settings.engine != "numpy":
            found.append(len(entries))
        return update(entries, *rest)

    monkeypatch.setattr(engines, "update", noted)
    return found


@pytest.fixture
def ran(monkeypatch):
    """The programs that were run."""
    found = []
    over = program.Program.over
    monkeypatch.setattr(program.Program, "over", lambda p, *a: found.append(p) or over(p, *a))
    return found


def steady(rule=rules.adamw, shapes=SHAPES, **keywords):
    pair = Pair(rule, shapes, **keywords)
    pair.step()
    pair.step()
    assert pair.fast._steady is not None
    return pair


def test_lists_and_arrays_look_as_they_are_read():
    assert headers.are_known()


def test_one_call_for_parameters_of_all_ranks(looked, ran):
    pair = steady()
    looked.clear()
    ran.clear()
    for _ in range(3):
        pair.step()
    assert not looked
    assert len(ran) == 3 and len({id(t) for t in ran}) == 1
    assert (
        len(ran[0].kernel.arrays) == 4 and len(ran[0].kernel.outputs) == 3
    )  # reads w, g, m, v; writes w, m, v


def test_equal_loops_are_compiled_once():
    pair = steady()
    graphs = {p.prepared.plan.final for p in pair.fast._parameters}
    assert len(graphs) == 3 and len({g.programs["fused"].code for g in graphs}) == 1


def test_numbers_may_change_at_every_step(looked):
    pair = steady(lr=schedules.linear(0.1, 0.0, 10))
    looked.clear()
    for k in range(6):
        for optimizer in (pair.fast, pair.slow):
            optimizer.param_groups[0]["b1"] = 0.5 + k / 100
            if k == 3:
                optimizer.param_groups[0]["lr"] = 0.25
        pair.step()
    assert not looked


def test_groups_have_numbers_of_their_own(looked):
    made = [[{"params": arrays(0)}, {"params": arrays(1), "lr": 0.5}] for _ in range(2)]
    fast = rules.adam.options(engine="fused").numpy(made[0])
    slow = rules.adam.options(engine="numpy").numpy(made[1])
    for k in range(5):
        late = arrays(3 * k + 1) if k else [None] * 5  # counts differ from here
        for optimizer in (fast, slow):
            optimizer.step([arrays(3 * k), late])
    assert looked == [5, 10]
    for p, q in zip(fast._parameters, slow._parameters, strict=True):
        np.testing.assert_array_equal(p.array, q.array)


def test_a_number_for_each_parameter_goes_the_long_way():
    decay = gw.per_param(lambda name, w: 0.1 if w.ndim > 1 else 0.0)
    pair = Pair(rules.adamw, weight_decay=decay)
    for _ in range(4):
        pair.step()
    assert pair.fast._steady is None


@pytest.mark.parametrize("options", [{"accumulate": 2}, {"skip_nonfinite": True}])
def test_gradients_that_are_looked_at_first(options, looked):
    pair = Pair(rules.adam.options(**options))
    for k in range(12):
        grads = arrays(k)
        if k == 8:
            grads[0][3] = np.inf
        pair.step(grads)
    assert len(looked) == 2


def test_noise_goes_on(looked):
    pair = Pair(rules.compact_sgd, [(100,), (7, 9)], rng=3)
    for k in range(5):
        for optimizer in (pair.fast, pair.slow):
            optimizer.step(arrays(k, [(100,), (7, 9)]))
    for got, want in zip(pair.w, pair.expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)
    assert len(looked) == 2


def test_some_without_a_gradient(looked):
    pair = Pair(rules.adam)
    for k in range(8):
        grads = arrays(k)
        grads[1] = None
        if k in (5, 6):
            grads[0] = None
        pair.step(grads)
    assert len(looked) == 4  # two at the start, at 5 and at 7


def test_dicts_and_trees():
    for w in ({"b": arrays(0)[0], "a": arrays(0)[1]}, {"x": {"b": arrays(0)[0]}, "a": arrays(0)}):
        other = copy.deepcopy(w)
        fast = rules.adam.options(engine="fused").numpy(w)
        slow = rules.adam.options(engine="numpy").numpy(other)
        for _ in range(4):
            fast.step(copy.deepcopy(w))
            slow.step(copy.deepcopy(other))
        for p, q in zip(fast._parameters, slow._parameters, strict=True):
            np.testing.assert_array_equal(p.array, q.array)


class Own(np.ndarray):
    """A subclass, whose arithmetic may be its own."""


STRANGE = {
    "another dtype": lambda g: g.astype(np.float64),
    "the other byte order": lambda g: g.astype(">f4"),
    "strided": lambda g: np.repeat(g, 2, axis=-1)[..., ::2],
    "reversed": lambda g: g[::-1],
    "one number for all": lambda g: np.broadcast_to(F4(0.5), g.shape),
    "not aligned": lambda g: np.frombuffer(b"x" + g.tobytes(), F4, g.size, 1).reshape(g.shape),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_gradient_that_a_kernel_cannot_read(kind, looked):
    rule = rules.adam.options(engine="auto")
    made = [arrays(0, [(300, 400), (60,)]) for _ in range(2)]
    fast, slow = rule.numpy(made[0]), rule.options(engine="numpy").numpy(made[1])
    for k in range(6):
        grads = arrays(k, [(300, 400), (60,)])
        if k == 3:
            grads[1] = STRANGE[kind](grads[1])
        fast.step(grads)
        slow.step(grads)
        for p, q in zip(fast._parameters, slow._parameters, strict=True):
            np.testing.assert_array_equal(p.array, q.array)
    assert len(looked) == 4  # two at the start, this one and the next


BAD = {
    "shape": (lambda g: g[:-1], "has shape"),
    "transposed": (lambda g: g.T, "has shape"),
    "no rank": (lambda g: g[0], "has shape"),
    "dtype": (lambda g: g.astype(np.int32), "is int32"),
    "subclass": (lambda g: g.view(Own), "is a Own"),
    "masked": (lambda g: np.ma.masked_array(g), "is a MaskedArray"),
    "number": (lambda g: 1.0, "is a float"),
    "list": (lambda g: g.tolist(), "is a list"),
    "type": (lambda g: np.ndarray, "is a type"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_gradient_changes_nothing(kind):
    make, text = BAD[kind]
    pair = steady()
    before = copy.deepcopy(pair.w)
    grads = arrays(9)
    grads[1] = make(grads[1])
    with pytest.raises((gw.StateError, ValueError), match=text):
        pair.fast.step(grads)
    for wrong in (arrays(9)[:-1], [*arrays(9), arrays(9)[0]]):
        with pytest.raises(gw.StateError, match="a list of"):
            pair.fast.step(wrong)
    for got, want in zip(pair.w, before, strict=True):
        np.testing.assert_array_equal(got, want)
    pair.step()


def test_gradients_that_share_memory_with_what_is_written():
    pair = Pair(rules.adamw, [(16,), (16,), (16,)])
    for k in range(6):
        grads = [arrays(k, [(16,)] * 3) for _ in range(2)]
        if k >= 3:  # one is the next parameter, one its own, one a slot
            for found, o in zip(grads, (pair.fast, pair.slow), strict=True):
                p = o._parameters
                found[:] = [p[1].array, p[1].array, p[0].slots["m"]]
        pair.fast.step(grads[0])
        pair.slow.step(grads[1])
        pair.compare()


def test_a_part_of_a_parameter_as_a_gradient():
    memory = [np.arange(48, dtype=F4) for _ in range(2)]
    made = [[m[:16], m[32:]] for m in memory]
    fast = rules.sgd.options(engine="fused").numpy(made[0])
    slow = rules.sgd.options(engine="numpy").numpy(made[1])
    for k in range(0, 38, 3):  # at first two steps beside it
        for optimizer, m in ((fast, memory[0]), (slow, memory[1])):
            g = m[16:32] if k < 6 else m[k + 2 - 8 : k + 2 + 8]
            optimizer.step([g, np.ones(16, F4)])
        np.testing.assert_array_equal(*memory)


def test_a_parameter_that_was_changed_since():
    pair = steady(shapes=[(6,), (4,)])
    for w in (pair.w[0], pair.expected[0]):
        w.flags.writeable = False
    for optimizer in (pair.slow, pair.fast):
        with pytest.raises(gw.StateError, match="0 is read-only"):
            optimizer.step(arrays(5, [(6,), (4,)]))
    pair.compare()
    np.testing.assert_array_equal(pair.w[1], pair.expected[1])


def test_a_parameter_of_another_shape_than_it_had():
    w = np.ones(1000, F4)
    optimizer = rules.adam.options(engine="fused").numpy(w)
    for _ in range(3):
        optimizer.step(np.ones(1000, F4))
    w.resize(500, refcheck=False)
    with pytest.raises(gw.SignatureError, match="several shapes"):
        optimizer.step(np.ones(500, F4))
    assert np.isfinite(w).all()


def test_a_copy_has_memory_of_its_own():
    pair = steady()
    other = copy.deepcopy(pair.fast)
    before = copy.deepcopy(pair.w)
    for _ in range(3):
        other.step(arrays(7))
    for got, want in zip(pair.w, before, strict=True):
        np.testing.assert_array_equal(got, want)
    pair.step()


def test_another_parameter_and_another_state():
    pair = steady()
    saved = pair.fast.state_dict()
    pair.step()
    pair.step()
    for optimizer in (pair.fast, pair.slow):
        optimizer.load_state_dict(saved)
    pair.step()
    for optimizer in (pair.fast, pair.slow):
        optimizer.add_param_group({"params": arrays(8)[0], "lr": 0.1})
    for k in range(4):
        for optimizer in (pair.fast, pair.slow):
            optimizer.step([arrays(k), arrays(k)[0]])
        pair.compare()


def test_a_rule_that_captures_another_number():
    factor = 1.0

    @gw.rule
    def scaled(w, g, *, lr=0.1):
        return w - factor * lr * g

    w = np.zeros(100, F4)
    optimizer = scaled.options(engine="fused").numpy(w)
    for _ in range(4):
        optimizer.step(np.ones(100, F4))
    factor = 10.0
    optimizer.step(np.ones(100, F4))
    np.testing.assert_allclose(w, -1.4, rtol=1e-6)


def test_a_schedule_that_fails_changes_nothing():
    def failing(count):
        if count == 5:
            raise KeyError("no rate")
        return 0.1

    schedule = schedules.Schedule(failing, "failing", None)
    pair = Pair(rules.adam, lr=schedule)
    for _ in range(5):
        pair.step()
    for optimizer in (pair.fast, pair.slow):
        with pytest.raises(KeyError):
            optimizer.step(arrays(1))
    pair.compare()
    assert pair.fast.steps == 5


def test_a_table_serves_one_step_at_a_time(looked):
    pair = steady()
    looked.clear()
    with pair.fast._steady._lock:
        pair.step()
    assert len(looked) == 1


def test_many_small_parameters_are_worth_a_kernel(ran):
    w = [np.ones(64, F4) for _ in range(200)]
    rules.adam.numpy(w).step([np.ones(64, F4) for _ in w])
    assert len(ran) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_fork_in_the_middle_of_training(monkeypatch):
    monkeypatch.setattr(threads, "SMALL", 1000)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", "2")
    shapes = [(30_000,), (50,)]
    pair = steady(rules.adam, shapes)
    child = os.fork()
    if child == 0:
        try:
            pair.step()
            pair.step()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pair.step()
    pair.step()


@pytest.mark.parametrize("count", ["1", "2", "3"])
def test_the_bits_do_not_depend_on_the_threads(count, monkeypatch):
    monkeypatch.setattr(threads, "SMALL", 1000)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", count)
    pair = steady(rules.adamw, [(30_000,), (50,), (200, 300)])
    for _ in range(3):
        pair.step()


def test_many_python_threads_step_many_optimizers():
    shapes = [(50,)] * 100
    want = steady(rules.adam, shapes)
    for _ in range(20):
        want.step()
    found = [None] * 8

    def work(k):
        w = arrays(0, shapes)
        optimizer = rules.adam.options(engine="fused").numpy(w)
        for count in range(1, 23):
            optimizer.step(arrays(count, shapes))
        found[k] = w

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for got in found:
        np.testing.assert_array_equal(got, want.w)
