"""Reverse and forward mode over a whole graph, into a graph."""

from collections.abc import Mapping, Sequence
from typing import Any

from .adjoint import Tracers, has_derivative, jvp_of, narrowed, vjp_of, widened
from .graph import Graph, Node
from .primitives import PRIMITIVES
from .trace.functions import resized
from .trace.tracer import Tracer, is_float, node


def _items(graph: Graph, env: Mapping[int, Tracer], call: int) -> list[Tracer]:
    """The outputs of a call node, as they stand in the environment."""
    function = graph.nodes[call]["function"]
    at = env[call]
    return [node(at.graph, "item", [at], k=k) for k in range(len(function.outs))]


def _reached(graph: Graph, live: Sequence[int], wrt: Sequence[int]) -> set[int]:
    """The nodes that change when some nodes do, as far as derivatives tell."""
    found = set(wrt)
    for i in live:
        n = graph.nodes[i]
        if found.intersection(n.args) and (is_float(n.dtype) or n.prim == "call"):
            found.update([i] if has_derivative(n.prim) else [])
    return found


def refused(graph: Graph, wrt: Sequence[int], smooth: Sequence[int]) -> dict[int, Any]:
    """The inputs by which a derivative of the outputs would raise, and what of the first call."""
    live = graph.live([graph.outputs[k] for k in smooth])
    calls = [graph.nodes[i] for i in live if graph.nodes[i].prim == "call"]
    asked = [(n.args[k], why) for n in calls for k, why in n["function"].refused.items()]
    found: dict[int, Any] = {}
    for k in wrt if asked else ():
        reached = _reached(graph, live, [graph.inputs[k]])
        found.update((k, why) for i, why in reversed(asked) if i in reached)
    return found


def backward(
    graph: Graph, env: Mapping[int, Tracer], cts: Mapping[int, Tracer], wrt: Sequence[int]
) -> dict[int, Any]:
    """The cotangent of every node that depends on `wrt`, from cotangents of some."""
    found: dict[int, Any] = dict(cts)
    live = graph.live(cts)
    reached = _reached(graph, live, wrt)
    for i in reversed(live):
        n = graph.nodes[i]
        if i not in found or i not in reached or i in wrt:
            continue
        if n.prim == "item":
            found.setdefault(n.args[0], {})[n["k"]] = found[i]
            continue
        xs = [env[a] for a in n.args]
        active = [a in reached for a in n.args]
        with env[i].graph.written_at(graph.lines.get(i, "")):
            if n.prim == "call":
                n["function"].check_asked(k for k, is_active in enumerate(active) if is_active)
                back = n["function"].pull(xs, _items(graph, env, i), found[i])
            else:
                back = vjp_of(n, xs, env[i], _as_wide(n, found[i], env[i], xs, active), active)
            for a, x, ct, is_active in zip(n.args, xs, back, active, strict=True):
                if ct is not None and is_active:
                    ct = narrowed(ct, x)
                    found[a] = found[a] + ct if a in found else ct
    return found


def _as_wide(n: Node, ct: Tracer, out: Tracer, xs: Tracers, active: Sequence[bool]) -> Tracer:
    """The cotangent of out at its full shape, unless the rule broadcasts it anyhow."""
    shapes = {x.dims for x, is_active in zip(xs, active, strict=True) if is_active}
    kind = PRIMITIVES[n.prim].kind
    narrow = kind == "reduce" or (
        kind in ("elementwise", "select", "cast", "identity") and shapes == {out.dims}
    )
    return ct if narrow else resized("broadcast_to", ct, out.dims)


def forward(
    graph: Graph,
    env: Mapping[int, Tracer],
    ts: Mapping[int, Tracer],
    roots: Sequence[int] | None = None,
) -> dict[int, Any]:
    """The tangent of every node that the roots need, from tangents of some."""
    found: dict[int, Any] = dict(ts)
    for i in graph.live(roots):
        n = graph.nodes[i]
        if i in found or not any(a in found for a in n.args):
            continue
        if n.prim == "item":
            if (t := found[n.args[0]].get(n["k"])) is not None:
                found[i] = t
            continue
        xs, tangents = [env[a] for a in n.args], [found.get(a) for a in n.args]
        with env[i].graph.written_at(graph.lines.get(i, "")):
            if n.prim == "call":
                n["function"].check_asked(k for k, t in enumerate(tangents) if t is not None)
                found[i] = n["function"].push(xs, _items(graph, env, i), tangents)
            elif (t := jvp_of(n, xs, env[i], tangents)) is not None and is_float(n.dtype):
                found[i] = widened(t, env[i])
    return found
