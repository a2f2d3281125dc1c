"""The last part of a step as one kernel call for all parameters of a plan, in place.

An address goes to a kernel only after its array's dtype, contiguity, size and distance from the
others were checked in the same step.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Graph
from ...plan import Ready
from .fusable import cost, unfusable

Array = np.ndarray[Any, Any]

_IN_ROWS_ALIGNED = 0x1 | 0x100  # NumPy's flags C_CONTIGUOUS and ALIGNED


def program(graph: Graph, name: str) -> Any:
    """The kernel of a graph, made once; `None` if it is not one elementwise loop."""
    made = graph.programs
    if "fused" not in made:
        from .program import Program  # which loads LLVM

        made["fused"] = None if unfusable(graph) else Program(graph, name)
    return made["fused"]


# NumPy is faster below this many passes times (elements, and 1000 for the call of each pass)
_WORTH = 150_000


def worth_it(readies: Sequence[Ready]) -> bool:
    """Whether one kernel for all of them is likely faster than NumPy's operations."""
    work: float = 0
    for r in readies:
        work += _passes(r.part.plan.final) * (1000 + r.part.arrays[0].size)
    return work > _WORTH


def _passes(final: Graph) -> int:
    if "cost" not in final.programs:
        final.programs["cost"] = cost(final)
    return int(final.programs["cost"])


def refused(final: Graph) -> str | None:
    """Why there is no kernel for the last part of a step, or `None`."""
    if program(final, "update") is None:
        return f"its update is not one loop over the elements: {unfusable(final)}"
    return None


def misfit(ready: Ready) -> str | None:
    """Why a parameter's arrays cannot be handed to a kernel as they are, or `None`."""
    arrays, final = ready.part.arrays, ready.part.plan.final
    if reason := refused(final):
        return reason
    shape = arrays[0].shape
    for array, dtype in zip(arrays, program(final, "update").reads, strict=True):
        if array.shape != shape:
            return "arrays of several shapes"
        if array.flags.num & _IN_ROWS_ALIGNED != _IN_ROWS_ALIGNED:
            return "an array that is not contiguous"
        if array.dtype != dtype:
            return "arrays of other dtypes than the trace"
    return None


def write(readies: Sequence[Ready], slots: int, others: int | None = None) -> list[list[Array]]:
    """Update w and the slots of parameters of one plan in place; returns what is recorded."""
    kernel = program(readies[0].part.plan.final, "update")
    records, rows = [], []
    for r in readies:
        w = r.part.arrays[0]
        kept = [np.empty(w.shape, d) for d in kernel.kernel.outputs[1 + slots :]]
        read = [a.__array_interface__["data"][0] for a in r.part.arrays]
        written = [read[0], *read[2 : 2 + slots]]
        rows.append([*read, *written, *(a.__array_interface__["data"][0] for a in kept)])
        records.append(_in_place(kernel, r, kept, 1 + slots))
    numbers = [(r.part.identity, *r.read) for r in readies]
    kernel.run(rows, tuple(r.part.arrays[0].size for r in readies), numbers, others)
    return records


def _in_place(kernel: Any, r: Ready, kept: list[Array], first: int) -> list[Array]:
    """What is recorded, in order: arrays that the kernel fills, and numbers that it was given."""
    found = list(kept)
    for k, number in kernel.kernel.numbers_back:
        found.insert(k - first, np.asarray((r.part.identity, *r.read)[number]))
    return found
