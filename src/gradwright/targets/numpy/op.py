"""Ops on NumPy arrays: the traced function as one compiled NumPy program."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import emit, tree
from ...errors import SignatureError
from ...graph import Graph
from ...hostcall import raised_on_host
from ...op import Meta, Op, array_kind, number_meta
from ...quiet import quietly
from ...signature import Layout, is_number
from ..fused.op import Fused
from . import SPELLING
from .memory import MEMORY


@functools.cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name, which NumPy makes up anew each time it is asked."""
    return dtype.name


def meta(value: Any, name: str) -> Meta:
    """What is known of an argument before its values."""
    if is_number(value):
        return number_meta(value)
    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind not in "biuf":
        what = getattr(value, "dtype", type(value).__name__)
        raise SignatureError(f"{name} was called with {what}", "arrays of real numbers")
    if isinstance(value, np.matrix):
        raise SignatureError(
            f"{name} was called with a np.matrix, whose *, ** and sums are not those of arrays",
            "np.asarray(x)",
        )
    flag = value.item() if value.dtype == bool and not value.shape else None  # a body may read it
    return Meta(value.shape, dtype_name(value.dtype), flag)


def call(op: Op[Any], leaves: Sequence[Any], layout: Layout) -> Any:
    """Run an op on NumPy arrays, and keep what runs on others of their kind."""
    made = op.traced([meta(leaf, op.name) for leaf in leaves], layout)
    run = program(made.function.primal, op.name, op.engine)
    ready = functools.partial(_run, op.name, run, made.out)
    kind = array_kind(leaves)
    if kind is not None and made.for_any_size and are_all_arguments(op, layout):
        op.ready[kind] = ready
    return ready(*leaves)


def program(graph: Graph, name: str, engine: str) -> Callable[..., Any]:
    """The graph as a callable on NumPy arrays: NumPy's functions, or those and kernels."""
    if engine == "numpy":
        return emit.program(graph, name, SPELLING)
    made = graph.programs
    if f"numpy {engine}" not in made:
        made[f"numpy {engine}"] = Fused(graph, name, engine, MEMORY)
    return made[f"numpy {engine}"]  # type: ignore[no-any-return]  # kept in a dict of Any


def _run(name: str, program: Callable[..., Any], out: tree.Spec, *leaves: Any) -> Any:
    try:
        return tree.unflatten(out, quietly(program, *leaves))
    except ValueError as error:  # NumPy's, of sizes that only the arrays themselves could tell
        if raised_on_host(error):
            raise
        shapes = ", ".join(str(np.shape(x)) for x in leaves)
        is_empty = "zero-size" in str(error) or "empty sequence" in str(error)
        raise SignatureError(
            f"{name} of arrays of shapes {shapes}: {error}",
            "arrays that are not empty" if is_empty else "arrays whose sizes fit together",
        ) from error


def are_all_arguments(op: Op[Any], layout: Layout) -> bool:
    """Whether the leaves are the positional arguments, one each, and there are no options."""
    is_flat = all(s == "*" for s in layout.specs)
    return is_flat and not op.signature.options and list(layout.names) == op.signature.arrays


def eager(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)
