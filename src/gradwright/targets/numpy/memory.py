"""NumPy arrays as a kernel sees them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...precision import LOW
from ..fused import pool
from ..fused.kernel import stored
from . import SPELLING

_NUMBERS = (int, float, bool)
_PLAIN = (np.ndarray, np.memmap)
_ALIGNED = 0x100  # NumPy's flag ALIGNED


class _Memory:
    """Arrays of this process, and the numbers that become some."""

    spelling = SPELLING
    call = 1000

    def threads(self) -> int | None:
        return None

    def shapes(self, xs: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
        return tuple([() if type(x) in _NUMBERS else x.shape for x in xs])

    def misfit(self, xs: Sequence[Any], dtypes: Sequence[str]) -> str | None:
        for x in xs:
            if type(x) not in _PLAIN and not isinstance(x, (np.generic, bool, int, float)):
                return f"an array of the class {type(x).__name__}"
            if type(x) is int and not -(2**63) <= x < 2**63:
                return f"{x}, which has more than 64 bits"
        return None

    def array(self, x: Any, dtype: str) -> Any:
        if type(x) in _PLAIN and x.flags.num & _ALIGNED and x.dtype.isnative:
            return x
        return np.array(x, dtype if dtype in ("bool", *LOW) else stored(dtype))

    def distances(self, x: Any) -> tuple[int, ...] | None:
        return None if x.flags.c_contiguous else x.strides

    def address(self, x: Any) -> int:
        return x.__array_interface__["data"][0]  # type: ignore[no-any-return]  # an array's dict

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return pool.empty(shape, dtype)

    def number(self, value: float, dtype: str, rank: int) -> Any:
        number = np.dtype(dtype).type(value)
        return np.full((1,) * rank, number) if rank else number

    def copy(self, x: Any) -> Any:
        return np.array(x)


MEMORY = _Memory()
