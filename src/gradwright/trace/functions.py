"""NumPy's functions on tracers: a node each, or a composition written once, in NumPy."""

import operator
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from .. import dims
from ..dims import Dim, Shape
from ..errors import TraceError
from ..kinds import accumulated, loop
from . import indexing as indexing  # fills in __getitem__ and np.take
from .tracer import (
    FUNCTIONS,
    Tracer,
    axes_of,
    cast,
    count,
    dim_of,
    elementwise,
    here,
    is_float,
    lift,
    node,
    strong,
)

np: Any = numpy  # applied to tracers, which its stubs do not know


def _implements(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(functions, handler))
        return handler

    return register


# --- sizes -------------------------------------------------------------------------------------
def _dims(shape: Any) -> list[Dim]:
    """A shape as the user gives it, sizes of other arrays among it."""
    entries = shape if isinstance(shape, (tuple, list)) else (shape,)
    known = [dim_of(d) for d in entries]
    return [operator.index(e) if d is None else d for d, e in zip(known, entries, strict=True)]


def resized(prim: str, x: Tracer, shape: Sequence[Dim]) -> Tracer:
    """reshape, broadcast_to or unbroadcast to a shape, unless x has it already."""
    if x.dims == tuple(shape):
        return x
    return node(x.graph, prim, [x], shape=tuple(shape))


FUNCTIONS[np.shape] = lambda a: a.shape
FUNCTIONS[np.ndim] = lambda a: a.ndim
FUNCTIONS[np.size] = lambda a, axis=None: a.size if axis is None else a.shape[axis]


@_implements(np.reshape)
def reshape(a: Tracer, /, shape: Any, order: str = "C") -> Tracer:
    if order != "C":
        raise TraceError(f"np.reshape with order={order!r}", "np.transpose, then np.reshape")
    new = _dims(shape)
    total = dims.product(a.dims)
    if -1 in new:
        k = new.index(-1)
        new[k] = dims.arith("//", total, dims.product(new[:k] + new[k + 1 :]))
    wanted = dims.product(new)
    if isinstance(total, int) and isinstance(wanted, int) and total != wanted:
        raise TraceError(f"{list(a.dims)} cannot be reshaped to {shape}", "a shape of that size")
    return resized("reshape", strong(a), new)  # weak numbers have no dimensions


@_implements(np.broadcast_to)
def broadcast_to(array: Tracer, shape: Any) -> Tracer:
    return resized("broadcast_to", strong(array), _dims(shape))


@_implements(np.ravel)
def ravel(a: Tracer) -> Any:
    return reshape(a, (-1,))


@_implements(np.transpose)
def transpose(a: Tracer, axes: Sequence[int] | None = None) -> Tracer:
    order = range(a.ndim)[::-1] if axes is None else [operator.index(k) % a.ndim for k in axes]
    if sorted(order) != list(range(a.ndim)):
        raise TraceError(f"axes {axes} of an array of {a.ndim} dimensions", "each axis once")
    return a if list(order) == sorted(order) else node(a.graph, "transpose", [a], axes=tuple(order))


@_implements(np.swapaxes)
def swapaxes(a: Tracer, axis1: int, axis2: int) -> Any:
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(a, order)


@_implements(np.moveaxis)
def moveaxis(a: Tracer, source: Any, destination: Any) -> Any:
    pairs = [
        [k % a.ndim for k in (axes if isinstance(axes, (tuple, list)) else (axes,))]
        for axes in (source, destination)
    ]
    order = [k for k in range(a.ndim) if k not in pairs[0]]
    for to, k in sorted(zip(pairs[1], pairs[0], strict=True)):
        order.insert(to, k)
    return transpose(a, order)


@_implements(np.expand_dims)
def expand_dims(a: Tracer, axis: Any) -> Tracer:
    added = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = axes_of(axis, a.ndim + added)
    return node(a.graph, "expand_dims", [strong(a)], axis=axes) if axes else a


@_implements(np.squeeze)
def squeeze(a: Tracer, axis: Any = None) -> Tracer:
    axes = (
        tuple(k for k in range(a.ndim) if operator.index(a.shape[k]) == 1)
        if axis is None
        else axes_of(axis, a.ndim)
    )
    wrong = [k for k in axes if a.dims[k] != 1 and isinstance(a.dims[k], int)]
    if wrong:
        raise TraceError(
            f"axis {wrong[0]} of size {a.dims[wrong[0]]} squeezed", "an axis of size 1"
        )
    return node(a.graph, "squeeze", [a], axis=axes) if axes else a


# --- joining, reordering -----------------------------------------------------------------------
def _common(values: Sequence[Any], shaped: bool = True) -> list[Tracer]:
    """Lift values and cast them to the dtype in which NumPy would join them."""
    graph = here(*values)
    xs = [lift(graph, v) for v in values]
    strong = [x.dtype for x in xs] if shaped else None
    dtype = np.result_type(*strong).name if strong else loop("add", [x.node.dtype for x in xs])[1]
    return [cast(x, dtype) for x in xs]


@_implements(np.concatenate)
def concatenate(arrays: Sequence[Any], /, axis: int | None = 0) -> Tracer:
    xs = _common(list(arrays))
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    axis = axes_of(axis, xs[0].ndim)[0]
    return node(xs[0].graph, "concatenate", xs, axis=axis) if len(xs) > 1 else xs[0]


@_implements(np.stack)
def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    graph = here(*arrays)
    return concatenate([expand_dims(lift(graph, x), axis) for x in arrays], axis)


def _at_least(x: Any, rank: int) -> Any:
    """x with axes of size 1 put in front."""
    return x if np.ndim(x) >= rank else np.expand_dims(x, tuple(range(rank - np.ndim(x))))


@_implements(np.atleast_1d)
def atleast_1d(a: Tracer) -> Any:
    return _at_least(a, 1)


@_implements(np.atleast_2d)
def atleast_2d(a: Tracer) -> Any:
    return _at_least(a, 2)


@_implements(np.vstack)
def vstack(tup: Sequence[Any]) -> Any:
    return concatenate([_at_least(x, 2) for x in tup], 0)


@_implements(np.hstack)
def hstack(tup: Sequence[Any]) -> Any:
    xs = [_at_least(x, 1) for x in tup]
    return concatenate(xs, 0 if np.ndim(xs[0]) == 1 else 1)


@_implements(np.column_stack)
def column_stack(tup: Sequence[Any]) -> Any:
    return concatenate([x[:, None] if np.ndim(x) == 1 else x for x in tup], 1)


@_implements(np.split, np.array_split)
def split(ary: Tracer, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    if isinstance(indices_or_sections, int):
        size = operator.index(ary.shape[axis])
        cuts = [len(part) for part in np.array_split(range(size), indices_or_sections)]
        cuts = np.cumsum(cuts)[:-1].tolist()
    else:
        cuts = list(indices_or_sections)
    before = (slice(None),) * (axis % ary.ndim)
    bounds = zip([None, *cuts], [*cuts, None], strict=True)
    return [ary[(*before, slice(start, stop))] for start, stop in bounds]


@_implements(np.flip)
def flip(m: Tracer, axis: Any = None) -> Tracer:
    axes = axes_of(axis, m.ndim)
    return node(m.graph, "flip", [m], axis=axes) if axes else m


FUNCTIONS[np.flipud] = lambda m: flip(m, 0)
FUNCTIONS[np.fliplr] = lambda m: flip(m, 1)


@_implements(np.roll)
def roll(a: Tracer, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), a.shape)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    pairs = tuple(
        (operator.index(s), axes_of(k, a.ndim)[0]) for s, k in zip(shifts, axes, strict=True)
    )
    return node(
        a.graph, "roll", [a], shift=tuple(s for s, _ in pairs), axis=tuple(k for _, k in pairs)
    )


@_implements(np.diff)
def diff(a: Tracer, n: int = 1, axis: int = -1) -> Tracer:
    before = (slice(None),) * (axis % a.ndim)
    for _ in range(n):
        a = a[(*before, slice(1, None))] - a[(*before, slice(None, -1))]
    return a


# --- choosing ----------------------------------------------------------------------------------
@_implements(np.where)
def where(condition: Any, /, *choices: Any) -> Tracer:
    if len(choices) != 2:
        raise TraceError(
            "np.where(condition) gives indices, whose number depends on values",
            "np.where(condition, a, b)",
        )
    c = lift(here(condition, *choices), condition)
    x, y = (_lifted(c, v) for v in choices)
    dtype = loop("add", [x.node.dtype, y.node.dtype])[1]
    # NumPy gives an array for numbers too: then it is 64-bit
    dtype = np.dtype({"int": "int64", "float": "float64"}.get(dtype, dtype)).name
    c, x, y = cast(c, "bool"), cast(x, dtype), cast(y, dtype)
    if c.node.prim == "const" and not c.dims:  # known while tracing, as in the derivative of x**2
        chosen = x if c.node["value"] else y
        return resized("broadcast_to", chosen, dims.broadcast(x.dims, y.dims))
    return node(c.graph, "where", [c, x, y])


def _lifted(like: Tracer, value: Any) -> Tracer:
    return lift(like.graph, value)


@_implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    out = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        out = np.where(condition, choice, out)
    return out


@_implements(np.clip)
def clip(
    a: Any, /, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None
) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if low is not None:
        a = np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


# --- reductions --------------------------------------------------------------------------------
def reduction(name: str) -> Callable[..., Tracer]:
    def reduce(a: Tracer, /, axis: Any = None, *, keepdims: bool = False) -> Tracer:
        if name in ("sum", "prod"):
            a = cast(a, accumulated(a.node.dtype))
        elif name in ("all", "any"):
            a = cast(a, "bool")
        axes = axes_of(axis, a.ndim)
        return node(a.graph, name, [a], axis=axes, keepdims=bool(keepdims)) if axes else a

    reduce.__name__ = name
    return reduce


for _name in ["sum", "prod", "max", "min", "all", "any"]:
    _reduce = reduction(_name)
    FUNCTIONS[getattr(np, _name)] = _reduce
FUNCTIONS[np.amax], FUNCTIONS[np.amin] = FUNCTIONS[np.max], FUNCTIONS[np.min]


def _arg_reduction(name: str) -> Callable[..., Tracer]:
    def reduce(a: Tracer, /, axis: int | None = None, *, keepdims: bool = False) -> Tracer:
        if axis is None:
            flat = reduce(ravel(a), 0)
            return resized("reshape", flat, (1,) * a.ndim) if keepdims else flat
        return node(a.graph, name, [a], axis=axes_of(axis, a.ndim), keepdims=bool(keepdims))

    reduce.__name__ = name
    return reduce


FUNCTIONS[np.argmax], FUNCTIONS[np.argmin] = _arg_reduction("argmax"), _arg_reduction("argmin")


@_implements(np.mean)
def mean(a: Tracer, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    dtype = a.node.dtype
    # as NumPy sums: integers and small floats could overflow
    small = {"float16": "float32", "bfloat16": "float32"}
    wide = small.get(dtype, dtype) if is_float(dtype) else "float64"
    out = np.sum(cast(a, wide), axis=axis, keepdims=keepdims) / count(a, axes_of(axis, a.ndim))
    return cast(out, dtype) if is_float(dtype) else out


@_implements(np.var)
def var(a: Tracer, /, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
    centred = a - np.mean(a, axis=axis, keepdims=True)
    size = count(a, axes_of(axis, a.ndim)) - ddof
    return np.sum(centred * centred, axis=axis, keepdims=keepdims) / size


@_implements(np.std)
def std(a: Tracer, /, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
    return np.sqrt(np.var(a, axis=axis, ddof=ddof, keepdims=keepdims))


@_implements(np.count_nonzero)
def count_nonzero(a: Tracer, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    return np.sum(a != 0, axis=axis, keepdims=keepdims)


@_implements(np.ptp)
def ptp(a: Tracer, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    return np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)


@_implements(np.linalg.norm)
def norm(x: Tracer, /, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> Any:
    vector = x.ndim == 1 or isinstance(axis, int)
    if not (ord is None or (vector and ord == 2)):
        raise TraceError(f"np.linalg.norm with ord={ord}", "the norm as an expression of np.sum")
    total = np.sum(np.square(x), axis=axis, keepdims=keepdims)
    # the same number, and at 0, where the norm has a kink, a derivative of 0
    return np.where(total == 0, 0, np.sqrt(np.where(total == 0, 1, total)))


@_implements(np.cumsum)
def cumsum(a: Tracer, /, axis: int | None = None) -> Any:
    if axis is None:
        return cumsum(ravel(a), 0)
    a = cast(a, accumulated(a.node.dtype))
    return node(a.graph, "cumsum", [a], axis=axes_of(axis, a.ndim)[0])


_REDUCTIONS = {
    "add": np.sum,
    "multiply": np.prod,
    "maximum": np.max,
    "minimum": np.min,
    "logical_and": np.all,
    "logical_or": np.any,
}
for _name, _function in _REDUCTIONS.items():
    FUNCTIONS[_name, "reduce"] = lambda a, /, axis=0, keepdims=False, _f=_function: _f(
        a, axis=axis, keepdims=keepdims
    )
FUNCTIONS["add", "accumulate"] = lambda a, /, axis=0: np.cumsum(a, axis=axis)


def _outer_of(name: str) -> Callable[..., Tracer]:
    def outer(a: Any, b: Any, /) -> Tracer:
        graph = here(a, b)
        x, y = lift(graph, a), lift(graph, b)
        return elementwise(name, expand_dims(x, tuple(range(x.ndim, x.ndim + y.ndim))), y)

    return outer


for _name in ["add", "subtract", "multiply", "divide", "maximum", "minimum", "equal"]:
    FUNCTIONS[_name, "outer"] = _outer_of(_name)


# --- products ----------------------------------------------------------------------------------
@_implements(np.matmul)
def matmul(a: Any, b: Any, /) -> Any:
    """``a @ b``; vectors are taken as rows and columns, as NumPy does."""
    x, y = _common([a, b])
    if not x.ndim or not y.ndim:
        raise TraceError("@ of an array without dimensions", "a * b")
    if x.ndim == 1:
        return squeeze(matmul(expand_dims(x, 0), y), -2 if y.ndim > 1 else -1)
    if y.ndim == 1:
        return squeeze(matmul(x, expand_dims(y, 1)), -1)
    inner = x.dims[-1], y.dims[-2]
    if all(isinstance(d, int) for d in inner) and inner[0] != inner[1]:
        raise TraceError(f"@ of shapes {list(x.dims)} and {list(y.dims)}", "sizes that agree")
    return node(x.graph, "matmul", [x, y])


@_implements(np.einsum)
def einsum(subscripts: str, /, *operands: Any, optimize: Any = True) -> Tracer:
    xs = _common(list(operands))
    terms = _explicit(subscripts.replace(" ", ""), [x.ndim for x in xs])
    return node(xs[0].graph, "einsum", xs, subscripts=terms)


def _explicit(subscripts: str, ranks: Sequence[int]) -> str:
    """Subscripts with the output written out, and letters for the dots."""
    left, arrow, right = subscripts.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise TraceError(f"{subscripts!r} for {len(ranks)} arrays", "one term for each array")
    free = [c for c in string.ascii_letters if c not in subscripts]
    dotted = [
        r - len(t.replace("...", "")) if "..." in t else 0
        for t, r in zip(terms, ranks, strict=True)
    ]
    dots = free[: max(dotted, default=0)]
    if not arrow:
        once = sorted(c for c in set(left) - set(".,") if left.count(c) == 1)
        right = ("..." if dots else "") + "".join(once)
    spelled = [
        t.replace("...", "".join(dots[len(dots) - k :])) for t, k in zip(terms, dotted, strict=True)
    ]
    if any(len(t) != r for t, r in zip(spelled, ranks, strict=True)):
        raise TraceError(
            f"{subscripts!r} for arrays of {list(ranks)} dimensions", "a letter an axis"
        )
    return ",".join(spelled) + "->" + right.replace("...", "".join(dots))


@_implements(np.dot)
def dot(a: Any, b: Any, /) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        return np.multiply(a, b)
    if np.ndim(b) <= 2:
        return np.matmul(a, b)
    return np.tensordot(a, b, ((-1,), (-2,)))


@_implements(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    return np.tensordot(a, b, ((-1,), (-1,))) if np.ndim(a) and np.ndim(b) else np.multiply(a, b)


@_implements(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    return np.sum(np.ravel(a) * np.ravel(b))


@_implements(np.outer)
def outer(a: Any, b: Any) -> Any:
    return np.ravel(a)[:, None] * np.ravel(b)


@_implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    na, nb = np.ndim(a), np.ndim(b)
    if isinstance(axes, int):
        axes = (range(na - axes, na), range(axes))
    left, right = (
        [k % n for k in (side if isinstance(side, (tuple, list, range)) else (side,))]
        for side, n in zip(axes, (na, nb), strict=True)
    )
    term_a = list(string.ascii_letters[:na])
    term_b = list(string.ascii_letters[na : na + nb])
    for i, j in zip(left, right, strict=True):
        term_b[j] = term_a[i]
    out = [c for c in term_a if c not in term_b] + [c for c in term_b if c not in term_a]
    return np.einsum(f"{''.join(term_a)},{''.join(term_b)}->{''.join(out)}", a, b)


# --- making arrays like others -----------------------------------------------------------------
def _filled(like: Tracer, value: Any, dtype: Any, shape: Any) -> Tracer:
    name = like.dtype.name if dtype is None else np.dtype(dtype).name
    target: Shape = like.dims if shape is None else tuple(_dims(shape))
    return resized("broadcast_to", cast(lift(like.graph, value), name), target)


FUNCTIONS[np.zeros_like] = lambda a, dtype=None, shape=None: _filled(a, 0, dtype, shape)
FUNCTIONS[np.ones_like] = lambda a, dtype=None, shape=None: _filled(a, 1, dtype, shape)
FUNCTIONS[np.full_like] = lambda a, fill_value, dtype=None, shape=None: _filled(
    a, fill_value, dtype, shape
)
FUNCTIONS[np.copy] = lambda a: a
FUNCTIONS[np.real] = lambda val: val
FUNCTIONS[np.fix] = lambda x: np.trunc(x)
FUNCTIONS[np.iscomplexobj] = lambda x: False
FUNCTIONS[np.result_type] = lambda *xs: np.result_type(*(getattr(x, "dtype", x) for x in xs))


@_implements(np.round, np.around)
def round_(a: Tracer, decimals: int = 0) -> Any:
    if not is_float(a.node.dtype):
        return a
    return np.rint(a) if decimals == 0 else np.rint(a * 10.0**decimals) / 10.0**decimals


@_implements(np.sinc)
def sinc(x: Tracer) -> Any:
    y = np.pi * np.where(x == 0, 1e-20, x)
    return np.sin(y) / y
