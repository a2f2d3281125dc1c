"""Memory for large results, used again once nothing refers to the last ones.

A fresh page costs more time than a kernel needs to fill it. What is kept for later is bounded, and
handed out again only when the array that had it, and every view of it, is gone.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LARGE = 1 << 20  # bytes from which on a result comes from here
KEPT = 256 << 20  # bytes that wait for another result at most
_UNIT = 1 << 16  # sizes are multiples of this
_ALIGNED = 64


class _Owner:
    """What an array of the pool is a view of: as it goes, its memory comes back."""

    def __init__(self, pool: "Pool", memory: Array, interface: dict[str, Any]) -> None:
        self._pool, self._memory = pool, memory
        self.__array_interface__ = interface

    def __del__(self) -> None:
        self._pool.take_back(self._memory)


class Pool:
    """Free memory, the least recently freed first to be given up."""

    def __init__(self, kept: int = KEPT) -> None:
        self._limit = kept
        self._free: OrderedDict[int, Array] = OrderedDict()  # by address
        self._forget_lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_lock)

    def _forget_lock(self) -> None:
        """In a forked child the lock may be held by a thread that is not there."""
        # an owner may go while this very thread holds it: the collector runs where it likes
        self._lock = threading.RLock()

    def empty(self, shape: Sequence[int], dtype: str, size: int) -> Array:
        """An array of a size in bytes whose content is whatever was there."""
        memory = self._of_size(-(-size // _UNIT) * _UNIT)
        start = memory.__array_interface__["data"][0]
        interface = {
            "data": (start + -start % _ALIGNED, False),
            "shape": tuple(shape),
            "typestr": np.dtype(dtype).str,
            "version": 3,
        }
        return np.asarray(_Owner(self, memory, interface))

    def _of_size(self, size: int) -> Array:
        with self._lock:
            for address, memory in reversed(list(self._free.items())):
                if memory.size == size + _ALIGNED and self._free.pop(address, None) is not None:
                    return memory
        return np.empty(size + _ALIGNED, np.uint8)

    def take_back(self, memory: Array) -> None:
        """Keep memory that nothing refers to, if there is room."""
        with self._lock:
            self._free[memory.__array_interface__["data"][0]] = memory
            while self.kept() > self._limit:
                self._free.popitem(last=False)

    def kept(self) -> int:
        """The bytes that wait."""
        return sum(memory.size for memory in list(self._free.values()))


_pool = Pool()


def empty(shape: Sequence[int], dtype: str) -> Array:
    """`np.empty`, from the pool where that is worth it."""
    size = int(np.dtype(dtype).itemsize)
    for d in shape:
        size *= d
    return np.empty(shape, dtype) if size < LARGE else _pool.empty(shape, dtype, size)
