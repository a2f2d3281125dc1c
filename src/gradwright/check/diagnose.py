"""What kind of fault a wrong gradient has: each kind is a section of docs/wrong-gradient.md."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .differences import Array
from .report import Diagnosis

CURES = {
    "zero": "what the rule returns for {argument}: nothing of the cotangent reaches it",
    "sign": "the other sign of what the rule returns for {argument}",
    "factor": "what the rule returns for {argument}, without the factor",
    "transposed": "the transposed array in the rule: for x @ w, g @ w.T and x.T @ g",
    "swapped": "the results of the rule in the order of the arguments",
    "not summed": "np.sum(…, axis) over every axis along which {argument} was repeated or used",
    "branch": "the derivative of the branch that the function takes there, as np.where has it",
    "not finite": "a safe argument in the branch that is not taken: np.where(ok, x, 1) inside",
    "precision": "arrays of the argument's dtype in the rule: no astype, no float32 constants",
    "element": "the term of the rule that belongs to this element",
    "wrong": "the rule left out: then the derivative is derived; or .surrogate, if it is meant",
    "second order": "every factor of the rule written with the arguments, none stopped or kept",
    "forward": "one rule only: .vjp, .jvp or .partials, and the others follow",
    "adjoint": "one rule only: .vjp, .jvp or .partials, and the others follow",
    "shape": "one cotangent of the argument's shape",
    "dtype": "the argument's dtype in the rule: no astype, no float64 arrays",
    "conjugate": "the conjugate of what the rule returns for {argument}",
    "value": "the equation as NumPy has it",
    "strides": "operations that read an array by its strides, or x.contiguous() first",
    "alias": "a copy of what is returned",
    "mutation": "x = x + … in place of x += …",
    "not deterministic": "a seed among the arguments",
    "batching": "operations that know batched tensors: no .numpy(), no data pointers",
    "error": "what the error says",
    "trajectory": "the update as the equation has it",
    "step": "a count that is 1 at the first update of a parameter",
    "bias correction": "the division by 1 - b**step, as the equation has it",
    "keyword": "the keyword at the place that it has in the equation",
    "noise": "the noise with the factor that it has in the equation",
    "same noise": "draws that differ by parameter: a stream for each",
    "not written": "new values written into the parameter itself, and not into a copy of it",
    "domain": "the last rounding corrected into the domain: domain= of gw.rule does it",
    "not saved": "every slot and every count of steps in what is saved",
    "slot dtype": "the dtype of a slot kept when it is loaded",
    "groups": "no state that parameters share without gw.shared or gw.global_sum",
    "missing gradient": "parameters without a gradient left out of the step",
    "failed step": "all that can fail before the first parameter is written",
}


class Compared(NamedTuple):
    """One gradient beside what it should be; what is not known is masked."""

    argument: str
    got: Array
    want: Array
    tolerance: Array
    mask: Array  # where `want` is known

    @property
    def wrong(self) -> Array:
        with np.errstate(invalid="ignore"):
            wrong: Array = ~(np.abs(self.got - self.want) <= self.tolerance) & self.mask
        return wrong

    def is_off(self) -> bool:
        return bool(np.any(self.wrong))

    def equals(self, other: Array, factor: float = 1.0) -> bool:
        """Whether got is another array, to the tolerance."""
        loose = 4 * max(1.0, abs(factor)) * np.max(self.tolerance[self.mask], initial=0.0)
        with np.errstate(invalid="ignore"):
            near = np.abs(self.got - other) <= loose
        return bool(np.all(near | ~self.mask))


def diagnose(c: Compared, others: dict[str, Array] | None = None) -> Diagnosis:
    """Name the likely fault of a gradient that is wrong."""
    kind, text = _named(c, others or {})
    return _at_its_worst(Diagnosis(kind, text, cure(kind, c.argument), c.argument), c)


def cure(kind: str, argument: str = "") -> str:
    return CURES[kind].format(argument=argument or "each argument")


def _named(c: Compared, others: dict[str, Array]) -> tuple[str, str]:
    for test in (_not_finite, _zero, _sign, _precision, _factor):
        if (found := test(c)) is not None:
            return found
    if (found := _swapped(c, others)) is not None:
        return found
    for test in (_transposed, _branch):
        if (found := test(c)) is not None:
            return found
    return "wrong", f"the gradient by {c.argument} is wrong"


Named = tuple[str, str] | None


def _not_finite(c: Compared) -> Named:
    bad = ~np.isfinite(c.got) & c.mask
    if not np.any(bad):
        return None
    return "not finite", f"the gradient by {c.argument} is not finite where it should be"


def _zero(c: Compared) -> Named:
    if np.any(c.got[c.mask]):
        return None
    return "zero", f"the gradient by {c.argument} is zero"


def _sign(c: Compared) -> Named:
    if not c.equals(-c.want):
        return None
    return "sign", f"the gradient by {c.argument} has the wrong sign"


def _precision(c: Compared) -> Named:
    with np.errstate(all="ignore"):
        apart = np.abs(c.got - c.want)[c.mask] / np.max(np.abs(c.want[c.mask]), initial=1e-300)
    if not np.all(apart < 2.0**-19):
        return None
    digits = -np.log10(np.max(apart))
    text = f"the gradient by {c.argument} is right to {digits:.0f} digits only"
    return "precision", f"{text}: something is computed in a lower precision"


def _factor(c: Compared) -> Named:
    got, want = c.got[c.mask], c.want[c.mask]
    norm = float(want @ want)
    factor = float(got @ want) / norm if norm > 0 else 0.0
    if factor == 0 or not c.equals(factor * c.want, factor):
        return None
    return "factor", f"the gradient by {c.argument} is off by a factor of {factor:.4g}"


def _swapped(c: Compared, others: dict[str, Array]) -> Named:
    for name, want in others.items():
        if name != c.argument and want.shape == c.got.shape and c.equals(want):
            return "swapped", f"the gradient by {c.argument} is the one by {name}"
    return None


def _transposed(c: Compared) -> Named:
    if c.got.ndim != 2 or c.got.shape[0] != c.got.shape[1] or not c.equals(c.want.T):
        return None
    return "transposed", f"the gradient by {c.argument} is transposed"


def _branch(c: Compared) -> Named:
    """Some elements are right, and those that are wrong are wrong in the same way."""
    wrong = c.wrong
    right = c.mask & ~wrong
    if not np.any(right & (np.abs(c.want) > c.tolerance)):
        return None
    rest = c._replace(mask=wrong)
    for test in (_zero, _sign, _factor):
        if np.count_nonzero(wrong) > 1 and (found := test(rest)) is not None:
            how = found[1].removeprefix(f"the gradient by {c.argument} ")
            n, of = np.count_nonzero(wrong), np.count_nonzero(c.mask)
            return "branch", f"the gradient by {c.argument} {how} at {n} of {of} elements"
    return "element", f"the gradient by {c.argument} is wrong at some elements, right at others"


def where_wrong(wrong: Array, known: Array, values: dict[str, Array]) -> str | None:
    """The values of an argument beyond which it is wrong, if there is such a bound."""
    for name, x in values.items():
        if x.shape != wrong.shape:
            continue
        for shown, y in ((name, x), (f"|{name}|", np.abs(x))):
            bad, good = y[wrong], y[known & ~wrong]
            if bad.size and good.size and np.min(bad) > np.max(good):
                return f"where {shown} > {_between(np.max(good), np.min(bad))}"
            if bad.size and good.size and np.max(bad) < np.min(good):
                return f"where {shown} < {_between(np.max(bad), np.min(good))}"
    return None


def _between(low: float, high: float) -> str:
    """The roundest number between two."""
    for digits in range(12):
        middle = round((low + high) / 2, digits)
        if low < middle < high:
            return f"{middle:g}"
    return f"{low:g}"


def _at_its_worst(d: Diagnosis, c: Compared) -> Diagnosis:
    """The diagnosis with the element that shows it best."""
    wrong = c.wrong
    if not np.any(wrong):
        return d
    with np.errstate(invalid="ignore"):
        off = np.where(wrong, np.abs(c.got - c.want), -1.0)
    worst = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
    return replace(
        d,
        index=tuple(map(int, worst)),
        expected=float(c.want[worst]),
        got=float(c.got[worst]),
        wrong=int(np.count_nonzero(wrong)),
        of=int(np.count_nonzero(c.mask)),
    )
