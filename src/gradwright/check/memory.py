"""What an optimizer does with other arrays, numbers and threads than those of one long run."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import numpy as np

from ..errors import GradwrightError
from .case import OK, Verdict, plain_fault
from .machines import Machine
from .trial import UPDATE_ROUNDING, Reference, Trial

LISTS = ("numpy", "torch")  # their optimizers are made with their parameters
LARGE = 600_000  # elements, more than one thread is given


def tied(trial: Trial) -> Verdict:
    """A parameter that is given twice is refused, or moved once."""
    if trial.framework not in LISTS or trial.rule.seed is not None:
        return Verdict("skipped")
    w, gradients = trial.weights[0], [next(iter(trial.gradients(1)))[0]]
    once, twice = trial.machine([w]), trial.machine([w])
    once.step(gradients)
    params: list[Any] = list(getattr(twice, "params", ()))
    try:
        twice.optimizer = trial.make([*params, *params], **trial.keywords)
        twice.step(gradients if trial.framework == "torch" else gradients * 2)
    except Exception as error:  # whichever it is, it is shown
        return Verdict("refused", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
    if np.array_equal(once.weights()[0], twice.weights()[0]):
        return OK
    return plain_fault("groups", "a parameter that is given twice is moved twice")


def nonfinite(trial: Trial) -> Verdict:
    """Gradients with NaN and infinities: what the equation gives, and nothing else touched."""
    first = [np.array(g) for g in next(iter(trial.gradients(1)))]
    first[0].flat[:2] = np.nan, np.inf
    machine = trial.machine()
    reference = Reference(trial.rule, trial.weights, trial.keywords)
    machine.step(first)
    reference.step(first)
    for k, got in enumerate(machine.weights()):
        want = reference.ws[k].astype(got.dtype)
        with np.errstate(invalid="ignore"):
            near = np.isclose(got, want, rtol=UPDATE_ROUNDING, atol=UPDATE_ROUNDING, equal_nan=True)
        if not np.all(near | ~np.isfinite(want) & ~np.isfinite(got)):
            return plain_fault("trajectory", f"a NaN in one gradient: parameter {k} goes elsewhere")
    return OK


def groups(trial: Trial) -> Verdict:
    """Groups with numbers of their own are optimizers with these numbers, bit for bit."""
    name = trial.number
    is_alone = trial.rule.seed is not None or trial.sums_over_all
    if trial.framework not in LISTS or name is None or is_alone:
        return Verdict("skipped")
    other = {name: trial.keywords.get(name, trial.rule.hyperparams[name]) / 2}
    a, b = trial.weights[:2]
    apart = [trial.machine([a]), trial.machine([b], other)]
    both = trial.machine([a, b])
    p, q = both.params
    made = [{"params": [p]}, {"params": [q], **other}]
    both.optimizer = trial.make(made, **trial.keywords)
    for first, second, *_ in trial.gradients(4):
        apart[0].step([first])
        apart[1].step([second])
        both.step([[first], [second]] if trial.framework == "numpy" else [first, second])
    each = [machine.weights()[0] for machine in apart]
    if all(map(np.array_equal, both.weights(), each)):
        return OK
    return plain_fault("groups", f"groups with {name} of their own are not optimizers with these")


def threads(trial: Trial) -> Verdict:
    """A large parameter: neither the number of threads nor where it is cut changes a bit."""
    if trial.framework not in LISTS or trial.effort == "quick" or len(trial.shapes) < 4:
        return Verdict("skipped")
    low, high = trial.bounds
    rng = np.random.default_rng([trial.seed, 5])
    w = np.asarray(rng.uniform(low, high, LARGE), np.float32)
    gradients = [np.asarray(rng.normal(size=LARGE), np.float32) for _ in range(2)]
    found = []
    for count in ("1", "3"):
        with _environment("GRADWRIGHT_NUM_THREADS", count):
            machine = trial.machine([w])
            for g in gradients:
                machine.step([g])
            found.append(machine.weights()[0])
    if np.array_equal(found[0], found[1]):
        return OK
    return plain_fault("not deterministic", "another number of threads gives other bits")


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def changes(trial: Trial) -> Verdict:
    """Numbers that change from step to step are used, and nothing is traced anew for them."""
    name = trial.number
    if trial.framework not in LISTS or name is None:
        return Verdict("skipped")
    machine = trial.machine()
    first, *rest = trial.gradients(4)
    machine.step(first)
    codes = {e.function.__code__ for e in trial.rule.equations if hasattr(e.function, "__code__")}
    with _counting(codes) as calls:
        for g in rest:
            _halve(machine, name)
            machine.step(g)
    if not calls:
        return OK
    return plain_fault("error", f"the equation is traced anew when {name} changes")


def _halve(machine: Machine, name: str) -> None:
    for group in machine.optimizer.param_groups:
        if isinstance(group.get(name), float):
            group[name] /= 2


@contextmanager
def _counting(codes: set[CodeType]) -> Iterator[list[str]]:
    """The calls of some functions of Python's, in this thread."""
    calls: list[str] = []
    before = sys.getprofile()

    def see(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            calls.append(frame.f_code.co_name)

    sys.setprofile(see)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def noise(trial: Trial) -> Verdict:
    """The draws of steps, parameters and elements: of the equation's size, and independent."""
    if trial.rule.seed is None or len(trial.shapes) < 4 or trial.rule.slots:
        return Verdict("skipped")
    low, high = trial.bounds
    arrays = [np.full((LARGE // 150,), (low + high) / 2, np.float32) for _ in range(2)]
    machine, reference = trial.machine(arrays), Reference(trial.rule, arrays, trial.keywords)
    zeros = [np.zeros_like(a) for a in arrays]
    moved = []
    for _ in range(2):
        before = [w.astype(np.float64) for w in machine.weights()]
        old = [w.copy() for w in reference.ws]
        machine.step(zeros)
        reference.step(zeros)
        moved += [w - b for w, b in zip(machine.weights(), before, strict=True)]
        wanted = [float(np.std(w - b)) for w, b in zip(reference.ws, old, strict=True)]
    if not all(wanted):
        return Verdict("skipped")
    # of n draws a deviation is known to 1/√(2n), a correlation to 1/√n, two deviations to 1/√n
    allowed = 6 / np.sqrt(arrays[0].size)
    spreads = zip(moved, [*wanted, *wanted], strict=True)
    if any(abs(float(np.std(x)) / want - 1) > allowed for x, want in spreads):
        text = f"its standard deviation is {float(np.std(moved[0])):.4g}, not {wanted[0]:.4g}"
        return plain_fault("noise", f"the noise is another: {text}")
    pairs = [(a, b) for k, a in enumerate(moved) for b in moved[:k]]
    pairs += [(x[1:], x[:-1]) for x in moved]
    if any(abs(float(np.corrcoef(a, b)[0, 1])) > allowed for a, b in pairs):
        return plain_fault("same noise", "draws of two steps, parameters or elements go together")
    return OK


def sparse(trial: Trial) -> Verdict:
    """A sparse gradient is the dense one that it stands for, bit for bit."""
    plain, other = trial.machine(), trial.machine()
    if not hasattr(other, "step_sparse"):
        return Verdict("skipped")
    for gradients in trial.gradients(3):
        dense = [np.array(g) for g in gradients]
        dense[0][1:] = 0
        plain.step(dense)
        try:
            other.step_sparse(dense)
        except GradwrightError as error:
            return Verdict("refused", f"{error.what}; instead: {error.instead}")
    if all(map(np.array_equal, plain.weights(), other.weights())):
        return OK
    return plain_fault("trajectory", "a sparse gradient moves otherwise than the dense one")


MORE = {
    "groups": groups,
    "tied": tied,
    "nonfinite gradients": nonfinite,
    "sparse = dense": sparse,
    "numbers change": changes,
    "threads": threads,
    "noise": noise,
}
BY_EQUATION = ("nonfinite gradients", "noise")
