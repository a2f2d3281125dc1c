"""What arrays look like in memory: NumPy's own headers, and what DLPack tells of others'."""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# Python's lists and NumPy's arrays behind what every object begins with
HEAD = object.__basicsize__
_WHERE = {
    "type": HEAD - 8,
    "count": HEAD,
    "list": HEAD + 8,
    "data": HEAD,
    "rank": HEAD + 8,
    "shape": HEAD + 16,
    "descr": HEAD + 40,
    "flags": HEAD + 48,
}


@dataclass(frozen=True)
class Reader:
    """How one kind of arrays is read natively; the lock of the interpreter is held meanwhile."""

    assembly: str  # of @header(object, out: five cells, context) -> whether it is such an array
    context: tuple[int, ...]  # what that looks up
    dtype: Callable[[Any], int]  # the cell for an array's dtype


# An array as five cells: address, rank, where its shape is, dtype, flags
# (1: contiguous, aligned, on the CPU; 2: may be written)
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

# DLTensor: data 0, device 8, rank 16, dtype 20, shape 24, strides 32, offset 40
_DLPACK = """define i1 @header(ptr %x, ptr %out, ptr %context) {{
  %dl = alloca [6 x i64]
  %t = getelementptr i8, ptr %x, i64 {type}
  %type = load i64, ptr %t
  %context1 = getelementptr i64, ptr %context, i64 1
  %type1 = load i64, ptr %context1
  %context2 = getelementptr i64, ptr %context, i64 2
  %type2 = load i64, ptr %context2
  %is1 = icmp eq i64 %type, %type1
  %is2 = icmp eq i64 %type, %type2
  %is = or i1 %is1, %is2
  br i1 %is, label %tensor, label %no
tensor:
  %read = load ptr, ptr %context
  %status = call i32 %read(ptr %x, ptr %dl)
  %well = icmp eq i32 %status, 0
  br i1 %well, label %array, label %no
array:
  %d = getelementptr i8, ptr %dl, i64 8
  %device = load i32, ptr %d
  %cpu = icmp eq i32 %device, 1
  %r = getelementptr i8, ptr %dl, i64 16
  %r32 = load i32, ptr %r
  %rank = sext i32 %r32 to i64
  %e = getelementptr i8, ptr %dl, i64 20
  %e32 = load i32, ptr %e
  %dtype = zext i32 %e32 to i64
  %s = getelementptr i8, ptr %dl, i64 24
  %shape = load ptr, ptr %s
  %st = getelementptr i8, ptr %dl, i64 32
  %strides = load ptr, ptr %st
  %o = getelementptr i8, ptr %dl, i64 40
  %offset = load i64, ptr %o
  %data = load i64, ptr %dl
  %address = add i64 %data, %offset
  %compact = icmp eq ptr %strides, null
  store i64 %address, ptr %out
  %out1 = getelementptr i64, ptr %out, i64 1
  store i64 %rank, ptr %out1
  %out2 = getelementptr i64, ptr %out, i64 2
  store ptr %shape, ptr %out2
  %out3 = getelementptr i64, ptr %out, i64 3
  store i64 %dtype, ptr %out3
  %out4 = getelementptr i64, ptr %out, i64 4
  br i1 %compact, label %done, label %axes
axes:
  %k = phi i64 [%rank, %array], [%k1, %axis]
  %reach = phi i64 [1, %array], [%reach1, %axis]
  %rows = phi i1 [true, %array], [%rows1, %axis]
  %empty = phi i1 [false, %array], [%empty1, %axis]
  %more = icmp sgt i64 %k, 0
  br i1 %more, label %axis, label %sized
axis:
  %k1 = sub i64 %k, 1
  %sp = getelementptr i64, ptr %shape, i64 %k1
  %size = load i64, ptr %sp
  %tp = getelementptr i64, ptr %strides, i64 %k1
  %stride = load i64, ptr %tp
  %next = icmp eq i64 %stride, %reach
  %single = icmp eq i64 %size, 1
  %fine = or i1 %next, %single
  %rows1 = and i1 %rows, %fine
  %nothing = icmp eq i64 %size, 0
  %empty1 = or i1 %empty, %nothing
  %reach1 = mul i64 %reach, %size
  br label %axes
sized:
  %lies = or i1 %rows, %empty
  br label %done
done:
  %good = phi i1 [true, %array], [%lies, %sized]
  %b = lshr i64 %dtype, 11
  %b31 = and i64 %b, 31
  %below = sub i64 %b31, 1
  %odd = and i64 %address, %below
  %aligned = icmp eq i64 %odd, 0
  %here = and i1 %good, %cpu
  %fit = and i1 %here, %aligned
  %one = zext i1 %fit to i64
  %flags = or i64 %one, 2
  store i64 %flags, ptr %out4
  ret i1 true
no:
  ret i1 false
}}
"""


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


@functools.cache
def numpys() -> Reader | None:
    """NumPy's arrays, where this Python and this NumPy have lists and arrays as they are read."""
    context = (id(np.ndarray),)
    return Reader(filled(_NUMPY), context, lambda a: id(a.dtype)) if are_known() else None


def filled(assembly: str, **more: str) -> str:
    return assembly.format(**_WHERE, **more)


@functools.cache
def dlpacks(*types: type) -> Reader | None:
    """Arrays of these types on the CPU, where the first has DLPack's table of C functions."""
    capsule = getattr(types[0], "__dlpack_c_exchange_api__", None)
    if capsule is None or not are_known():
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer(capsule, b"dlpack_exchange_api")
    version = ctypes.c_uint32.from_address(table).value
    # version, an older table, three functions for tensors that are owned, then the one for others
    function = _at(table + 8 * 5)
    if version != 1 or not function:
        return None
    context = (function, id(types[0]), id(types[-1]))
    return Reader(filled(_DLPACK), context, dlpack_dtype)


def dlpack_dtype(x: Any) -> int:
    """DLPack's dtype of a float array: code, bits, one lane."""
    code = 4 if "bfloat16" in str(x.dtype) else 2
    return int(code | 8 * x.itemsize << 8 | 1 << 16)
