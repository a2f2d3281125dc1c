"""What is known of random words, and that no bit depends on whether it is used."""

import numpy as np
import pytest

import gradwright as gw
from gradwright.targets.fused import kernel
from gradwright.targets.fused.bounds import Bounds, bounds

DRAWS = {
    "a word": (lambda rng: rng.bits(), Bounds(0, 2**32 - 1)),
    "shifted": (lambda rng: rng.bits() >> 8, Bounds(0, 2**24 - 1)),
    "cut": (lambda rng: (rng.bits() & 7) + 1, Bounds(1, 8)),
    "a float": (lambda rng: rng.uniform(), Bounds(0, 1 - 2.0**-24)),
    "negative": (lambda rng: rng.uniform() * -2.0, Bounds(-2 + 2.0**-23, 0)),
    "overflows": (lambda rng: rng.bits() + 1, None),
    "rounded": (lambda rng: rng.bits().astype(np.float32), None),
    "cut off": (lambda rng: (rng.uniform() * 2.0).astype(np.uint32), None),
    "infinite": (lambda rng: rng.uniform() * np.inf, None),
    "a root": (lambda rng: np.sqrt(rng.uniform()), None),
}


def _summed(draw):
    @gw.rule
    def rule(w, g, *, rng):
        return w + np.where(g > 0, draw(rng), draw(rng)).astype(np.float32)

    return rule


@pytest.mark.parametrize("name", DRAWS)
def test_bounds_of_draws(name):
    draw, wanted = DRAWS[name]
    graph = _summed(draw).example_plan().final
    (choice,) = (n for n in graph.nodes if n.prim == "where")
    assert bounds(graph, graph.live()).get(choice.args[1]) == wanted


@pytest.mark.parametrize("name", DRAWS)
def test_values_are_within_them(name):
    draw, wanted = DRAWS[name]
    w = np.zeros(10_000, np.float32)
    _summed(draw).numpy(w, rng=1).step(np.ones_like(w))
    if wanted is not None:
        assert w.min() >= wanted.low
        assert w.max() <= np.float32(wanted.high)


@pytest.mark.parametrize("rule", [gw.rules.compact_sgd, gw.rules.sgld])
def test_no_bit_depends_on_them(rule, monkeypatch):
    w = [np.zeros(5003, np.float32), np.zeros(5003, np.float32)]
    rule.options(engine="fused").numpy(w[0], rng=3).step(np.ones_like(w[0]))
    with monkeypatch.context() as m:
        m.setattr(kernel, "bounds", lambda graph, live: {})
        other = rule.options(engine="fused").numpy(w[1], rng=3)
        other.step(np.ones_like(w[1]))
        assert "uitofp" in kernel.build(rule.options().example_plan().final, "update").assembly
    np.testing.assert_array_equal(*w)


def test_a_normal_needs_no_case_of_a_logarithm():
    graph = gw.rules.compact_sgd.example_plan().final
    text = kernel.build(graph, "update").assembly
    assert "uitofp" not in text
    assert "0xFFF0000000000000" not in text  # -inf, the logarithm of 0
