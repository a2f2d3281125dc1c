"""Where the arrays of all parameters lie, read and checked in one native call.

Asking each array for its address in Python takes longer than updating a small one. What is checked
of every array, every time: that it is an array and no subclass, its dtype, that it is contiguous
and aligned, its shape (that of its parameter, whose size is known), whether it may be written; that
parameters and slots are where they were; that no gradient shares memory with what is written.
"""

import ctypes
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .headers import Reader, filled

Array = np.ndarray[Any, Any]

# a header against what it should be: dtype, flags, the shape of another header
_LIKE = """define i1 @like(ptr %x, ptr %w, i64 %dtype, i64 %flags) {{
  %x3 = getelementptr i64, ptr %x, i64 3
  %is = load i64, ptr %x3
  %good = icmp eq i64 %is, %dtype
  %x4 = getelementptr i64, ptr %x, i64 4
  %f = load i64, ptr %x4
  %f1 = and i64 %f, %flags
  %able = icmp eq i64 %f1, %flags
  %x1 = getelementptr i64, ptr %x, i64 1
  %rank = load i64, ptr %x1
  %w1 = getelementptr i64, ptr %w, i64 1
  %wanted = load i64, ptr %w1
  %ranks = icmp eq i64 %rank, %wanted
  %x2 = getelementptr i64, ptr %x, i64 2
  %shape = load ptr, ptr %x2
  %w2 = getelementptr i64, ptr %w, i64 2
  %other = load ptr, ptr %w2
  %both = and i1 %good, %able
  %all = and i1 %both, %ranks
  br i1 %all, label %axes, label %no
axes:
  %k = phi i64 [0, %0], [%k1, %axis]
  %more = icmp slt i64 %k, %rank
  br i1 %more, label %axis, label %yes
axis:
  %a = getelementptr i64, ptr %shape, i64 %k
  %size = load i64, ptr %a
  %b = getelementptr i64, ptr %other, i64 %k
  %as = load i64, ptr %b
  %k1 = add i64 %k, 1
  %same = icmp eq i64 %size, %as
  br i1 %same, label %axes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}

define i64 @size(ptr %x) {{
  %x1 = getelementptr i64, ptr %x, i64 1
  %rank = load i64, ptr %x1
  %x2 = getelementptr i64, ptr %x, i64 2
  %shape = load ptr, ptr %x2
  br label %axes
axes:
  %k = phi i64 [0, %0], [%k1, %axis]
  %size = phi i64 [1, %0], [%size1, %axis]
  %more = icmp slt i64 %k, %rank
  br i1 %more, label %axis, label %done
axis:
  %a = getelementptr i64, ptr %shape, i64 %k
  %n = load i64, ptr %a
  %size1 = mul i64 %size, %n
  %k1 = add i64 %k, 1
  br label %axes
done:
  ret i64 %size
}}

; whether [first, last) meets none of the spans, which lie apart and in order: (start, stop)
define i1 @apart(i64 %first, i64 %last, ptr %spans, i64 %count) {{
  br label %search
search:
  %low = phi i64 [0, %0], [%low1, %look]
  %high = phi i64 [%count, %0], [%high1, %look]
  %open = icmp slt i64 %low, %high
  br i1 %open, label %look, label %found
look:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %at = shl i64 %middle, 1
  %p = getelementptr i64, ptr %spans, i64 %at
  %start = load i64, ptr %p
  %before = icmp ult i64 %start, %last
  %after = add i64 %middle, 1
  %low1 = select i1 %before, i64 %after, i64 %low
  %high1 = select i1 %before, i64 %high, i64 %middle
  br label %search
found:
  %none = icmp eq i64 %low, 0
  br i1 %none, label %yes, label %one
one:
  %twice = shl i64 %low, 1
  %odd = sub i64 %twice, 1
  %q = getelementptr i64, ptr %spans, i64 %odd
  %stop = load i64, ptr %q
  %clear = icmp ule i64 %stop, %first
  ret i1 %clear
yes:
  ret i1 true
}}
"""

# (all w, then each slot of all; all gradients; what is known) -> the first row that differs
_GATHER = """define i64 @gather(ptr %kept, ptr %grads, ptr %known) {{
  %w = alloca [5 x i64]
  %x = alloca [5 x i64]
  %n = load i64, ptr %known
{known}
  %gc = getelementptr i8, ptr %grads, i64 {count}
  %given = load i64, ptr %gc
  %kc = getelementptr i8, ptr %kept, i64 {count}
  %held = load i64, ptr %kc
  %holds = mul i64 %n, %width
  %c1 = icmp eq i64 %given, %n
  %c2 = icmp eq i64 %held, %holds
  %counts = and i1 %c1, %c2
  %gi = getelementptr i8, ptr %grads, i64 {list}
  %g = load ptr, ptr %gi
  %ki = getelementptr i8, ptr %kept, i64 {list}
  %old = load ptr, ptr %ki
  br i1 %counts, label %rows, label %none
none:
  ret i64 -1
rows:
  %k = phi i64 [0, %0], [%k1, %next]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %row, label %bad
row:
  %cell = mul i64 %k, %columns
  %line = getelementptr i64, ptr %table, i64 %cell
  br label %array
array:
  %j = phi i64 [0, %row], [%j1, %same]
  %isw = icmp eq i64 %j, 0
  %out = select i1 %isw, ptr %w, ptr %x
  %first = mul i64 %j, %n
  %at = add i64 %first, %k
  %pp = getelementptr ptr, ptr %old, i64 %at
  %p = load ptr, ptr %pp
  %read = call i1 @header(ptr %p, ptr %out, ptr %context)
  br i1 %read, label %isarray, label %bad
isarray:
  %skip = icmp ne i64 %j, 0
  %one = zext i1 %skip to i64
  %column = add i64 %j, %one
  %dp = getelementptr i64, ptr %dtypes, i64 %column
  %dtype = load i64, ptr %dp
  %fits = call i1 @like(ptr %out, ptr %w, i64 %dtype, i64 3)
  %ap = getelementptr i64, ptr %line, i64 %column
  %was = load i64, ptr %ap
  %is = load i64, ptr %out
  %there = icmp eq i64 %was, %is
  %elements = call i64 @size(ptr %w)
  %none0 = icmp eq i64 %elements, 0
  %stays = or i1 %there, %none0
  %good = and i1 %fits, %stays
  br i1 %good, label %same, label %bad
same:
  %j1 = add i64 %j, 1
  %again = icmp slt i64 %j1, %width
  br i1 %again, label %array, label %gradient
gradient:
  %size = call i64 @size(ptr %w)
  %sp = getelementptr i64, ptr %sizes, i64 %k
  %should = load i64, ptr %sp
  %sized = icmp eq i64 %size, %should
  %gp = getelementptr ptr, ptr %g, i64 %k
  %go = load ptr, ptr %gp
  br i1 %sized, label %look, label %bad
look:
  %reads = call i1 @header(ptr %go, ptr %x, ptr %context)
  br i1 %reads, label %isgradient, label %bad
isgradient:
  %gdp = getelementptr i64, ptr %dtypes, i64 1
  %gd = load i64, ptr %gdp
  %alike = call i1 @like(ptr %x, ptr %w, i64 %gd, i64 1)
  br i1 %alike, label %where, label %bad
where:
  %start = load i64, ptr %x
  %bytes = mul i64 %size, %itemsize
  %stop = add i64 %start, %bytes
  %clear = call i1 @apart(i64 %start, i64 %stop, ptr %spans, i64 %count)
  %line1 = getelementptr i64, ptr %line, i64 1
  store i64 %start, ptr %line1
  br i1 %clear, label %next, label %bad
next:
  %k1 = add i64 %k, 1
  br label %rows
bad:
  ret i64 %k
}}
"""

_KNOWN = "n width columns itemsize count context dtypes sizes table spans".split()
_POINTERS = "context dtypes sizes table spans".split()


def _assembly(reader: Reader) -> str:
    lines = []
    for k, name in enumerate(_KNOWN[1:], 1):
        kind = "ptr" if name in _POINTERS else "i64"
        lines.append(f"  %{name}_ = getelementptr i64, ptr %known, i64 {k}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}_")
    return reader.assembly + filled(_LIKE + _GATHER, known="\n".join(lines))


@functools.cache
def _compiled(reader: Reader) -> tuple[Any, Any]:
    from .engine import Code  # which loads LLVM

    code = Code(_assembly(reader))
    # this type of function holds the lock of the interpreter: nobody changes an array meanwhile
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
    return code, kind(code.address("gather"))


def spans(arrays: Iterable[Array]) -> Array | None:
    """The memory of contiguous arrays, (start, stop) in order; `None` if two of them share some."""
    found = [(a.__array_interface__["data"][0], a.nbytes) for a in arrays if a.nbytes]
    each = np.array(sorted(found), np.uint64).reshape(-1, 2)
    each[:, 1] += each[:, 0]
    return None if (each[1:, 0] < each[:-1, 1]).any() else each


class Addresses:
    """The rows of a table of addresses: those of w, the gradient and slots, for each parameter."""

    def __init__(
        self, reader: Reader, rows: Sequence[Sequence[Any]], table: Array, written: Array
    ) -> None:
        self._gather = _compiled(reader)[1]
        self._dtypes = [a.dtype for a in rows[0]]
        self._held = {
            "context": np.array(reader.context, np.uint64),
            "dtypes": np.array([reader.dtype(a) for a in rows[0]], np.uint64),
            "sizes": np.array([w.size for w, *_ in rows]),
            "table": table,
            "spans": written,
        }
        numbers = {
            "n": len(rows),
            "width": len(rows[0]) - 1,
            "columns": table.shape[1],
            "itemsize": rows[0][1].itemsize,
            "count": len(written),
        }
        at = {name: array.ctypes.data for name, array in self._held.items()}
        self._known = np.array([{**numbers, **at}[name] for name in _KNOWN], np.uint64)
        self._at = self._known.ctypes.data
        self._count = len(rows)

    def take(self, kept: list[Any], gradients: list[Any]) -> bool:
        """Put the gradients' addresses into the table, unless an array is not as it should be.

        `kept` are all w, then each slot of all.
        """
        try:
            return bool(self._gather(kept, gradients, self._at) == self._count)
        except Exception:  # of the arrays' library: what it cannot describe
            return False
