"""Which loops over a row a kernel makes, where it needs sums of the row before it goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...graph import Graph
from .functions import POLYNOMIALS
from .fusable import is_row_sum, summand


@dataclass
class Loop:
    """One loop over the elements of a row."""

    stored: list[int]  # the results that it stores
    sums: list[int]  # the sums that it makes, of the row or of everything
    needed: set[int] = field(default_factory=set)  # what it evaluates or loads
    keeps: dict[int, int] = field(default_factory=dict)  # node: the result whose memory it uses
    kept: dict[int, int] = field(default_factory=dict)  # the same, of the loops before


def planned(
    graph: Graph, live: Sequence[int], stored: Sequence[int], sums: Sequence[int], varying: set[int]
) -> tuple[list[Loop], dict[int, int]]:
    """The loops for results that are stored and sums over everything, and what waits for what.

    The second is, for every node, how many loops come before it is known.
    """
    rank: dict[int, int] = {}
    for i in live:
        n = graph.nodes[i]
        rank[i] = max((rank[a] for a in n.args), default=0) + is_row_sum(graph, n)
    of_sum = {i: rank[a] for i in sums if (a := summand(graph, i)) is not None}
    of_sum |= {i: rank[i] - 1 for i in live if is_row_sum(graph, graph.nodes[i])}
    count = 1 + max([0, *of_sum.values(), *(rank[i] for i in stored)])
    loops = [
        Loop([i for i in stored if rank[i] == p], [i for i in of_sum if of_sum[i] == p])
        for p in range(count)
    ]
    for loop in loops:
        loop.needed = _needed(graph, loop, varying)
    _keep(graph, loops, stored, rank)
    return loops, rank


def _needed(graph: Graph, loop: Loop, varying: set[int]) -> set[int]:
    """What differs by element of all that a loop stores and sums, back to what was kept."""
    todo = [*loop.stored, *(summed(graph, i) for i in loop.sums)]
    found: set[int] = set()
    while todo:
        i = todo.pop()
        if i in varying and i not in found:
            found.add(i)
            todo += () if i in loop.kept else graph.nodes[i].args
    return found


def summed(graph: Graph, i: int) -> int:
    """What a sum of a row, or of everything, is the sum of."""
    of = summand(graph, i)
    return graph.nodes[i].args[0] if of is None else of


def _keep(graph: Graph, loops: Sequence[Loop], stored: Sequence[int], rank: dict[int, int]) -> None:
    """Let the memory of a later result hold what costs much and is needed again."""
    free = list(stored)
    for p, loop in enumerate(loops):
        for i in sorted(loop.needed - loop.kept.keys()):
            n = graph.nodes[i]
            again = any(i in later.needed for later in loops[p + 1 :])
            room = [k for k in free if graph.nodes[k].dtype == n.dtype and rank[k] > p]
            if n.prim in POLYNOMIALS and again and room:
                free.remove(room[0])
                loop.keeps[i] = room[0]
                for later in loops[p + 1 : rank[room[0]] + 1]:
                    later.kept[i] = room[0]
    return
