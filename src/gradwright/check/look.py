"""A report as a table with colours, and progress while a check takes longer than a second."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .report import MARKS, STYLES, WORDS, Report

PATIENCE = 1.0  # seconds before progress is shown


def table(report: Report) -> Any:
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


class Watch:
    """Told of every check; shows the latest, on a terminal, once it has taken a while."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0
        self.start = time.perf_counter()
        self.bars: Any = None
        self.is_silent = not sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        self.done += 1
        if self.is_silent or time.perf_counter() - self.start < PATIENCE:
            return
        if self.bars is None:
            self._begin()
        self.bars.update(0, completed=min(self.done, self.total), description=self.name, now=text)

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[now]}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self.bars.add_task(self.name, total=self.total, now="")
        self.bars.start()

    def end(self) -> None:
        if self.bars is not None:
            self.bars.stop()


@contextmanager
def watching(name: str, total: int) -> Iterator[Watch]:
    """Progress for as long as the block runs."""
    watch = Watch(name, total)
    try:
        yield watch
    finally:
        watch.end()
