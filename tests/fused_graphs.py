"""Run one graph on NumPy arrays through the fused target, as a rule's last part is run."""

import ctypes
import mmap

import numpy as np

from gradwright.graph import Graph
from gradwright.targets.fused.program import Program
from gradwright.trace.tracer import Tracer, cast, node

PAGE = mmap.PAGESIZE


def graph_of(prim, dtypes, out=None):
    """One primitive on arrays of one size."""
    g = Graph()
    xs = []
    for k, dtype in enumerate(dtypes):
        shape = (None,) if k == 0 else g.nodes[0].shape
        xs.append(Tracer(g, g.input(f"x{k}", shape, dtype)))
    result = node(g, prim, xs) if prim != "astype" else cast(xs[0], out)
    g.outputs = (result.i,)
    return g


def run(program, *arrays, numbers=(), outs=None):
    outs = [np.empty(arrays[0].shape, d) for d in program.kernel.outputs] if outs is None else outs
    addresses = [a.ctypes.data for a in (*arrays, *outs)]
    sums = program.run([addresses], (arrays[0].size,), [tuple(numbers)])
    return outs, sums


def fused(graph):
    return Program(graph, "f")


class Guarded:
    """Memory whose last byte lies before a page that may not be touched, and whose first after."""

    def __init__(self, pages=4):
        self.memory = mmap.mmap(-1, (pages + 2) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for page in (start, start + (pages + 1) * PAGE):
            assert protect(page, PAGE, 0) == 0
        self.bytes = np.frombuffer(self.memory, np.uint8)[PAGE : (pages + 1) * PAGE]

    def array(self, size, dtype, at_end=True):
        n = size * np.dtype(dtype).itemsize
        part = self.bytes[len(self.bytes) - n :] if at_end else self.bytes[:n]
        return part.view(dtype)
