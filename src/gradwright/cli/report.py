"""What the demo prints: the equation, progress, a table, JSON; plain text where it is piped."""

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..rule import Rule
from .data import Data
from .train import Plan, Run, Told


def console(quiet: bool = False) -> Any:
    """The terminal, or a pipe, which gets long lines whole and no colours."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 120
    return Console(quiet=quiet, highlight=False, width=wide, soft_wrap=True)


def equation(rule: Rule[Any]) -> str:
    return rule.explain()


def tell(text: str) -> None:
    """A warning or an error, beside what the command prints."""
    print(text, file=sys.stderr)


# --- progress ----------------------------------------------------------------------------------
_NUMBERS = "loss {task.fields[loss]:.3f}  accuracy {task.fields[accuracy]:.3f}"


@contextmanager
def training(screen: Any, labels: Sequence[str], steps: int) -> Iterator[Callable[[int], Told]]:
    """Progress of each rule's training: bars that move, or a few lines where it is piped."""
    if not screen.is_terminal:
        yield lambda k: _lines(screen, labels[k], steps)
        return
    with _bars(
        screen, "loss {task.fields[loss]:.3f}  accuracy {task.fields[accuracy]:.3f}"
    ) as bars:
        tasks = [
            bars.add_task(label, total=steps, loss=0.0, accuracy=0.0, start=False)
            for label in labels
        ]

        def of(k: int) -> Told:
            bars.start_task(tasks[k])
            return lambda step, loss, accuracy: bars.update(
                tasks[k], completed=step, loss=loss, accuracy=accuracy
            )

        yield of


def _bars(screen: Any, numbers: str) -> Any:
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    class Label(TextColumn):
        def render(self, task: Any) -> Any:
            task.description = escape(task.description)
            return super().render(task)

    return Progress(
        Label("{task.description}", table_column=Column(max_width=30, overflow="fold")),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn(numbers),
        console=screen,
    )


def _lines(screen: Any, label: str, steps: int) -> Told:
    shown = 0

    def told(step: int, loss: float, accuracy: float) -> None:
        nonlocal shown
        if step * 5 // steps > shown:
            shown = step * 5 // steps
            line = f"{label}  step {step}/{steps}  loss {loss:.4f}  accuracy {accuracy:.4f}"
            screen.print(line, markup=False)

    return told


@contextmanager
def download(screen: Any) -> Iterator[Callable[[int, int], None]]:
    """Progress of a download; nothing is shown before its first bytes, or where it is piped."""
    if not screen.is_terminal:
        yield lambda done, total: None
        return
    with _bars(screen, "bytes") as bars:
        tasks: list[Any] = []

        def told(done: int, total: int) -> None:
            tasks[:] = tasks or [bars.add_task("downloading MNIST")]
            bars.update(tasks[0], completed=done, total=total or None)

        yield told


# --- results -----------------------------------------------------------------------------------
def table(screen: Any, runs: Sequence[Run]) -> None:
    """One line for each rule, the best accuracy marked."""
    shown = columns(screen, "rule", "accuracy", "loss", "weights", "seconds")
    best = max(run.accuracy for run in runs)
    for run in runs:
        style = "bold" if run.accuracy == best else None
        shown.add_row(*_cells(run), style=style)
    screen.print(shown)


def columns(screen: Any, first: str, *numbers: str) -> Any:
    """A table without lines yet: a name, and numbers."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD if screen.is_terminal else box.ASCII)
    shown.add_column(first, overflow="fold")
    for name in numbers:
        shown.add_column(name, justify="right", no_wrap=True)
    return shown


def _cells(run: Run) -> list[str]:
    from rich.markup import escape

    low, high = (_truncated(float(x)) for x in (run.weights.min(), run.weights.max()))
    return [
        escape(run.chosen.label),
        f"{run.accuracy:.4f}",
        f"{run.last_loss:.4f}",
        f"{low:.3f} … {high:.3f}",
        f"{run.seconds:.2f}",
    ]


def _truncated(x: float) -> float:
    """Three digits, not rounded: 19.9999 is below 20."""
    return math.trunc(x * 1000) / 1000


def reason(runs: Sequence[Run]) -> str | None:
    """Why a domain that begins at 0 does worse, where one was compared and did."""
    best = max(run.accuracy for run in runs)
    for run in runs:
        if run.domain and run.domain[0] == 0 and run.accuracy < best:
            return (
                f"{run.chosen.label} does worse because its weights start at the end of their "
                f"domain: one just below 0 becomes {run.domain[1]:g}, and the model is not "
                "periodic in its weights. Centre the domain where the weights are."
            )
    return None


def as_json(data: Data, plan: Plan, runs: Sequence[Run], picture: str | None) -> str:
    """All numbers of the demo."""
    return json.dumps(as_dict(data, plan, runs, picture), indent=2)


def as_dict(data: Data, plan: Plan, runs: Sequence[Run], picture: str | None) -> dict[str, Any]:
    return {
        "data": {"name": data.name, "train": len(data.x), "test": len(data.x_test)},
        "framework": plan.framework,
        "steps": plan.steps,
        "batch": plan.batch,
        "seed": plan.seed,
        "runs": [_run_as_dict(run) for run in runs],
        "reason": reason(runs),
        "picture": picture,
    }


def _run_as_dict(run: Run) -> dict[str, Any]:
    return {
        "rule": run.chosen.label,
        "equation": equation(run.chosen.found),
        "hyperparams": {k: _plain(v) for k, v in run.chosen.found.hyperparams.items()},
        "test_accuracy": run.accuracy,
        "last_loss": run.last_loss,
        "seconds": run.seconds,
        "step_seconds": statistics.median(run.durations),
        "weights": {"min": float(run.weights.min()), "max": float(run.weights.max())},
        "domain": run.domain,
        "history": {"loss": run.losses, "step": run.steps, "accuracy": run.accuracies},
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
