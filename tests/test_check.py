"""The checker sees every seeded fault and names it, and finds no fault in what is right."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from faults import CASES, FAULTS, op_of
from right_ops import CALLS, COMPOSITIONS, UFUNCS, all_right

import gradwright as gw
from gradwright.check import differences, main
from gradwright.check.diagnose import CURES
from gradwright.primitives import PRIMITIVES

NUMPY = ["numpy"]


def found(op, *xs, **more):
    """The report of a check, whether it fails or not."""
    return main.report(op, xs, {}, NUMPY, more.pop("effort", "normal"), more.pop("seed", 0))


def checked(op, *xs, **more):
    return gw.check(op, *xs, frameworks=NUMPY, **more)


# --- faults ------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind, name, case", CASES, ids=[name for _, name, _ in CASES])
def test_a_fault_is_seen_and_named(kind, name, case):
    function, rule, *xs = case
    with pytest.raises(gw.CheckFailure) as raised:
        checked(op_of(function, rule), *xs)
    report = raised.value.report
    assert report.faults[0].diagnosis.kind == kind, str(raised.value)
    assert function.__name__ in str(raised.value) and "faults.py:" in str(raised.value)
    assert "instead: " in str(raised.value)


def test_every_kind_is_in_three_ops():
    assert all(len(cases) >= 3 for cases in FAULTS.values())
    assert set(FAULTS) <= set(CURES)


def test_a_fault_in_one_element_of_many_is_seen():
    mask = np.zeros(600)
    mask[217] = 1

    @gw.op
    def f(x):
        return np.sum(np.tanh(x))

    @f.vjp
    def _(g, x):
        return g * (1 - np.tanh(x) ** 2) * (1 + 1e-3 * mask)

    with pytest.raises(gw.CheckFailure, match="in a random direction"):
        checked(f, np.random.default_rng(0).normal(size=600))


def test_a_jvp_that_is_wrong():
    @gw.op
    def f(x, y):
        return x * y

    @f.jvp
    def _(dx, dy, x, y):
        return 3 * (dx * y + x * dy)

    with pytest.raises(gw.CheckFailure, match="off by a factor of 3"):
        checked(f, np.array([1.0, 2.0]), np.array([0.5, -1.5]))


def test_an_op_that_cannot_be_used_is_a_failure_too():
    @gw.op
    def f(x, y):
        return x * y

    @f.vjp
    def _(g, x, y):
        return g * y

    with pytest.raises(gw.CheckFailure, match="f: the vjp of f gives 1 values for 2 arguments"):
        checked(f, np.ones(3), np.ones(3))


# --- what is right -----------------------------------------------------------------------------
def rights(seed):
    return [pytest.param(op, xs, id=name) for name, op, xs in all_right(seed)]


@pytest.mark.thorough
@pytest.mark.parametrize("op, xs", rights(0))
def test_no_false_alarm(op, xs):
    assert checked(op, *xs, effort="quick")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_false_alarm_at_other_values(seed):
    for name, op, xs in all_right(seed):
        assert found(op, *xs, seed=seed), name


# No derivative is known of the first two; the others appear in derivatives, calls and rules alone.
ELSEWHERE = "zeta nextafter scatter scatter_add unbroadcast size item variable call host".split()
ELSEWHERE += ["random_bits", "global_sum"]


def test_there_are_enough_right_ops():
    assert len(COMPOSITIONS) >= 30 and set(PRIMITIVES) <= {*UFUNCS, *CALLS, *ELSEWHERE}
    assert len(list(all_right())) >= 200


def test_a_kink_is_shown_and_no_failure():
    report = checked(gw.op(lambda x: np.maximum(x, 0)), np.array([-1.0, 0.0, 2.0]))
    assert "~ reverse, numpy: a kink at x[1]: 0 from the left, 1 from the right" in str(report)


def test_a_declared_surrogate_is_what_the_derivative_is_compared_with():
    op = gw.op(lambda x: np.round(x))
    op.surrogate(lambda x: x)
    assert checked(op, np.array([0.2, 1.7]))
    # the same derivative as a vjp is compared with that of the values, which is zero
    op = gw.op(lambda x: np.round(x))
    op.vjp(lambda g, x: g)
    with pytest.raises(gw.CheckFailure, match=r"instead: .* or .surrogate, if it is meant"):
        checked(op, np.array([0.2, 1.7]))


def test_options_are_the_ops():
    @gw.op
    def huber(x, *, delta=1.0):
        a = np.abs(x)
        return np.where(a <= delta, 0.5 * x * x, delta * (a - 0.5 * delta))

    for shape in ((), (3,), (2, 3)):
        assert checked(huber, np.random.default_rng(0).normal(size=shape), delta=0.5)


def test_examples_are_drawn_if_none_are_given():
    assert checked(gw.op(lambda x, y: np.log(x) * y))
    assert checked(gw.op(lambda x, y: np.einsum("ij,jk->ik", x, y)))


# --- the report --------------------------------------------------------------------------------
@pytest.fixture
def wrong():
    function, rule, *xs = FAULTS["factor"][0]
    return found(op_of(function, rule), *xs)


def test_json(wrong):
    plain = json.loads(json.dumps(wrong.to_json()))
    assert plain["passed"] is False and plain["name"] == "product" and plain["what"] == "vjp"
    cell = next(c for c in plain["cells"] if c["status"] == "fault")
    assert (cell["check"], cell["mode"], cell["fault"]) == ("reverse", "numpy", "factor")
    assert cell["argument"] == "x" and cell["got"] == pytest.approx(2.1 * cell["expected"])


def test_the_same_seed_gives_the_same_report(wrong):
    function, rule, *xs = FAULTS["factor"][0]
    again = found(op_of(function, rule), *xs).to_json()
    assert wrong.to_json() | {"seconds": 0} == again | {"seconds": 0}
    other = found(op_of(function, rule), *xs, seed=1).to_json()
    assert other["cells"] != again["cells"]


def test_a_report_as_text_and_as_a_table(wrong):
    from rich.console import Console

    assert not wrong and wrong.title.startswith("product: wrong in 3 of 15 checks")
    text = str(wrong)
    assert "reverse       ✗" in text and "off by a factor of 2.1" in text
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(wrong)
    assert "✗ wrong" in console.export_text()


# --- measuring ---------------------------------------------------------------------------------
def measured(f, x, analytic=False):
    x = np.atleast_1d(np.asarray(x, float))
    scale = differences.scales([x])
    rounding = differences.noise(f, x, scale, 0)
    s = differences.slopes(f, x, np.diag(scale), rounding, analytic)
    return s._replace(value=s.value / scale[:, None], error=s.error / scale[:, None])


@pytest.mark.parametrize(
    "f, slope",
    [
        (np.sin, np.cos),
        (np.exp, np.exp),
        (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
        (lambda x: np.sqrt(np.abs(x)) + 1e6, lambda x: 0.5 * np.sign(x) / np.sqrt(np.abs(x))),
        (lambda x: np.sin(300 * x), lambda x: 300 * np.cos(300 * x)),
    ],
)
def test_the_error_is_below_its_bound(f, slope):
    for x in np.random.default_rng(1).normal(size=40):
        s = measured(f, x)
        assert s.is_known.all()
        assert abs(s.value[0, 0] - slope(x)) <= s.error[0, 0] + 1e-15 * abs(slope(x))


def test_where_nothing_is_known():
    assert measured(np.abs, 0.0).is_kink.all()
    assert not measured(np.floor, 1.0).is_known.any()  # a jump
    assert not measured(np.log, -1.0).is_known.any()  # no number


def test_a_complex_step_sees_through_a_large_constant():
    plain, exact = (measured(lambda x: 1e9 + x**3, 0.3, analytic) for analytic in (False, True))
    assert exact.error[0, 0] < 1e-9 < plain.error[0, 0]
    assert exact.value[0, 0] == pytest.approx(0.27, abs=1e-12)


# --- the pages ---------------------------------------------------------------------------------
def test_every_kind_has_a_section():
    page = (Path(__file__).parents[1] / "docs" / "wrong-gradient.md").read_text()
    sections = {line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")}
    assert sections == set(CURES)
