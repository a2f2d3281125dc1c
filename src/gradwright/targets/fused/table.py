"""What one call of a kernel reads, kept from step to step: a row for each parameter."""

from typing import Any

import numpy as np

from .program import Program, work_of

Array = np.ndarray[Any, Any]


class Table:
    """Addresses of arrays, in and out, and numbers; both are written anew before each run."""

    def __init__(self, program: Program, sizes: tuple[int, ...]) -> None:
        self.program = program
        width = len(program.kernel.arrays) + len(program.kernel.outputs)
        self.numbers = np.zeros(len(sizes), program.row)
        self.whole = np.empty((len(sizes), width + 1), np.uint64)
        first, step = self.numbers.ctypes.data, program.row.itemsize
        self.whole[:, -1] = range(first, first + len(sizes) * step, step)
        self._work = work_of(sizes)

    @property
    def addresses(self) -> Array:
        return self.whole[:, :-1]

    def run(self, others: int | None = None) -> None:
        """Run all rows. `others` is a framework's own number of threads."""
        self.program.over(self.whole, self._work, others)
