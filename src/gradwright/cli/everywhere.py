"""``gradwright demo --framework all``: one rule in each framework, its weights beside NumPy's."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import model, report
from .choose import Chosen
from .data import Data
from .stop import showing_lines_of
from .train import Plan, Run, apart, train

ALL = "all"


def train_all(screen: Any, data: Data, chosen: Chosen, plan: Plan) -> list[Run]:
    """The same model, rule, batches and seed in every framework that is installed, NumPy first."""
    names = [name for name in model.FRAMEWORKS if model.missing(name) is None]
    with report.training(screen, names, plan.steps) as told, showing_lines_of(chosen.file):
        return [
            train(data, chosen, replace(plan, framework=name), told(k), name)
            for k, name in enumerate(names)
        ]


def missing() -> dict[str, str]:
    """The frameworks that are left out, and the package that each would need."""
    return {name: package for name in model.FRAMEWORKS if (package := model.missing(name))}


# --- results -----------------------------------------------------------------------------------
def table(screen: Any, runs: Sequence[Run], missing: Mapping[str, str]) -> None:
    """One line for each framework."""
    shown = report.columns(screen, "framework", "accuracy", "loss", "max |Δw|", "ms a step")
    for run in runs:
        shown.add_row(*_cells(run, runs[0]))
    for name, package in missing.items():
        shown.add_row(f"{name}: {package} is not installed")
    screen.print(shown)


def _cells(run: Run, reference: Run) -> list[str]:
    return [
        run.name,
        f"{run.accuracy:.4f}",
        f"{run.last_loss:.4f}",
        f"{apart(run, reference)[-1]:.1e}",
        f"{statistics.median(run.durations) * 1e3:.2f}",
    ]


def as_json(
    data: Data, plan: Plan, runs: Sequence[Run], missing: Mapping[str, str], picture: str | None
) -> str:
    """All numbers, those of the demo in one framework among them."""
    found = report.as_dict(data, plan, runs, picture)
    for run, numbers in zip(runs, found["runs"], strict=True):
        numbers["framework"] = run.name
        numbers["distance"] = apart(run, runs[0])
    return json.dumps(found | {"missing": missing}, indent=2)
