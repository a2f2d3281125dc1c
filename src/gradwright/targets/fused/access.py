"""Vectors from memory and back: contiguous, or with a distance between elements."""

from ...precision import LOW
from .frame import Column
from .ir import LANE, LANES, Builder, Lanes, vector


def load(b: Builder, k: int, column: Column, dtype: str, u: int) -> Lanes:
    """Vector u of a block of array k."""
    if column.kind == "strided":
        place = f"ptr %at{k}_{u}, i64 %apart{k}"
        x = b.named(f"gw_load_{column.dtype}", _strided_load(column), place, column.dtype)
    else:
        pointer = _pointer(b, k, column, u)
        kind = vector(column.dtype)
        x = b.emit(f"load {kind}, ptr {pointer}, align {column.size}", column.dtype)
    return _as(x, dtype)


def _as(x: Lanes, dtype: str) -> Lanes:
    """What lies in memory, as the dtype that it is."""
    if dtype == "bool":
        return x.to("bool")
    return x.bits(dtype) if dtype in LOW else x


def in_memory(x: Lanes, column: Column) -> Lanes:
    """A value as it lies in memory."""
    return x.bits(column.dtype) if x.dtype in LOW else x.to(column.dtype)


def store(b: Builder, k: int, column: Column, x: Lanes, u: int) -> None:
    x = in_memory(x, column)
    if column.kind == "strided":
        name = f"gw_store_{column.dtype}"
        b.defined.setdefault(name, _strided_store(column))
        place = f"ptr %at{k}_{u}, i64 %apart{k}"
        b.lines.append(f"  call void @{name}({place}, {x.type} {x.text})")
    else:
        pointer = _pointer(b, k, column, u)
        b.lines.append(f"  store {x.type} {x.text}, ptr {pointer}, align {column.size}")


def _pointer(b: Builder, k: int, column: Column, u: int) -> str:
    name = f"%at{k}_{u}"
    line = f"  {name} = getelementptr {LANE[column.dtype]}, ptr %base{k}, i64 %j{u}"
    if line not in b.lines:
        b.lines.append(line)
    return name


def splat(b: Builder, mark: str, pointer: str, column: str, dtype: str) -> Lanes:
    """One number in memory as a vector of equal lanes."""
    lane = LANE[column]
    b.lines.append(f"  %number{mark} = load {lane}, ptr {pointer}")
    x = spread(b, f"%number{mark}", column)
    return _as(x, dtype)


def spread(b: Builder, text: str, dtype: str) -> Lanes:
    """A scalar as a vector of equal lanes."""
    kind = vector(dtype)
    first = b.emit(f"insertelement {kind} poison, {LANE[dtype]} {text}, i32 0", dtype)
    equal = f"<{LANES} x i32> zeroinitializer"
    return b.emit(f"shufflevector {kind} {first.text}, {kind} poison, {equal}", dtype)


def first_lane(b: Builder, x: Lanes) -> str:
    """A vector's first lane as a scalar."""
    return b.emit(f"extractelement {x.type} {x.text}, i32 0", x.dtype).text


def crossed(b: Builder, x: Lanes, apart: int) -> Lanes:
    """Every lane is that of the lane whose number differs in one bit."""
    picks = ", ".join(f"i32 {k ^ apart}" for k in range(LANES))
    picked = f"shufflevector {x.type} {x.text}, {x.type} poison, <{LANES} x i32> <{picks}>"
    return b.emit(picked, x.dtype)


def _strided_load(column: Column) -> str:
    """A function that loads a vector whose elements lie apart."""
    kind, lane = vector(column.dtype), LANE[column.dtype]
    lines = [f"define internal {kind} @gw_load_{column.dtype}(ptr %p, i64 %apart) #0 {{"]
    for k in range(LANES):
        before = f"%v{k - 1}" if k else "poison"
        lines += [
            f"  %o{k} = mul i64 %apart, {k}",
            f"  %p{k} = getelementptr i8, ptr %p, i64 %o{k}",
            f"  %x{k} = load {lane}, ptr %p{k}, align {column.size}",
            f"  %v{k} = insertelement {kind} {before}, {lane} %x{k}, i32 {k}",
        ]
    return "\n".join([*lines, f"  ret {kind} %v{LANES - 1}", "}"])


def _strided_store(column: Column) -> str:
    """A function that stores a vector whose elements lie apart."""
    kind, lane = vector(column.dtype), LANE[column.dtype]
    lines = [f"define internal void @gw_store_{column.dtype}(ptr %p, i64 %apart, {kind} %x) #0 {{"]
    for k in range(LANES):
        lines += [
            f"  %o{k} = mul i64 %apart, {k}",
            f"  %p{k} = getelementptr i8, ptr %p, i64 %o{k}",
            f"  %x{k} = extractelement {kind} %x, i32 {k}",
            f"  store {lane} %x{k}, ptr %p{k}, align {column.size}",
        ]
    return "\n".join([*lines, "  ret void", "}"])
