"""What is checked: a function of arrays, the reference for its values and for its derivative."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from .. import tree
from ..errors import SignatureError
from ..function import Function, inlined
from ..graph import Graph
from ..op import Op, eager
from ..primitives import PRIMITIVES
from ..signature import Layout
from ..targets.numpy.op import meta
from .differences import Array, Vector

Arrays: TypeAlias = Sequence[Array]
Flat: TypeAlias = Callable[[Sequence[Any]], list[Any]]  # arrays in, arrays out, of any framework

# Their NumPy functions take complex numbers, and are analytic away from where they branch.
_ANALYTIC = set(
    "negative positive square reciprocal sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan "
    "arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh add subtract multiply divide "
    "power sum prod cumsum reshape transpose expand_dims squeeze broadcast_to getitem concatenate "
    "flip roll take matmul einsum input const size item call variable".split()
)
_ELEMENTWISE = ("elementwise", "compare", "integer", "select", "cast", "identity", "size", "item")


@dataclass(frozen=True)
class Subject:
    """A function of flat lists of arrays, and what it should be."""

    name: str
    where: str  # the line of the rule, else of the function
    arrays: tuple[Array, ...]  # the example
    names: tuple[str, ...]
    call: Flat  # in the framework of its arguments
    value: Flat  # on NumPy arrays: what the values should be
    slope: Flat | None = None  # the function whose derivative is the right one, if there is one
    rule: str = "derivative"  # what the author calls it: vjp, partials, surrogate, derivative
    is_analytic: bool = False
    is_elementwise: bool = False
    is_on_host: bool = False  # Python on the host: maybe a solver, right to some digits
    complex_names: tuple[str, ...] = ()  # of arguments that are pairs: real and imaginary parts

    @property
    def wrt(self) -> list[int]:
        """The arrays that have a derivative."""
        return [k for k, a in enumerate(self.arrays) if a.dtype.kind == "f"]

    def at(self, arrays: Arrays) -> "Subject":
        return replace(self, arrays=tuple(arrays))

    def wide(self) -> "Subject":
        """The same with every float in float64."""
        return self.at([a.astype(np.float64) if a.dtype.kind == "f" else a for a in self.arrays])

    # --- as a function of one vector ---
    @cached_property
    def vector(self) -> Vector:
        return flat([self.arrays[k] for k in self.wrt])

    def moved(self, vector: Vector) -> list[Array]:
        """The arrays, with the elements of a vector in place of those that have a derivative."""
        parts = iter(split(vector, [self.arrays[k] for k in self.wrt]))
        return [next(parts) if a.dtype.kind == "f" else a for a in self.arrays]

    def element(self, i: int) -> tuple[str, tuple[int, ...]]:
        """The argument and the index of an element of the vector."""
        bounds = np.cumsum([self.arrays[k].size for k in self.wrt])
        at = int(np.searchsorted(bounds, i, side="right"))
        x = self.arrays[self.wrt[at]]
        index = np.unravel_index(i - int(bounds[at]) + x.size, x.shape)
        return self.names[self.wrt[at]], tuple(map(int, index))


def flat(arrays: Arrays) -> Vector:
    """Arrays end to end."""
    return np.concatenate([np.ravel(a) for a in arrays]) if arrays else np.zeros(0)


def split(vector: Vector, like: Arrays) -> list[Array]:
    """A vector as arrays of the shapes of others."""
    parts, start = [], 0
    for a in like:
        parts.append(vector[start : start + a.size].reshape(a.shape))
        start += a.size
    return parts


# --- an op -------------------------------------------------------------------------------------
def of_op(op: Op[Any], examples: Sequence[Any], options: Mapping[str, Any]) -> Subject:
    """An op at an example of its arguments."""
    leaves, layout = op.signature.layout(examples, options)
    places = _places(op, layout)
    arrays = [np.asarray(leaves[k]) for k in places]

    def full(xs: Sequence[Any]) -> dict[str, Any]:
        values = dict(enumerate(leaves)) | dict(zip(places, xs, strict=True))
        return layout.arguments([values[k] for k in range(len(leaves))])

    def run(function: Callable[..., Any]) -> Flat:
        call, options = op.signature.call, op.signature.options
        return lambda xs: tree.flatten(call(function, full(xs), options))[0]

    function = _traced(op, arrays, full)
    own = function.own.kind if function.own else "derivative"
    rule = op._own[1] if op._own else op.__wrapped__
    slope = _plainly(run(op.reference))
    if own == "surrogate":
        slope = _plainly(lambda xs: tree.flatten(_with_its_options(rule, op, full(xs)))[0])
    names = layout.leaf_names()
    return Subject(
        op.name,
        _line_of(rule),
        tuple(arrays),
        tuple(names[k] for k in places),
        run(op),
        _plainly(run(op.reference)),
        None if _is_meant_otherwise(function) else slope,
        own,
        own != "surrogate" and _has_only(function.primal, _ANALYTIC),
        all(PRIMITIVES[p].kind in _ELEMENTWISE for p in _prims(function.primal)),
        function.is_on_host,
    )


def as_arrays(value: Any, name: str) -> Any:
    """An example as arrays: numbers and lists of numbers too."""
    leaves, spec = tree.flatten(value)
    arrays = [np.asarray(x) for x in leaves]
    if bad := [x for x, a in zip(leaves, arrays, strict=True) if a.dtype.kind not in "biuf"]:
        raise SignatureError(
            f"gw.check({name}, …): an example is {type(bad[0]).__name__}",
            "NumPy arrays of real numbers, or numbers",
        )
    return tree.unflatten(spec, arrays)


def _places(op: Op[Any], layout: Layout) -> list[int]:
    """Which leaves are arrays, and not options."""
    pairs = zip(layout.names, layout.specs, strict=True)
    owners = [name for name, spec in pairs for _ in range(tree.leaves_of(spec))]
    return [k for k, name in enumerate(owners) if name in op.signature.arrays]


def _traced(op: Op[Any], arrays: Arrays, full: Callable[..., Any]) -> Function:
    leaves, layout = op.signature.layout([], {}) if not arrays else _leaves(op, full(arrays))
    return op.traced([meta(leaf, op.name) for leaf in leaves], layout).function


def _leaves(op: Op[Any], arguments: Mapping[str, Any]) -> tuple[list[Any], Layout]:
    found: list[tuple[list[Any], Layout]] = []

    def call(*args: Any, **options: Any) -> None:
        found.append(op.signature.layout(args, options))

    op.signature.call(call, arguments, op.signature.options)
    return found[0]


def _with_its_options(rule: Callable[..., Any], op: Op[Any], values: Mapping[str, Any]) -> Any:
    """A surrogate on the arguments, and on those options that it takes."""
    takes = inspect.signature(rule).parameters
    options = {name: values[name] for name in op.signature.options if name in takes}
    return op.signature.call(rule, values, list(options))


def _plainly(run: Flat) -> Flat:
    """The function on NumPy arrays, results as arrays; complex numbers go through nested ops."""

    def call(xs: Sequence[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            if any(np.iscomplexobj(x) for x in xs):
                with eager():
                    return [np.asarray(x) for x in run(xs)]
            return [np.asarray(x) for x in run(xs)]

    return call


def _line_of(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


# --- what its graph says -----------------------------------------------------------------------
def _prims(graph: Graph) -> set[str]:
    whole = inlined(graph)
    return {whole.nodes[i].prim for i in whole.live()} - {"input", "const"}


def _has_only(graph: Graph, known: set[str]) -> bool:
    return _prims(graph) <= known


def _is_meant_otherwise(function: Function) -> bool:
    """Whether the author asked for another derivative than that of the values, somewhere inside."""
    if function.own is not None:
        if function.own.kind != "surrogate":
            return False
        return _is_meant_otherwise(function._surrogate())
    nodes = [function.primal.nodes[i] for i in function.primal.live()]
    return any(
        n.prim == "stop_gradient"
        or (
            n.prim == "call"
            and (n["function"].own.kind == "surrogate" or _is_meant_otherwise(n["function"]))
        )
        for n in nodes
    )
