"""``gradwright check``: the ops and rules of a file, in every framework that is installed."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..check import main
from ..check.frameworks import installed
from ..check.machines import MACHINES
from ..check.report import SCHEMA, Report
from ..errors import SignatureError
from ..op import Op
from . import report as terminal
from .choose import Chosen, choose_all
from .stop import WrongUsage, showing_lines_of


def check(
    name: str,
    frameworks: Sequence[str] | None,
    shapes: Sequence[str],
    effort: str,
    seed: int,
    as_json: bool,
) -> bool:
    """Check what a name stands for, print what was found, and say whether all is right."""
    chosen = choose_all(name)
    rng, screen = np.random.default_rng(seed), terminal.console(quiet=as_json)
    xs = [rng.uniform(-2, 2, _sizes(text)) for text in shapes]
    reports = []
    for c in chosen:
        given = xs if isinstance(c.found, Op) else []
        found = _report(c, given, frameworks or _all_for(c.found), effort, seed)
        reports.append(found)
        _print(screen, found)
    if as_json:
        passed = all(map(bool, reports))
        found_all = {"schema": SCHEMA, "passed": passed, "reports": [r.to_json() for r in reports]}
        print(json.dumps(found_all, indent=2))
    return all(map(bool, reports))


def _all_for(found: Any) -> list[str]:
    """The frameworks that are installed; of a rule, those whose optimizers are checked."""
    return [n for n in installed() if isinstance(found, Op) or n in MACHINES]


def _report(
    c: Chosen, xs: Sequence[Any], frameworks: Sequence[str], effort: str, seed: int
) -> Report:
    try:
        with showing_lines_of(c.file):
            return main.report(c.found, xs, {}, frameworks, effort, seed)
    except Exception as error:
        cause = error.__cause__
        if isinstance(cause, SignatureError):  # of the command, not of what is checked
            raise WrongUsage(f"{c.label}: {cause.what}; instead: {cause.instead}") from None
        raise


def _print(screen: Any, found: Report) -> None:
    screen.print(found if screen.is_terminal else str(found), markup=False)
    if (failure := found.failure()) is not None:
        screen.print(f"\n{failure}\n", markup=False)


def _sizes(text: str) -> tuple[int, ...]:
    """``3,4`` as a shape; nothing is a number."""
    try:
        return tuple(int(n) for n in text.split(",") if n.strip())
    except ValueError:
        raise WrongUsage(f"--shape {text}: sizes with commas, as in 3,4") from None
