"""A graph as the formula it is: one line for each output, and for what is used twice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from . import dims
from .graph import Frozen, Graph, Node
from .notation import TEXT, Notation

_HIDDEN = (
    "astype unbroadcast broadcast_to variable expand_dims squeeze positive record stop_gradient"
).split()
_LONG = 14  # a longer expression that is used twice gets a letter


class _Term(NamedTuple):
    """A piece of a formula and how tightly it binds; 10 is an atom."""

    text: str
    binds: int = 10


class Formula:
    """The formula of some nodes, in the signs of a notation."""

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
