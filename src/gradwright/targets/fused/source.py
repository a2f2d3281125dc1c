"""Machine code as text: each kernel's assembly, with what it reads and writes, and its lines."""

from collections.abc import Sequence

import numpy as np

from ... import emit
from ...dims import Shape
from ...graph import Graph, Node
from ..numpy import SPELLING
from .fusable import is_uniform
from .kernel import build
from .loop import Loop
from .stages import Stage, pattern, shaped, staged


def source(graph: Graph, name: str) -> str:
    """The stages of a graph on arrays of equal sizes, contiguous."""
    name = name if name.isidentifier() else "f"
    whole = shaped(graph, pattern([_example(graph.nodes[i]) for i in graph.inputs]))
    stages = staged(whole)
    kernels = sum(s.is_kernel for s in stages)
    head = f"; {name}: {_count(kernels, 'kernel')}, {_count(len(stages) - kernels, 'other part')}"
    return "\n".join([head, *(_stage(s, name) for s in stages)])


def _example(n: Node) -> tuple[int, ...]:
    """A size for each axis: the same for axes that meet when arrays are broadcast."""
    rank = len(n.shape)
    return tuple(d if isinstance(d, int) else 1000 + rank - axis for axis, d in enumerate(n.shape))


def _stage(stage: Stage, name: str) -> str:
    if stage.space is None:
        text = emit.source(stage.graph, name, SPELLING)
        return "".join(f"; {line}\n" for line in text.splitlines())
    loop = Loop(stage.graph, name, stage.space)
    nodes = [stage.graph.nodes[i] for i in loop.reads]
    kinds = {i: _kind(n, stage.space) for i, n in zip(loop.reads, nodes, strict=True)}
    kernel = build(stage.graph, name, kinds, [r.kind for r in loop.writes])
    reads = [n.dtype for i, n in zip(loop.reads, nodes, strict=True) if kinds[i] == "each"]
    writes = [r.dtype for r in loop.writes if r.kind == "each"]
    return f"; one pass, {_traffic(reads, writes)}\n{kernel.assembly}"


def _kind(n: Node, shape: Shape) -> str:
    return "one" if is_uniform(n) or n.shape[-1] == 1 != shape[-1] else "each"


def _traffic(reads: Sequence[str], writes: Sequence[str]) -> str:
    read, written = (sum(np.dtype(d).itemsize for d in dtypes) for dtypes in (reads, writes))
    return f"{read + written} bytes an element: {read} read, {written} written"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
