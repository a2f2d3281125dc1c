"""Progress, while a check takes longer than a second."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 1.0  # seconds before progress is shown


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
