"""An elementwise part of an op on arrays of one library, as they lie in memory."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...dims import Shape, substitute
from ...graph import Graph
from .fusable import is_row_sum, totals
from .kernel import stored
from .layout import Layout
from .memory import Memory
from .program import Program

_KEPT = 16  # layouts that are remembered


class Result(NamedTuple):
    """One result of a kernel."""

    dtype: str
    shape: Shape
    kind: str  # "each" element has one, a "row" has one, or it is a "sum" over everything


class Loop:
    """A graph, and its machine code for every way that its arrays were seen to lie."""

    def __init__(self, graph: Graph, name: str, space: Shape) -> None:
        self.graph, self.name, self.space = graph, name, space
        nodes = graph.nodes
        read = {a for i in graph.live() for a in nodes[i].args} | set(graph.roots)
        self.places = [k for k, i in enumerate(graph.inputs) if i in read]
        self.reads = [graph.inputs[k] for k in self.places]
        self.dtypes = [nodes[i].dtype for i in self.reads]
        sums = totals(graph)
        self.results = [
            Result(n.dtype, n.shape, "sum" if i in sums else "each" if n.shape == space else "row")
            for i, n in ((i, nodes[i]) for i in graph.roots)
        ]
        self.writes = [r for r in self.results if r.kind != "sum"]
        # of sums that another loop made, there may be no sum here, but one result a row
        sums_rows = any(is_row_sum(graph, nodes[i]) for i in graph.live())
        self.has_rows = sums_rows or any(r.kind == "row" for r in self.writes)
        self._programs: dict[tuple[str, ...], Program] = {}

    @cached_property
    def sizes(self) -> list[int]:
        """Of one element of each array, in bytes."""
        return [
            np.dtype(stored(d)).itemsize for d in (*self.dtypes, *(r.dtype for r in self.writes))
        ]

    def program(self, kinds: tuple[str, ...]) -> Program:
        """The machine code for arrays that lie like this: those read, then those written."""
        if kinds not in self._programs:
            reads = dict(zip(self.reads, kinds, strict=False))
            writes = kinds[len(self.reads) :]
            self._programs[kinds] = Program(self.graph, self.name, reads, writes)
        return self._programs[kinds]


class Sized:
    """A loop over arrays of known sizes."""

    def __init__(self, loop: Loop, known: Mapping[Any, Any], memory: Memory) -> None:
        self.loop, self.memory = loop, memory
        self.shape = _sized(loop.space, known)
        self.outs = [(_sized(r.shape, known), r.dtype) for r in loop.writes]
        self._layouts: dict[Any, tuple[Layout, Program]] = {}

    def run(self, xs: Sequence[Any]) -> tuple[Any, ...]:
        """The results, given the values of the inputs of the graph."""
        memory = self.memory
        pairs = zip(self.loop.places, self.loop.dtypes, strict=True)
        arrays = [memory.array(xs[k], dtype) for k, dtype in pairs]
        key = tuple([memory.distances(x) for x in arrays])
        layout, program = self._layouts.get(key) or self._laid_out(key, arrays)
        outs = [memory.empty(shape, dtype) for shape, dtype in self.outs]
        table = layout.table([memory.address(x) for x in (*arrays, *outs)])
        partial = program.over(table, layout.work, memory.threads())
        totals = iter(partial.sum(axis=0).tolist())
        filled = iter(outs)
        results = [
            memory.number(next(totals), r.dtype, len(r.shape)) if r.kind == "sum" else next(filled)
            for r in self.loop.results
        ]
        return tuple(results)

    def _laid_out(self, key: Any, arrays: Sequence[Any]) -> tuple[Layout, Program]:
        sizes = self.loop.sizes
        apart = [
            _spread(self.shape, tuple(x.shape), distances or _in_rows(x.shape, size))
            for x, distances, size in zip(arrays, key, sizes, strict=False)
        ]
        rows = [r.kind == "row" for r in self.loop.writes]
        for (shape, _), is_row, size in zip(self.outs, rows, sizes[len(arrays) :], strict=True):
            whole = (*self.shape[:-1], 1) if is_row else shape
            apart.append(_spread(self.shape, whole, _in_rows(whole, size)))
        layout = Layout(self.shape, apart, sizes, self.loop.has_rows)
        if len(self._layouts) >= _KEPT:
            self._layouts.clear()
        kinds = (*layout.kinds[: len(arrays)], *(
            "row" if is_row else kind
            for is_row, kind in zip(rows, layout.kinds[len(arrays) :], strict=True)
        ))  # fmt: skip
        self._layouts[key] = layout, self.loop.program(kinds)
        return self._layouts[key]


def _sized(shape: Shape, known: Mapping[Any, Any]) -> tuple[int, ...]:
    return tuple([substitute(d, known) for d in shape])


def _in_rows(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """The distances in an array without gaps."""
    found = [size]
    for d in reversed(shape[1:]):
        found.append(found[-1] * d)
    return tuple(reversed(found[: len(shape)]))


def _spread(shape: Sequence[int], own: Sequence[int], distances: Sequence[int]) -> tuple[int, ...]:
    """The distances of an array that is broadcast to a shape."""
    ahead = len(shape) - len(own)
    return (0,) * ahead + tuple(
        0 if d == 1 else distance for d, distance in zip(own, distances, strict=True)
    )
