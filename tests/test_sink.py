"""Broadcasts come after elementwise operations in NumPy programs, and change no value."""

import numpy as np
import pytest

import gradwright as gw
from gradwright.graph import Graph
from gradwright.sink import sunk


def test_a_broadcast_is_done_after_what_is_elementwise():
    g = Graph()
    x, y = g.input("x", [1], "float32"), g.input("y", [4], "float32")
    wide = g.add("broadcast_to", [x], shape=(4,))
    g.outputs = (g.add("exp", [wide]), g.add("multiply", [wide, y]))
    after = sunk(g)
    repeated, product = (after.nodes[i] for i in after.outputs)
    assert (repeated.prim, product.prim) == ("broadcast_to", "multiply")
    assert after.nodes[repeated.args[0]].prim == "exp"
    assert [after.nodes[i].shape for i in after.outputs] == [(4,), (4,)]


def test_a_graph_without_broadcasts_is_left_alone():
    g = Graph()
    g.outputs = (g.add("exp", [g.input("x", [None], "float32")]),)
    assert sunk(g) is g


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("columns", [1, 4])
def test_gradients_of_broadcasts_have_the_shapes_and_values_of_their_arguments(rows, columns):
    def loss(x, y):
        return np.mean(np.log(np.sum(np.exp(x), axis=1)) - np.sum(x * y, axis=1))

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 4)), rng.normal(size=(rows, columns))
    dx, dy = gw.grad(loss, (0, 1))(x, y)
    assert (dx.shape, dy.shape) == (x.shape, y.shape)
    h = 1e-6
    for at, (array, got) in enumerate([(x, dx), (y, dy)]):
        for k in np.ndindex(array.shape):
            pair = [x, y]
            ends = []
            for sign in (1, -1):
                pair[at] = array.copy()
                pair[at][k] += sign * h
                ends.append(loss(*pair))
            assert got[k] == pytest.approx((ends[0] - ends[1]) / (2 * h), abs=1e-8)


def test_an_op_answers_at_once_what_it_was_asked_before_and_nothing_else():
    traced = []

    @gw.op
    def scaled(x, y, *, by=2.0):
        traced.append(1)
        return by * x + y

    @gw.op
    def plus(x, y=1.0):
        traced.append(1)
        return x + y

    a, b = np.float32([1, 2]), np.float32([3])
    assert plus(a, b).tolist() == plus(a, y=b).tolist() == plus(a, b).tolist() == [4, 5]
    assert plus(a).tolist() == [2, 3]
    assert plus(a, 5.0).tolist() == [6, 7]
    assert plus(a.astype(np.float64), b).dtype == np.float64
    assert scaled(a, b).tolist() == scaled(a, b).tolist() == [5, 7]
    assert scaled(a, b, by=0.0).tolist() == [3, 3]
    assert scaled(a, b).tolist() == [5, 7]
    assert len(plus.ready) == 2
    assert not scaled.ready
    with gw.eager():
        count = len(traced)
        plus(a, b)
        assert len(traced) == count + 1


def test_an_op_that_reads_a_size_is_asked_again():
    @gw.op
    def doubled(x):
        return np.stack([x] * len(x))

    for n in (2, 3, 2):
        assert doubled(np.ones(n)).shape == (n, n)
    assert not doubled.ready
