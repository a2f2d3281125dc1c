"""Broadcast late: an elementwise result instead of its arguments."""

from collections.abc import Sequence

from .graph import WEAK, Graph, Node
from .primitives import PRIMITIVES

_ELEMENTWISE = ("elementwise", "compare", "integer", "select")
_COMMUTING = ("expand_dims", "broadcast_to")


def sunk(graph: Graph) -> Graph:
    """The same graph with every broadcast after the elementwise operations that follow it.

    ``f(broadcast(x), y) = broadcast(f(x, y))``: less is computed, and what is left to broadcast
    mostly has its shape already when the program runs.
    """
    if not any(graph.nodes[i].prim == "broadcast_to" for i in graph.live()):
        return graph
    g, at = Graph(), dict[int, int]()
    for i, name in zip(graph.inputs, graph.names, strict=True):
        at[i] = g.input(name, graph.nodes[i].shape, graph.nodes[i].dtype)
    for i in graph.live():
        if graph.nodes[i].prim != "input":
            at[i] = _added(g, graph.nodes[i], [at[a] for a in graph.nodes[i].args])
            g.lines.setdefault(at[i], graph.lines.get(i, ""))
    g.outputs = tuple(at[i] for i in graph.outputs)
    g.records = {name: at[i] for name, i in graph.records.items()}
    return g


def _added(g: Graph, n: Node, args: Sequence[int]) -> int:
    if n.prim == "const" or (
        n.prim not in _COMMUTING and PRIMITIVES[n.prim].kind not in _ELEMENTWISE
    ):
        return g.copy(n, args)
    new = g.copy(n, [_before_broadcast(g, a) for a in args])
    return new if g.nodes[new].shape == n.shape else g.add("broadcast_to", [new], shape=n.shape)


def _before_broadcast(g: Graph, i: int) -> int:
    """What was broadcast, where the operation itself would do so to the same end."""
    n = g.nodes[i]
    if n.prim != "broadcast_to" or n.dtype in WEAK:
        return i
    same_rank = len(g.nodes[n.args[0]].shape) == len(n.shape)
    return _before_broadcast(g, n.args[0]) if same_rank else i
