"""How arrays lie in memory, as rows of a kernel: what is contiguous, apart by a stride, broadcast.

The innermost axis of the loops is what a kernel runs along; every combination of the others is a
row of its table. Axes that follow each other in every array are one.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .kernel import ITEM
from .program import Work, work_of

Array = np.ndarray[Any, Any]
Distances = Sequence[int]  # in bytes, by axis

SHORT = 64  # elements of an innermost axis below which the longest is the innermost
_BESIDE = 512  # elements of one row that come before the same of the next


class Axis(NamedTuple):
    """One loop."""

    size: int
    apart: tuple[int, ...]  # the distance of each array, in bytes


class Layout:
    """Rows and items of work for arrays of one shape and these distances."""

    def __init__(
        self, shape: Sequence[int], apart: Sequence[Distances], sizes: list[int], by_row: bool
    ) -> None:
        *outer, inner = by_rows(shape, apart) if by_row else arranged(shape, apart, sizes)
        self.kinds = tuple(
            "one" if d == 0 else "each" if d == size else "strided"
            for d, size in zip(inner.apart, sizes, strict=True)
        )
        strided = [d for d, kind in zip(inner.apart, self.kinds, strict=True) if kind == "strided"]
        self._cells = np.array(strided, np.int64)
        self._cells_at: int = self._cells.__array_interface__["data"][0]
        self._pack = struct.Struct(f"={len(sizes) + 1}Q").pack
        self._offsets = _offsets(outer, len(sizes)) if outer else None
        if self._offsets is None:
            self.work = work_of((inner.size,))
        else:
            step = inner.size if by_row else _BESIDE if _has_neighbours(outer, inner) else ITEM
            self.work = _work(len(self._offsets), inner.size, step)

    def table(self, addresses: Sequence[int]) -> "bytes | Array":
        """The table for arrays that begin at these addresses."""
        if self._offsets is None:
            return self._pack(*addresses, self._cells_at)
        table = np.empty((len(self._offsets), len(addresses) + 1), np.int64)
        np.add(self._offsets, np.array(addresses, np.int64), out=table[:, :-1])
        table[:, -1] = self._cells_at
        return table


def arranged(shape: Sequence[int], apart: Sequence[Distances], sizes: Sequence[int]) -> list[Axis]:
    """The loops, from the outermost to the innermost."""
    axes = _merged(shape, apart) or [Axis(1, tuple(sizes))]
    if axes[-1].size < SHORT:
        longest = max(range(len(axes)), key=lambda k: axes[k].size)
        axes.append(axes.pop(longest))
    return axes


def by_rows(shape: Sequence[int], apart: Sequence[Distances]) -> list[Axis]:
    """The loops where the last axis stays the innermost, and whole."""
    outer = _merged(shape[:-1], [a[:-1] for a in apart])
    return [*outer, Axis(shape[-1], tuple(a[-1] for a in apart))]


def _merged(shape: Sequence[int], apart: Sequence[Distances]) -> list[Axis]:
    """The axes that are longer than 1; those that follow each other in every array are one."""
    axes: list[Axis] = []
    for size, *distances in zip(shape, *apart, strict=True):
        axis = Axis(size, tuple(distances))
        if size == 1:
            continue
        if axes and all(a == d * size for a, d in zip(axes[-1].apart, axis.apart, strict=True)):
            axis = Axis(axes.pop().size * size, axis.apart)
        axes.append(axis)
    return axes


def _has_neighbours(outer: Sequence[Axis], inner: Axis) -> bool:
    """Whether the loops go along an axis whose neighbours are on the same cache lines."""
    return any(
        0 < abs(a) < abs(d) for axis in outer for a, d in zip(axis.apart, inner.apart, strict=True)
    )


def _offsets(outer: Sequence[Axis], count: int) -> Array:
    """How far into each array each row begins, in bytes."""
    offsets = np.zeros((1, count), np.int64)
    for size, apart in outer:
        steps = np.arange(size, dtype=np.int64)[:, None] * np.array(apart, np.int64)
        offsets = (offsets[:, None] + steps).reshape(-1, count)
    return offsets


def _work(rows: int, size: int, step: int) -> Work:
    """Items for rows of one size; short ones are first parts of all rows, then second parts."""
    first, row = np.meshgrid(np.arange(0, size, step), np.arange(rows), indexing="ij")
    items = np.stack([row, first, np.minimum(step, size - first)], axis=-1)
    return Work(items.reshape(-1, 3).astype(np.int64))
