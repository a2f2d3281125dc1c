"""A kernel as a callable: it gets addresses and sizes, and runs over all rows in one call."""

import ctypes
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...graph import Graph
from . import threads
from .kernel import ITEM, Kernel, build

Array = np.ndarray[Any, Any]

_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)


class Program:
    """Machine code for one graph. It trusts the addresses that it is given."""

    def __init__(
        self,
        graph: Graph,
        name: str,
        reads: Mapping[int, str] | None = None,
        writes: Sequence[str] | None = None,
    ) -> None:
        from .engine import code  # which loads LLVM

        self.kernel: Kernel = build(graph, name, reads, writes)
        self.code = code(self.kernel.assembly)
        self._function = _TYPE(self.code.address(name))
        fields = [(f"n{k}", dtype) for k, (_, dtype) in enumerate(self.kernel.numbers)]
        # the numbers of a row as the kernel reads them: 8 bytes each
        self.row = np.dtype(
            {
                "names": [name for name, _ in fields],
                "formats": [dtype for _, dtype in fields],
                "offsets": [8 * k for k in range(len(fields))],
                "itemsize": 8 * max(1, len(fields)),
            }
        )

    @functools.cached_property
    def reads(self) -> list[np.dtype[Any]]:
        """NumPy's dtypes of the arrays; it has bfloat16 only where ml_dtypes brings it."""
        return [np.dtype(dtype) for _, dtype in self.kernel.arrays]

    def run(
        self,
        addresses: Sequence[Sequence[int]],
        sizes: tuple[int, ...],
        numbers: Sequence[tuple[Any, ...]],
        others: int | None = None,
    ) -> Array:
        """Run all rows: an address for each array, then the numbers. Returns sums by row.

        `others` is a framework's own number of threads.
        """
        work = work_of(sizes)
        cells = np.array(numbers, self.row)
        table = np.empty((len(sizes), len(addresses[0]) + 1), np.uint64)
        table[:, :-1] = addresses
        first = cells.ctypes.data
        table[:, -1] = range(first, first + cells.nbytes, self.row.itemsize)
        partial = self.over(table, work, others)
        return np.add.reduceat(partial, work.starts, axis=0) if self.kernel.sums else partial

    def over(self, rows: bytes | Array, work: "Work", others: int | None = None) -> Array:
        """Do the work on the arrays of a table. Returns sums by item."""
        table = rows if isinstance(rows, bytes) else rows.__array_interface__["data"][0]
        partial = np.empty((len(work.items) if self.kernel.sums else 0, self.kernel.sums))
        sums = partial.__array_interface__["data"][0] if self.kernel.sums else None
        if work.elements < threads.SMALL or (n := threads.count(others)) < 2:
            self._function(table, work.address, sums, 0, len(work.items))
            return partial

        def share(start: int, stop: int) -> None:
            self._function(table, work.address, sums, start, stop)

        threads.share(share, work.cuts(threads.PARTS * n), n)
        return partial


class Work:
    """Fixed items of work: (row, first element, how many)."""

    def __init__(self, items: Array) -> None:
        self.items = items
        self.address = items.__array_interface__["data"][0]
        self._done = np.concatenate([[0], np.cumsum(items[:, 2])])
        self.elements = int(self._done[-1])

    @functools.cached_property
    def starts(self) -> Array:
        """The first item of each row, which are in order."""
        return np.searchsorted(self.items[:, 0], np.unique(self.items[:, 0]))

    def cuts(self, n: int) -> list[int]:
        """Where to cut the items so that n parts have about equally many elements."""
        at = np.searchsorted(self._done, np.linspace(0, self.elements, n + 1))
        return [int(k) for k in at]


@functools.lru_cache(maxsize=64)
def work_of(sizes: tuple[int, ...]) -> Work:
    """The items for rows of these sizes, one row after the other."""
    items = [
        (row, first, min(ITEM, size - first))
        for row, size in enumerate(sizes)
        for first in range(0, max(size, 1), ITEM)
    ]
    return Work(np.array(items, np.int64).reshape(-1, 3))
