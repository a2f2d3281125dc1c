"""Run the parts of a rule on tensors: for large parameters, what is elementwise is one XLA kernel.

Otherwise a part is as many operations as it has equations. Random bits come from TensorFlow's own
generator in either case: XLA's takes several times as long on a CPU.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from ... import emit
from ...graph import Graph, replay
from ...primitives import PRIMITIVES
from . import SPELLING

_Program: TypeAlias = Callable[..., Any]

SMALL = 1 << 16  # elements; below, calling a compiled function takes longer than it saves
# XLA adds up float32 in one long chain, so sums are not among these.
_KINDS = ("input", "elementwise", "compare", "integer", "select", "cast", "size", "identity")
_SHAPES = ("const", "random_bits", "expand_dims", "broadcast_to")


def program(graph: Graph) -> _Program:
    """A part of a rule as a function of tensors."""
    made = graph.programs
    if "tensorflow part" not in made:
        plain = emit.program(graph, "update", SPELLING)
        made["tensorflow part"] = _by_size(graph, plain) if _is_fusible(graph) else plain
    return made["tensorflow part"]  # type: ignore[no-any-return]  # kept in a dict of Any


def _is_fusible(graph: Graph) -> bool:
    """Whether XLA is there, and has kernels as exact as TensorFlow's for all of it."""
    prims = {graph.nodes[i].prim for i in graph.live()} - {"input", *_SHAPES}
    rows = [PRIMITIVES[prim] for prim in prims]
    known = all(row.kind in _KINDS and row.module == "numpy" for row in rows)
    return known and bool(tf.test.is_built_with_xla())


def _by_size(graph: Graph, plain: _Program) -> _Program:
    fused = _fused(graph)

    def run(*xs: Any) -> Any:
        shape = xs[0].shape if xs else tf.TensorShape([])
        is_large = shape.is_fully_defined() and math.prod(shape) >= SMALL
        return (fused if is_large and not _is_compiling() else plain)(*xs)

    return run


def _is_compiling() -> bool:
    """Whether XLA compiles what calls us, as far as it says so: as one it is faster than in parts.

    TensorFlow has no public name for it.
    """
    from tensorflow.python.ops import control_flow_util

    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def _fused(graph: Graph) -> _Program:
    """The part as one compiled function, called with the random bits that it reads."""
    draws = [i for i in graph.live() if graph.nodes[i].prim == "random_bits"]
    generate = emit.program(_only(graph, draws), "draw", SPELLING)
    inner = emit.program(_without(graph, draws), "update", SPELLING)
    kept: dict[Any, _Program] = {}

    def run(*xs: Any) -> Any:
        bits = generate(*xs) if draws else ()
        key = tuple((tuple(x.shape), x.dtype) for x in xs)
        if key not in kept:  # one function for each signature: TensorFlow warns of many in one
            kept[key] = tf.function(inner, jit_compile=True, autograph=False)
        return kept[key](*xs, *bits)

    return run


def _copied(graph: Graph) -> tuple[Graph, list[int]]:
    """A graph with the same inputs, and nothing else."""
    nodes = [graph.nodes[i] for i in graph.inputs]
    copy = Graph()
    return copy, [copy.input(*row) for row in _rows(graph.names, nodes)]


def _rows(names: Sequence[str], nodes: Sequence[Any]) -> list[tuple[str, Any, str]]:
    return [(name, n.shape, n.dtype) for name, n in zip(names, nodes, strict=True)]


def _only(graph: Graph, nodes: Sequence[int]) -> Graph:
    """The graph of some nodes."""
    copy, inputs = _copied(graph)
    part = Graph(graph.nodes, graph.inputs, graph.names, tuple(nodes))
    copy.outputs = tuple(at for i in nodes for at in [replay(part, copy, inputs)[i]])
    return copy


def _without(graph: Graph, nodes: Sequence[int]) -> Graph:
    """The graph in which some nodes are inputs, after its own."""
    copy, inputs = _copied(graph)
    names = [f"bits{k}" for k in range(len(nodes))]
    given = [copy.input(*row) for row in _rows(names, [graph.nodes[i] for i in nodes])]
    at = replay(graph, copy, inputs, dict(zip(nodes, given, strict=True)))
    copy.outputs = tuple(at[i] for i in graph.outputs)
    copy.records = {name: at[i] for name, i in graph.records.items()}
    return copy
