"""What a check found: one cell for each check in each mode, as a table, as text, as JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import CheckFailure

SCHEMA = 1  # of the JSON; docs/checking.md says what is in it

# What each status is shown as; only a fault is a failure.
MARKS = {"ok": "✓", "kink": "~", "fault": "✗", "refused": "–", "skipped": "·"}
STYLES = {"ok": "green", "kink": "yellow", "fault": "bold red", "refused": "dim", "skipped": "dim"}
WORDS = {
    "ok": "as it should be",
    "kink": "a kink near: shown, not failed",
    "fault": "wrong",
    "refused": "refused with an error, as documented",
    "skipped": "nothing to check",
}


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong: its kind (a section of docs/wrong-gradient.md), where, expected and got."""

    kind: str
    text: str  # "off by a factor of 2.1"
    instead: str
    argument: str = ""
    index: tuple[int, ...] = ()
    at: float | None = None  # the value of the argument there
    expected: float | None = None
    got: float | None = None
    wrong: int = 0
    of: int = 0

    @property
    def place(self) -> str:
        """The element that shows it best."""
        if self.expected is None or self.got is None:
            return ""
        at = f"{self.argument}[{', '.join(map(str, self.index))}]" if self.index else self.argument
        at = f"at {at}" if at else "there"
        value = "" if self.at is None else f" = {self.at:.4g}"
        count = f" ({self.wrong} of {self.of} elements)" if self.of > 1 else ""
        digits = 6 if f"{self.expected:.6g}" != f"{self.got:.6g}" else 17
        numbers = f"expected {self.expected:.{digits}g}, got {self.got:.{digits}g}"
        return f"{at}{value}: {numbers}{count}"


@dataclass(frozen=True)
class Cell:
    """One check in one mode of one framework."""

    check: str
    framework: str
    mode: str
    status: str  # ok, kink, fault, refused, skipped
    text: str = ""
    diagnosis: Diagnosis | None = None
    point: str = ""  # where: at the example, near it, far from it

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "check": self.check,
            "framework": self.framework,
            "mode": self.mode,
            "status": self.status,
            "point": self.point,
            "text": self.text,
        }
        if (d := self.diagnosis) is not None:
            found["fault"] = d.kind
            found["argument"], found["index"] = d.argument, list(d.index)
            found["at"] = d.at
            found["expected"], found["got"] = d.expected, d.got
            found["wrong"], found["of"] = d.wrong, d.of
            found["instead"] = d.instead
        return found


@dataclass(frozen=True)
class Report:
    """The result of a check: truthy if nothing is wrong; prints as a table."""

    name: str
    kind: str  # op, rule, gradient
    what: str  # the derivative that is checked: "vjp", "derivative", …
    where: str
    seed: int
    effort: str
    cells: Sequence[Cell] = field(default_factory=tuple)
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return not self.faults

    @property
    def faults(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.status == "fault"]

    @property
    def modes(self) -> list[str]:
        return list(dict.fromkeys(cell.mode for cell in self.cells))

    @property
    def checks(self) -> list[str]:
        return list(dict.fromkeys(cell.check for cell in self.cells))

    def cell(self, check: str, mode: str) -> Cell | None:
        """The cell of a check and a mode, the worst if there are several."""
        found = [c for c in self.cells if (c.check, c.mode) == (check, mode)]
        return min(found, key=lambda c: _WORST.index(c.status), default=None)

    def to_json(self) -> dict[str, Any]:
        """A dict of plain values; docs/checking.md has its schema."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "kind": self.kind,
            "what": self.what,
            "where": self.where,
            "seed": self.seed,
            "effort": self.effort,
            "passed": bool(self),
            "seconds": round(self.seconds, 3),
            "cells": [cell.to_json() for cell in self.cells],
        }

    # --- as text ---
    def __str__(self) -> str:
        rows = [["", *self.modes]]
        for check in self.checks:
            cells = [self.cell(check, mode) for mode in self.modes]
            rows.append([check, *(MARKS[c.status] if c else "" for c in cells)])
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([self.title, *lines, *self.notes()])

    @property
    def title(self) -> str:
        n = len(self.faults)
        verdict = f"wrong in {n} of {len(self.cells)} checks" if n else "right"
        return f"{self.name}: {verdict} (seed {self.seed}, {self.seconds:.1f} s)"

    def notes(self) -> list[str]:
        """A line for every cell that has something to say, equal ones together."""
        found: dict[tuple[str, str, str], list[Cell]] = {}
        for c in self.cells:
            if c.text:
                said = c.diagnosis.text if c.diagnosis else c.text
                found.setdefault((c.status, c.check, said), []).append(c)
        return [
            f"{MARKS[status]} {check}, {self._where(cells)}: {cells[0].text}"
            for (status, check, _), cells in found.items()
        ]

    def _where(self, cells: Sequence[Cell]) -> str:
        modes = list(dict.fromkeys(c.mode for c in cells))
        return "in every mode" if modes == self.modes and len(modes) > 1 else ", ".join(modes)

    def __rich__(self) -> Any:
        return _table(self)

    def failure(self) -> CheckFailure | None:
        """The error that says what is wrong, if anything is."""
        if not self.faults:
            return None
        first = self.faults[0]
        d = first.diagnosis
        assert d is not None, "a fault has its diagnosis"
        others = [f"also wrong, {c.check} in {c.mode}: {c.text}" for c in _others(self, first)]
        what = "\n  ".join([f"{self.name}: {first.text}", _seen_in(self, first), *others])
        failure = CheckFailure(what, d.instead, self.where)
        failure.report = self
        return failure


def _table(report: Report) -> Any:
    """One row for each check, one column for each mode; below it what the cells have to say."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, title_justify="left")
    shown.add_column("check")
    for mode in report.modes:
        shown.add_column(mode, justify="center")
    for check in report.checks:
        cells = [report.cell(check, mode) for mode in report.modes]
        marks = [Text(MARKS[c.status], STYLES[c.status]) if c else Text("") for c in cells]
        shown.add_row(check, *marks)
    title = Text(report.title, "bold green" if report else "bold red")
    notes = [Text(note, STYLES[_status(note)]) for note in report.notes()]
    used = dict.fromkeys(c.status for c in report.cells)
    key = Text("  ".join(f"{MARKS[s]} {WORDS[s]}" for s in MARKS if s in used), "dim")
    return Group(title, shown, *notes, key)


def _status(note: str) -> str:
    return next(status for status, mark in MARKS.items() if note.startswith(mark))


_WORST = ("fault", "kink", "ok", "refused", "skipped")


def _seen_in(report: Report, first: Cell) -> str:
    modes = dict.fromkeys(c.mode for c in report.faults if c.check == first.check)
    return f"seen in {', '.join(modes)} ({first.check}), seed {report.seed}"


def _others(report: Report, first: Cell, most: int = 3) -> Iterable[Cell]:
    """Faults of another kind than the first."""
    kinds = {first.diagnosis.kind} if first.diagnosis else set()
    for c in report.faults:
        if c.diagnosis and c.diagnosis.kind not in kinds and len(kinds) <= most:
            kinds.add(c.diagnosis.kind)
            yield c
