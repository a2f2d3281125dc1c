"""A kernel as a callable: it gets addresses and sizes, and runs over all rows in one call."""

import ctypes
import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Graph
from . import threads
from .engine import Code
from .kernel import ITEM, Kernel, build

Array = np.ndarray[Any, Any]

_TYPE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)


class Program:
    """Machine code for one graph. `run` and tables trust the addresses that they are given."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._code = Code(kernel.assembly)
        self.function = _TYPE(self._code.address(kernel.name))
        self.reads = [np.dtype(dtype) for _, dtype in kernel.arrays]
        self.width = len(kernel.arrays) + len(kernel.outputs)  # addresses of a row
        # the numbers of a row as the kernel reads them: 8 bytes each
        self.row = np.dtype(
            {
                "names": [f"n{k}" for k in range(len(kernel.numbers))],
                "formats": [dtype for _, dtype in kernel.numbers],
                "offsets": [8 * k for k in range(len(kernel.numbers))],
                "itemsize": 8 * max(1, len(kernel.numbers)),
            }
        )

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
        table = Table(self, sizes)
        table.addresses[:] = addresses
        table.numbers[:] = numbers
        return table.run(others)


_programs: "weakref.WeakValueDictionary[Kernel, Program]" = weakref.WeakValueDictionary()


def program(graph: Graph, name: str) -> Program:
    """The machine code of a graph; graphs that are the same loop, of any rank, have one."""
    kernel = build(graph, name)
    found = _programs.get(kernel)
    if found is None:
        found = _programs[kernel] = Program(kernel)
    return found


class Table:
    """What one call of a program reads: addresses and numbers, a row for each parameter."""

    def __init__(self, program: Program, sizes: tuple[int, ...]) -> None:
        self.program = program
        self.numbers = np.zeros(len(sizes), program.row)
        self.whole = np.empty((len(sizes), program.width + 1), np.uint64)
        self.addresses = self.whole[:, :-1]
        first, step = self.numbers.ctypes.data, program.row.itemsize
        self.whole[:, -1] = range(first, first + len(sizes) * step, step)
        self._work = _work(sizes)
        self._sums = np.zeros((len(self._work.items), program.kernel.sums))
        tables = self.whole, self._work.items, self._sums
        self._share = functools.partial(program.function, *(a.ctypes.data for a in tables))

    def run(self, others: int | None = None) -> Array:
        """Run all rows; returns sums by row."""
        work = self._work
        if work.elements < threads.SMALL or (n := threads.count(others)) < 2:
            self._share(0, len(work.items))
        else:
            threads.share(self._share, work.cuts(n))
        if not self.program.kernel.sums:
            return self._sums
        return np.add.reduceat(self._sums, work.starts, axis=0)


class _Work:
    """Fixed items of work for rows of these sizes."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        items = [
            (row, first, min(ITEM, size - first))
            for row, size in enumerate(sizes)
            for first in range(0, max(size, 1), ITEM)
        ]
        self.items = np.array(items, np.int64).reshape(-1, 3)
        self.elements = sum(sizes)
        self.starts = np.searchsorted(self.items[:, 0], np.arange(len(sizes)))
        self._done = np.concatenate([[0], np.cumsum(self.items[:, 2])])

    def cuts(self, n: int) -> list[int]:
        """Where to cut the items so that n threads have about equally many elements."""
        at = np.searchsorted(self._done, np.linspace(0, self.elements, n + 1))
        return [int(k) for k in at]


@functools.lru_cache(maxsize=64)
def _work(sizes: tuple[int, ...]) -> _Work:
    return _Work(sizes)
