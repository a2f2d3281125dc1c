"""Derivatives as functions, with JAX's signatures: grad, value_and_grad, vjp, jvp."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Never

import numpy

from . import tree
from .adjoint import widened
from .derive import backward, forward
from .errors import SignatureError, TraceError
from .graph import Graph
from .op import Engine, Op
from .signature import plain
from .trace import Tracer, lift
from .trace.tracer import here, is_float, node

np: Any = numpy  # applied to tracers, which its stubs do not know

Argnums = int | tuple[int, ...] | list[int]


def _variables(
    args: Sequence[Any], argnums: Sequence[int]
) -> tuple[list[Any], list[Tracer | None]]:
    """The arguments, those to differentiate by as variables of their own; integers have none."""
    graph = here(*tree.flatten(list(args))[0])
    found: list[Tracer | None] = []
    new = list(args)
    for k in argnums:
        leaves, spec = tree.flatten(args[k])
        variables = [_variable(lift(graph, leaf)) for leaf in leaves]
        pairs = zip(leaves, variables, strict=True)
        new[k] = tree.unflatten(spec, [leaf if v is None else v for leaf, v in pairs])
        found += variables
    return new, found


def _variable(x: Tracer) -> Tracer | None:
    """x under a name of its own, so that an equal value elsewhere is not differentiated by."""
    if not is_float(x.node.dtype):
        return None
    return node(x.graph, "variable", [x], id=len(x.graph.nodes))


def _environment(graph: Graph) -> dict[int, Tracer]:
    return {i: Tracer(graph, i) for i in range(len(graph.nodes))}


def _engine(function: Callable[..., Any]) -> Engine:
    """What computes the derivative of an op is what computes the op."""
    return function.engine if isinstance(function, Op) else "auto"


def _positions(argnums: Argnums, count: int, name: str) -> tuple[int, ...]:
    asked = tuple(argnums) if isinstance(argnums, (tuple, list)) else (argnums,)
    if any(not isinstance(k, int) or not -count <= k < count for k in asked):
        raise SignatureError(
            f"argnums={argnums!r} of {name}, which was called with {count} arguments",
            "a position among them",
        )
    return tuple(k % count for k in asked)


def _pulled(graph: Graph, cts: dict[int, Tracer], variables: Sequence[Tracer | None]) -> list[Any]:
    """The cotangents of the variables, ``None`` where there is none."""
    smooth = [x for x in variables if x is not None]
    got = backward(graph, _environment(graph), cts, [x.i for x in smooth])
    return [None if x is None else widened(got.get(x.i, 0), x) for x in variables]


def _derivative(
    function: Callable[..., Any], argnums: Argnums, combine: Callable[[Any, Any], Any]
) -> Op[Any]:
    name = getattr(function, "__name__", "f")
    engine = _engine(function)
    function = plain(function)

    @functools.wraps(function)
    def body(*args: Any, **options: Any) -> Any:
        positions = _positions(argnums, len(args), name)
        new, variables = _variables(args, positions)
        graph = here(*tree.flatten(list(args))[0])
        if any(x is None for x in variables):
            raise SignatureError(
                f"the gradient of {name} by an argument of integers",
                "argnums of float arguments, or x.astype(np.float32)",
            )
        out = lift(graph, function(*new, **options))
        if out.ndim or not is_float(out.node.dtype):
            raise TraceError(
                f"the gradient of {name}, whose value is {out.node.dtype} with {out.ndim} "
                "dimensions",
                "a function that returns one float: np.sum or np.mean of it",
            )
        back = iter(_pulled(graph, {out.i: widened(1, out)}, variables))
        parts = [
            tree.unflatten(spec, [next(back) for _ in range(tree.leaves_of(spec))])
            for spec in (tree.flatten(args[k])[1] for k in positions)
        ]
        return combine(out, parts[0] if isinstance(argnums, int) else tuple(parts))

    return Op(body, engine)


def grad(
    function: Callable[..., Any], argnums: Argnums = 0, **unknown: Never
) -> Callable[..., Any]:
    """Return the function that gives the gradient of a scalar function.

    Shapes and dtypes are those of the arguments named by `argnums`, which may be trees of arrays.

    The function is traced, as an op is: what it captures may be bound anew, but captured arrays are
    copied and attributes are read when it is traced. Pass what changes as an argument.
    >>> import numpy as np, gradwright as gw
    >>> gw.grad(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    _refuse("grad", unknown)
    return _derivative(function, argnums, lambda out, back: back)


def value_and_grad(
    function: Callable[..., Any], argnums: Argnums = 0, **unknown: Never
) -> Callable[..., tuple[Any, Any]]:
    """Return the function that gives a scalar function's value and its gradient.

    >>> import numpy as np, gradwright as gw
    >>> gw.value_and_grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    _refuse("value_and_grad", unknown)
    return _derivative(function, argnums, lambda out, back: (out, back))


def _refuse(name: str, unknown: Mapping[str, Any]) -> None:
    """Raise at options of JAX's function of that name."""
    if unknown:
        raise SignatureError(
            f"gw.{name} has no option {', '.join(unknown)}",
            "argnums; what has_aux returns beside the loss: a second call, or gw.vjp of a function "
            "with several outputs",
        )


def vjp(function: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return ``f(*primals)`` and the function from a cotangent of it to those of the primals.

    Integers have none: their place holds ``None``.

    >>> import numpy as np, gradwright as gw
    >>> out, pull = gw.vjp(np.sin, np.array([0.0]))
    >>> pull(np.array([2.0]))
    (array([2.]),)
    """

    def pull_body(ct: Any, *args: Any) -> Any:
        new, variables = _variables(args, range(len(args)))
        graph = here(*tree.flatten(list(args))[0])
        leaves, spec = tree.flatten(function(*new))
        outs = [lift(graph, out) for out in leaves]
        cts = tree.flatten_like(spec, ct, _no_fit("cotangents", "outputs"))
        roots: dict[int, Tracer] = {}
        for out, c in zip(outs, cts, strict=True):
            if c is not None and is_float(out.node.dtype):
                c = widened(c, out)
                roots[out.i] = roots[out.i] + c if out.i in roots else c
        back = iter(_pulled(graph, roots, variables))
        specs = [tree.flatten(arg)[1] for arg in args]
        return tuple(
            tree.unflatten(s, [next(back) for _ in range(tree.leaves_of(s))]) for s in specs
        )

    run = function if isinstance(function, Op) else Op(plain(function))
    pull_body.__name__ = f"the vjp of {run.name}"
    out, pull = run(*primals), Op(pull_body, _engine(function))

    def checked(ct: Any) -> Any:
        _check_sizes("cotangents", ct, "outputs", out, run.name)
        return pull(ct, *primals)

    return out, checked


def jvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Return ``f(*primals)`` and its derivative in the direction of the tangents.

    Integers have none: their place holds ``None``.

    >>> import numpy as np, gradwright as gw
    >>> gw.jvp(np.square, (np.array([3.0]),), (np.array([1.0]),))
    (array([9.]), array([6.]))
    """

    name = getattr(function, "__name__", "f")
    function = plain(function)

    def body(primals: Any, tangents: Any) -> Any:
        new, variables = _variables(primals, range(len(primals)))
        graph = here(*tree.flatten(list(primals))[0])
        leaves, spec = tree.flatten(function(*new))
        outs = [lift(graph, out) for out in leaves]
        spec_in = tree.flatten(tuple(primals))[1]
        ts = tree.flatten_like(spec_in, tuple(tangents), _no_fit("tangents", "primals"))
        known = {}
        for x, t in zip(variables, ts, strict=True):
            if x is None and t is not None:
                raise SignatureError("a tangent of integers", "None for arguments of integers")
            if x is not None and t is not None:
                known[x.i] = widened(t, x)
        got = forward(graph, _environment(graph), known, [out.i for out in outs])
        smooth = [is_float(out.node.dtype) for out in outs]
        pairs = zip(outs, smooth, strict=True)
        moved = [widened(got.get(out.i, 0), out) if s else None for out, s in pairs]
        return tree.unflatten(spec, outs), tree.unflatten(spec, moved)

    body.__name__ = f"the jvp of {name}"
    if not (isinstance(primals, (tuple, list)) and isinstance(tangents, (tuple, list))):
        raise SignatureError(
            f"gw.jvp of {name} with arrays in the place of tuples",
            "gw.jvp(f, (x,), (dx,)), one of each for every argument",
        )
    _check_sizes("tangents", tuple(tangents), "primals", tuple(primals), name)
    out, moved = Op(body, _engine(function))(tuple(primals), tuple(tangents))
    return out, moved


def _check_sizes(seeds: str, given: Any, like: str, wanted: Any, name: str) -> None:
    """Raise unless seeds have the shapes of what they belong to, or can be broadcast to them."""
    leaves, spec = tree.flatten(wanted)
    found = tree.flatten_like(spec, given, _no_fit(seeds, like))
    for seed, x in zip(found, leaves, strict=True):
        got, sizes = _sizes(seed), _sizes(x)
        if got is None or sizes is None:
            continue
        pairs = zip(got[::-1], sizes[::-1], strict=False)
        if len(got) > len(sizes) or any(d not in (1, e, None) and e is not None for d, e in pairs):
            raise SignatureError(
                f"{seeds} of {name} have shape {got} where its {like} have {sizes}",
                f"{seeds} of the shapes of the {like}",
            )


def _sizes(x: Any) -> tuple[int | None, ...] | None:
    """The sizes of an array as far as they are known here."""
    try:
        sizes = x.dims if isinstance(x, Tracer) else tuple(getattr(x, "shape", ()))
    except ValueError:  # a tensor of unknown rank
        return None
    return tuple(d if isinstance(d, int) else None for d in sizes)


def _no_fit(seeds: str, like: str) -> Callable[[str], SignatureError]:
    return lambda what: SignatureError(f"the {seeds} have {what}", f"{seeds} like the {like}")


def stop_gradient(x: Any, /) -> Any:
    """Return x; no derivative passes through.

    >>> import numpy as np, gradwright as gw
    >>> gw.grad(lambda x: np.sum(x * gw.stop_gradient(x)))(np.array([3.0]))
    array([3.])
    """
    if isinstance(x, Tracer):
        return node(x.graph, "stop_gradient", [x])
    return x if isinstance(x, (np.ndarray, np.generic)) else np.asarray(x)[()]
