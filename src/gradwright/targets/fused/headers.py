"""Where arrays lie, read from their own headers: all parameters of a step in one native call.

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

Array = np.ndarray[Any, Any]

# Python's lists and NumPy's arrays behind what every object begins with
_HEAD = object.__basicsize__
_WHERE = {
    "type": _HEAD - 8,
    "count": _HEAD,
    "list": _HEAD + 8,
    "data": _HEAD,
    "rank": _HEAD + 8,
    "shape": _HEAD + 16,
    "descr": _HEAD + 40,
    "flags": _HEAD + 48,
}

# An array as five cells: address, rank, where its shape is, dtype, flags (1 in rows, 2 writable)
_NUMPY = """define i1 @header(ptr %x, ptr %out, ptr %context) {{
  %t = getelementptr i8, ptr %x, i64 {type}
  %type = load i64, ptr %t
  %wanted = load i64, ptr %context
  %is = icmp eq i64 %type, %wanted
  br i1 %is, label %array, label %no
array:
  %d = getelementptr i8, ptr %x, i64 {data}
  %data = load i64, ptr %d
  %r = getelementptr i8, ptr %x, i64 {rank}
  %r32 = load i32, ptr %r
  %rank = sext i32 %r32 to i64
  %s = getelementptr i8, ptr %x, i64 {shape}
  %shape = load i64, ptr %s
  %e = getelementptr i8, ptr %x, i64 {descr}
  %descr = load i64, ptr %e
  %f = getelementptr i8, ptr %x, i64 {flags}
  %all = load i32, ptr %f
  %lies = and i32 %all, 257
  %fine = icmp eq i32 %lies, 257
  %rows = zext i1 %fine to i64
  %w = lshr i32 %all, 9
  %w2 = and i32 %w, 2
  %writable = zext i32 %w2 to i64
  %flags = or i64 %rows, %writable
  store i64 %data, ptr %out
  %out1 = getelementptr i64, ptr %out, i64 1
  store i64 %rank, ptr %out1
  %out2 = getelementptr i64, ptr %out, i64 2
  store i64 %shape, ptr %out2
  %out3 = getelementptr i64, ptr %out, i64 3
  store i64 %descr, ptr %out3
  %out4 = getelementptr i64, ptr %out, i64 4
  store i64 %flags, ptr %out4
  ret i1 true
no:
  ret i1 false
}}
"""

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

# (list of w and slots by row, list of gradients, what is known) -> the first row that differs
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
  %first = mul i64 %k, %width
  %cell = mul i64 %k, %columns
  %line = getelementptr i64, ptr %table, i64 %cell
  br label %array
array:
  %j = phi i64 [0, %row], [%j1, %same]
  %isw = icmp eq i64 %j, 0
  %out = select i1 %isw, ptr %w, ptr %x
  %at = add i64 %first, %j
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
  %stays = icmp eq i64 %was, %is
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


def _assembly(header: str) -> str:
    lines = []
    for k, name in enumerate(_KNOWN[1:], 1):
        kind = "ptr" if name in _POINTERS else "i64"
        lines.append(f"  %{name}_ = getelementptr i64, ptr %known, i64 {k}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}_")
    return (header + _LIKE + _GATHER).format(known="\n".join(lines), **_WHERE)


@functools.cache
def _numpy() -> tuple[Any, Any]:
    from .engine import Code  # which loads LLVM

    code = Code(_assembly(_NUMPY))
    # the lock of the interpreter is held: nobody changes an array meanwhile
    kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
    return code, kind(code.address("gather"))


def _at(address: int) -> int:
    return ctypes.c_ssize_t.from_address(address).value


@functools.cache
def are_known() -> bool:
    """Whether this Python and this NumPy have lists and arrays that look as they are read here."""
    a, some = np.empty((3, 5)), [None, None]
    if np.ndarray.__basicsize__ < _WHERE["flags"] + 8 or list.__basicsize__ < _WHERE["list"] + 8:
        return False
    of = {name: _at(id(a) + offset) for name, offset in _WHERE.items()}
    return (
        (of["type"], of["data"], of["descr"]) == (id(np.ndarray), a.ctypes.data, id(a.dtype))
        and (of["rank"] & 0xFFFFFFFF, of["flags"] & 0xFFFFFFFF) == (2, a.flags.num)
        and (_at(of["shape"]), _at(of["shape"] + 8)) == (3, 5)
        and (_at(id(some) + _WHERE["count"]), _at(_at(id(some) + _WHERE["list"]))) == (2, id(None))
    )


def spans(arrays: Iterable[Array]) -> Array | None:
    """The memory of contiguous arrays, (start, stop) in order; `None` if two of them share some."""
    found = [(a.__array_interface__["data"][0], a.nbytes) for a in arrays if a.nbytes]
    each = np.array(sorted(found), np.uint64).reshape(-1, 2)
    each[:, 1] += each[:, 0]
    return None if (each[1:, 0] < each[:-1, 1]).any() else each


class Addresses:
    """The rows of a table of addresses, each w, g, slots, and what has not changed since."""

    def __init__(self, rows: Sequence[Sequence[Array]], table: Array, written: Array) -> None:
        self._kept = [a for w, _, *slots in rows for a in (w, *slots)]
        self._gather = _numpy()[1]
        self._dtypes = [a.dtype for a in rows[0]]
        self._held = {
            "context": np.array([id(np.ndarray)]),
            "dtypes": np.array([id(d) for d in self._dtypes]),
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

    def take(self, gradients: list[Any]) -> bool:
        """Put the gradients' addresses into the table, unless an array is not as it should be."""
        return bool(self._gather(self._kept, gradients, self._at) == self._count)
