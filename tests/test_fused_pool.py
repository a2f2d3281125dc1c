"""Large results share memory only with results that are gone."""

import gc
import threading

import numpy as np
import pytest
from host_ops import resident

import gradwright as gw
from gradwright.targets.fused.engine import KNOWN
from gradwright.targets.fused.pool import LARGE, Pool, empty

SHAPE = (LARGE // 4 + 1,)
SIZE = 4 * SHAPE[0]


def address(a):
    return a.__array_interface__["data"][0]


def test_memory_is_used_again_once_it_is_free():
    pool = Pool()
    a = pool.empty(SHAPE, "float32", SIZE)
    at = address(a)
    assert at % 64 == 0
    b = pool.empty(SHAPE, "float32", SIZE)
    assert address(b) != at
    del a
    assert address(pool.empty(SHAPE, "float32", SIZE)) == at


def test_a_view_keeps_the_memory():
    pool = Pool()
    a = pool.empty(SHAPE, "float32", SIZE)
    view, at = a[5:].reshape(-1)[::2], address(a)
    del a
    assert address(pool.empty(SHAPE, "float32", SIZE)) != at
    del view
    assert address(pool.empty(SHAPE, "float32", SIZE)) == at


def test_what_waits_is_bounded():
    pool = Pool(3 * SIZE)
    arrays = [pool.empty(SHAPE, "float32", SIZE) for _ in range(10)]
    del arrays
    assert SIZE < pool.kept() <= 3 * SIZE
    assert not pool._used
    pool.empty((SHAPE[0] * 9,), "float32", SIZE * 9)
    assert pool.kept() <= 3 * SIZE


def test_small_results_are_numpys_own():
    assert empty((10,), "float32").base is None
    assert empty(SHAPE, "bool").base is None
    assert empty(SHAPE, "float32").base is not None


def test_results_that_are_kept_are_not_written_again():
    f = gw.op(lambda x, k: x * k).options(engine="fused")
    x = np.arange(SHAPE[0], dtype=np.float32)
    kept = [f(x, k) for k in range(5)]
    del kept[2]
    gc.collect()
    f(x, 7)
    for k, a in zip((0, 1, 3, 4), kept, strict=True):
        np.testing.assert_array_equal(a, x * k)


def _unreachable(run):
    """What Python's collector, and nothing else, would free after a run."""
    run()  # what it makes once
    gc.collect()
    gc.disable()
    try:
        run()
        return gc.collect()
    finally:
        gc.enable()


@pytest.mark.parametrize("engine", ["fused", "numpy"])
def test_a_call_leaves_nothing_to_the_collector(engine):
    """Else its arrays would live until Python collects, and each call would need fresh memory."""
    f = gw.op(lambda x, tree: x * tree["k"]).options(engine=engine)
    x, tree = np.ones(SHAPE, np.float32), {"k": np.ones(SHAPE, np.float32)}
    both = gw.value_and_grad(lambda x, tree: np.sum(f(x, tree)), argnums=(0, 1))
    assert _unreachable(lambda: f(x, tree)) == 0
    assert _unreachable(lambda: both(x, tree)) == 0


@pytest.mark.parametrize("engine", ["auto", "fused", "numpy"])
def test_a_step_leaves_nothing_to_the_collector(engine):
    w, g = {"W": np.ones(SHAPE, np.float32)}, {"W": np.ones(SHAPE, np.float32)}
    optimizer = gw.rules.adamw.options(engine=engine).numpy(w)
    optimizer.step(g)  # the next one finds what stays the same
    assert _unreachable(lambda: optimizer.step(g)) == 0
    assert _unreachable(lambda: optimizer.step(g, lr=0.5)) == 0


def _closures(k):
    """An op, a gradient and a rule of their own machine code, used and forgotten."""
    c, x = k + 0.5, np.ones(1000, np.float32)
    gw.op(lambda x: np.tanh(x * c) + c).options(engine="fused")(x)
    gw.value_and_grad(gw.op(lambda x: np.sum(np.exp(-c * x))).options(engine="fused"))(x)

    @gw.rule
    def scaled(w, g, *, lr=0.1):
        return w - lr * g * c

    optimizer = scaled.options(engine="fused").numpy(x)
    for _ in range(3):
        optimizer.step(x.copy())
    return optimizer


def _programs():
    """How many programs of machine code there are."""
    gc.collect()
    return len(KNOWN)


def test_closures_that_are_gone_take_their_machine_code_along():
    _closures(0)  # the reader of addresses stays
    before = _programs()
    alive = [_closures(k) for k in range(1, 4)]
    assert _programs() > before
    del alive
    assert _programs() == before


@pytest.mark.slow
def test_a_process_may_make_any_number_of_closures():
    for k in range(300):
        _closures(k)
    before = resident()
    for k in range(10_000):
        _closures(k)
    assert resident() - before < 20e6


def test_many_threads_at_once():
    f = gw.op(lambda x, k: x * k).options(engine="fused")
    x, wrong = np.ones(SHAPE, np.float32), []

    def work(k):
        for _ in range(20):
            a = f(x, k)
            wrong.extend([k] if (a != k).any() else [])

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.framework
def test_tensors_leave_nothing_to_the_collector():
    torch = pytest.importorskip("torch")
    f = gw.op(lambda x, k: x * np.exp(k)).options(engine="fused")
    x, w = torch.ones(SHAPE), torch.ones(SHAPE, requires_grad=True)
    assert _unreachable(lambda: f(x, 2.0)) == 0
    assert _unreachable(lambda: f(x, w).sum().backward()) == 0


@pytest.mark.framework
def test_tensors_keep_their_memory():
    torch = pytest.importorskip("torch")
    f = gw.op(lambda x, k: x * k).options(engine="fused")
    x = torch.ones(SHAPE)
    a, b = f(x, 2.0), f(x, 3.0)
    view = a[1:]
    del a
    assert f(x, 4.0).eq(4).all()
    assert view.eq(2).all()
    assert b.eq(3).all()
    b.mul_(2)
    assert b.eq(6).all()
