"""The checks of an update rule: every optimizer of it beside its equation in float64."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..equation import Given, Required
from ..errors import GradwrightError, SignatureError
from ..own import _mixing
from ..rule import Rule
from .case import OK, Verdict, fault, plain_fault
from .diagnose import cure
from .differences import Array
from .machines import Machine, Make, make_of
from .memory import BY_EQUATION, MORE
from .report import Cell, Diagnosis
from .trial import MATRICES, SEED, STEP_ROUNDING, UPDATE_ROUNDING, Reference, Trial, interval

Check: TypeAlias = Callable[[Trial], Verdict]
Clock: TypeAlias = Callable[[int], int]


# --- the trajectory ----------------------------------------------------------------------------
def trajectory(trial: Trial) -> Verdict:
    """The same gradients, the same parameters: those of the equation, to rounding."""
    machine = trial.machine()
    off = _apart(trial, machine)
    if off is None:
        return OK
    k, at, want, got, step = off
    kind, text = _why(trial, machine)
    name = f"parameter {k}"
    d = Diagnosis(kind, text, cure(kind), name, at, None, want, got, 1, 1)
    return fault(d, f"first at step {step}")


def _unchanged(t: int) -> int:
    return t


Off = tuple[int, tuple[int, ...], float, float, int]


def _apart(
    trial: Trial,
    machine: Machine,
    clock: Clock = _unchanged,
    other: Mapping[str, Any] | None = None,
) -> Off | None:
    """Where an optimizer leaves the equation: parameter, element, expected, got, step."""
    reference = Reference(trial.rule, trial.weights, {**trial.keywords, **(other or {})})
    allowed = [np.zeros(w.shape) for w in reference.ws]
    for step, gradients in enumerate(trial.gradients(trial.steps), 1):
        before = [w.copy() for w in reference.ws]
        reference.step(gradients, clock)
        machine.step(gradients)
        for k, got in enumerate(machine.weights()):
            want = reference.ws[k]
            moved = _distance(trial, want, before[k])
            allowed[k] = allowed[k] + STEP_ROUNDING * np.abs(want) + UPDATE_ROUNDING * moved
            allowed[k] += STEP_ROUNDING * _span(trial)
            apart = _distance(trial, got.astype(np.float64), want)
            if not np.all(apart <= allowed[k]):
                at = np.unravel_index(int(np.argmax(apart - allowed[k])), want.shape)
                place = tuple(map(int, at))
                return k, place, float(want[at]), float(got[at]), step
    return None


def _span(trial: Trial) -> float:
    """A domain's ends are part of what is rounded when a parameter wraps around."""
    found = interval(trial.rule, trial.keywords)
    return (
        0.0
        if found is None
        else float(np.max(np.abs(found[:2]), initial=0.0, where=np.isfinite(found[:2])))
    )


def _distance(trial: Trial, a: Array, b: Array) -> Array:
    """How far two are apart; on a circle, if the domain closes at one end only."""
    apart: Array = np.abs(a - b)
    found = interval(trial.rule, trial.keywords)
    if found is not None and found[2].has_low != found[2].has_high:
        apart = np.minimum(apart, np.abs(found[1] - found[0] - apart))
    return apart


def _why(trial: Trial, machine: Machine) -> tuple[str, str]:
    """What explains the difference: each guess is tried, and has to explain all of it."""
    if all(map(np.array_equal, machine.weights(), trial.weights)):
        return "not written", "a step leaves the parameters as they were"
    if _has_clock(trial.rule):
        guesses: list[tuple[str, str, Clock]] = [
            ("step", "steps are counted from 0: the first update has step=0", lambda t: t - 1),
            ("step", "steps are counted from 2: the first update has step=2", lambda t: t + 1),
            ("bias correction", "the terms that depend on step are missing, as if it were large",
             lambda t: t + 10**7),
        ]  # fmt: skip
        for kind, text, clock in guesses:
            if _apart(trial, trial.machine(), clock) is None:
                return kind, text
    if trial.rule.seed is not None and (noise := _noise(trial)) is not None:
        return noise
    for name in _suspects(trial):
        if _agrees_without(trial, name):
            return "keyword", f"{name} enters in another way: without it there is no difference"
    return "trajectory", "the parameters are not those of the equation"


def _has_clock(rule: Rule[Any]) -> bool:
    return any(e.step is not None for e in rule.equations)


def _suspects(trial: Trial) -> list[str]:
    """The keywords that a parameter still moves without, the smallest first."""
    values = {**trial.rule.hyperparams, **trial.keywords}
    numbers = {k: v for k, v in values.items() if isinstance(v, (int, float)) and v and k != "rng"}
    found = []
    for name in sorted(numbers, key=lambda k: abs(numbers[k])):
        reference = Reference(trial.rule, trial.weights, {**trial.keywords, name: 1e-30})
        before = list(reference.ws)
        try:
            reference.step(next(iter(trial.gradients(1))))
        except Exception:  # a keyword that cannot be nothing
            continue
        pairs = zip(before, reference.ws, strict=True)
        if not all(np.allclose(a, b, atol=1e-12) for a, b in pairs):
            found.append(name)
    return found


def _agrees_without(trial: Trial, name: str) -> bool:
    """Whether there is no difference when one keyword is nothing."""
    for nothing in (0.0, 1e-30):
        other = {name: nothing}
        try:
            if _apart(trial, trial.machine(None, other), other=other) is None:
                return True
        except Exception:  # a keyword that cannot be nothing explains nothing
            continue
    return False


def _noise(trial: Trial) -> tuple[str, str] | None:
    """What is wrong with the draws, by what a step without a gradient does to equal parameters."""
    low, high = trial.bounds
    arrays = [np.full((64,), (low + high) / 2, np.float32) for _ in range(2)]
    machine, reference = trial.machine(arrays), Reference(trial.rule, arrays, trial.keywords)
    zeros = [np.zeros(64, np.float32)] * 2
    machine.step(zeros)
    reference.step(zeros)
    got = [w.astype(np.float64) - a for w, a in zip(machine.weights(), arrays, strict=True)]
    want = [w - a for w, a in zip(reference.ws, arrays, strict=True)]
    if np.array_equal(got[0], got[1]) and not np.array_equal(want[0], want[1]):
        return "same noise", "parameters of equal shape get equal noise"
    scale = float(got[0] @ want[0]) / float(want[0] @ want[0]) if np.any(want[0]) else 1.0
    if np.allclose(got[0], scale * want[0], atol=1e-5 * np.max(np.abs(want[0]))):
        if abs(scale - 1) < 1e-3:
            return None
        return "noise", f"the noise is off by a factor of {scale:.4g}"
    is_, should = float(np.std(got[0])), float(np.std(want[0]))
    return "noise", f"the noise is another: its standard deviation is {is_:.4g}, not {should:.4g}"


# --- what has to hold without a reference ------------------------------------------------------
def domain(trial: Trial) -> Verdict:
    """No parameter ever leaves the domain, wherever a step would take it."""
    found = interval(trial.rule, trial.keywords)
    if found is None:
        return Verdict("skipped")
    low, high, _ = found
    starts = [np.asarray(w) for w in trial.weights]
    for end in (low, high):
        if np.isfinite(end):
            near = np.float32(end)
            starts += [np.full(4, x, np.float32) for x in _inside(found, near)]
    for scale in (1e-6, 1.0, 1e4):
        machine = trial.machine(starts)
        rng = np.random.default_rng([trial.seed, 2])
        for _ in range(12):
            machine.step([np.asarray(scale * rng.normal(size=s.shape), np.float32) for s in starts])
            for w in machine.weights():
                if (text := _outside(found, w)) is not None:
                    return plain_fault("domain", text)
    return OK


def _inside(found: tuple[float, float, Any], near: np.float32) -> list[Any]:
    """Members of the domain beside one of its ends."""
    low, high, _ = found
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return [x for x in around if _outside(found, np.asarray(x)) is None]


def _outside(found: tuple[float, float, Any], w: Array) -> str | None:
    low, high, d = found
    below = w < low if d.has_low else w <= low
    above = w > high if d.has_high else w >= high
    if not np.any(below | above):
        return None
    value = float(w[below | above].flat[0]) if w.ndim else float(w)
    return f"a parameter is {value:.9g}, outside of {d.text}, which is {low:g} to {high:g}"


def resume(trial: Trial) -> Verdict:
    """Saved, loaded into a new optimizer, and continued: bit for bit as without a break."""
    through, half = trial.machine(), trial.machine()
    gradients = list(trial.gradients(6))
    for g in gradients[:3]:
        through.step(g)
        half.step(g)
    saved, before = half.save(), half.slots()
    if saved is None:
        return Verdict("skipped")
    again = trial.machine(half.weights())
    again.load(saved)
    for old, new in zip(before, again.slots(), strict=True):
        for name in old:
            if name in new and new[name].dtype != old[name].dtype:
                text = f"the slot {name} is {old[name].dtype} and comes back as {new[name].dtype}"
                return plain_fault("slot dtype", text)
            if name in new and not np.array_equal(old[name], new[name], equal_nan=True):
                return plain_fault("not saved", f"the slot {name} is not what was saved")
    for g in gradients[3:]:
        through.step(g)
        again.step(g)
    if all(map(np.array_equal, through.weights(), again.weights())):
        return OK
    return plain_fault("not saved", f"a resumed optimizer goes another way: {_lost(before)}")


def _lost(slots: Sequence[Mapping[str, Any]]) -> str:
    names = ", ".join(dict.fromkeys(name for each in slots for name in each))
    return f"is {names} not saved, or the count?" if names else "is the count not saved?"


def separate(trial: Trial) -> Verdict:
    """One optimizer of all parameters is an optimizer for each of them, bit for bit."""
    if trial.rule.seed is not None or trial.sums_over_all:
        return Verdict("skipped")
    together, starts = trial.machine(), trial.weights
    alone = [trial.machine([w]) for w in starts]
    for gradients in trial.gradients(4):
        together.step(gradients)
        for machine, g in zip(alone, gradients, strict=True):
            machine.step([g])
    each = [machine.weights()[0] for machine in alone]
    if all(map(np.array_equal, together.weights(), each)):
        return OK
    return plain_fault("groups", "parameters together are not what they are one by one")


def missing(trial: Trial) -> Verdict:
    """A parameter without a gradient is left alone, and so are its slots and its clock."""
    if trial.sums_over_all:
        return Verdict("skipped")
    machine, plain = trial.machine(), trial.machine()
    first, second = trial.gradients(2)
    machine.step([None, *first[1:]])
    if not np.array_equal(machine.weights()[0], trial.weights[0]):
        return plain_fault("missing gradient", "a parameter without a gradient is moved")
    machine.step(second)
    plain.step([second[0], *first[1:]])
    if np.array_equal(machine.weights()[0], plain.weights()[0]):
        return OK
    return plain_fault("missing gradient", "a step without a gradient changes slots or the clock")


def failed(trial: Trial) -> Verdict:
    """A step that fails changes nothing."""
    machine = trial.machine()
    gradients = next(iter(trial.gradients(1)))
    machine.step(gradients)
    before, slots = machine.weights(), machine.slots()
    try:
        machine.step([*gradients[:-1], np.ones((2, 7), np.float32)])
    except Exception:  # whichever error it is, it is one
        same = map(np.array_equal, before, machine.weights())
        kept = [
            np.array_equal(a[n], b[n])
            for a, b in zip(slots, machine.slots(), strict=True)
            for n in a
        ]
        if all(same) and all(kept):
            return OK
        return plain_fault("failed step", "a step that failed has changed parameters or slots")
    return plain_fault("failed step", "a gradient of the wrong shape is no error")


def sizes(trial: Trial) -> Verdict:
    """Empty parameters, numbers, parameters and gradients with strides of their own."""
    rng = np.random.default_rng([trial.seed, 3])
    low, high = trial.bounds
    base = np.asarray(rng.uniform(low, high, (4, 6)), np.float32)
    arrays = [base.T, base, base[:0], base[0, 0]]
    first, *rest = [np.asarray(rng.normal(size=a.shape), np.float32) for a in arrays]
    gradients = [first, first.T, *rest[1:]]
    if trial.shapes is MATRICES:
        arrays, gradients = arrays[:2], gradients[:2]
    machine = trial.machine(arrays)
    for _ in range(3):
        machine.step(gradients)
    found = machine.weights()
    if [w.shape for w in found] != [a.shape for a in arrays]:
        return plain_fault("strides", "a step changes the shape of a parameter")
    alike = trial.rule.seed is None and not trial.sums_over_all  # noise is by position
    alike = alike and _mixing(trial.graph) is None
    # a library may round a vector of elements otherwise than one by one
    if alike and not np.allclose(found[0], found[1].T, rtol=UPDATE_ROUNDING, atol=UPDATE_ROUNDING):
        return plain_fault("strides", "a parameter with strides of its own is moved elsewhere")
    return OK


CHECKS: dict[str, Check] = {
    "trajectory": trajectory,
    "domain": domain,
    "save and resume": resume,
    "together = apart": separate,
    "no gradient": missing,
    "failed step": failed,
    "sizes and strides": sizes,
    **MORE,
}


def keywords_of(rule: Rule[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values for all that has none, and a seed for a rule that draws."""
    rule.check_names(given)
    found = {k: 0.1 for k, v in rule.hyperparams.items() if isinstance(v, (Given, Required))}
    found |= given
    if isinstance(rule.seed, Required) and "rng" not in found:
        found["rng"] = SEED
    return found


def run(
    rule: Rule[Any],
    frameworks: Sequence[str],
    optimizer: Make | None,
    keywords: Mapping[str, Any],
    effort: str,
    seed: int,
    told: Callable[[str], None],
) -> Iterator[Cell]:
    """All checks of a rule, or of somebody's optimizer that should be the rule."""
    for framework in frameworks:
        make = optimizer or make_of(rule, framework)
        trial = Trial(rule, framework, make, keywords, effort, seed)
        is_off = False
        for name, check in CHECKS.items():
            told(f"{name}, {framework}")
            # what leaves the equation is not compared with it twice
            v = Verdict("skipped") if is_off and name in BY_EQUATION else _guarded(check, trial)
            is_off = is_off or (name == "trajectory" and v.status == "fault")
            yield Cell(name, framework, framework, v.status, v.text, v.diagnosis)


def _guarded(check: Check, trial: Trial) -> Verdict:
    try:
        return check(trial)
    except SignatureError as error:
        return plain_fault("error", error.what)
    except GradwrightError as error:
        return Verdict("refused", f"{error.what}; instead: {error.instead}")
    except Exception as error:  # an optimizer's own
        first_line = next(iter(str(error).strip().splitlines()), "")
        return plain_fault("error", f"{type(error).__name__}: {first_line[:200]}")
