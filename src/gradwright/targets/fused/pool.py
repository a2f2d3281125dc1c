"""Memory for large results, used again once nothing refers to the last ones.

A fresh page costs more time than a kernel needs to fill it. What is kept for later is bounded, and
handed out again only when the array that had it, and every view of it, is gone.
"""

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array = np.ndarray[Any, Any]
Block: TypeAlias = Any  # a ctypes array; NumPy's stubs do not know that it takes one

LARGE = 1 << 18  # bytes from which on a result comes from here
KEPT = 256 << 20  # bytes that wait for another result at most
_UNIT = 1 << 16  # sizes are multiples of this
_ALIGNED = 64


class Pool:
    """Free memory by size. There is no lock: each step is one operation of a list or a dict.

    An array may go at any time and in any thread, also while this one is in here.
    """

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        self._free: dict[int, list[Block]] = {}
        self._used: dict[int, tuple[Any, Block]] = {}  # by weak reference

    def empty(self, shape: Sequence[int], dtype: str, size: int) -> Array:
        """An array of a size in bytes whose content is whatever was there."""
        size = -(-size // _UNIT) * _UNIT
        try:
            block = self._free.setdefault(size, []).pop()
        except IndexError:
            block = _fresh(size)
        # a view of this array refers to it, and not to the block, which is no array
        array: Array = np.ndarray(shape, dtype, block)
        reference = weakref.ref(array, self._take_back)
        self._used[id(reference)] = reference, block
        return array

    def _take_back(self, reference: Any) -> None:
        """Keep memory that nothing refers to, if there is room."""
        _, block = self._used.pop(id(reference))
        if self.kept() + len(block) > self._limit:
            self._free = {}  # of sizes that nobody asks for any more, perhaps
        if len(block) <= self._limit:
            self._free.setdefault(len(block), []).append(block)

    def kept(self) -> int:
        """The bytes that wait."""
        return sum(size * len(blocks) for size, blocks in list(self._free.items()))


def _fresh(size: int) -> Block:
    memory = np.empty(size + _ALIGNED, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNED
    part: Any = memory[start : start + size]
    return (ctypes.c_char * size).from_buffer(part)


_pool = Pool()


def empty(shape: Sequence[int], dtype: str) -> Array:
    """`np.empty`, from the pool where that is worth it."""
    size = int(np.dtype(dtype).itemsize)
    for d in shape:
        size *= d
    return np.empty(shape, dtype) if size < LARGE else _pool.empty(shape, dtype, size)
