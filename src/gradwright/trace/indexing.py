"""Indexing: slices, ints, None, Ellipsis and one array of indices."""

import operator
from typing import Any

import numpy

from .. import dims
from ..errors import TraceError
from .tracer import FUNCTIONS, Tracer, dim_of, here, lift, node

np: Any = numpy  # applied to tracers, which its stubs do not know


def getitem(x: Tracer, index: Any) -> Tracer:
    """``x[index]`` as slices of positive step, flips, new axes and at most one `np.take`."""
    entries = _complete(x, index if isinstance(index, tuple) else (index,))
    arrays = [k for k, entry in enumerate(e for e in entries if e is not None) if _is_array(entry)]
    if len(arrays) > 1:
        raise TraceError(
            "x[i, j] with two arrays of indices cannot be traced",
            "np.take along one axis, or np.sum(x * (j[:, None] == np.arange(n)), axis=1)",
        )
    kept = [entry for entry in entries if entry is not None]
    axis = arrays[0] - sum(_is_int(e) for e in kept[: arrays[0]]) if arrays else 0
    x = _basic(x, [slice(None) if _is_array(entry) else entry for entry in kept])
    if arrays:
        x = np.take(x, kept[arrays[0]], axis)
    return _with_new_axes(x, entries)


FUNCTIONS[operator.getitem] = getitem


def _is_array(entry: Any) -> bool:
    if isinstance(entry, Tracer):
        return dim_of(entry) is None and entry.ndim > 0
    return isinstance(entry, (list, np.ndarray)) and np.ndim(entry) > 0


def _is_int(entry: Any) -> bool:
    return not isinstance(entry, slice) and not _is_array(entry)


def _complete(x: Tracer, index: tuple[Any, ...]) -> list[Any]:
    """One entry for each axis of x; boolean masks are refused."""
    for entry in index:
        if isinstance(entry, (bool, np.bool_)) or getattr(entry, "dtype", None) == np.bool_:
            raise TraceError(
                "x[mask]: the size of the result would depend on values",
                "np.where(mask, x, 0), which keeps the shape",
            )
    ellipses = [k for k, entry in enumerate(index) if entry is Ellipsis]
    at = ellipses[0] if ellipses else len(index)
    rest = index[:at] + index[at + 1 :]
    missing = x.ndim - sum(entry is not None for entry in rest)
    if missing < 0 or len(ellipses) > 1:
        raise TraceError(
            f"{len(rest)} indices for an array of {x.ndim} dimensions", "one index an axis"
        )
    return [*index[:at], *[slice(None)] * missing, *index[at + 1 :]]


def _basic(x: Tracer, entries: list[Any]) -> Tracer:
    flipped, index = [], []
    for axis, entry in enumerate(entries):
        if isinstance(entry, slice) and entry.step is not None and entry.step < 0:
            flipped.append(axis)
            entry = _reversed(x, axis, entry)
        index.append(_encoded(x, axis, entry))
    if flipped:
        x = np.flip(x, tuple(flipped))
    if all(entry == ("slice", None, None, None) for entry in index):
        return x
    return node(x.graph, "getitem", [x], index=tuple(index))


def _reversed(x: Tracer, axis: int, entry: slice) -> slice:
    """The slice of positive step that takes the same elements of the flipped array."""
    if entry.start is None and entry.stop is None:
        return slice(None, None, -entry.step)
    size = operator.index(x.shape[axis])
    start, stop, step = entry.indices(size)
    return slice(size - 1 - start, size - 1 - stop, -step)


def _encoded(x: Tracer, axis: int, entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, slice):
        position = operator.index(entry)
        size = x.dims[axis]
        if isinstance(size, int) and not -size <= position < size:
            raise TraceError(f"index {position} of an axis of size {size}", "an index within it")
        return ("at", position)
    bounds = [b.item() if isinstance(b, np.integer) else b for b in (entry.start, entry.stop)]
    step = None if entry.step is None else operator.index(entry.step)
    if all(b is None or isinstance(b, int) for b in bounds):
        whole = (bounds[0] or 0, bounds[1], step or 1) == (0, None, 1)
        return ("slice", None, None, None) if whole else ("slice", *bounds, step)
    return _span(x, axis, bounds, step)


def _span(x: Tracer, axis: int, bounds: list[Any], step: int | None) -> tuple[Any, ...]:
    """A slice whose bounds are sizes: they have to be known only where they lie outside."""
    start, stop = (0 if b is None and k == 0 else dim_of(b) for k, b in enumerate(bounds))
    if bounds[1] is None:
        stop = x.dims[axis]
    if start is None or stop is None or (step or 1) != 1:
        values = [None if b is None else operator.index(b) for b in bounds]
        return ("slice", *values, step)
    if any(isinstance(b, int) and b < 0 for b in (start, stop)):
        raise TraceError("a negative bound beside a size in one slice", "sizes on both sides")
    return ("span", start, dims.arith("-", stop, start))


def _with_new_axes(x: Tracer, entries: list[Any]) -> Tracer:
    """Put a new axis wherever the index has ``None``."""
    axes, axis = [], 0
    for entry in entries:
        if entry is None:
            axes.append(axis)
            axis += 1
        elif isinstance(entry, slice):
            axis += 1
        elif _is_array(entry):
            axis += np.ndim(entry)
    return np.expand_dims(x, tuple(axes)) if axes else x


def take(a: Any, indices: Any, axis: int | None = None) -> Tracer:
    """``np.take``, by a node that every target has."""
    graph = here(a, indices)
    x, at = lift(graph, a), lift(graph, indices)
    if not np.issubdtype(at.dtype, np.integer):
        raise TraceError(f"{at.node.dtype} indices", "integers: indices.astype(int)")
    if axis is None:
        x, axis = np.reshape(x, (-1,)), 0
    if not x.ndim:
        raise TraceError("np.take of an array without dimensions", "the array itself")
    return node(graph, "take", [x, at], axis=operator.index(axis) % x.ndim)


FUNCTIONS[np.take] = take


def scattered(x: Tracer, shape: dims.Shape, index: tuple[Any, ...]) -> Tracer:
    """Zeros of a shape, with x at an index: the transpose of `getitem`."""
    return node(x.graph, "scatter", [x], shape=tuple(shape), index=index)
