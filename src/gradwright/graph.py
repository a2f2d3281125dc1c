"""A graph is a straight list of hash-consed nodes, typed by construction.

Every cast is a node, so the arguments of an elementwise node have one dtype. A dtype is NumPy's
name, or a weak one: ``int`` and ``float`` are Python numbers (NEP 50), always without dimensions.
"""

import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from . import dims
from .dims import Dim, Shape
from .kinds import infer, param_text, substitute_param
from .primitives import PRIMITIVES

WEAK = ("int", "float")


@dataclass(frozen=True, slots=True)
class Node:
    """One equation: a primitive applied to earlier nodes."""

    prim: str
    args: tuple[int, ...]
    params: tuple[tuple[str, Any], ...]
    shape: Shape
    dtype: str

    def __getitem__(self, name: str) -> Any:
        return dict(self.params)[name]

    @property
    def is_pure(self) -> bool:
        """Whether an equal node gives an equal value; a call of Python on the host may not."""
        return all(getattr(p, "is_pure", True) for _, p in self.params)


class Frozen:
    """An array that a function captured: copied, and equal to another by content."""

    def __init__(self, array: Any) -> None:
        self.array = np.array(array, order="C")
        self.array.flags.writeable = False
        content = repr((self.array.dtype.str, self.array.shape)).encode() + self.array.tobytes()
        self.digest = hashlib.sha256(content).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"array{self.array.shape}#{self.digest}"


@dataclass(eq=False)
class Graph:
    """Nodes in order, which of them are inputs, which outputs, and where each was written."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    lines: dict[int, str] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    readable: set[int] = field(default_factory=set)  # inputs whose value the body may read
    programs: dict[str, Any] = field(default_factory=dict)  # made from it, one for each target
    symbols: dict[int, str] = field(default_factory=dict)  # what a formula calls a node: ε
    interrupted: list[Exception] = field(default_factory=list)  # what tracing must not outlive
    line: str = ""  # where the equations come from that are being added, when that is known
    _seen: dict[Hashable, int] = field(default_factory=dict)

    def _intern(self, key: Hashable, node: Node) -> int:
        at = self._seen.get(key)
        if at is None:
            at = self._seen[key] = len(self.nodes)
            self.nodes.append(node)
        return at

    def input(self, name: str, shape: Sequence[Dim | None], dtype: str) -> int:
        """Add an input; a size that is ``None`` is not known, and becomes ``("in", k, axis)``."""
        k = len(self.inputs)
        full = tuple(("in", k, axis) if d is None else d for axis, d in enumerate(shape))
        at = self._intern(("input", k), Node("input", (), (("k", k),), full, dtype))
        self.inputs.append(at)
        while name in self.names or re.fullmatch(r"[vc]\d+", name):  # so nodes and constants print
            name += "_"
        self.names.append(name)
        return at

    def const(self, value: Any, dtype: str) -> int:
        shape = value.array.shape if isinstance(value, Frozen) else ()
        node = Node("const", (), (("value", value),), shape, dtype)
        # 0.0 == -0.0 and nan != nan, so numbers are told apart by their text
        return self._intern(("const", repr(value), dtype), node)

    def add(self, prim: str, args: Iterable[int] = (), **params: Any) -> int:
        """Add a node, or find the equal one; its kind says what shape and dtype it has."""
        args = tuple(args)
        shape, dtype = infer(self.nodes, prim, args, params)
        node = Node(prim, args, tuple(sorted(params.items())), shape, dtype)
        return self._intern(node if node.is_pure else ("alone", len(self.nodes)), node)

    def copy(self, node: Node, args: Iterable[int]) -> int:
        """Add a node of another graph on other arguments."""
        if node.prim == "const":
            return self.const(node["value"], node.dtype)
        return self.add(node.prim, args, **dict(node.params))

    @contextmanager
    def written_at(self, line: str) -> Iterator[None]:
        """Say that the equations added inside come from a line of the user's."""
        before, self.line = self.line, line
        try:
            yield
        finally:
            self.line = before

    @property
    def roots(self) -> list[int]:
        """What the graph is for: its outputs, and the values the user records."""
        return [*self.outputs, *self.records.values()]

    def live(self, roots: Iterable[int] | None = None) -> list[int]:
        """The nodes that are needed, and all inputs, in order."""
        todo = list(self.roots if roots is None else roots)
        seen = set(self.inputs)
        while todo:
            i = todo.pop()
            if i not in seen:
                seen.add(i)
                todo += self.nodes[i].args
        return sorted(seen)

    def reads(self, i: int) -> bool:
        """Whether node i is used, by another node or as an output."""
        return i in self.roots or any(i in self.nodes[j].args for j in self.live())

    def verify(self) -> None:
        """Raise unless every node is what its kind says and reads only earlier nodes."""
        for i, node in enumerate(self.nodes):
            if node.prim in ("input", "const"):
                continue
            assert node.prim in PRIMITIVES, f"v{i}: no primitive {node.prim}"
            assert all(0 <= a < i for a in node.args), f"v{i} reads a later node"
            got = infer(self.nodes, node.prim, node.args, dict(node.params))
            assert got == (node.shape, node.dtype), f"v{i}: {got} recorded as {node}"
        assert all(0 <= i < len(self.nodes) for i in self.roots)

    def size_text(self, k: int, axis: int) -> str:
        return f"{self.names[k]}.shape[{axis}]"

    def _line(self, i: int, ref: Callable[[int], str]) -> str:
        node = self.nodes[i]
        shape = ", ".join(dims.text(d, self.size_text) for d in node.shape)
        params = [f"{name}={param_text(name, p, self.size_text)}" for name, p in node.params]
        arguments = ", ".join([*map(ref, node.args), *params])
        return f"{ref(i)}: {node.dtype}[{shape}] = {node.prim}({arguments})"

    def _ref(self, number: Mapping[int, int]) -> Callable[[int], str]:
        def ref(i: int) -> str:
            node = self.nodes[i]
            if node.prim == "const":
                return f"{node['value']!r}:{node.dtype}"
            return self.names[node["k"]] if node.prim == "input" else f"v{number[i]}"

        return ref

    def __str__(self) -> str:
        live = self.live()
        ref = self._ref({i: n for n, i in enumerate(live)})
        rows = [self._line(i, ref) for i in live if self.nodes[i].prim != "const"]
        rows += [f"record {name} = {ref(i)}" for name, i in self.records.items()]
        return "\n".join([*rows, "return " + ", ".join(map(ref, self.outputs))])

    @cached_property
    def key(self) -> str:
        """A hash of what the graph computes. Ask only once the graph is complete."""
        return hashlib.sha256(str(self).encode()).hexdigest()


def sizes(graph: Graph, shapes: Sequence[Shape]) -> dict[tuple[int, int], Dim]:
    """What each size of the inputs is, when the inputs have these shapes."""
    found: dict[tuple[int, int], Dim] = {}
    for i, shape in zip(graph.inputs, shapes, strict=True):
        for declared, actual in zip(graph.nodes[i].shape, shape, strict=True):
            if isinstance(declared, tuple) and declared[0] == "in":
                found.setdefault((declared[1], declared[2]), actual)
    return found


def replay(
    graph: Graph,
    into: Graph,
    inputs: Sequence[int],
    given: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """Copy a graph into another on other inputs, and return where each node went.

    `given` names nodes that need not be copied, because their value is already there.
    """
    at = dict(zip(graph.inputs, inputs, strict=True)) | dict(given or {})
    known = sizes(graph, [into.nodes[i].shape for i in inputs])
    for i in graph.live():
        if i in at:
            continue
        node = graph.nodes[i]
        if node.prim == "const":
            at[i] = into.const(node["value"], node.dtype)
        else:
            params = {n: substitute_param(n, p, known) for n, p in node.params}
            at[i] = into.add(node.prim, [at[a] for a in node.args], **params)
        if i in graph.lines:
            into.lines.setdefault(at[i], graph.lines[i])
    return at
