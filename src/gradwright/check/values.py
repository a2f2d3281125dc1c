"""Values: a mode beside the user's function run by NumPy."""

from collections.abc import Sequence

import numpy as np

from .case import OK, Case, Verdict, fault, plain_fault, renamed
from .diagnose import Compared, diagnose
from .differences import Array
from .frameworks import Seen
from .measure import HALF
from .subject import Subject


def values(case: Case) -> Verdict:
    """The values of the user's function run by NumPy."""
    wanted, got = case.point.outs, case.mode.value(case.subject.arrays)
    return compare_values(case.subject, wanted, got)


def compare_values(subject: Subject, wanted: Sequence[Array], got: Sequence[Seen]) -> Verdict:
    for k, (want, seen) in enumerate(zip(wanted, got, strict=True)):
        name = "the result" if len(wanted) == 1 else f"result {k}"
        if seen.array.shape != want.shape:
            text = f"{name} has the shape {seen.array.shape}, NumPy's {want.shape}"
            return plain_fault("value", text)
        c = _compared_values(name, seen.array, want)
        if c.is_off():
            low, high = box(subject, k)
            inside = (c.got >= low - c.tolerance) & (c.got <= high + c.tolerance)
            c = c._replace(mask=c.mask & ~inside)
        if c.is_off():
            d = diagnose(c)
            return fault(renamed(d, "value", f"{name} is not what NumPy gives"))
    return OK


def _compared_values(name: str, got: Array, want: Array) -> Compared:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    with np.errstate(invalid="ignore"):
        same = (got == want) | (np.isnan(got) & np.isnan(want))
    return Compared(name, got, want, HALF * np.abs(np.nan_to_num(want, posinf=0, neginf=0)), ~same)


def box(subject: Subject, k: int, ulps: float = 16.0) -> tuple[Array, Array]:
    """The least and the largest value of an output where arguments are only nearly the example's.

    Beside a jump, rounding decides which side is meant.
    """
    rng = np.random.default_rng(0)
    eps = ulps * float(np.finfo(np.float64).eps)
    rows = []
    for _ in range(8):
        vector = subject.vector * (1 + eps * rng.uniform(-1, 1, subject.vector.shape))
        rows.append(np.asarray(subject.value(subject.moved(vector))[k], np.float64))
    return np.min(rows, axis=0), np.max(rows, axis=0)
