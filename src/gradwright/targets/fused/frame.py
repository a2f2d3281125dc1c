"""The loops around one block of elements: over items of work, and over the blocks of an item.

A kernel reads a table with a row for each run of elements: the addresses of its arrays, in and out,
then that of its numbers, 8 bytes each. A second table lists the work: (row, first element, count).
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .ir import LANE, LANES, literal, vector

UNROLL = 4
BLOCK = LANES * UNROLL  # elements an iteration: 16 counters of Philox, four words each
ROW = "row"  # how the names begin of what is known once a phase is done


class Column(NamedTuple):
    """One array of a kernel: how it lies in memory along a row."""

    dtype: str  # as it is stored
    kind: str = "each"  # element by element; "strided" with a distance; "one", "row": one a row
    cell: int = 0  # which of the row's numbers is the distance in bytes

    @property
    def size(self) -> int:
        return int(np.dtype(self.dtype).itemsize)


class Sum(NamedTuple):
    """A vector that a loop carries along."""

    dtype: str
    start: float
    carried: str  # its name at the end of a block


class Phase(NamedTuple):
    """One loop over the elements of an item, and what follows it."""

    block: Sequence[str]  # the instructions for one block, with the sums so far in %sumK
    loads: frozenset[int]  # the arrays read, and those written
    stores: frozenset[int]
    sums: Sequence[Sum]
    after: Sequence[str]  # with the sums in %outK


def frame(
    name: str, columns: Sequence[Column], numbers: Sequence[str], phases: Sequence[Phase]
) -> list[str]:
    """The functions of a kernel.

    The last elements, fewer than a block, are copied to a scratch block on the stack and back, so
    nothing is read or written outside an array, and the block is there once.
    """
    moving = [(k, c) for k, c in enumerate(columns) if c.kind not in ("one", "row")]
    used = frozenset().union(*(p.loads | p.stores for p in phases))
    moving = [(k, c) for k, c in moving if k in used]
    text = _FRAME.format(
        name=name,
        scratch="\n".join(_scratch(k, c) for k, c in moving),
        columns=len(columns) + 1,
        last=len(columns),
        row="\n".join(_address(k) for k in range(len(columns))),
        starts="\n".join(_start(k, c) for k, c in moving),
        numbers="\n".join(numbers),
        mask=-BLOCK,
        ends="\n".join(_end(k, c) for k, c in moving),
        phases="\n".join(_phase(p, moving, k, len(phases)) for k, p in enumerate(phases)),
    )
    strided = [(k, c.size) for k, c in moving if c.kind == "strided"]
    ways = {("gather", s) for k, s in strided if any(k in p.loads for p in phases)}
    ways |= {("scatter", s) for k, s in strided if any(k in p.stores for p in phases)}
    return [*(_copy(way, size) for way, size in sorted(ways)), text]


def _scratch(k: int, c: Column) -> str:
    kind = f"[{BLOCK} x {LANE[c.dtype]}]"
    return (
        f"  %scratch{k} = alloca {kind}, align 64\n  store {kind} zeroinitializer, ptr %scratch{k}"
    )


def _address(k: int) -> str:
    return (
        f"  %slot{k} = getelementptr ptr, ptr %row, i64 {k}\n  %array{k} = load ptr, ptr %slot{k}"
    )


def _start(k: int, c: Column) -> str:
    """Where an item begins; the distances are among the row's numbers."""
    if c.kind == "each":
        return f"  %start{k} = getelementptr {LANE[c.dtype]}, ptr %array{k}, i64 %first"
    return (
        f"  %distance{k} = getelementptr i64, ptr %cells, i64 {c.cell}\n"
        f"  %stride{k} = load i64, ptr %distance{k}\n"
        f"  %ahead{k} = mul i64 %first, %stride{k}\n"
        f"  %start{k} = getelementptr i8, ptr %array{k}, i64 %ahead{k}"
    )


def _end(k: int, c: Column) -> str:
    """Where the last elements begin, fewer than a block."""
    apart = f"%stride{k}" if c.kind == "strided" else str(c.size)
    return (
        f"  %whole{k} = mul i64 %whole, {apart}\n"
        f"  %bytes{k} = mul i64 %rest, {c.size}\n"
        f"  %end{k} = getelementptr i8, ptr %start{k}, i64 %whole{k}"
    )


def _copied(k: int, c: Column, way: str) -> str:
    """The last elements to the block on the stack, or back."""
    if c.kind == "strided":
        arguments = f"ptr %scratch{k}, ptr %end{k}, i64 %stride{k}, i64 %rest"
        return f"  call void @gw_{way}{c.size}({arguments})"
    to, of = ("scratch", "end") if way == "gather" else ("end", "scratch")
    return (
        f"  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %{to}{k}, ptr align 1 %{of}{k}, "
        f"i64 %bytes{k}, i1 false)"
    )


def _phase(p: Phase, moving: Sequence[tuple[int, Column]], number: int, count: int) -> str:
    mine = [(k, c) for k, c in moving if k in p.loads | p.stores]
    bases = [f"  %base{k} = phi ptr [%start{k}, %start], [%scratch{k}, %copy]" for k, _ in mine]
    bases += [
        f"  %apart{k} = phi i64 [%stride{k}, %start], [{c.size}, %copy]"
        for k, c in mine
        if c.kind == "strided"
    ]
    for k, s in enumerate(p.sums):
        first = f"splat ({LANE[s.dtype]} {literal(s.start, s.dtype)})"
        bases.append(f"  %acc{k} = phi {vector(s.dtype)} [{first}, %start], [%out{k}, %copy]")
    inside = [f"phi {vector(s.dtype)} [%acc{k}, %pass], [{s.carried}, %loop]"
              for k, s in enumerate(p.sums)]  # fmt: skip
    places = [f"  %j{u} = add i64 %j, {u * LANES}" for u in range(UNROLL)]
    places += [
        f"  %o{k}_{u} = mul i64 %j{u}, %apart{k}\n"
        f"  %at{k}_{u} = getelementptr i8, ptr %base{k}, i64 %o{k}_{u}"
        for k, c in mine
        if c.kind == "strided"
        for u in range(UNROLL)
    ]
    text = _PHASE.format(
        bases="\n".join(bases),
        running="\n".join(f"  %sum{k} = {phi}" for k, phi in enumerate(inside)),
        after="\n".join(f"  %out{k} = {phi}" for k, phi in enumerate(inside)),
        places="\n".join(places),
        block_lines="\n".join(p.block),
        block=BLOCK,
        into="\n".join(_copied(k, c, "gather") for k, c in mine if k in p.loads),
        back="\n".join(_copied(k, c, "scatter") for k, c in mine if k in p.stores),
        results="\n".join(p.after),
        following="begun" if number + 1 == count else f"start.{number + 1}",
    )
    return _numbered(text, number)


_NAME = re.compile(r"%([\w.]+)")
_DEFINED = re.compile(r"^ *%([\w.]+) =|^(\w+):", re.MULTILINE)


def _numbered(text: str, number: int) -> str:
    """The text of a phase with names of its own, but for the numbers of the row that it finds."""
    names = {a or b for a, b in _DEFINED.findall(text)}
    mine = {name for name in names if not name.startswith(ROW)}
    text = re.sub(r"^(\w+):", lambda m: f"{m[1]}.{number}:", text, flags=re.MULTILINE)
    return _NAME.sub(lambda m: f"%{m[1]}.{number}" if m[1] in mine else m[0], text)


def _copy(way: str, size: int) -> str:
    """A loop that copies elements of a size between a block and memory where they lie apart."""
    kind = f"i{8 * size}"
    source, target = ("%far", "%near") if way == "gather" else ("%near", "%far")
    arguments = "ptr %block, ptr %array, i64 %stride, i64 %n"
    return f"""define internal void @gw_{way}{size}({arguments}) #0 {{
entry:
  br label %next
next:
  %k = phi i64 [0, %entry], [%k1, %one]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %one, label %end
one:
  %near = getelementptr {kind}, ptr %block, i64 %k
  %ahead = mul i64 %k, %stride
  %far = getelementptr i8, ptr %array, i64 %ahead
  %x = load {kind}, ptr {source}, align {size}
  store {kind} %x, ptr {target}, align {size}
  %k1 = add i64 %k, 1
  br label %next
end:
  ret void
}}"""


def assembled(texts: Sequence[str], declared: Iterable[str]) -> str:
    """One module: what is declared is declared once, behind the functions."""
    lines = [line for text in texts for line in text.split("\n")]
    found = {line for line in lines if line.startswith("declare")} | set(declared)
    found.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    bodies = [line for line in lines if not line.startswith("declare")]
    return "\n".join([*bodies, *sorted(found), "attributes #0 = { nounwind }", ""])


# (table of rows, work, sums, from, to): items `from` to `to` of the work
_FRAME = """define void @{name}(ptr %rows, ptr %work, ptr %sums, i64 %from, i64 %to) #0 {{
entry:
{scratch}
  br label %next
next:
  %w = phi i64 [%from, %entry], [%w1, %begun]
  %more = icmp slt i64 %w, %to
  br i1 %more, label %begin, label %end
begin:
  %w3 = mul i64 %w, 3
  %item = getelementptr i64, ptr %work, i64 %w3
  %k = load i64, ptr %item
  %item1 = getelementptr i64, ptr %item, i64 1
  %first = load i64, ptr %item1
  %item2 = getelementptr i64, ptr %item, i64 2
  %count = load i64, ptr %item2
  %offset = mul i64 %k, {columns}
  %row = getelementptr ptr, ptr %rows, i64 %offset
{row}
  %slotn = getelementptr ptr, ptr %row, i64 {last}
  %cells = load ptr, ptr %slotn
{starts}
{numbers}
  %whole = and i64 %count, {mask}
  %rest = sub i64 %count, %whole
{ends}
  br label %start.0
{phases}
begun:
  %w1 = add i64 %w, 1
  br label %next
end:
  ret void
}}
"""

# one loop over the whole blocks of an item, and then one over the block with the last elements
_PHASE = """start:
  br label %pass
pass:
  %main = phi i1 [true, %start], [false, %copy]
  %size = phi i64 [%whole, %start], [{block}, %copy]
  %limit = phi i64 [%whole, %start], [%rest, %copy]
  %origin = phi i64 [0, %start], [%whole, %copy]
{bases}
  %any = icmp sgt i64 %size, 0
  br i1 %any, label %loop, label %after
loop:
  %j = phi i64 [0, %pass], [%j_next, %loop]
{running}
  %left = sub i64 %limit, %j
  %local = add i64 %origin, %j
  %element = add i64 %first, %local
{places}
{block_lines}
  %j_next = add i64 %j, {block}
  %again = icmp slt i64 %j_next, %size
  br i1 %again, label %loop, label %after
after:
{after}
  %some = icmp ne i64 %rest, 0
  %go = and i1 %some, %main
  br i1 %go, label %copy, label %finish
copy:
{into}
  br label %pass
finish:
  br i1 %some, label %restore, label %done
restore:
{back}
  br label %done
done:
{results}
  br label %{following}"""
