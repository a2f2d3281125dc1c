"""What `gw.check` does: chooses what to check and where, and makes a report of it."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..compose import chain
from ..errors import GradwrightError, SignatureError
from ..op import Op
from ..rule import Rule
from ..rules import sgd
from . import frameworks, ops
from .diagnose import CURES
from .machines import MACHINES
from .progress import watching
from .report import Cell, Diagnosis, Report
from .subject import as_arrays, of_op

EFFORTS = ("quick", "normal", "thorough")
OWN = ("frameworks", "effort", "seed")  # keywords of gw.check itself


def report(
    f: Any,
    examples: Sequence[Any],
    options: Mapping[str, Any],
    names: Sequence[str] | None,
    effort: str,
    seed: int,
) -> Report:
    """Check an op or a rule; a fault is in the report, and not raised."""
    if effort not in EFFORTS:
        raise SignatureError(f"effort={effort!r}", f"one of {', '.join(EFFORTS)}")
    if isinstance(f, Rule):
        return of_a_rule(f, examples, options, names, effort, seed)
    if not isinstance(f, Op):
        raise SignatureError(
            f"gw.check of {getattr(f, '__name__', type(f).__name__)}, which is no op",
            "gw.check(gw.op(f), …), or gw.check_gradient(f, …, framework=…)",
        )
    start = time.perf_counter()
    what, where, cells = of_an_op(f, examples, options, frameworks.chosen(names), effort, seed)
    seconds = time.perf_counter() - start
    return Report(f.name, "op", what, where, seed, effort, tuple(cells), seconds)


def of_an_op(
    op: Op[Any],
    examples: Sequence[Any],
    options: Mapping[str, Any],
    names: Sequence[str],
    effort: str,
    seed: int,
) -> tuple[str, str, list[Cell]]:
    """What an op's derivative is called, where it stands, and all that was found of it."""
    if taken := set(OWN) & set(op.signature.options):
        raise SignatureError(
            f"{op.name} has an option {', '.join(sorted(taken))}, as gw.check itself has",
            "an op of the arrays alone: gw.check(gw.op(lambda x: f(x, seed=3)), x)",
        )
    examples = [as_arrays(x, op.name) for x in examples] or drawn(op, options, seed)
    op.signature.layout(examples, options)  # a wrong call of the op is no fault of the op
    try:
        subject = of_op(op, examples, options)
    except GradwrightError as error:
        return "op", error.where, [not_traced(error)]
    modes = [m for name in names for m in frameworks.modes(name, subject, effort)]
    total = len(ops.POINTS[effort]) * (5 * len(modes) + 1)
    with watching(f"checking {op.name}", total) as told:
        return subject.rule, subject.where, list(ops.run(subject, modes, effort, seed, told))


def of_a_rule(
    rule: Rule[Any],
    examples: Sequence[Any],
    options: Mapping[str, Any],
    names: Sequence[str] | None,
    effort: str,
    seed: int,
) -> Report:
    """Check the optimizers of a rule, or one of somebody's that should be the rule."""
    from . import rules

    if examples:
        raise SignatureError(
            f"gw.check({rule.name}, …) with examples", "keywords of the rule: parameters are drawn"
        )
    keywords = dict(options)
    optimizer = keywords.pop("optimizer", None)
    keywords = rules.keywords_of(rule, keywords)
    if rule.rewrites == "g":
        rule = chain(rule, sgd)
    if names is not None and (unknown := set(names) - set(MACHINES)):
        raise SignatureError(
            f"gw.check({rule.name}) in {', '.join(sorted(unknown))}: its optimizer there is not "
            "checked in this version",
            f"frameworks among {', '.join(MACHINES)}",
        )
    bound = names if names is None else [n for n in names if n != "keras"]
    chosen = [n for n in frameworks.chosen(bound) if n in MACHINES]
    if "keras" in (sys.modules if names is None else names):
        chosen.append("keras")
    start = time.perf_counter()
    with watching(f"checking {rule.name}", len(rules.CHECKS) * len(chosen)) as told:
        found = rules.run(rule, chosen, optimizer, keywords, effort, seed, told)
        cells = tuple(found)
    seconds = time.perf_counter() - start
    where = rule.equations[0].where
    return Report(rule.name, "rule", "rule", where, seed, effort, cells, seconds)


def not_traced(error: GradwrightError) -> Cell:
    """The cell of an op that cannot be used at all."""
    d = Diagnosis("error", error.what, error.instead or CURES["error"])
    return Cell("values", "numpy", "numpy", "fault", error.what, d)


# --- examples for who gives none ---------------------------------------------------------------
_SHAPES: tuple[tuple[int, ...], ...] = ((5,), (3, 3), ())
_INTERVALS = ((-2.0, 2.0), (0.1, 2.0), (-0.9, 0.9), (1.1, 3.0))


def drawn(op: Op[Any], options: Mapping[str, Any], seed: int) -> list[Any]:
    """Arguments that the op's function takes: random vectors, else matrices, else numbers."""
    rng = np.random.default_rng(seed)
    parameters = op.signature.python.parameters
    count = sum(parameters[n].default is parameters[n].empty for n in op.signature.arrays)
    error: Exception | None = None
    for shape in _SHAPES:
        for low, high in _INTERVALS:
            xs = [rng.uniform(low, high, shape) for _ in range(count)]
            try:
                if _is_mostly_finite(op.reference, xs, options):
                    return xs
            except Exception as raised:  # whatever the user's function says of such arguments
                error = error or raised
    raise SignatureError(
        f"no example of {op.name} was given, and random vectors and matrices do not suit it"
        + (f": {error}" if error else ""),
        f"gw.check({op.name}, {', '.join(op.signature.arrays)}) with arrays of yours",
    )


def _is_mostly_finite(
    function: Callable[..., Any], xs: Sequence[Any], options: Mapping[str, Any]
) -> bool:
    from .. import tree

    with np.errstate(all="ignore"):
        outs = tree.flatten(function(*xs, **options))[0]
    return all(np.mean(np.isfinite(np.asarray(out, np.float64))) > 0.5 for out in outs)
