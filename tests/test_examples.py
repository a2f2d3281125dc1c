"""The examples run as they are, and say what they should; each is short."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import gradwright as gw

EXAMPLES = Path(__file__).parent.parent / "examples"
SAYS = {
    "my_rule": [],
    "surrogates": ["[ 2. -1.  3.]", "[ -4. -12.]"],
    "implicit_root": ["[2. 1. 1.]", "[0.07692308 0.2        0.16666667]", "4.41666666666666"],
    "interpolation_table": ["-0.74"],
}
BY_FRAMEWORK = ["numpy", "torch", "tensorflow", "jax"]


def output(name, capsys):
    """What an example prints when it is run, and what is in it."""
    if name in ("implicit_root",):
        pytest.importorskip("scipy")
    module = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out, module


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name, capsys):
    out, _ = output(name, capsys)
    for text in SAYS[name]:
        assert text in out


@pytest.mark.framework
def test_mod_is_the_same_in_every_framework(capsys):
    out, _ = output("mod", capsys)
    rows = dict(line.split(maxsplit=1) for line in out.splitlines()[-4:])
    if len(rows) < len(BY_FRAMEWORK) or set(rows) != set(BY_FRAMEWORK):
        pytest.skip("a framework is not installed")
    assert set(rows.values()) == {rows["numpy"]}
    assert rows["numpy"] == "[ 2.   1.  -0.5]  ∂x [1. 1. 1.]  ∂y [-1.  2.  4.]"


def test_the_derivatives_of_the_examples():
    root = runpy.run_path(str(EXAMPLES / "implicit_root.py"))["root"]
    look_up = runpy.run_path(str(EXAMPLES / "interpolation_table.py"))["look_up"]
    r = np.random.default_rng(0)
    near(root, r.uniform(1, 3, 4), r.uniform(-5, 5, 4))
    near(look_up, r.uniform(0.01, 0.99, 5), r.normal(size=9))


def near(f, *xs, step=1e-6):
    """Raise unless the gradients are those of central differences."""
    weights = np.arange(1.0, 1 + f(*xs).size)
    got = gw.grad(lambda *xs: np.sum(weights * f(*xs)), tuple(range(len(xs))))(*xs)
    for k, x in enumerate(xs):
        for i in range(x.size):
            delta = np.zeros_like(x)
            delta[i] = step
            up, down = ([*xs[:k], x + s * delta, *xs[k + 1 :]] for s in (1, -1))
            slope = np.sum(weights * (f(*up) - f(*down))) / (2 * step)
            np.testing.assert_allclose(got[k][i], slope, rtol=1e-5, atol=1e-8)


def test_every_example_is_run_and_short():
    files = list(EXAMPLES.glob("*.py"))
    assert {f.stem for f in files} == {*SAYS, "mod"}
    assert max(len(f.read_text().splitlines()) for f in files) < 60
