"""An op's graph in stages: kernels where it is elementwise, the array library between them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...dims import Dim, Shape
from ...function import inlined
from ...graph import Graph, sizes
from ...kinds import substitute_param
from ...plan import cut
from .fusable import is_uniform, refused, summand


class Stage(NamedTuple):
    """One part of a graph: what it reads of the values known so far, and what it adds to them."""

    graph: Graph  # (the op's inputs, values known so far…) -> new values
    known: tuple[int, ...]  # the nodes of the whole graph that follow the op's inputs
    new: tuple[int, ...]  # the nodes that its outputs are
    is_kernel: bool


def pattern(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """The shapes with every size above 1 named by where it is first met.

    Graphs of equal patterns broadcast in the same way, so one kernel serves all of them.
    """
    first: dict[int, Dim] = {1: 1}
    return tuple(
        tuple(first.setdefault(d, ("in", k, axis)) for axis, d in enumerate(shape))
        for k, shape in enumerate(shapes)
    )


def shaped(graph: Graph, shapes: Sequence[Shape]) -> Graph:
    """The graph for arrays of these shapes, without the broadcasts that change nothing."""
    graph = inlined(graph)
    g, at = Graph(), dict[int, int]()
    for i, name, shape in zip(graph.inputs, graph.names, shapes, strict=True):
        declared = graph.nodes[i].shape
        # a size that the trace fixed stays what it is
        dims = [d if isinstance(d, int) else s for d, s in zip(declared, shape, strict=True)]
        at[i] = g.input(name, dims, graph.nodes[i].dtype)
    known = sizes(graph, [g.nodes[i].shape for i in g.inputs])
    for i in graph.live():
        n = graph.nodes[i]
        if n.prim == "input":
            continue
        args = [at[a] for a in n.args]
        params = {name: substitute_param(name, p, known) for name, p in n.params}
        if n.prim in ("broadcast_to", "unbroadcast") and g.nodes[args[0]].shape == params["shape"]:
            at[i] = args[0]
        elif n.prim == "const":
            at[i] = g.const(n["value"], n.dtype)
        else:
            at[i] = g.add(n.prim, args, **params)
        g.lines.setdefault(at[i], graph.lines.get(i, ""))
    g.outputs = tuple(at[i] for i in graph.outputs)
    g.records = {name: at[i] for name, i in graph.records.items()}
    return g


def staged(graph: Graph) -> list[Stage]:
    """Cut a graph of known broadcasts: kernels at odd levels, one for each shape."""
    level = _late(graph, _levels(graph))
    free = tuple(dict.fromkeys(i for i in graph.roots if i not in level))
    stages = [Stage(cut(graph, graph.inputs, (), free), (), free, False)] if free else []
    known: list[int] = []
    for depth in range(max(level.values(), default=0) + 1):
        groups: dict[Shape | None, list[int]] = {}
        for i in sorted(i for i in level if level[i] == depth):
            groups.setdefault(space(graph, i) if depth % 2 else None, []).append(i)
        found: list[int] = []
        for group in groups.values():
            new = tuple(_read_outside(graph, group, level))
            part = cut(graph, graph.inputs, known, new)
            stages.append(Stage(part, tuple(known), new, depth % 2 == 1))
            found += new
        known += found
    return stages


def _read_outside(graph: Graph, group: Sequence[int], level: Mapping[int, int]) -> list[int]:
    """The nodes of a group that are results, or that another group reads."""
    read = {a for i in level if i not in group for a in graph.nodes[i].args} | set(graph.roots)
    return [i for i in group if i in read]


def space(graph: Graph, i: int) -> Shape:
    """The shape that the loop of a node runs over: a sum's is that of what it sums."""
    of = summand(graph, i)
    return graph.nodes[i if of is None else of].shape


def _levels(graph: Graph) -> dict[int, int]:
    """For every node that is not free to compute anywhere, the stage that computes it."""
    level: dict[int, int] = {}
    for i in graph.live():
        n = graph.nodes[i]
        if n.prim == "input" or (n.prim == "const" and not n.shape):
            continue
        before = [a for a in n.args if a in level]
        if _is_elementwise(graph, i):
            level[i] = max([1, *(_ready_for(graph, i, a, level[a]) for a in before)])
        elif before or not _is_number(graph, i):
            level[i] = max([0, *(level[a] + level[a] % 2 for a in before)])
    return level


def _late(graph: Graph, level: Mapping[int, int]) -> dict[int, int]:
    """The same with every elementwise node as late as it can be: with those that read it."""
    late = dict(level)
    for i in reversed(list(level)):
        if level[i] % 2 == 0 or summand(graph, i) is not None:
            continue
        users = [j for j in level if i in graph.nodes[j].args]
        beside = [late[j] for j in level if late[j] % 2 and space(graph, j) == space(graph, i)]
        allowed = [_needed_by(graph, i, j, late[j]) for j in users] or [max(beside)]
        late[i] = max(late[i], min(allowed))
    return late


def _needed_by(graph: Graph, i: int, user: int, level: int) -> int:
    """The last level of kernels in which node i may be computed for a node that reads it."""
    if level % 2 == 0:
        return level - 1
    return level if space(graph, user) == space(graph, i) else level - 2


def _is_number(graph: Graph, i: int) -> bool:
    """Whether a node is one number that a kernel computes beside its loop."""
    n = graph.nodes[i]
    return is_uniform(n) and refused(graph, n) is None and not _reads_an_array(graph, i)


def _reads_an_array(graph: Graph, i: int) -> bool:
    return any(not is_uniform(graph.nodes[a]) for a in graph.nodes[i].args)


def _is_elementwise(graph: Graph, i: int) -> bool:
    if summand(graph, i) is not None and graph.nodes[i].prim != "astype":
        return True
    return not is_uniform(graph.nodes[i]) and refused(graph, graph.nodes[i]) is None


def _ready_for(graph: Graph, i: int, a: int, level: int) -> int:
    """The first level of kernels in which node i may read node a."""
    if level % 2 == 0:
        return level + 1
    same = space(graph, a) == space(graph, i) and summand(graph, a) is None
    return level if same else level + 2
