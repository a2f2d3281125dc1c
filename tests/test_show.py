"""Equations as text, as LaTeX, as source; what a repr says."""

import re

import numpy as np
import pytest

import gradwright as gw
from gradwright import rules

ADAM = """\
adam
  m ← b1·m + (1 − b1)·g
  v ← b2·v + (1 − b2)·g²
  w ← w − lr·m / (1 − b1^step) / (√(v / (1 − b2^step)) + eps)
  slots     m (starts at 0.0), v (starts at 0.0)
  keywords  lr=0.001, b1=0.9, b2=0.999, eps=1e-08
  bytes     28 per float32 element and step: 16 read, 12 written"""

COMPACT_SGD = """\
compact_sgd
  w ← low + (w − lr·g + noise·ε − low) mod (high − low)
  draws     ε is normal: new for every element and step
  domain    [low, high)
  slots     none
  keywords  lr=0.1, noise=0.01, low=-10.0, high=10.0, rng=<seed>
  bytes     12 per float32 element and step: 8 read, 4 written"""

LATEX = {
    "sgd": r"\begin{aligned} w &\leftarrow w - \mathrm{lr} \, g \end{aligned}",
    "momentum": r"\begin{aligned} m &\leftarrow \mu \, m + g \\ w &\leftarrow w - \mathrm{lr} \, m "
    r"\end{aligned}",
    "compact_sgd": r"\begin{aligned} w &\leftarrow \mathrm{low} + \left(w - \mathrm{lr} \, g + "
    r"\mathrm{noise} \, \varepsilon - \mathrm{low}\right) \bmod \left(\mathrm{high} - "
    r"\mathrm{low}\right) \end{aligned}",
    "adam": r"\begin{aligned} m &\leftarrow b_{1} \, m + \left(1 - b_{1}\right) \, g \\ "
    r"v &\leftarrow b_{2} \, v + \left(1 - b_{2}\right) \, g^{2} \\ "
    r"w &\leftarrow w - \frac{\mathrm{lr} \, \frac{m}{1 - b_{1}^{\mathrm{step}}}}"
    r"{\sqrt{\frac{v}{1 - b_{2}^{\mathrm{step}}}} + \epsilon} \end{aligned}",
}

EQUATIONS = {
    "sgd": ["w ← w − lr·g"],
    "momentum": ["m ← mu·m + g", "w ← w − lr·m"],
    "nesterov": ["m ← mu·m + g", "w ← w − lr·(g + mu·m)"],
    "rmsprop": ["v ← rho·v + (1 − rho)·g²", "w ← w − lr·g / (√v + eps)"],
    "lion": [
        "w ← w − lr·(sign(b1·m + (1 − b1)·g) + weight_decay·w)",
        "m ← b2·m + (1 − b2)·g",
    ],
    "sgld": ["w ← w − lr·g + noise·ε"],
    "clip": ["g ← min(max(g, low), high)"],
    "clip_by_global_norm": ["g ← g·min(1, max_norm / √Σₐₗₗ(g·g))"],
    "l2": ["g ← g + weight·w"],
    "decay": ["w ← w − rate·w"],
    "wrap": ["w ← low + (w − low) mod (high − low)"],
    "clamp": ["w ← min(max(w, low), high)"],
    "ema": ["avg ← decay·avg + (1 − decay)·w"],
}


@gw.op
def mod(x, y):
    return np.mod(x, y)


@mod.partials
def _(x, y):
    return 1, -np.floor_divide(x, y)


@gw.op
def bump(x, *, scale=1.0):
    return np.exp(-scale * x * x)


def test_adam_and_compact_sgd_are_explained():
    assert rules.adam.explain() == ADAM
    assert rules.compact_sgd.explain() == COMPACT_SGD


@pytest.mark.parametrize("name", EQUATIONS)
def test_a_rule_is_shown_as_its_equation(name):
    lines = getattr(rules, name).explain().splitlines()
    count = len(EQUATIONS[name])
    assert lines[0] == name and [line.strip() for line in lines[1 : count + 1]] == EQUATIONS[name]


@pytest.mark.parametrize("name", LATEX)
def test_latex(name):
    rule = getattr(rules, name)
    assert rule.latex() == LATEX[name]
    assert rule._repr_latex_() == f"$${LATEX[name]}$$"


@pytest.mark.parametrize("name", rules.__all__)
def test_every_rule_can_be_shown(name):
    """Balanced braces, and a source that is Python."""
    rule = getattr(rules, name)
    latex = rule.latex()
    assert latex.count("{") == latex.count("}") and "Tracer" not in latex
    assert latex.count(r"\left") - latex.count(r"\leftarrow") == latex.count(r"\right")
    compile(rule.source(), "source", "exec")
    assert rule.explain().splitlines()[-1].startswith("  bytes")


def test_a_rule_that_differs_by_rank_is_shown_for_both():
    @gw.rule
    def by_rank(w, g, *, lr=0.1):
        return w - lr * g if w.ndim < 2 else w - lr * g / np.sqrt(np.sum(g * g))

    lines = [line.strip() for line in by_rank.explain().splitlines()]
    assert lines[1:3] == ["for vectors:", "w ← w − lr·g"]
    assert lines[3:5] == ["for matrices:", "w ← w − lr·g / √Σ(g·g)"]
    assert r"\text{for vectors:}" in by_rank.latex()
    assert "for vectors" not in rules.muon.explain()  # which refuses them


def test_a_chain_is_shown_with_its_letters():
    rule = gw.chain(rules.clip_by_global_norm(max_norm=2.0), rules.momentum, rules.clamp)
    lines = [line.strip() for line in rule.explain().splitlines()]
    assert lines[0] == "clip_by_global_norm_momentum_clamp"
    assert "w ← min(max(w − lr·m, low), high)" in lines
    assert "domain    [low, high]" in lines and "max_norm=2.0" in rule.explain()


def test_a_partition_is_shown_rule_by_rule():
    text = gw.partition({"*.b": rules.sgd, "*": rules.momentum}).explain()
    assert text.startswith("'*.b': sgd\n  w ← w − lr·g\n")
    assert "\n\n'*': momentum\n  m ← mu·m + g\n" in text


@pytest.mark.parametrize(
    "function, text",
    [
        (lambda w, g, *, rng=0: w + rng.normal(), "ε is normal: new"),
        (lambda w, g, *, rng=0: w + rng.uniform(), "u is uniform: new"),
        (lambda w, g, *, rng=0: w + rng.uniform() * rng.normal(), "ε is normal, u is uniform: new"),
        (lambda w, g, *, rng=0: w + rng.bits(), "bits are 32 random ones: new"),
    ],
)
def test_only_what_is_drawn_is_named(function, text):
    assert f"draws     {text} for every element and step" in gw.rule(function).explain()


def test_a_rule_that_draws_nothing_says_nothing_of_it():
    assert "draws" not in gw.rule(lambda w, g, *, rng=0: w - g).explain()


def test_slots_say_where_they_start():
    decreasing = gw.schedules.linear(1.0, 0.0, 9)

    @gw.rule
    def several(w, g, x0=lambda w: w, d=gw.shared(1e-6), *, lr=decreasing):
        return w - lr * d * (w - x0), {"d": d * 2}

    text = several.explain()
    assert "slots     x0 (starts at f(w)), d (starts at 1e-06 for all)" in text
    assert "keywords  lr=linear(1.0, 0.0, 9)" in text
    assert "16 per float32" not in text and "12 read, 8 written" in text


def test_bytes_count_what_is_read_and_written():
    assert "8 read, 4 written" in rules.sgd.explain()
    assert "12 read, 8 written" in rules.momentum.explain()
    assert "16 read, 12 written" in rules.adamw.explain()
    assert "4 read, 4 written" in rules.wrap.explain()


def test_the_source_of_a_rule():
    source = re.sub(r"  # \S+:\d+", "", rules.momentum.source())
    assert source == (
        "def numbers(lr, mu, step, seed):\n"
        "    v0 = np.float32(mu)\n"
        "    v1 = np.float32(lr)\n"
        "    return v0, v1\n"
        "\n"
        "def momentum_update(w, g, m, identity, mu, lr):\n"
        "    v0 = mu * m + g\n"
        "    v1 = w - lr * v0\n"
        "    return v1, v0\n"
    )


def test_the_source_of_a_rule_with_a_sum_has_its_phases():
    source = gw.chain(rules.clip_by_global_norm, rules.sgd).source()
    for part in ("def numbers1(", "def phase1(", "def numbers2(", "_update("):
        assert part in source


def test_ops_are_explained():
    assert mod.explain() == (
        "mod\n"
        "  mod(x, y) = x mod y\n"
        "  derivative (its own partials)\n"
        "    ∂x = g\n"
        "    ∂y = g·(−⌊x / y⌋)"
    )
    lines = bump.explain().splitlines()
    assert lines[:3] == ["bump", "  bump(x, scale) = exp((−scale)·x·x)", "  derivative (derived)"]


def test_ops_in_latex():
    assert mod.latex() == r"\mathrm{mod}(x, y) = x \bmod y"
    assert mod._repr_latex_() == rf"$${mod.latex()}$$"
    assert bump.latex() == (
        r"\mathrm{bump}(x, \mathrm{scale}) = "
        r"\mathrm{exp}(\left(-\mathrm{scale}\right) \, x \, x)"
    )


def test_the_source_of_an_op():
    assert (
        re.sub(r"  # \S+:\d+", "", mod.source())
        == "def mod(x, y):\n    v0 = x % y\n    return v0,\n"
    )
    scope = {"np": np}
    exec(bump.source(), scope)
    x = np.float32([0, 1, 2])
    np.testing.assert_array_equal(scope["bump"](x, 0.5)[0], bump(x, scale=0.5))


def test_reprs():
    assert repr(rules.adam(lr=0.1)) == "<rule adam(m, v, *, lr=0.1, b1=0.9, b2=0.999, eps=1e-08)>"
    assert repr(rules.wrap) == "<rule wrap(*, low=0.0, high=1.0)>"
    assert repr(mod) == "<op mod(x, y) with its own partials>"
    assert repr(bump) == "<op bump(x, *, scale=1.0)>"
    assert repr(gw.given) == "gw.given"


def test_docstrings_and_names_are_the_users():
    assert rules.sgd.__doc__.startswith("Descend along the gradient: w ← w − lr·g.")
    assert rules.sgd.numpy.__name__ == "sgd" and rules.sgd.numpy.__doc__ == rules.sgd.__doc__
    assert bump.__name__ == "bump" and bump.__wrapped__(0.0) == 1.0


def test_an_op_is_shown_for_what_it_was_used_on():
    @gw.op
    def loss(W, x, y):
        return np.mean(np.sum((x @ W - y) ** 2, axis=1))

    assert "x @ W" in loss.explain()  # matrices, where vectors do not fit

    @gw.op
    def linear(p):
        return p["a"] * p["b"]

    linear({"a": np.ones(2), "b": np.ones(2)})
    assert "linear(p_a, p_b) = p_a·p_b" in linear.explain()
