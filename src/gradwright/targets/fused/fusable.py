"""What a kernel can compute: elementwise equations, and sums over all that they give."""

from ...graph import Graph, Node
from ...precision import LOW
from .functions import FUNCTIONS, ON_BOOLEANS, ON_INTEGERS, POLYNOMIALS
from .ir import LANE

NUMBERS = {"int": "int64", "float": "float64"}
_NOT_ROUNDED = ("nextafter", "deg2rad", "radians", "rad2deg", "degrees")  # as float16 is, by NumPy
_SAFE = ("int32", "int64")  # integers to which processors cast floats as NumPy does
_SUMMED = ("float32", "float64")
_SAME = ("stop_gradient", "variable")  # the value itself
# of numbers, which are the same number in every shape
_RESHAPED = ("broadcast_to", "expand_dims", "squeeze", "reshape", "unbroadcast")


def is_uniform(n: Node) -> bool:
    """Whether a value is one number, whatever its number of dimensions."""
    return all(d == 1 for d in n.shape)


def is_same(graph: Graph, n: Node) -> bool:
    """Whether a node is the value of its argument, element by element."""
    if n.prim in _RESHAPED:
        return is_uniform(graph.nodes[n.args[0]]) or _is_row_again(graph, n)
    return n.prim in _SAME


def _is_row_again(graph: Graph, n: Node) -> bool:
    """Whether a sum along the last axis gets that axis back."""
    of = graph.nodes[n.args[0]]
    new_axis = n.prim == "expand_dims" and n["axis"] == (len(n.shape) - 1,)
    return new_axis and is_row_sum(graph, of)


def refused(graph: Graph, n: Node) -> str | None:
    """Why a node is not computed element by element, or `None` if it is."""
    if n.dtype not in LANE and n.dtype not in NUMBERS:
        return f"{n.dtype} arrays"
    if n.prim == "const" and n.shape:
        return "a captured array"
    if n.prim == "input" and n.dtype in LOW and not n.shape:
        return f"a number in {n.dtype}"
    if n.prim in ("input", "const", "random_bits") or is_same(graph, n):
        return None
    if not n.args:
        return n.prim
    of = graph.nodes[n.args[-1]].dtype
    of = NUMBERS.get(of, of)
    if n.prim == "astype" and of != n.dtype and (of in LOW or n.dtype in LOW):
        return None if "float32" in (of, n.dtype) else f"a cast from {of} to {n.dtype}"
    if of in LOW:
        of = "float32" if n.prim not in _NOT_ROUNDED else of
    if n.prim == "astype":
        loses = of.startswith("float") and not n.dtype.startswith(("float", "bool"))
        return f"a cast from {of} to {n.dtype}" if loses and n.dtype not in _SAFE else None
    if n.prim in POLYNOMIALS and of.startswith("float"):
        return None
    known = FUNCTIONS.keys() if of.startswith("float") else ON_INTEGERS
    known = ON_BOOLEANS if of == "bool" else known
    return None if n.prim in known else f"{n.prim} of {of}"


def summand(graph: Graph, i: int) -> int | None:
    """What a node sums over all elements, if it is such a sum (in double precision)."""
    n = graph.nodes[i]
    if n.prim == "astype" and n.dtype == "float64" and not n.shape:
        i, n = n.args[0], graph.nodes[n.args[0]]
    if n.prim not in ("sum", "unbroadcast") or not is_uniform(n):
        return None
    of = graph.nodes[n.args[0]]
    return None if is_uniform(of) or of.dtype not in _SUMMED else n.args[0]


def is_row_sum(graph: Graph, n: Node) -> bool:
    """Whether a node is a sum (or a maximum, a minimum) along the last axis."""
    if n.prim not in ("sum", "max", "min", "unbroadcast") or not n.args or is_uniform(n):
        return False
    of = graph.nodes[n.args[0]]
    if of.dtype not in _SUMMED or of.shape[-1] == 1:
        return False
    last = (len(of.shape) - 1,)
    if n.prim == "unbroadcast":
        return bool(n.shape == (*of.shape[:-1], 1))
    return bool(n["axis"] == last)


def totals(graph: Graph) -> set[int]:
    """The roots that are sums over all elements, with the sum itself below a cast."""
    found = {i for i in graph.roots if summand(graph, i) is not None}
    of = {i: summand(graph, i) for i in found}
    return found | {a for i in found for a in graph.nodes[i].args if a != of[i]}


def unfusable(graph: Graph) -> str | None:
    """Why a graph is not one elementwise loop with sums over all of it, or `None` if it is."""
    nodes = [(i, graph.nodes[i]) for i in graph.live()]
    shapes = {n.shape for _, n in nodes if n.shape}
    if len(shapes) != 1:
        return "arrays of several shapes" if shapes else "no array with dimensions"
    sums = totals(graph)
    if any(a in sums for i, n in nodes if i not in sums for a in n.args):
        return "a sum that the elements read"
    return next((why for i, n in nodes if i not in sums and (why := refused(graph, n))), None)


def cost(graph: Graph) -> int:
    """Roughly, how many passes over its arrays NumPy makes for a graph."""
    nodes = [graph.nodes[i] for i in graph.live()]
    done = [n for n in nodes if n.args and n.prim != "astype" and not is_same(graph, n)]
    passes = sum(20 if n.prim == "power" else 1 for n in done)
    return passes + 100 * sum(n.prim == "random_bits" for n in nodes)
