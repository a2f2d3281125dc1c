"""An op's graph in stages: kernels where it is elementwise, the array library between them."""

from collections.abc import Sequence
from typing import NamedTuple

from ...dims import Dim, Shape
from ...function import inlined
from ...graph import Graph, sizes
from ...kinds import substitute_param
from ...plan import cut
from .fusable import is_row_sum, is_uniform, refused, summand

BROADCASTS = ("broadcast_to", "unbroadcast")


class Stage(NamedTuple):
    """One part of a graph: what it reads of the values known so far, and what it adds to them."""

    graph: Graph  # (the op's inputs, values known so far…) -> new values
    known: tuple[int, ...]  # the nodes of the whole graph that follow the op's inputs
    new: tuple[int, ...]  # the nodes that its outputs are
    space: Shape | None  # what its loops run over, if it is a kernel

    @property
    def is_kernel(self) -> bool:
        return self.space is not None


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
        if n.prim in BROADCASTS and g.nodes[args[0]].shape == params["shape"]:
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
    return _Stages(graph).cut()


class _Stages:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.space = spaces(graph)
        self.level: dict[int, int] = {}  # of every node that is not free to compute anywhere
        self._early()
        self._late()

    def cut(self) -> list[Stage]:
        graph, level = self.graph, self.level
        free = tuple(dict.fromkeys(i for i in graph.roots if i not in level))
        stages = [Stage(cut(graph, graph.inputs, (), free), (), free, None)] if free else []
        known: list[int] = []
        for depth in range(max(level.values(), default=0) + 1):
            groups: dict[Shape | None, list[int]] = {}
            for i in sorted(i for i in level if level[i] == depth):
                groups.setdefault(self.space.get(i) if depth % 2 else None, []).append(i)
            found: list[int] = []
            for space, group in groups.items():
                new = tuple(self._read_outside(group))
                part = cut(graph, graph.inputs, known, new)
                stages.append(Stage(part, tuple(known), new, space))
                found += new
            known += found
        return stages

    def _read_outside(self, group: Sequence[int]) -> list[int]:
        """The nodes of a group that are results, or that another group reads."""
        others = [i for i in self.level if i not in group]
        read = {a for i in others for a in self.graph.nodes[i].args} | set(self.graph.roots)
        return [i for i in group if i in read]

    def _early(self) -> None:
        """The first stage that can compute each node."""
        for i in self.graph.live():
            n = self.graph.nodes[i]
            if n.prim == "input" or (n.prim == "const" and not n.shape):
                continue
            before = [a for a in n.args if a in self.level]
            if i in self.space:
                self.level[i] = max([1, *(self._ready_for(i, a) for a in before)])
            elif before or not _is_number(self.graph, i):
                up = [self.level[a] + self.level[a] % 2 for a in before]
                self.level[i] = max([0, *up])

    def _ready_for(self, i: int, a: int) -> int:
        """The first level of kernels in which node i may read node a."""
        level = self.level[a]
        if level % 2 == 0:
            return level + 1
        return level if self._together(i, a) else level + 2

    def _together(self, i: int, a: int) -> bool:
        """Whether a kernel that computes a may go on to what reads it."""
        return self.space[a] == self.space.get(i) and summand(self.graph, a) is None

    def _late(self) -> None:
        """Move every node of a kernel to what reads it, as late as that is."""
        early, level = dict(self.level), self.level
        for i in reversed(list(level)):
            if level[i] % 2 == 0 or summand(self.graph, i) is not None:
                continue
            users = [j for j in level if i in self.graph.nodes[j].args]
            beside = [level[j] for j in level if self.space.get(j) == self.space[i]]
            allowed = [self._needed_by(i, j) for j in users] or [max(beside)]
            level[i] = max(early[i], min(allowed))

    def _needed_by(self, i: int, user: int) -> int:
        """The last level of kernels in which node i may be computed for a node that reads it."""
        level = self.level[user]
        if level % 2 == 0:
            return level - 1
        return level if self._together(user, i) else level - 2


def spaces(graph: Graph) -> dict[int, Shape]:
    """For every node that a kernel can compute, the shape that its loops run over."""
    found: dict[int, Shape] = {}
    for i in graph.live():
        n = graph.nodes[i]
        if not n.args and n.prim != "random_bits":
            continue
        of = summand(graph, i)
        if of is not None and n.prim != "astype":
            found[i] = graph.nodes[of].shape
        elif is_row_sum(graph, n):
            found[i] = graph.nodes[n.args[0]].shape
        elif (row := _row_of(graph, i, found)) is not None:
            found[i] = row
        elif not is_uniform(n) and refused(graph, n) is None:
            found[i] = n.shape
    return found


def _row_of(graph: Graph, i: int, found: dict[int, Shape]) -> Shape | None:
    """The space of what is one for a row, if a node is made of sums along the rows of one."""
    n = graph.nodes[i]
    of = [found[a] for a in n.args if a in found and _is_one_a_row(graph, a, found)]
    if not of or n.shape != (*of[0][:-1], 1):
        return None
    new_axis = n.prim == "expand_dims" and n["axis"] == (len(n.shape) - 1,)
    return of[0] if new_axis or refused(graph, n) is None else None


def _is_one_a_row(graph: Graph, i: int, found: dict[int, Shape]) -> bool:
    return graph.nodes[i].shape != found[i] and summand(graph, i) is None


def _is_number(graph: Graph, i: int) -> bool:
    """Whether a node is one number that a kernel computes beside its loop."""
    n = graph.nodes[i]
    reads_an_array = any(not is_uniform(graph.nodes[a]) for a in n.args)
    return is_uniform(n) and refused(graph, n) is None and not reads_an_array
