"""Between which numbers a value lies, where that is known: random words and what is made of them.

What is known spares a kernel the cases that cannot be: subnormal, infinite, of the other sign.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ...graph import Graph, Node


class Bounds(NamedTuple):
    """low ≤ x ≤ high; then x is not NaN."""

    low: float
    high: float


def _product(x: Bounds, y: Bounds) -> Bounds:
    corners = [a * b for a in x for b in y]
    return Bounds(min(corners), max(corners))


_OF: dict[str, Callable[..., Bounds]] = {
    "add": lambda x, y: Bounds(x.low + y.low, x.high + y.high),
    "multiply": _product,
    "right_shift": lambda x, y: Bounds(x.low // 2**y.high, x.high // 2**y.low),
    "bitwise_and": lambda x, y: Bounds(0, min(x.high, y.high)),
    "astype": lambda x: x,
}


def bounds(graph: Graph, live: Iterable[int]) -> dict[int, Bounds]:
    """Find the bounds of words that are drawn, and of what is computed from them and constants."""
    found: dict[int, Bounds] = {}
    for i in live:
        n = graph.nodes[i]
        known = _of(graph, n, [found.get(a) for a in n.args])
        if known is not None and _is_kept(n.dtype, known):
            found[i] = known
    return found


def _of(graph: Graph, n: Node, xs: Sequence[Bounds | None]) -> Bounds | None:
    if n.prim == "const" and not n.shape:
        return Bounds(n["value"], n["value"])
    if n.prim == "random_bits":
        return Bounds(0, 2**32 - 1)
    if n.prim not in _OF or None in xs:
        return None
    is_cut = n.prim == "astype" and graph.nodes[n.args[0]].dtype != "uint32"
    return None if is_cut else _OF[n.prim](*xs)


def _is_kept(dtype: str, x: Bounds) -> bool:
    """Whether the dtype has the bounds: then nothing is rounded, or overflows, out of them."""
    if dtype == "uint32":
        return x.low >= 0 and x.high < 2**32
    finite = all(abs(b) < 2.0**100 for b in x)
    floats = dtype in ("float32", "float64")
    return floats and finite and all(float(np.dtype(dtype).type(b)) == b for b in x)
