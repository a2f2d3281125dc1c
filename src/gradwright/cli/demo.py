"""``gradwright demo``: train a model with one rule, or compare several."""

from collections.abc import Sequence
from typing import Any

from . import curves, data, everywhere, model, report
from .choose import Chosen, choose_rules
from .data import Data
from .stop import WrongUsage, showing_lines_of
from .train import Plan, Run, train

ONE = "compact_sgd(lr=0.5, noise=0.001)"
# The compact rule centred, as it was first written, and the rule that knows no domain.
COMPARED = (ONE, "compact_sgd(lr=0.5, noise=0.001, low=0, high=20)", "sgd(lr=0.5)")


def demo(
    name: str, rules: Sequence[str], pairs: Sequence[str], plan: Plan, out: str, as_json: bool
) -> None:
    """Train, print, draw."""
    _check_frameworks(plan, rules)
    chosen = choose_rules(rules, pairs, plan.seed)
    _check_picture(out)
    screen = report.console(quiet=as_json)
    with report.download(screen) as told:
        loaded = data.load(name, told)
    _print_equations(screen, loaded, chosen)
    if plan.framework == everywhere.ALL:
        text = _everywhere(screen, loaded, chosen[0], plan, out)
    else:
        text = _in_one(screen, loaded, chosen, plan, out)
    if as_json:
        print(text)


def _check_frameworks(plan: Plan, rules: Sequence[str]) -> None:
    if plan.framework != everywhere.ALL:
        model.check_installed(plan.framework)
    elif len(rules) > 1:
        raise WrongUsage("--framework all is for one rule, --compare for one framework")


def _in_one(screen: Any, loaded: Data, chosen: Sequence[Chosen], plan: Plan, out: str) -> str:
    """Train in one framework, and return all numbers as JSON."""
    runs = _train_all(screen, loaded, chosen, plan)
    picture = _picture(loaded, runs, out)
    _print_results(screen, runs, picture)
    return report.as_json(loaded, plan, runs, picture)


def _everywhere(screen: Any, loaded: Data, chosen: Chosen, plan: Plan, out: str) -> str:
    """Train in each framework, and return all numbers as JSON."""
    runs, missing = everywhere.train_all(screen, loaded, chosen, plan), everywhere.missing()
    picture = _picture(loaded, runs, out, curves.distances)
    everywhere.table(screen, runs, missing)
    _say_where(screen, picture)
    return everywhere.as_json(loaded, plan, runs, missing, picture)


def _print_equations(screen: Any, loaded: Data, chosen: Sequence[Chosen]) -> None:
    for c in chosen:
        with showing_lines_of(c.file):
            screen.print(report.equation(c.found), markup=False)
        screen.print()
    screen.print(str(loaded), markup=False)


def _train_all(screen: Any, loaded: Data, chosen: Sequence[Chosen], plan: Plan) -> list[Run]:
    runs = []
    with report.training(screen, [c.label for c in chosen], plan.steps) as told:
        for k, c in enumerate(chosen):
            with showing_lines_of(c.file):
                runs.append(train(loaded, c, plan, told(k)))
    return runs


def _check_picture(out: str) -> None:
    """Say before the training that there is no picture after it."""
    ending = out.rpartition(".")[2].lower()
    if ending not in ("png", "svg", "pdf"):
        raise WrongUsage(f"--out {out}: a picture is a .png, .svg or .pdf file")
    if not curves.can_draw():
        report.tell("no picture: matplotlib is not installed; pip install 'gradwright[demo]'")


def _picture(
    loaded: Data, runs: Sequence[Run], out: str, third: curves.Panel = curves.weights
) -> str | None:
    if not curves.can_draw():
        return None
    curves.draw(loaded, runs, out, third)
    return out


def _print_results(screen: Any, runs: Sequence[Run], picture: str | None) -> None:
    if len(runs) > 1:
        report.table(screen, runs)
    else:
        screen.print(f"test accuracy {runs[0].accuracy:.4f} in {runs[0].seconds:.2f} s")
    if text := report.reason(runs):
        screen.print(text, markup=False)
    _say_where(screen, picture)


def _say_where(screen: Any, picture: str | None) -> None:
    if picture:
        screen.print(f"curves in {picture}", markup=False)
