"""The tracer: an array that records what is done to it."""

import difflib
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy
from numpy.lib.mixins import NDArrayOperatorsMixin

from .. import dims
from ..dims import Dim, Shape
from ..errors import TraceError, user_line
from ..graph import WEAK, Frozen, Graph, Node
from ..kinds import loop, number_dtype
from ..primitives import PRIMITIVES
from . import foreign

np: Any = numpy  # applied to tracers, which its stubs do not know


# What each NumPy function does to tracers; `functions` and `indexing` fill it.
FUNCTIONS: dict[Any, Callable[..., Any]] = {}

NEAREST = {
    "cumprod": "np.exp(np.cumsum(np.log(x))) where x > 0",
    "diff": "x[1:] - x[:-1]",
    "divmod": "x // y and x % y",
    "float_power": "x.astype(float) ** y",
    "frexp": "np.floor(np.log2(np.abs(x))) for the exponent",
    "isclose": "np.abs(x - y) <= atol + rtol * np.abs(y)",
    "median": "an op of your own (sorting is no primitive)",
    "modf": "np.trunc(x) and x - np.trunc(x)",
    "nan_to_num": "np.where(np.isnan(x), 0, x)",
    "nanmean": "np.sum(np.where(np.isnan(x), 0, x)) / np.sum(~np.isnan(x))",
    "nansum": "np.sum(np.where(np.isnan(x), 0, x))",
    "nonzero": "np.where(condition, a, b), which keeps the shape",
    "repeat": "np.take(x, indices, axis)",
    "sort": "np.max, np.min or np.take (sorting is no primitive)",
    "tile": "np.concatenate or np.broadcast_to",
}


_ARITHMETIC = "an expression of NumPy's arithmetic (`gradwright primitives` lists what there is)"
_OTHERWISE = {"linalg": "an expression of @, np.einsum and np.linalg.norm"}


def unsupported(name: str) -> TraceError:
    """The error for a function that is no primitive, with its nearest equivalent."""
    module, _, _ = name.rpartition(".")
    known = [p for p, row in PRIMITIVES.items() if row.module == "numpy" and not module]
    functions = [_name_of(f) for f in FUNCTIONS if not isinstance(f, tuple)]
    known += [f for f in functions if f.rpartition(".")[0] == module]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8 if module else 0.6)
    cure = NEAREST.get(name) or (f"np.{close[0]}, if that is meant" if close else "")
    return TraceError(
        f"np.{name} is no primitive and no composition of them",
        cure or _OTHERWISE.get(module, _ARITHMETIC),
    )


def _name_of(function: Any) -> str:
    """A function's name in NumPy, ``linalg.inv``; ``add.reduce`` of a ufunc's methods."""
    if isinstance(function, tuple):
        return ".".join(function)
    module = getattr(function, "__module__", None) or ""
    inner = module.removeprefix("numpy").lstrip(".") if module.startswith("numpy.") else ""
    return f"{inner}.{function.__name__}" if inner else str(function.__name__)


def call_function(function: Any, args: Any, kwargs: Any) -> Any:
    """Apply a NumPy function to tracers."""
    name = _name_of(function)
    handler = FUNCTIONS.get(function)
    if handler is None:
        raise unsupported(name)
    try:
        inspect.signature(handler).bind(*args, **kwargs)
    except TypeError as error:
        raise TraceError(
            f"np.{name} with these arguments cannot be traced: {error}",
            f"np.{name}{inspect.signature(handler)}",
        ) from None
    return handler(*args, **kwargs)


class Specialise(Exception):
    """The function read a value as a Python number: trace again with that value fixed.

    `needs` holds ``("size", input, axis)`` and ``("value", input)``.
    """

    def __init__(self, needs: Iterable[tuple[Any, ...]]) -> None:
        super().__init__()
        self.needs = frozenset(needs)
        self.where = user_line()


def _refuse(what: str, instead: str) -> Callable[..., NoReturn]:
    def method(self: "Tracer", *args: Any, **kwargs: Any) -> NoReturn:
        raise TraceError(what, instead)

    return method


class Tracer(NDArrayOperatorsMixin):
    """Stands for an array while a function is traced; its node says what it is."""

    __array_priority__ = 1000

    def __init__(self, graph: Graph, i: int) -> None:
        self.graph, self.i = graph, i

    @property
    def node(self) -> Node:
        return self.graph.nodes[self.i]

    @property
    def dims(self) -> Shape:
        return self.node.shape

    @property
    def dtype(self) -> numpy.dtype[Any]:
        return number_dtype(self.node.dtype)

    @property
    def ndim(self) -> int:
        return len(self.dims)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(number_of(self.graph, d) for d in self.dims)

    @property
    def size(self) -> Any:
        return number_of(self.graph, dims.product(self.dims))

    def __repr__(self) -> str:
        node = self.node
        shape = ", ".join(dims.text(d, self.graph.size_text) for d in node.shape)
        line = self.graph.lines.get(self.i)
        name = self.graph.names[node["k"]] if node.prim == "input" else node.prim
        return (
            f"<traced {name}: {node.dtype}[{shape}]{f' from {line}' if line else ''}; it has no "
            "value yet. To see numbers: f.__wrapped__(…), gw.record(name, x), with gw.eager()>"
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise foreign.missing(name, FUNCTIONS)

    # --- Python's questions that only a number can answer ---
    def __bool__(self) -> bool:
        try:
            return bool(
                _read(
                    self,
                    "the truth of an array is not known while tracing",
                    "np.where(condition, a, b)",
                )
            )
        except (TraceError, Specialise) as error:
            self.graph.interrupted.append(error)  # `except Exception: …` around it hides a branch
            raise

    def __index__(self) -> int:
        return operator.index(
            _read(
                self,
                "a traced value is no Python int, as range() or an index wants one",
                "an int option after * for range(k); np.take(x, indices, axis) for an index",
            )
        )

    def __int__(self) -> int:
        return int(concrete(self, "int() of an array", "x.astype(int)"))

    def __float__(self) -> float:
        return float(
            concrete(
                self,
                "float() or a function of the math module on an array",
                "NumPy's function (np.sqrt, not math.sqrt)",
            )
        )

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        value = concrete(
            self,
            f"an array is formatted with {spec!r} while it has no numbers",
            "gw.record(name, x) to keep its values; with gw.eager(): … to print them",
        )
        return format(value, spec)

    def __complex__(self) -> complex:
        raise TraceError("complex numbers cannot be traced yet", "real and imaginary parts")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(
            concrete(
                self,
                "np.asarray, np.array or a function outside NumPy on a traced array",
                "x as it is; np.stack([x, y]) to join; NumPy's own functions",
            )
        )

    def __len__(self) -> int:
        if not self.ndim:
            raise TraceError("len() of an array without dimensions", "x.size")
        return operator.index(self.shape[0])

    def __iter__(self) -> Any:
        return iter([self[k] for k in range(len(self))])

    __setitem__ = _refuse(
        "x[…] = y changes an array in place, which cannot be traced",
        "np.where(condition, y, x), or np.concatenate",
    )
    __contains__ = _refuse("`in` searches an array", "np.any(x == value)")
    tolist = item = _refuse(
        "item() and tolist() need numbers, there are none while tracing", "x as it is"
    )
    __hash__ = object.__hash__

    # --- NumPy's protocols ---
    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            raise TraceError(
                f"np.{ufunc.__name__} writes into an array (out=, or +=, *=, …)",
                "x = x + y in place of x += y, and no out=",
            )
        if method != "__call__":
            return call_function((ufunc.__name__, method), args, kwargs)
        if kwargs:
            raise TraceError(
                f"np.{ufunc.__name__}({', '.join(kwargs)}=…) cannot be traced",
                "np.where for where=, .astype for dtype=",
            )
        if ufunc in FUNCTIONS:
            return FUNCTIONS[ufunc](*args)
        return elementwise(ufunc.__name__.removeprefix("_"), *args)  # SciPy's zeta is _zeta

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call_function(function, args, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        """What PyTorch calls for a function of its own; after a method comes our operator."""
        if getattr(function, "__qualname__", "").startswith("Tensor"):
            return NotImplemented
        raise foreign.of_framework("torch", function, FUNCTIONS)

    def __getitem__(self, index: Any) -> Any:
        return FUNCTIONS[operator.getitem](self, index)

    def __pow__(self, exponent: Any) -> "Tracer":
        """``x ** 2``, ``x ** 0.5`` and ``x ** -1`` are what NumPy's operator makes of them."""
        y = lift(self.graph, exponent)
        value = y.node["value"] if y.node.prim == "const" and y.node.dtype in WEAK else None
        # between numbers it is the C library's pow, which rounds a little otherwise
        written = {} if self.dims or y.dims else {"operator": True}
        if value == 2:
            return elementwise("square", self, **written)
        if value in (0.5, -1) and is_float(self.node.dtype):
            return elementwise("sqrt" if value == 0.5 else "reciprocal", self, **written)
        return elementwise("power", self, y, **written)

    def __rpow__(self, base: Any) -> "Tracer":
        return lift(self.graph, base) ** self

    # --- ndarray's methods ---
    def astype(self, dtype: Any, **_same: Any) -> "Tracer":
        return cast(self, np.dtype(dtype).name)

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        target = shape[0] if len(shape) == 1 else shape
        return np.reshape(self, target, order=order)

    def transpose(self, *axes: Any) -> Any:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return np.transpose(self, order or None)

    @property
    def T(self) -> Any:
        return np.transpose(self)

    @property
    def real(self) -> "Tracer":
        return self


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def method(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    return method


for _name in (
    "sum prod mean var std max min all any argmax argmin cumsum ravel squeeze swapaxes dot "
    "clip round take copy repeat sort argsort cumprod nonzero diagonal trace searchsorted"
).split():
    setattr(Tracer, _name, _method(_name))
Tracer.flatten = Tracer.ravel  # type: ignore[attr-defined]  # an attribute for others to read
Tracer.__round__ = Tracer.round  # type: ignore[attr-defined]  # an attribute for others to read


def graph_of(values: Iterable[Any]) -> Graph | None:
    """The graph that the traced values among these belong to."""
    for value in values:
        if isinstance(value, Tracer):
            return value.graph
        if isinstance(value, (list, tuple)) and (graph := graph_of(value)) is not None:
            return graph
    return None


def here(*values: Any) -> Graph:
    graph = graph_of(values)
    assert graph is not None, "no traced value among the arguments"
    return graph


def node(graph: Graph, prim: str, args: Sequence[Tracer] = (), **params: Any) -> Tracer:
    """Record one equation, and the user's line that it comes from."""
    i = graph.add(prim, [x.i for x in args], **params)
    if i not in graph.lines:
        graph.lines[i] = graph.line or user_line()
    return Tracer(graph, i)


def number_of(graph: Graph, dim: Dim) -> Any:
    """A dim as the user sees it: an int where it is known, else a traced number."""
    return dim if isinstance(dim, int) else node(graph, "size", dim=dim)


def constant(graph: Graph, value: Any, dtype: str) -> Tracer:
    return Tracer(graph, graph.const(value, dtype))


def lift(graph: Graph, value: Any) -> Tracer:
    """A value met while tracing as a tracer: Python numbers are weak, arrays are copied."""
    if isinstance(value, Tracer):
        if value.graph is not graph:
            raise TraceError(
                "a traced array of another function is used here: it was kept in a variable "
                "outside",
                "an argument of the function for every array that it reads",
            )
        return value
    if isinstance(value, (bool, int, float)):  # np.float64 is a float, and as weak as one
        kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
        return constant(graph, {"bool": bool, "int": int, "float": float}[kind](value), kind)
    if isinstance(value, (list, tuple)) and graph_of(value) is not None:
        raise TraceError(
            f"a {type(value).__name__} of traced values where one array is expected",
            "np.stack([x, y]) inside the function, np.array([…]) as the argument",
        )
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        what = "complex numbers" if array.dtype.kind == "c" else f"{type(value).__name__} objects"
        raise TraceError(f"{what} cannot be traced", "an array of real numbers")
    if not array.ndim:
        return constant(graph, array.item(), array.dtype.name)
    return constant(graph, Frozen(array), array.dtype.name)


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def cast(x: Tracer, dtype: str) -> Tracer:
    """The same values in another dtype, as a node of its own."""
    if x.node.dtype == dtype:
        return x
    if number_dtype(dtype).kind not in "biuf" and not is_float(dtype):
        raise TraceError(f"{dtype} arrays cannot be traced", "an array of real numbers")
    if x.node.prim == "const" and not x.dims and dtype != "bfloat16":
        value, kind = (
            x.node["value"],
            {"int": int, "float": float}.get(dtype, number_dtype(dtype).type),
        )
        with np.errstate(all="ignore"):
            try:
                value = kind(value)
            except OverflowError:
                raise TraceError(f"{value} beside {dtype}", "a number that fits") from None
        return constant(x.graph, value.item() if isinstance(value, np.generic) else value, dtype)
    return node(x.graph, "astype", [x], dtype=dtype)


def strong(x: Tracer) -> Tracer:
    """A result that leaves the graph is an array: weak numbers become 64-bit."""
    return cast(x, x.dtype.name) if x.node.dtype in WEAK else x


_FOLDED_DIMS = {"add": "+", "subtract": "-", "multiply": "*", "floor_divide": "//"}


def dim_of(x: Any) -> Dim | None:
    """An int or a traced size as a dim; ``None`` for anything else."""
    if isinstance(x, (int, np.integer)):
        return int(x)
    if isinstance(x, Tracer) and x.node.prim == "size":
        return x.node["dim"]
    if isinstance(x, Tracer) and x.node.prim == "const" and x.node.dtype == "int":
        return x.node["value"]
    return None


def elementwise(name: str, *args: Any, **params: Any) -> Tracer:
    """Record a ufunc: NumPy chooses the dtypes, every cast becomes a node."""
    prim = PRIMITIVES.get(name)
    if prim is None or prim.kind not in ("elementwise", "compare", "integer"):
        raise unsupported(name)
    graph = here(*args)
    if name in _FOLDED_DIMS and all(dim_of(x) is not None for x in args):
        x, y = map(dim_of, args)
        return lift(graph, number_of(graph, dims.arith(_FOLDED_DIMS[name], x, y)))
    text = next((x for x in args if isinstance(x, (str, bytes))), None)
    if text is not None:
        with_it = " and ".join(_named(x) for x in args if isinstance(x, Tracer))
        raise TraceError(
            f"np.{name} of the text {text!r}: {with_it}",
            "a text for an option that is compared with one, a number for one in an equation",
        )
    xs = [lift(graph, x) for x in args]
    try:
        dtypes, out = loop(name, [x.node.dtype for x in xs])
        dims.broadcast(*(x.dims for x in xs))
    except (TypeError, ValueError) as error:
        shown = ", ".join(f"{x.node.dtype}{list(x.dims)}" for x in xs)
        raise TraceError(f"np.{name}({shown}): {error}", "arguments that NumPy accepts") from None
    xs = [cast(x, d) for x, d in zip(xs, dtypes, strict=True)]
    if all(x.node.prim == "const" and not x.dims for x in xs):
        return _folded(graph, name, xs, out)
    return node(graph, name, xs, **params)


def _folded(graph: Graph, name: str, xs: list[Tracer], dtype: str) -> Tracer:
    values = [x.node["value"] for x in xs]
    strong_values = [
        v if x.node.dtype in WEAK else x.dtype.type(v) for v, x in zip(values, xs, strict=True)
    ]
    with np.errstate(all="ignore"):
        return constant(graph, PRIMITIVES[name].ufunc(*strong_values).item(), dtype)


def concrete(x: Tracer, what: str, instead: str) -> Any:
    """The Python number behind x, by tracing again with the sizes and options it is made of.

    Arrays, floats and `step` are not such numbers: then `what` is an error, `instead` its cure.
    """
    if x.node.prim == "const" and not x.dims:
        return x.node["value"]
    needs: set[tuple[Any, ...]] = set()
    for i in _cone(x):
        n = x.graph.nodes[i]
        if n.prim == "size":
            needs.update(("size", *at) for at in dims.inputs_of(n["dim"]))
        elif n.prim == "input" and n["k"] in x.graph.readable:
            needs.add(("value", n["k"]))
        elif n.prim != "const" and not (n.args and not n.shape):
            raise TraceError(f"{what}: {_named(x)}", instead)
    raise Specialise(needs)


def _read(x: Tracer, what: str, instead: str) -> Any:
    """The same for a truth or an index; an option that is one was meant as a bool or an int."""
    n = x.node
    if n.prim == "input" and n.dtype == "float":
        name = x.graph.names[n["k"]]
        raise TraceError(
            f"{name} is read as a bool or an int; it was given a float",
            f"a bool or an int for {name}; a float is for NumPy's functions, np.where(c, a, b)",
        )
    return concrete(x, what, instead)


def _cone(x: Tracer) -> set[int]:
    todo, seen = [x.i], set()
    while todo:
        i = todo.pop()
        if i not in seen:
            seen.add(i)
            todo += x.graph.nodes[i].args
    return seen


def _named(x: Tracer) -> str:
    n = x.node
    name = x.graph.names[n["k"]] if n.prim == "input" else f"the result of {n.prim}"
    return f"{name} is traced ({n.dtype}, {x.ndim} dimensions)"


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """NumPy's `axis` as a sorted tuple of non-negative ints."""
    if axis is None:
        return tuple(range(ndim))
    asked = [operator.index(a) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if any(not -ndim <= a < ndim for a in asked) or len({a % ndim for a in asked}) < len(asked):
        raise TraceError(f"axis {axis} of an array of {ndim} dimensions", "an axis that exists")
    return tuple(sorted(a % ndim for a in asked))


def count(x: Tracer, axes: Sequence[int]) -> Any:
    """How many elements lie along these axes."""
    return math.prod(x.shape[a] for a in axes)
