"""Show a graph as the equation it is: for a terminal, and in LaTeX."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from . import dims, targets
from .equation import Required, initial
from .errors import GradwrightError
from .function import Function
from .graph import Frozen, Graph, Node
from .plan import Plan
from .rule import Rule

_HIDDEN = (
    "astype unbroadcast broadcast_to variable expand_dims squeeze positive record stop_gradient"
).split()


class _Term(NamedTuple):
    """A piece of a formula and how tightly it binds; 10 is an atom."""

    text: str
    binds: int = 10


@dataclass(frozen=True)
class Notation:
    """How formulas are written: templates, and what each part must bind at least to need no
    parentheses. ``"{0} + {1}": (5, 5, 5)`` binds like a sum itself."""

    forms: Mapping[str, tuple[str, int, tuple[int, ...]]]
    call: str
    parentheses: str
    name: Callable[[str], str]
    number: Callable[[str], str]
    gets: str


def _infix(symbol: str, binds: int, right: int | None = None) -> tuple[str, int, tuple[int, ...]]:
    return f"{{0}} {symbol} {{1}}", binds, (binds, binds + 1 if right is None else right)


_COMPARISONS = {
    "equal": "=",
    "not_equal": "≠",
    "less": "<",
    "less_equal": "≤",
    "greater": ">",
    "greater_equal": "≥",
    "bitwise_and": "and",
    "logical_and": "and",
    "bitwise_or": "or",
    "logical_or": "or",
}

TEXT = Notation(
    forms={
        **{name: _infix(sign, 1) for name, sign in _COMPARISONS.items()},
        "add": _infix("+", 5, 5),
        "subtract": _infix("−", 5),
        "multiply": ("{0}·{1}", 6, (6, 6)),
        "divide": _infix("/", 6),
        "remainder": ("{0} mod {1}", 6, (7, 7)),
        "floor_divide": ("⌊{0} / {1}⌋", 10, (6, 7)),
        "matmul": _infix("@", 6),
        "power": ("{0}^{1}", 8, (9, 8)),
        "square": ("{0}²", 8, (9,)),
        "negative": ("−{0}", 5, (6,)),
        "sqrt": ("√{0}", 7, (9,)),
        "absolute": ("|{0}|", 10, (0,)),
        "sum": ("Σ({0})", 10, (0,)),
        "global_sum": ("Σₐₗₗ({0})", 10, (0,)),
        "minimum": ("min({0}, {1})", 10, (0, 0)),
        "maximum": ("max({0}, {1})", 10, (0, 0)),
        "where": ("({1} if {0} else {2})", 10, (0, 0, 0)),
        "transpose": ("{0}ᵀ", 9, (9,)),
        "floor": ("⌊{0}⌋", 10, (0,)),
    },
    call="{name}({args})",
    parentheses="({0})",
    name=lambda name: name,
    number=lambda text: text.replace("-", "−"),
    gets="←",
)

_GREEK = ("alpha beta gamma delta eps epsilon eta theta lambda mu nu rho sigma tau phi").split()


def _latex_name(name: str) -> str:
    """``b1`` as b_1, ``mu`` as a Greek letter, ``weight_decay`` upright."""
    # The pattern matches every string.
    letters, digits = re.fullmatch(r"(.*?)(\d*)", name).groups()  # type: ignore[union-attr]
    letters = {"ε": r"\varepsilon", "eps": r"\epsilon"}.get(letters, letters)
    if letters in _GREEK:
        letters = f"\\{letters}"
    elif len(letters) > 1 and not letters.startswith("\\"):
        letters = r"\mathrm{" + letters.replace("_", r"\_") + "}"
    return f"{letters}_{{{digits}}}" if digits else letters


_LATEX_SIGNS = {"≠": r"\neq", "≤": r"\leq", "≥": r"\geq", "and": r"\wedge", "or": r"\vee"}

LATEX = Notation(
    forms={
        **{name: _infix(_LATEX_SIGNS.get(s, s), 1) for name, s in _COMPARISONS.items()},
        "add": _infix("+", 5, 5),
        "subtract": _infix("-", 5),
        "multiply": (r"{0} \, {1}", 6, (6, 6)),
        "divide": (r"\frac{{{0}}}{{{1}}}", 9, (0, 0)),
        "remainder": (r"{0} \bmod {1}", 6, (7, 7)),
        "floor_divide": (r"\left\lfloor \frac{{{0}}}{{{1}}} \right\rfloor", 10, (0, 0)),
        "matmul": (r"{0} \, {1}", 6, (6, 7)),
        "power": ("{0}^{{{1}}}", 8, (10, 0)),
        "square": ("{0}^{{2}}", 8, (10,)),
        "negative": ("-{0}", 5, (6,)),
        "sqrt": (r"\sqrt{{{0}}}", 10, (0,)),
        "absolute": (r"\left| {0} \right|", 10, (0,)),
        "sum": (r"\sum {0}", 6, (7,)),
        "global_sum": (r"\sum_{{\mathrm{{all}}}} {0}", 6, (7,)),
        "minimum": (r"\min({0}, {1})", 10, (0, 0)),
        "maximum": (r"\max({0}, {1})", 10, (0, 0)),
        "where": (r"\begin{{cases}} {1} & {0} \\ {2} & \text{{else}} \end{{cases}}", 10, (0, 0, 0)),
        "transpose": (r"{0}^{{\top}}", 9, (9,)),
        "floor": (r"\lfloor {0} \rfloor", 10, (0,)),
    },
    call=r"\mathrm{{{name}}}({args})",
    parentheses=r"\left({0}\right)",
    name=_latex_name,
    number=lambda text: text,
    gets=r"\leftarrow",
)

_LONG = 14  # a longer expression that is used twice gets a letter


class _Formula:
    """The lines of a graph's formula: one for each output, and for what is used twice."""

    def __init__(
        self, graph: Graph, notation: Notation, outputs: Sequence[tuple[str, int]]
    ) -> None:
        self.graph, self.notation = graph, notation
        self.outputs = [(name, self.seen(i)) for name, i in outputs]
        live = graph.live([i for _, i in outputs])
        self.uses = Counter(self.seen(a) for i in live for a in self.args(i))
        self.letters: dict[int, str] = {}
        self.lines: list[str] = []

    def seen(self, i: int) -> int:
        """The node that a reader sees: casts and broadcasts are not written."""
        node = self.graph.nodes[i]
        return (
            self.seen(node.args[0]) if node.prim in _HIDDEN and i not in self.graph.symbols else i
        )

    def args(self, i: int) -> tuple[int, ...]:
        hidden = i in self.graph.symbols or self.seen(i) != i
        return () if hidden else self.graph.nodes[i].args

    def term(self, i: int) -> _Term:
        i = self.seen(i)
        if i in self.graph.symbols:
            return _Term(self.notation.name(self.graph.symbols[i]))
        if i in self.letters:
            return _Term(self.notation.name(self.letters[i]))
        node = self.graph.nodes[i]
        if node.prim == "input":
            return _Term(self.notation.name(self.graph.names[node["k"]]))
        if node.prim == "const":
            return self.constant(node)
        found = self.applied(node, i)
        if self.uses[i] > 1 and len(found.text) > _LONG:
            self.letters[i] = self.fresh()
            self.lines.append(f"{self.notation.name(self.letters[i])} = {found.text}")
            return _Term(self.notation.name(self.letters[i]))
        return found

    def constant(self, node: Node) -> _Term:
        value = node["value"]
        if isinstance(value, Frozen):
            return _Term(f"array{value.array.shape}")
        text = f"{value:g}" if isinstance(value, float) else str(value)
        return _Term(self.notation.number(text), 5 if text.startswith("-") else 10)

    def applied(self, node: Node, i: int) -> _Term:
        if node.prim == "global_sum":  # the sum within a parameter is part of it
            inner = self.graph.nodes[self.seen(node.args[0])]
            node = replace(node, args=inner.args) if inner.prim == "sum" else node
        if node.prim == "size":
            return _Term(dims.text(node["dim"], self.graph.size_text), 9)
        terms = [self.term(a) for a in node.args]
        if node.prim == "add" and terms[1].binds == 5 and terms[1].text.startswith(("−", "-")):
            return _Term(f"{terms[0].text} {terms[1].text[0]} {terms[1].text[1:].lstrip()}", 5)
        if node.prim in self.notation.forms:
            form, binds, needs = self.notation.forms[node.prim]
            parts = [
                t.text if t.binds >= need else self.notation.parentheses.format(t.text)
                for t, need in zip(terms, needs, strict=True)
            ]
            return _Term(form.format(*parts), binds)
        if node.prim == "item":
            call = self.graph.nodes[node.args[0]]
            name = "host" if call.prim == "host" else call["function"].name
            return self.called(name, [self.term(a) for a in call.args])
        return self.called(node.prim, terms)

    def called(self, name: str, terms: Sequence[_Term]) -> _Term:
        name = name if self.notation is TEXT else name.replace("_", r"\_")
        return _Term(self.notation.call.format(name=name, args=", ".join(t.text for t in terms)))

    def fresh(self) -> str:
        taken = {*self.graph.names, *self.letters.values(), *(name for name, _ in self.outputs)}
        return next(c for c in "abcdefhijklnopqrstuxyz" if c not in taken)

    def assignments(self) -> list[str]:
        """The lines in an order in which each may be read one after the other."""
        for name, i in self.outputs:
            node = self.graph.nodes[i]
            same = node.prim == "input" and self.graph.names[node["k"]] == name
            if not same:
                found = self.term(i)
                self.lines.append(f"{self.notation.name(name)} {self.notation.gets} {found.text}")
            if not same and node.prim not in ("input", "const") and self.free_after(name, i):
                self.letters[i] = name
        return self.lines

    def free_after(self, name: str, i: int) -> bool:
        """Whether the old value of a slot is no more read once it has its new one."""
        later = [j for n, j in self.outputs[self.index(name) + 1 :]]
        old = {j for j, k in zip(self.graph.inputs, self.graph.names, strict=True) if k == name}
        return not any(self.reaches(j, old, stop=i) for j in later)

    def index(self, name: str) -> int:
        return [n for n, _ in self.outputs].index(name)

    def reaches(self, i: int, goal: set[int], stop: int) -> bool:
        i = self.seen(i)
        if i == stop or i in self.letters:
            return False
        return i in goal or any(self.reaches(a, goal, stop) for a in self.args(i))


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
    return _Formula(graph, notation, [*before, first, *after]).assignments()


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
    lines = _Formula(graph, equals, list(zip(names, graph.outputs, strict=True))).assignments()
    if len(names) == 1:
        lines[-1] = f"{notation.name(function.name)}({arguments})" + lines[-1].removeprefix(
            notation.name("out")
        )
    return lines


def _derivative_lines(function: Function, notation: Notation) -> list[str]:
    graph = function.vjp.primal
    names = [f"∂{function.primal.names[k]}" for k in function.wrt]
    return _Formula(
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
