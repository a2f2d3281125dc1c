"""``gradwright show`` and ``gradwright primitives``: what a rule, an op, the table are."""

import json
from importlib.util import find_spec
from typing import Any

from .. import targets
from ..adjoint import has_derivative
from ..errors import GradwrightError
from ..op import Op
from ..primitives import PRIMITIVES, Primitive
from ..rule import Rule
from . import report
from .choose import choose
from .stop import WrongUsage, showing_lines_of


def show(name: str, target: str) -> None:
    """Print a rule's or an op's equation, graph and source."""
    _check_target(target)
    chosen, screen = choose(name), report.console()
    with showing_lines_of(chosen.file):
        parts = {
            "equation": chosen.found.explain(),
            "graph": str(_graph(chosen.found)),
            f"source for {target}": chosen.found.source(target),
        }
    for title, text in parts.items():
        _section(screen, title, text)


def _graph(found: Rule[Any] | Op[Any]) -> Any:
    return _rules_graph(found) if isinstance(found, Rule) else found.example().function.primal


def _rules_graph(rule: Rule[Any]) -> Any:
    """For a vector, or for a matrix where the rule is one for matrices only."""
    try:
        return rule.example_plan(1).graph
    except (GradwrightError, ValueError):
        return rule.example_plan(2).graph


def _section(screen: Any, title: str, text: str) -> None:
    screen.print(f"── {title} ──", style="bold cyan", markup=False)
    if title.startswith("source") and screen.is_terminal:
        from rich.syntax import Syntax

        screen.print(Syntax(text, "python", background_color="default"))
    else:
        screen.print(text.rstrip(), markup=False)
    screen.print()


def _check_target(target: str) -> None:
    if target not in targets.SHOWN:
        raise WrongUsage(f"no target {target!r}; one of {', '.join(targets.SHOWN)}")
    if not _is_installed(target):
        raise WrongUsage(f"{target} is not installed; pip install 'gradwright[{target}]'")


def _is_installed(target: str) -> bool:
    return find_spec("llvmlite" if target == "fused" else target) is not None


# --- the table ---------------------------------------------------------------------------------
def primitives(as_json: bool) -> None:
    """Print the table: kind, derivative, and the targets that compute each."""
    rows = [row(p, _unsupported()) for p in PRIMITIVES.values()]
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        _print_table(rows)


def _unsupported() -> dict[str, Any]:
    """For every target, what it cannot compute; `None` if its framework is not installed."""
    return {t: _refused_by(t) if _is_installed(t) else None for t in targets.BOUND}


def _refused_by(target: str) -> Any:
    return targets.spelling(target).unsupported


def row(primitive: Primitive, unsupported: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": primitive.name,
        "kind": primitive.kind,
        "derivative": _is_smooth(primitive),
        "targets": {t: u if u is None else primitive.name not in u for t, u in unsupported.items()},
    }


def _is_smooth(primitive: Primitive) -> bool:
    unknown = primitive.kind == "elementwise" and primitive.partials is None
    return has_derivative(primitive.name) and not unknown


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    screen = report.console()
    shown = Table(box=box.SIMPLE_HEAD if screen.is_terminal else box.ASCII)
    for name in ("name", "kind", "derivative", *targets.BOUND):
        shown.add_column(name)
    for r in rows:
        cells = [_WORD[supported] for supported in r["targets"].values()]
        shown.add_row(r["name"], r["kind"], _WORD[r["derivative"]], *cells)
    screen.print(shown)


_WORD = {True: "yes", False: "no", None: "not installed"}
