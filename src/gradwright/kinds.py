"""What shape and dtype a node has: one rule for each kind of primitive."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from . import dims
from .dims import Dim, Shape
from .primitives import PRIMITIVES

Nodes: TypeAlias = Sequence[Any]  # graph.Node, which is built from these rules
Params: TypeAlias = Mapping[str, Any]
Type: TypeAlias = tuple[Shape, str]


def substitute_param(name: str, value: Any, known: Mapping[tuple[int, int], Dim]) -> Any:
    """A parameter of a node that moves to another graph: sizes in it get their new names."""
    if name == "dim":
        return dims.substitute(value, known)
    if name == "shape":
        return tuple(dims.substitute(d, known) for d in value)
    if name == "index":
        return tuple(
            ("span", *(dims.substitute(d, known) for d in entry[1:]))
            if entry[0] == "span"
            else entry
            for entry in value
        )
    return value


def param_text(name: str, value: Any, size: Callable[[int, int], str]) -> str:
    """A parameter of a node in Python's spelling, given the spelling of one size of one input."""
    if name == "dim":
        return dims.text(value, size)
    if name == "shape":
        inside = ", ".join(dims.text(d, size) for d in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if name == "index":
        return ", ".join(_entry_text(entry, size) for entry in value)
    return repr(value)


def _entry_text(entry: tuple[Any, ...], size: Callable[[int, int], str]) -> str:
    kind, *bounds = entry
    if kind == "at":
        return str(bounds[0])
    if kind == "span":
        start, length = bounds
        return f"{dims.text(start, size)}:{dims.text(dims.arith('+', start, length), size)}"
    start, stop, step = ("" if b is None else str(b) for b in bounds)
    return f"{start}:{stop}" + (f":{step}" if step else "")


def number_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype that holds a value, a weak one too."""
    if dtype == "bfloat16" and "ml_dtypes" not in sys.modules:
        return np.dtype("float32")  # NumPy has no other; such an array is only cast
    return np.dtype({"int": "int64", "float": "float64"}.get(dtype, dtype))


def loop(prim: str, dtypes: Sequence[str]) -> tuple[list[str], str]:
    """NumPy's own choice: the dtype each argument is cast to, and that of the result (NEP 50)."""
    ufunc = PRIMITIVES[prim].ufunc
    if all(d in ("int", "float") for d in dtypes):  # NumPy compares two Python ints as objects
        back = {"int64": "int", "float64": "float"}
        *ins, out = (d.name for d in ufunc.resolve_dtypes((*map(number_dtype, dtypes), None)))
        return [back.get(d, d) for d in ins], back.get(out, out)
    weak = {"int": int, "float": float}
    asked = tuple(weak.get(d) or np.dtype(d) for d in dtypes)
    *ins, out = (d.name for d in ufunc.resolve_dtypes((*asked, None)))
    return ins, out


def _elementwise(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    ins, out = loop(prim, [n.dtype for n in args])
    assert ins == [n.dtype for n in args], f"{prim} of {[n.dtype for n in args]}: casts are missing"
    return dims.broadcast(*(n.shape for n in args)), out


def _select(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    condition, x, y = args
    assert (condition.dtype, x.dtype) == ("bool", y.dtype), "where: casts are missing"
    return dims.broadcast(*(n.shape for n in args)), x.dtype


def accumulated(dtype: str) -> str:
    """The dtype in which NumPy sums."""
    return dtype if dtype in ("int", "float") else np.sum(np.zeros(1, dtype)).dtype.name


def _reduce(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    (x,) = args
    axes, keep = params["axis"], params["keepdims"]
    shape = tuple(1 if a in axes else d for a, d in enumerate(x.shape) if keep or a not in axes)
    out = {"all": "bool", "any": "bool", "argmax": "int64", "argmin": "int64"}.get(prim, x.dtype)
    return shape, accumulated(out) if prim in ("sum", "prod") else out


def _scan(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    return args[0].shape, accumulated(args[0].dtype)


def _getitem(x: Any, params: Params) -> Shape:
    shape = []
    for d, entry in zip(x.shape, params["index"], strict=True):
        if entry[0] == "slice":
            shape.append(dims.taken(d, *entry[1:]))
        elif entry[0] == "span":
            shape.append(entry[2])
    return tuple(shape)


def _concatenate(args: Nodes, axis: int) -> Shape:
    length = reduce(lambda d, e: dims.arith("+", d, e), [n.shape[axis] for n in args])
    first = args[0].shape
    return (*first[:axis], length, *first[axis + 1 :])


def _expand(x: Any, axes: Sequence[int]) -> Shape:
    rest = iter(x.shape)
    return tuple(1 if a in axes else next(rest) for a in range(len(x.shape) + len(axes)))


_SHAPES: Mapping[str, Callable[[Nodes, Params], Shape]] = {
    "transpose": lambda args, p: tuple(args[0].shape[a] for a in p["axes"]),
    "expand_dims": lambda args, p: _expand(args[0], p["axis"]),
    "squeeze": lambda args, p: tuple(d for a, d in enumerate(args[0].shape) if a not in p["axis"]),
    "getitem": lambda args, p: _getitem(args[0], p),
    "concatenate": lambda args, p: _concatenate(args, p["axis"]),
    "flip": lambda args, p: args[0].shape,
    "roll": lambda args, p: args[0].shape,
    "take": lambda args, p: (
        *args[0].shape[: p["axis"]],
        *args[1].shape,
        *args[0].shape[p["axis"] + 1 :],
    ),
}


def _shape(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    shape = _SHAPES[prim](args, params) if prim in _SHAPES else params["shape"]
    if prim == "concatenate":
        assert len({n.dtype for n in args}) == 1, "concatenate: casts are missing"
    return tuple(shape), args[0].dtype


def _contract(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    assert len({n.dtype for n in args}) == 1, f"{prim}: casts are missing"
    if prim == "matmul":
        a, b = (n.shape for n in args)
        return (*dims.broadcast(a[:-2], b[:-2]), a[-2], b[-1]), args[0].dtype
    terms, out = params["subscripts"].split("->")
    letters: dict[str, Dim] = {}
    for term, node in zip(terms.split(","), args, strict=True):
        for letter, d in zip(term, node.shape, strict=True):
            (letters[letter],) = dims.broadcast((letters.get(letter, 1),), (d,))
    return tuple(letters[letter] for letter in out), args[0].dtype


def _cast(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    return args[0].shape, params["dtype"]


def _identity(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    return args[0].shape, args[0].dtype


def _item(nodes: Nodes, prim: str, args: Nodes, params: Params) -> Type:
    call = args[0]
    shape, dtype = call["function"].result_type(params["k"], [nodes[a].shape for a in call.args])
    return shape, dtype


_RULES: Mapping[str, Callable[[Nodes, str, Nodes, Params], Type]] = {
    "elementwise": _elementwise,
    "compare": _elementwise,
    "integer": _elementwise,
    "select": _select,
    "reduce": _reduce,
    "scan": _scan,
    "shape": _shape,
    "contract": _contract,
    "cast": _cast,
    "identity": _identity,
    "size": lambda nodes, prim, args, params: ((), "int"),
    "random": lambda nodes, prim, args, params: (tuple(params["shape"]), "uint32"),
    "global": lambda nodes, prim, args, params: ((), "float"),
    "call": lambda nodes, prim, args, params: ((), "tuple"),
    "host": lambda nodes, prim, args, params: ((), "tuple"),
    "item": _item,
}


def infer(nodes: Nodes, prim: str, args: Sequence[int], params: Params) -> Type:
    """The shape and dtype of a primitive applied to these nodes."""
    return _RULES[PRIMITIVES[prim].kind](nodes, prim, [nodes[a] for a in args], params)
