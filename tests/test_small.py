"""Small arrays, where what is called around NumPy costs as much as NumPy."""

import numpy as np
import pytest

import gradwright as gw
from gradwright import quiet, rules
from gradwright.cli.model import cross_entropy

X, ONEHOT = np.ones((4, 3), np.float32), np.eye(4, 2, dtype=np.float32)


def test_quietly_is_errstate_around_one_call():
    with np.errstate(over="raise", invalid="warn"):
        before = np.geterr()
        assert set(quiet.quietly(np.geterr).values()) == {"ignore"}
        assert np.geterr() == before
        with pytest.raises(KeyError):
            quiet.quietly({}.__getitem__, "k")
        assert np.geterr() == before


def test_quietly_where_numpy_keeps_its_setting_elsewhere(monkeypatch):
    monkeypatch.setattr(quiet, "_IGNORING", None)
    assert set(quiet.quietly(np.geterr).values()) == {"ignore"}
    assert set(np.geterr().values()) != {"ignore"}


def test_this_numpy_keeps_its_setting_in_a_context_variable():
    assert quiet._IGNORING is not None


def test_a_small_program_has_no_broadcast_that_changes_nothing():
    """One source for each pattern of broadcasting, whatever the sizes."""
    gradient = gw.grad(cross_entropy)
    W = np.zeros((3, 2), np.float32)
    gradient(W, X, ONEHOT)
    gradient(np.zeros((5, 7), np.float32), np.ones((6, 5), np.float32), np.ones((6, 7), np.float32))
    (ready,) = gradient.ready.values()
    program = ready.args[1]
    (library,) = program._libraries.values()
    assert {"broadcast_to", "unbroadcast"} <= {*program.library.__code__.co_names}
    assert not {"broadcast_to", "unbroadcast"} & {*library.__code__.co_names}
    one_hot_for_all = np.ones((1, 2), np.float32)
    got = gradient(W, X, one_hot_for_all)
    np.testing.assert_array_equal(got, gradient(W, X, np.repeat(one_hot_for_all, 4, 0)))
    assert len(program._libraries) == 2


def counted(optimizer):
    """The calls that compute the numbers of a step, from now on."""
    calls = []
    for p in optimizer._parameters:
        numbers = p.prepared.numbers
        p.prepared.numbers = lambda *xs, numbers=numbers: calls.append(xs) or numbers(*xs)
    return calls


def test_numbers_are_computed_when_one_is_new():
    w = np.ones(3, np.float32)
    g = np.ones(3, np.float32)
    optimizer = rules.sgd.numpy(w, lr=0.5)
    optimizer.step(g)
    calls = counted(optimizer)
    for _ in range(3):
        optimizer.step(g)
    assert len(calls) == 1
    optimizer.param_groups[0]["lr"] = 0.25
    optimizer.step(g)
    optimizer.step(g)
    assert len(calls) == 2
    np.testing.assert_array_equal(w, np.full(3, 1 - 4 * 0.5 - 2 * 0.25))


def test_numbers_that_follow_the_step_are_computed_at_each():
    optimizer = rules.adam.numpy(np.ones(3, np.float32))
    g = np.ones(3, np.float32)
    optimizer.step(g)
    calls = counted(optimizer)
    for _ in range(3):
        optimizer.step(g)
    assert [step for *_, step, _ in calls] == [2, 3, 4]
