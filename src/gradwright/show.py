"""What an op and a rule show of themselves: their equations, what they read and keep."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from . import targets
from .equation import Required, initial
from .errors import GradwrightError
from .formula import Formula
from .function import Function
from .notation import LATEX, TEXT, Notation
from .plan import Plan
from .rule import Rule


def _plan(rule: Rule[Any], rank: int) -> Plan | None:
    """The rule's plan for a rank, or `None` for a rank that it refuses."""
    try:
        return rule.example_plan(rank)
    except (GradwrightError, ValueError):
        return None


def _rule_lines(rule: Rule[Any], rank: int, notation: Notation) -> list[str]:
    plain: Rule[Any] = Rule([replace(e, domain=None) for e in rule.equations])
    plan = _plan(plain, rank)  # without the correction into the domain
    if plan is None:
        return []
    graph = plan.graph
    names = [rule.rewrites, *(s.replace(".", "_") for s in [*rule.own_slots, *rule.shared_slots])]
    outputs = list(zip(names, graph.outputs, strict=True))
    # slots whose new value the update reads come first, as they are written in the rule
    first, rest = outputs[0], outputs[1:]
    reads = set(graph.live([first[1]]))
    before = [o for o in rest if o[1] in reads and graph.nodes[o[1]].args]
    after = [o for o in rest if o not in before]
    return Formula(graph, notation, [*before, first, *after]).assignments()


def rule_lines(rule: Rule[Any], notation: Notation = TEXT) -> list[str]:
    """The rule's equations; where they differ by rank, for vectors and for matrices."""
    vector, matrix = (_rule_lines(rule, rank, notation) for rank in (1, 2))
    if not vector or not matrix or vector == matrix:
        return vector or matrix
    return ["for vectors:", *vector, "for matrices:", *matrix]


def explain_rule(rule: Rule[Any]) -> str:
    """A rule as text: equations, domain, slots, hyperparameters, bytes."""
    hypers = [f"{k}={_plain(v)}" for k, v in rule.hyperparams.items()]
    if rule.seed is not None:
        hypers.append("rng=" + ("<seed>" if isinstance(rule.seed, Required) else str(rule.seed)))
    domains = [e.domain.text for e in rule.equations if e.domain is not None]
    slots = [f"{s} (starts at {_plain(rule.initial(s))})" for s in rule.slots]
    draws = _draws(rule)
    rows = [
        ("draws", f"{draws}: new for every element and step") if draws else None,
        ("domain", ", ".join(domains)) if domains else None,
        ("slots", ", ".join(slots) or "none"),
        ("keywords", ", ".join(hypers) or "none"),
        ("bytes", _bytes_text(rule)),
    ]
    body = [f"  {name:<9} {text}" for name, text in filter(None, rows)]
    return "\n".join([rule.name, *(f"  {line}" for line in rule_lines(rule)), *body])


_DRAWN = {"ε": "ε is normal", "u": "u is uniform", "bits": "bits are 32 random ones"}


def _draws(rule: Rule[Any]) -> str:
    """What the signs of a rule's random numbers mean."""
    plan = None if rule.seed is None else _plan(rule, 1) or _plan(rule, 2)
    if plan is None:
        return ""
    symbols = plan.graph.symbols.values()
    drawn = [
        text
        for sign, text in _DRAWN.items()
        if any(name.rstrip("0123456789") == sign for name in symbols)
    ]
    return ", ".join(drawn)


def _plain(value: Any) -> str:
    if callable(value) and hasattr(value, "__name__"):
        return "f(w)"
    initial_value = getattr(value, "initial", None)
    return f"{initial_value} for all" if initial_value is not None else f"{value!r}"


def bytes_per_step(rule: Rule[Any]) -> tuple[int, int]:
    """Bytes read and written per float32 element and step: w, g and slots in, w and slots out."""
    w = np.zeros((8, 8), np.float32)
    slots = sum(initial(rule.initial(s), w).nbytes for s in rule.own_slots) // w.size
    reads = sum(w.itemsize for name in ("w", "g") if any(name in e.takes for e in rule.equations))
    return reads + slots, w.itemsize + slots


def _bytes_text(rule: Rule[Any]) -> str:
    read, written = bytes_per_step(rule)
    return f"{read + written} per float32 element and step: {read} read, {written} written"


def latex_rule(rule: Rule[Any]) -> str:
    """A rule's equations in LaTeX, aligned."""
    lines = rule_lines(rule, LATEX)
    arrow = LATEX.gets
    aligned = [
        rf"\text{{{line}}}"
        if line.startswith("for ")
        else re.sub(rf" ({re.escape(arrow)}|=) ", r" &\1 ", line, count=1)
        for line in lines
    ]
    return r"\begin{aligned} " + r" \\ ".join(aligned) + r" \end{aligned}"


def rule_source(rule: Rule[Any], target: str) -> str:
    """The parts of a rule as source of one target: numbers, phases, the update."""
    printed = targets.printer(target)
    beside = targets.printer("numpy") if target == "fused" else printed
    plan = _plan(rule, 1) or rule.example_plan(2)
    several = len(plan.stages) > 1
    texts = []
    for k, stage in enumerate(plan.stages):
        mark = str(k + 1) if several else ""
        texts.append(beside(stage.numbers, f"numbers{mark}"))
        if stage.phase is not None:
            texts.append(beside(stage.phase, f"phase{mark}"))
    return "\n".join([*texts, printed(plan.final, f"{rule.name}_update")])


def _op_lines(function: Function, notation: Notation) -> list[str]:
    graph = function.primal
    arguments = ", ".join(notation.name(n) for n in graph.names)
    names = ["out"] if len(graph.outputs) == 1 else [f"out{k}" for k in range(len(graph.outputs))]
    equals = replace(notation, gets="=")
    lines = Formula(graph, equals, list(zip(names, graph.outputs, strict=True))).assignments()
    if len(names) == 1:
        lines[-1] = f"{notation.name(function.name)}({arguments})" + lines[-1].removeprefix(
            notation.name("out")
        )
    return lines


def _derivative_lines(function: Function, notation: Notation) -> list[str]:
    graph = function.vjp.primal
    names = [f"∂{function.primal.names[k]}" for k in function.wrt]
    return Formula(
        graph, replace(notation, gets="="), list(zip(names, graph.outputs, strict=True))
    ).assignments()


def explain_op(op: Any) -> str:
    """An op as text: its equation, and the reverse rule, where g is the cotangent of the result."""
    function = op.example().function
    lines = [op.name, *(f"  {line}" for line in _op_lines(function, TEXT))]
    if not function.wrt:
        return "\n".join([*lines, "  no derivative"])
    own = f"its own {function.own.kind}" if function.own else "derived"
    back = [f"    {line}" for line in _derivative_lines(function, TEXT)]
    return "\n".join([*lines, f"  derivative ({own})", *back])


def latex_op(op: Any) -> str:
    """An op's equation in LaTeX."""
    lines = _op_lines(op.example().function, LATEX)
    if len(lines) == 1:
        return lines[0]
    aligned = [line.replace(" = ", " &= ", 1) for line in lines]
    return r"\begin{aligned} " + r" \\ ".join(aligned) + r" \end{aligned}"
