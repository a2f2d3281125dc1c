"""What a kernel needs to know of an array library whose arrays lie in this process."""

from collections.abc import Sequence
from typing import Any, Protocol

from ...emit import Spelling


class Memory(Protocol):
    """The arrays of one library."""

    spelling: Spelling
    call: int  # how many elements a pass does in the time that calling it takes

    def threads(self) -> int | None:
        """How many threads the library itself uses, if it says so."""

    def shapes(self, xs: Sequence[Any]) -> tuple[tuple[int, ...], ...] | None:
        """The shapes, or `None` if there are values whose sizes are not known yet."""

    def misfit(self, xs: Sequence[Any], dtypes: Sequence[str]) -> str | None:
        """Why a kernel may not read these, or `None`: plain arrays, and what becomes one."""

    def array(self, x: Any, dtype: str) -> Any:
        """x as an array: a copy only if it is not one, or not aligned."""

    def distances(self, x: Any) -> tuple[int, ...] | None:
        """How far apart elements lie in bytes, by axis; `None` in rows without gaps."""

    def address(self, x: Any) -> int:
        """Where an array begins, as long as it lives."""

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """Memory of its own, for a kernel to fill."""

    def number(self, value: float, dtype: str, rank: int) -> Any:
        """One number as a result of this many dimensions."""

    def copy(self, x: Any) -> Any:
        """The same in memory of its own."""
