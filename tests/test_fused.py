"""The fused target against NumPy: every primitive it has, sizes, threads, memory, rules."""

import os
import threading

import numpy as np
import pytest
from fused_graphs import Guarded, fused, graph_of, run

import gradwright as gw
from gradwright import rules
from gradwright.kinds import loop
from gradwright.primitives import PRIMITIVES
from gradwright.targets.fused import threads
from gradwright.targets.fused.functions import (
    FUNCTIONS,
    ON_BOOLEANS,
    ON_INTEGERS,
)
from gradwright.targets.fused.fusable import unfusable

F4, F8 = np.float32, np.float64
FLOATS = ("float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.0, -2.5, 1e-30, 3e38, -7.3, 88.0]
TINY = {"float32": 1.2e-38, "float64": 2.3e-308}  # subnormals are not part of the contract


def arguments(dtype, count):
    """Special values in every combination, and others, all of them odd in number."""
    rng = np.random.default_rng(0)
    if dtype == "bool":
        base = np.array([False, True])
    elif dtype in FLOATS:
        base = np.array(SPECIAL, dtype)
    else:
        info = np.iinfo(dtype)
        base = np.array([0, 1, 2, 3, 7, info.max, info.min, info.max - 1], dtype)
        base = np.concatenate([base, np.array([-1, -2, -7]).astype(dtype)])
    grids = [a.ravel() for a in np.meshgrid(*[base] * count)]
    if dtype in FLOATS:
        grids = [np.concatenate([a, (4 * rng.normal(size=5001)).astype(dtype)]) for a in grids]
        bits = 8 * np.dtype(dtype).itemsize
        wide = rng.integers(0, 2**bits - 1, 5000, f"uint{bits}")
        grids = [np.concatenate([g, rng.permutation(wide).view(dtype)]) for g in grids]
    return grids


def same(got, want, dtype):
    """Equal bits, where NaN is NaN, and zeros and subnormals are all near zero."""
    got, want = np.asarray(got), np.asarray(want)
    equal = got == want
    if dtype in FLOATS:
        equal |= np.isnan(got) & np.isnan(want)
        equal |= (np.abs(got) < TINY[dtype]) & (np.abs(want) < TINY[dtype])
    return equal


def cases():
    for name in FUNCTIONS:
        row = PRIMITIVES[name]
        if row.kind not in ("elementwise", "compare", "integer"):
            continue
        for dtype in (*FLOATS, *INTEGERS, "bool"):
            try:
                ins, _ = loop(name, [dtype] * row.ufunc.nin)
            except TypeError:
                continue
            known = (
                FUNCTIONS if dtype in FLOATS else ON_BOOLEANS if dtype == "bool" else ON_INTEGERS
            )
            if ins == [dtype] * row.ufunc.nin and name in known:
                yield name, dtype


@pytest.mark.parametrize(("name", "dtype"), list(cases()))
def test_exact_primitives_have_numpys_bits(name, dtype):
    ufunc = PRIMITIVES[name].ufunc
    xs = arguments(dtype, ufunc.nin)
    if name in ("left_shift", "right_shift"):  # by more than the width is undefined in C
        xs[1] = (xs[1] % np.array(np.dtype(dtype).itemsize * 8, dtype)).astype(dtype)
    graph = graph_of(name, [dtype] * ufunc.nin)
    reason = unfusable(graph)
    if reason is not None:
        pytest.fail(f"{name} of {dtype} is in the table, and refused: {reason}")
    with np.errstate(all="ignore"):
        want = ufunc(*xs)
    (got,), _ = run(fused(graph), *xs)
    wrong = ~same(got, want, str(want.dtype))
    assert not wrong.any(), [tuple(x[wrong][:4] for x in (*xs, got, want))]


@pytest.mark.parametrize("old", [*FLOATS, "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("new", [*FLOATS, "int32", "int64", "uint8", "bool"])
def test_casts(old, new):
    x = arguments(old, 1)[0]
    if old in FLOATS and new not in (*FLOATS, "bool"):  # what does not fit is undefined in C
        x = x[np.isfinite(x) & (np.abs(x) < 200) & (x >= 0)]
    if old == new:
        return
    with np.errstate(all="ignore"):
        want = x.astype(new)
    (got,), _ = run(fused(graph_of("astype", [old], new)), x)
    assert same(got, want, new).all()


@pytest.mark.parametrize(
    "size", [0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 1000, 8191, 8192, 8193]
)
def test_no_byte_outside_an_array_is_touched(size):
    program = fused(graph_of("add", ["float32", "float32"]))
    rng = np.random.default_rng(size)
    for at_end in (True, False):
        places = [Guarded(10) for _ in range(3)]
        x, y, out = (p.array(size, F4, at_end) for p in places)
        x[:], y[:] = rng.normal(size=size), rng.normal(size=size)
        run(program, x, y, outs=[out])
        np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_misaligned_to_a_vector(offset):
    memory = np.zeros(300, F4)
    x = memory[offset : offset + 200]
    x[:] = np.arange(200)
    (got,), _ = run(fused(graph_of("square", ["float32"])), x)
    np.testing.assert_array_equal(got, x * x)


# --- rules --------------------------------------------------------------------------------------
def trained(rule, engine, size=1000, steps=5, **keywords):
    rng = np.random.default_rng(2)
    w = rng.normal(size=size).astype(F4)
    keywords |= {"rng": 4} if rule.seed is not None else {}
    optimizer = rule.options(engine=engine).numpy(w, **keywords)
    for _ in range(steps):
        optimizer.step(rng.normal(size=size).astype(F4))
    return [w, *optimizer._parameters[0].slots.values()]


PLAIN = [rules.sgd, rules.momentum, rules.nesterov, rules.adam, rules.adamw, rules.rmsprop]
PLAIN += [rules.lion, rules.wrap, rules.clamp, rules.decay, rules.ema]
PLAIN += [gw.chain(rules.clip, rules.l2, rules.sgd)]


@pytest.mark.parametrize("rule", PLAIN, ids=lambda r: r.name)
@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_a_rule_of_exact_operations_has_numpys_bits(rule, size):
    for got, want in zip(trained(rule, "fused", size), trained(rule, "numpy", size), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rule", [rules.sgld, rules.compact_sgd], ids=lambda r: r.name)
@pytest.mark.parametrize("size", [1, 2, 3, 63, 64, 65, 1000, 20_000])
def test_noise_is_numpys_within_eight_ulp(rule, size):
    (got,), (want,) = trained(rule, "fused", size), trained(rule, "numpy", size)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


@gw.rule
def all_draws(w, g, *, rng=0):
    return w + rng.uniform() + 10 * rng.integers(0, 7) + rng.bits().astype(np.float32) * 0


def test_draws_that_are_exact_are_equal():
    (got,), (want,) = trained(all_draws, "fused", 777), trained(all_draws, "numpy", 777)
    np.testing.assert_array_equal(got, want)


def test_a_global_sum_before_the_kernel():
    rule = gw.chain(rules.clip_by_global_norm(max_norm=0.1), rules.adam)
    for got, want in zip(trained(rule, "fused"), trained(rule, "numpy"), strict=True):
        np.testing.assert_array_equal(got, want)


def test_records_are_filled():
    @gw.rule
    def watched(w, g, *, lr=0.1):
        return w - gw.record("move", lr * g) + gw.record("rate", 2 * lr)

    w = [np.ones(5, F4), np.ones((2, 3), F4)]
    optimizer = watched.options(engine="fused").numpy(w)
    optimizer.step([np.full(5, 2, F4), np.full((2, 3), 3, F4)])
    assert optimizer.recorded["move"][1].tolist() == [[F4(0.1) * F4(3)] * 3] * 2
    assert float(optimizer.recorded["rate"][0]) == 0.2


@pytest.mark.parametrize("count", ["1", "2", "3"])
def test_the_bits_do_not_depend_on_the_threads(count, monkeypatch):
    monkeypatch.setattr(threads, "SMALL", 1000)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", "1")
    want = trained(rules.compact_sgd, "fused", 50_000, 2)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", count)
    np.testing.assert_array_equal(trained(rules.compact_sgd, "fused", 50_000, 2), want)


def test_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", "3")
    assert threads.count() == 3
    monkeypatch.delenv("GRADWRIGHT_NUM_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads.count() == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads.count() >= 1


@pytest.mark.parametrize("busy", [False, True])
def test_every_part_is_done_once_even_if_no_other_thread_comes(busy):
    done, release = [], threading.Event()
    blocked = [threads._pool.submit(release.wait) for _ in range(8 * busy)]
    threads.share(lambda first, last: done.append((first, last)), [0, 2, 3, 7, 9], 3)
    release.set()
    for other in blocked:
        other.result()
    assert sorted(done) == [(0, 2), (2, 3), (3, 7), (7, 9)]


def test_an_error_in_a_part_is_seen():
    def run(first, last):
        if first == 2:
            raise KeyError("lost")

    with pytest.raises(KeyError):
        threads.share(run, [0, 1, 2, 3], 1)


def test_many_python_threads_step_at_once(monkeypatch):
    monkeypatch.setattr(threads, "SMALL", 1000)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", "2")
    want = trained(rules.adam, "fused", 20_000, 20)
    found = [None] * 8

    def work(k):
        found[k] = trained(rules.adam, "fused", 20_000, 20)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for got in found:
        np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_steps_too(monkeypatch):
    monkeypatch.setattr(threads, "SMALL", 1000)
    monkeypatch.setenv("GRADWRIGHT_NUM_THREADS", "2")
    want = trained(rules.adam, "fused", 20_000, 3)
    child = os.fork()
    if child == 0:
        good = all(map(np.array_equal, trained(rules.adam, "fused", 20_000, 3), want))
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_a_kernel_cannot_do_numpy_does():
    w = np.ones((4, 6), F4)
    transposed, strided = np.asfortranarray(np.ones((4, 6), F4)), np.ones((8, 6), F4)[::2]
    g = np.full((4, 6), 0.5, F4)
    for a in (w, transposed, strided):
        optimizer = rules.adam.numpy(a, lr=0.1)
        optimizer.step(g)
        np.testing.assert_allclose(a, 0.9, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: rules.muon.options(engine="fused").numpy(np.ones((2, 2), F4)), "several shapes"),
        (lambda: rules.sgd.options(engine="fused").numpy(np.ones(4, F4)[::2]), "not contiguous"),
        (lambda: rules.sgd.options(engine="fused").numpy(np.ones((), F4)), "no array with dim"),
    ],
)
def test_a_kernel_that_was_asked_for_is_not_silently_left_out(make, why):
    optimizer = make()
    w = optimizer._parameters[0].array
    with pytest.raises(gw.SignatureError, match=why):
        optimizer.step(np.ones(w.shape, F4))
    assert (w == 1).all()


def test_auto_takes_the_kernel_where_it_pays(monkeypatch):
    from gradwright.targets.fused import update

    calls = []
    write = update.write
    monkeypatch.setattr(update, "write", lambda *a: calls.append(1) or write(*a))
    rules.sgd.numpy(np.ones(10, F4)).step(np.ones(10, F4))
    assert not calls
    rules.compact_sgd.numpy(np.ones(10, F4), rng=0).step(np.ones(10, F4))
    rules.adam.numpy(np.ones(100_000, F4)).step(np.ones(100_000, F4))
    assert len(calls) == 2


def test_a_kernel_is_made_once():
    optimizer = rules.adam.options(engine="fused").numpy(np.ones(8, F4))
    made = set()
    for k in range(20):
        optimizer.param_groups[0].update(lr=0.1 / (k + 1), b1=0.8 + k / 200)
        optimizer.step(np.ones(8, F4))
        made.add(id(optimizer._parameters[0].prepared.plan.final.programs["fused"]))
    assert len(made) == 1


def test_llvmlite_is_imported_when_it_is_first_needed():
    import subprocess
    import sys

    code = (
        "import sys, numpy as np, gradwright as gw; from gradwright import rules;"
        "rules.sgd.numpy(np.ones(3)).step(np.ones(3)); print('llvmlite' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_what_is_given_for_a_step_may_be_the_parameter_of_another():
    @gw.rule
    def pulled(w, g, *, towards=gw.given, lr=0.5):
        return w + lr * (towards - w) - 0 * g

    a, b = np.zeros(100, F4), np.ones(100, F4)
    optimizer = pulled.options(engine="fused").numpy([a, b])
    optimizer.step([np.zeros(100, F4)] * 2, towards=[b, a])
    assert (a == 0.5).all() and (b == 0.5).all()
