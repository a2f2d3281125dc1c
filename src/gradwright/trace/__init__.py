"""Run a NumPy function on tracers and record what it does as a graph."""

from collections.abc import Callable, Sequence

from ..errors import TraceError
from ..graph import Graph
from . import functions as functions  # fills the table of NumPy functions
from .tracer import Specialise, Tracer, cast, constant, lift, strong

__all__ = ["Specialise", "Tracer", "cast", "constant", "lift", "strong", "trace"]


def trace(build: Callable[[Graph], Sequence[Tracer]], name: str) -> Graph:
    """Build a graph twice and return it: what differs between two runs was not traced.

    `build` adds the inputs to an empty graph, runs the user's function on them, and returns the
    outputs.
    """
    graph, again = _once(build), _once(build)
    if graph.key != again.key or repr(graph.nodes) != repr(again.nodes):
        raise TraceError(
            f"{name} gave two different graphs when it was traced twice{_difference(graph, again)}",
            "draw random numbers with rng.normal(), pass what changes (time, a counter) as an "
            "argument",
            where="",
        )
    return graph


def _once(build: Callable[[Graph], Sequence[Tracer]]) -> Graph:
    graph = Graph()
    try:
        outs = build(graph)
    except (TypeError, ValueError) as error:
        _unwrap(error.__cause__)
        raise
    if graph.interrupted:
        raise graph.interrupted[0].with_traceback(None)
    graph.outputs = tuple(out.i for out in outs)
    return graph


def _unwrap(cause: BaseException | None) -> None:
    """Raise what a tracer raised when NumPy asked it for a number, to put it into an array."""
    if isinstance(cause, Specialise):
        raise Specialise(cause.needs)
    if isinstance(cause, TraceError):
        raise TraceError(
            f"a traced value is put into an array of NumPy ({cause.what})",
            "np.stack or np.concatenate of the parts, in place of filling an array",
            cause.where,
        ) from None


def _difference(graph: Graph, again: Graph) -> str:
    """Name the line of the first equation that differs.

    Numbers that were only cast count: two times of day may be equal as float32.
    """
    for i, n in enumerate(graph.nodes):
        if i >= len(again.nodes) or repr(n) != repr(again.nodes[i]):
            # a constant has no line of its own: the next equation is what it was met for
            later = range(i, len(graph.nodes))
            line = next((graph.lines[j] for j in later if j in graph.lines), "")
            what = "a captured value" if n.prim == "const" else f"np.{n.prim}"
            return f": {what}" + (f" used at {line} is not the same" if line else " differs")
    return ""
