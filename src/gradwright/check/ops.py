"""The checks of an op, or of a framework's function with a gradient of its own."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ..errors import GradwrightError
from .case import Case, Verdict, cell, plain_fault
from .derivatives import DERIVATIVES
from .frameworks import Mode
from .guard import guarded
from .matrix import matrix
from .measure import ALL, Point, as_given, measure, moved_away
from .report import Cell
from .robust import ROBUST
from .subject import Subject
from .values import values

Told: TypeAlias = Callable[[str], None]

# Where a subject is checked: how far from the example, beside the size of its elements.
_NEAR, _FAR = 2.0**-5, 2.0
POINTS: dict[str, list[tuple[str, float]]] = {
    "quick": [("at the example", 0), ("near it", _NEAR)],
    "normal": [("at the example", 0), ("near it", _NEAR), ("far from it", _FAR)],
    "thorough": [
        ("at the example", 0), *[("near it", _NEAR)] * 3, *[("far from it", _FAR)] * 4,
    ],
}  # fmt: skip


def cells_at(point: Point, modes: Sequence[Mode], seed: int, label: str) -> Iterator[Cell]:
    """Values and derivatives at one point, in every mode."""
    for mode in modes:
        case = Case(mode, modes[0], point, seed)
        found = guarded(values, case)
        if found.status == "refused" and mode is modes[0]:
            found = plain_fault("error", found.text)  # what cannot be computed is not right
        yield cell("values", mode, found, label)
        if not (point.subject.wrt and point.value.size):
            continue  # integers have no derivative, nor has nothing
        failed = False
        for name, check in DERIVATIVES.items():
            verdict = Verdict("skipped") if failed else guarded(check, case)
            failed = failed or (name == "reverse" and verdict.status == "fault")
            yield cell(name, mode, verdict, label)


def _point(subject: Subject, base: Mode, seed: int) -> Point:
    """The derivative there, measured; or as NumPy's mode has it, if it is meant to be another."""
    point = measure(subject, seed)
    if subject.slope is None and 0 < point.value.shape[0] <= ALL:
        try:
            return as_given(point, matrix(base, point))
        except GradwrightError:
            return point
    return point


def run(
    subject: Subject, modes: Sequence[Mode], effort: str, seed: int, told: Told
) -> Iterator[Cell]:
    """All checks of a subject."""
    wide, wrong = subject.wide(), False
    eager = [mode.name for mode in _eager(modes)]
    for k, (label, far) in enumerate(POINTS[effort]):
        at = moved_away(wide, far, seed + k) if far else wide
        told("measuring the derivative")
        point = _point(at, modes[0], seed + k)
        here = modes if k == 0 or effort == "thorough" else _eager(modes)
        for found in cells_at(point, here, seed + k, label):
            told(f"{found.check}, {found.mode}")
            wrong = wrong or (found.status == "fault" and found.mode in eager)
            yield found
        if k == 0 and effort != "quick" and not wrong:
            for found in robust_cells(point, modes, seed):
                told(f"{found.check}, {found.mode}")
                yield found


def _eager(modes: Sequence[Mode]) -> list[Mode]:
    """The first mode of each framework: the others are compiled anew for every shape."""
    first = {mode.framework: mode for mode in reversed(modes)}
    return [mode for mode in modes if first[mode.framework] is mode]


def robust_cells(point: Point, modes: Sequence[Mode], seed: int) -> Iterator[Cell]:
    """What holds for all kinds of arrays, in the first mode of each framework."""
    for mode in modes:
        case = Case(mode, modes[0], point, seed)
        for name, check in ROBUST.items():
            if mode in _eager(modes) or name == "batching":
                yield cell(name, mode, guarded(check, case), "at the example")
