"""The derivative of one equation: what a cotangent or a tangent becomes on its way through it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from . import dims
from .dims import Shape
from .errors import SignatureError, TraceError
from .graph import Node
from .primitives import PRIMITIVES
from .trace.functions import resized
from .trace.indexing import scattered
from .trace.tracer import Tracer, cast, lift, node

np: Any = numpy  # applied to tracers, which its stubs do not know

Tracers = Sequence[Tracer]
Maybe = Sequence[Tracer | None]


# --- cotangents fit what they belong to --------------------------------------------------------
def unbroadcast(ct: Tracer, shape: Shape) -> Tracer:
    """Sum over what broadcasting repeated."""
    return resized("unbroadcast", ct, shape)


def check_summable(got: Sequence[int], wanted: Sequence[int]) -> None:
    """Raise, when a program runs, unless sizes are those of an argument or broadcast from them."""
    last = got[len(got) - len(wanted) :]
    if len(got) < len(wanted) or any(e not in (d, 1) for d, e in zip(last, wanted, strict=True)):
        raise SignatureError(
            f"a derivative has shape {tuple(got)} where its argument has {tuple(wanted)}",
            "one cotangent of the argument's shape, or of what it was broadcast to",
        )


def narrowed(value: Any, x: Tracer) -> Tracer:
    """A cotangent of x, of its rank and dtype; a size of 1 says that all along it are equal."""
    ct = lift(x.graph, value)
    if not ct.ndim:
        ct = cast(ct, x.node.dtype)  # a weak number has no dimensions
    if ct.ndim < x.ndim:
        ct = np.expand_dims(ct, tuple(range(x.ndim - ct.ndim)))
    extra = ct.ndim - x.ndim
    target = tuple(1 if d == 1 else e for d, e in zip(ct.dims[extra:], x.dims, strict=True))
    return cast(unbroadcast(ct, target), x.node.dtype)


def widened(value: Any, x: Tracer) -> Tracer:
    """A tangent of x, or a cotangent that fits already, with a value for every element."""
    return resized("broadcast_to", cast(lift(x.graph, value), x.node.dtype), x.dims)


def fit(value: Any, x: Tracer) -> Tracer:
    """A cotangent of x: of its shape and dtype, whatever a user's rule gave."""
    return widened(narrowed(value, x), x)


def zeros(x: Tracer) -> Tracer:
    return widened(0, x)


def _spread(ct: Tracer, n: Node) -> Tracer:
    """A value for every reduced slice, which broadcasts over the slice."""
    return ct if n["keepdims"] else np.expand_dims(ct, n["axis"])


# --- the transposes of the linear primitives ---------------------------------------------------
def _same(prim: str) -> Callable[..., Any]:
    return lambda ct, xs, n: [resized(prim, ct, xs[0].dims)]


def _parts(ct: Tracer, xs: Tracers, n: Node) -> list[Tracer]:
    """Cut a cotangent where `concatenate` joined."""
    start: Any = 0
    whole = tuple(("slice", None, None, None) for _ in ct.dims)
    parts = []
    for x in xs:
        length = x.dims[n["axis"]]
        index = (*whole[: n["axis"]], ("span", start, length), *whole[n["axis"] + 1 :])
        parts.append(node(ct.graph, "getitem", [ct], index=index))
        start = dims.arith("+", start, length)
    return parts


def _matmul(ct: Tracer, xs: Tracers, n: Node) -> list[Any]:
    a, b = xs
    return [ct @ np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2) @ ct]


def _einsum(ct: Tracer, xs: Tracers, n: Node) -> list[Any]:
    """Swap the output with one term; a letter that only this term has is broadcast over."""
    terms, out = n["subscripts"].split("->")
    split = terms.split(",")
    cts = []
    for k, term in enumerate(split):
        if len(set(term)) < len(term):
            raise TraceError(
                f"the derivative of np.einsum with {term!r}, which takes a diagonal",
                "the diagonal first, as a sum with np.eye",
            )
        others = [(t, x) for j, (t, x) in enumerate(zip(split, xs, strict=True)) if j != k]
        known = set(out).union(*(t for t, _ in others))
        kept = "".join(c for c in term if c in known)
        back = np.einsum(
            f"{','.join([out, *(t for t, _ in others)])}->{kept}", ct, *(x for _, x in others)
        )
        lost = tuple(j for j, c in enumerate(term) if c not in known)
        cts.append(np.expand_dims(back, lost) if lost else back)
    return cts


_TRANSPOSES: Mapping[str, Callable[[Tracer, Tracers, Node], Sequence[Any]]] = {
    "cumsum": lambda ct, xs, n: [np.flip(np.cumsum(np.flip(ct, n["axis"]), n["axis"]), n["axis"])],
    "transpose": lambda ct, xs, n: [np.transpose(ct, np.argsort(n["axes"]).tolist())],
    "reshape": _same("reshape"),
    "expand_dims": lambda ct, xs, n: [np.squeeze(ct, n["axis"])],
    "squeeze": lambda ct, xs, n: [np.expand_dims(ct, n["axis"])],
    "broadcast_to": _same("unbroadcast"),
    "unbroadcast": _same("broadcast_to"),
    "getitem": lambda ct, xs, n: [scattered(ct, xs[0].dims, n["index"])],
    "scatter": lambda ct, xs, n: [node(ct.graph, "getitem", [ct], index=n["index"])],
    "take": lambda ct, xs, n: [
        node(ct.graph, "scatter_add", [ct, xs[1]], axis=n["axis"], shape=xs[0].dims),
        None,
    ],
    "scatter_add": lambda ct, xs, n: [np.take(ct, xs[1], n["axis"]), None],
    "concatenate": _parts,
    "flip": lambda ct, xs, n: [np.flip(ct, n["axis"])],
    "roll": lambda ct, xs, n: [np.roll(ct, tuple(-s for s in n["shift"]), n["axis"])],
    "matmul": _matmul,
    "einsum": _einsum,
    "astype": lambda ct, xs, n: [ct],
    "variable": lambda ct, xs, n: [ct],
    "global_sum": lambda ct, xs, n: [ct],
    "where": lambda ct, xs, n: [None, np.where(xs[0], ct, 0), np.where(xs[0], 0, ct)],
}
MULTILINEAR = ("matmul", "einsum")


def scaled(ct: Tracer, partial: Any) -> Any:
    """ct times a partial derivative; ``None`` where that is zero."""
    if isinstance(partial, (int, float)) and partial in (0, 1, -1):
        return {0: None, 1: ct, -1: -ct}[int(partial)]
    return ct * partial


def _partials(n: Node, xs: Tracers, out: Tracer, active: Sequence[bool]) -> Sequence[Any]:
    row = PRIMITIVES[n.prim]
    if row.kind == "reduce":
        assert row.partials is not None
        return [row.partials(xs[0], _spread(out, n), n["axis"])]
    partials = row.partials(*xs, out) if row.partials else [None] * len(xs)
    for k, (partial, is_active) in enumerate(zip(partials, active, strict=True)):
        if partial is None and is_active:
            raise TraceError(
                f"the derivative of {n.prim} with respect to its argument {k} is not known",
                "an op of your own with .partials, or gw.stop_gradient(x)",
            )
    return partials


def has_derivative(prim: str) -> bool:
    """Whether a derivative passes through the primitive at all."""
    row = PRIMITIVES[prim]
    smooth = row.kind == "elementwise" or (row.kind == "reduce" and row.partials is not None)
    return smooth or prim in _TRANSPOSES or row.kind in ("call", "item")


def vjp_of(n: Node, xs: Tracers, out: Tracer, ct: Tracer, active: Sequence[bool]) -> Sequence[Any]:
    if not has_derivative(n.prim):
        return [None] * len(xs)
    if n.prim in _TRANSPOSES:
        return _TRANSPOSES[n.prim](ct, xs, n)
    if PRIMITIVES[n.prim].kind == "reduce":
        ct = _spread(ct, n)
    partials = _partials(n, xs, out, active)
    return [scaled(ct, p) if a else None for p, a in zip(partials, active, strict=True)]


def _apply(n: Node, xs: Tracers) -> Tracer:
    """The same primitive on other arguments."""
    return node(xs[0].graph, n.prim, xs, **dict(n.params))


def _linear_jvp(n: Node, xs: Tracers, ts: Maybe) -> Any:
    if n.prim == "where":
        return np.where(
            xs[0], *(zeros(x) if t is None else t for x, t in zip(xs[1:], ts[1:], strict=True))
        )
    if n.prim in MULTILINEAR:
        terms = [_apply(n, [*xs[:k], t, *xs[k + 1 :]]) for k, t in enumerate(ts) if t is not None]
        return sum(terms[1:], terms[0])
    if n.prim == "concatenate":
        return _apply(n, [zeros(x) if t is None else t for x, t in zip(xs, ts, strict=True)])
    return None if ts[0] is None else _apply(n, [ts[0], *xs[1:]])


def jvp_of(n: Node, xs: Tracers, out: Tracer, ts: Maybe) -> Any:
    if not has_derivative(n.prim):
        return None
    if n.prim in _TRANSPOSES:
        return _linear_jvp(n, xs, ts)
    partials = _partials(n, xs, out, [t is not None for t in ts])
    terms = [scaled(t, p) for t, p in zip(ts, partials, strict=True) if t is not None]
    terms = [t for t in terms if t is not None]
    if PRIMITIVES[n.prim].kind == "reduce":
        terms = [np.sum(t, axis=n["axis"], keepdims=n["keepdims"]) for t in terms]
    return sum(terms[1:], terms[0]) if terms else None
