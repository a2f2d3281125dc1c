"""Derivatives as functions, with JAX's signatures: grad, value_and_grad, vjp, jvp."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import tree
from .derive import backward, fit, forward, zeros
from .errors import SignatureError, TraceError
from .op import Op
from .trace import Tracer, lift
from .trace.tracer import graph_of, is_float, node

Argnums = int | tuple[int, ...]


def _variables(args: Sequence[Any], argnums: Sequence[int]) -> tuple[list[Any], list[Tracer]]:
    """The arguments, those to differentiate by as variables of their own."""
    graph = graph_of(tree.flatten(list(args))[0])
    assert graph is not None, "differentiation runs inside a trace"
    found: list[Tracer] = []
    new = list(args)
    for k in argnums:
        leaves, spec = tree.flatten(args[k])
        variables = []
        for leaf in leaves:
            x = lift(graph, leaf)
            if not is_float(x.node.dtype):
                raise SignatureError(
                    f"a derivative by argument {k}, which is {x.node.dtype}",
                    "a float argument: x.astype(np.float32)",
                )
            # a name of its own, so that an equal value elsewhere is not differentiated by
            variables.append(node(graph, "variable", [x], id=len(graph.nodes)))
        new[k] = tree.unflatten(spec, variables)
        found += variables
    return new, found


def _environment(x: Tracer) -> dict[int, Tracer]:
    return {i: Tracer(x.graph, i) for i in range(len(x.graph.nodes))}


def _positions(argnums: Argnums, count: int, name: str) -> tuple[int, ...]:
    asked = argnums if isinstance(argnums, tuple) else (argnums,)
    if any(not -count <= k < count for k in asked):
        raise SignatureError(
            f"argnums={argnums} of {name}, which was called with {count} arguments",
            "a position among them",
        )
    return tuple(k % count for k in asked)


def _pulled(out: Tracer, ct: Any, variables: Sequence[Tracer]) -> list[Tracer]:
    got = backward(out.graph, _environment(out), {out.i: fit(ct, out)})
    return _or_zeros(got, variables)


def _or_zeros(found: dict[int, Any], xs: Sequence[Tracer]) -> list[Tracer]:
    return [found[x.i] if x.i in found else zeros(x) for x in xs]


def _derivative(
    function: Callable[..., Any], argnums: Argnums, combine: Callable[[Any, Any], Any]
) -> Op[Any]:
    name = getattr(function, "__name__", "f")
    function = _plain(function)

    @functools.wraps(function)
    def body(*args: Any, **options: Any) -> Any:
        positions = _positions(argnums, len(args), name)
        new, variables = _variables(args, positions)
        out = function(*new, **options)
        if not isinstance(out, Tracer):
            out = lift(variables[0].graph, out)
        if out.ndim or not is_float(out.node.dtype):
            raise TraceError(
                f"the gradient of {name}, whose value is {out.node.dtype} with {out.ndim} "
                "dimensions",
                "a function that returns one float: np.sum or np.mean of it",
            )
        back = iter(_pulled(out, 1, variables))
        parts = [
            tree.unflatten(spec, [next(back) for _ in range(tree.leaves_of(spec))])
            for spec in (tree.flatten(args[k])[1] for k in positions)
        ]
        return combine(out, tuple(parts) if isinstance(argnums, tuple) else parts[0])

    return Op(body)


def grad(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that gives the gradient of a scalar function.

    Shapes and dtypes are those of the arguments named by `argnums`, which may be trees of arrays.

    >>> import numpy as np, gradwright as gw
    >>> gw.grad(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    return _derivative(function, argnums, lambda out, back: back)


def value_and_grad(
    function: Callable[..., Any], argnums: Argnums = 0
) -> Callable[..., tuple[Any, Any]]:
    """Return the function that gives a scalar function's value and its gradient.

    >>> import numpy as np, gradwright as gw
    >>> gw.value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    return _derivative(function, argnums, lambda out, back: (out, back))


def vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return ``f(*primals)`` and the function from a cotangent of it to those of the primals.

    >>> import numpy as np, gradwright as gw
    >>> out, pull = gw.vjp(np.sin, np.array([0.0]))
    >>> pull(np.array([2.0]))
    (array([2.]),)
    """

    def pull_body(ct: Any, *args: Any) -> Any:
        new, variables = _variables(args, range(len(args)))
        outs = [lift(variables[0].graph, out) for out in tree.flatten(function(*new))[0]]
        cts = tree.flatten(ct)[0]
        if len(cts) != len(outs):
            raise SignatureError(
                f"{len(cts)} cotangents for {len(outs)} outputs", "one for each output"
            )
        roots: dict[int, Tracer] = {}
        for out, c in zip(outs, cts, strict=True):
            if is_float(out.node.dtype):
                c = fit(c, out)
                roots[out.i] = roots[out.i] + c if out.i in roots else c
        got = backward(variables[0].graph, _environment(variables[0]), roots)
        back = iter(_or_zeros(got, variables))
        specs = [tree.flatten(arg)[1] for arg in args]
        return tuple(
            tree.unflatten(s, [next(back) for _ in range(tree.leaves_of(s))]) for s in specs
        )

    pull = Op(pull_body)
    run = function if isinstance(function, Op) else Op(_plain(function))
    return run(*primals), lambda ct: pull(ct, *primals)


def jvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Return ``f(*primals)`` and its derivative in the direction of the tangents.

    >>> import numpy as np, gradwright as gw
    >>> gw.jvp(np.square, (np.array([3.0]),), (np.array([1.0]),))
    (array([9.]), array([6.]))
    """

    def body(primals: Any, tangents: Any) -> Any:
        new, variables = _variables(primals, range(len(primals)))
        leaves, spec = tree.flatten(function(*new))
        graph = variables[0].graph
        outs = [lift(graph, out) for out in leaves]
        ts = tree.flatten_like(tree.flatten(tuple(primals))[1], tuple(tangents), _no_fit)
        known = {
            x.i: fit(t, x) for x, t in zip(variables, ts, strict=True) if t is not None
        }
        got = forward(graph, _environment(variables[0]), known, [out.i for out in outs])
        return tree.unflatten(spec, outs), tree.unflatten(spec, _or_zeros(got, outs))

    return Op(body)(tuple(primals), tuple(tangents))  # type: ignore[no-any-return]


def _no_fit(what: str) -> SignatureError:
    return SignatureError(f"the tangents have {what}", "tangents like the primals")


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose parameters are its arrays: those of a ufunc are out, where, dtype, …"""
    return (lambda *args: function(*args)) if isinstance(function, np.ufunc) else function


def stop_gradient(x: Any, /) -> Any:
    """Return x; no derivative passes through.

    >>> import numpy as np, gradwright as gw
    >>> gw.grad(lambda x: np.sum(x * gw.stop_gradient(x)))(np.array([3.0]))
    array([3.])
    """
    return node(x.graph, "stop_gradient", [x]) if isinstance(x, Tracer) else np.asarray(x)[()]
