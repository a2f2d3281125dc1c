"""The loops around one block of elements: over items of work, and over the blocks of an item.

A kernel reads a table with a row for each run of elements: the addresses of its arrays, in and out,
then that of its numbers, 8 bytes each. A second table lists the work: (row, first element, count).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from .ir import LANE, LANES, vector

UNROLL = 4
BLOCK = LANES * UNROLL  # elements an iteration: 16 counters of Philox, four words each
EQUAL = f"<{LANES} x i32> zeroinitializer"  # a shuffle that repeats the first lane
_REDUCE = f"llvm.vector.reduce.fadd.v{LANES}f64"
_DOUBLES = vector("float64")


class Column(NamedTuple):
    """One array of a kernel: how it lies in memory along a row."""

    dtype: str  # as it is stored
    kind: str = "each"  # element by element; "strided" with a distance; "one" for all of a row
    cell: int = 0  # which of the row's numbers is the distance in bytes

    @property
    def size(self) -> int:
        return int(np.dtype(self.dtype).itemsize)


class _Columns:
    """The text that each array of a kernel brings to its frame."""

    def __init__(self, reads: Sequence[Column], writes: Sequence[Column]) -> None:
        self.all = list(enumerate([*reads, *writes]))
        self.moving = [(k, c) for k, c in self.all if c.kind != "one"]
        self.strided = [(k, c) for k, c in self.all if c.kind == "strided"]
        self.read = [(k, c) for k, c in self.moving if k < len(reads)]
        self.written = [(k, c) for k, c in self.moving if k >= len(reads)]

    def scratch(self) -> list[str]:
        return [
            f"  %scratch{k} = alloca [{BLOCK} x {LANE[c.dtype]}], align 64\n"
            f"  store [{BLOCK} x {LANE[c.dtype]}] zeroinitializer, ptr %scratch{k}"
            for k, c in self.moving
        ]

    def addresses(self) -> list[str]:
        return [
            f"  %slot{k} = getelementptr ptr, ptr %row, i64 {k}\n"
            f"  %array{k} = load ptr, ptr %slot{k}"
            for k, _ in self.all
        ]

    def starts(self) -> list[str]:
        """Where an item begins; the distances are among the row's numbers."""
        lines = [
            f"  %distance{k} = getelementptr i64, ptr %cells, i64 {c.cell}\n"
            f"  %stride{k} = load i64, ptr %distance{k}\n"
            f"  %ahead{k} = mul i64 %first, %stride{k}\n"
            f"  %start{k} = getelementptr i8, ptr %array{k}, i64 %ahead{k}"
            for k, c in self.strided
        ]
        lines += [
            f"  %start{k} = getelementptr {LANE[c.dtype]}, ptr %array{k}, i64 %first"
            for k, c in self.moving
            if c.kind == "each"
        ]
        return lines

    def ends(self) -> list[str]:
        """Where the last elements begin, fewer than a block."""
        lines = []
        for k, c in self.moving:
            apart = f"%stride{k}" if c.kind == "strided" else str(c.size)
            lines.append(
                f"  %whole{k} = mul i64 %whole, {apart}\n"
                f"  %bytes{k} = mul i64 %rest, {c.size}\n"
                f"  %end{k} = getelementptr i8, ptr %start{k}, i64 %whole{k}"
            )
        return lines

    def into(self) -> list[str]:
        return [self._copied(k, c, "gather") for k, c in self.read]

    def back(self) -> list[str]:
        return [self._copied(k, c, "scatter") for k, c in self.written]

    def _copied(self, k: int, c: Column, way: str) -> str:
        """The last elements to the block on the stack, or back."""
        if c.kind == "strided":
            return (
                f"  call void @gw_{way}{c.size}"
                f"(ptr %scratch{k}, ptr %end{k}, i64 %stride{k}, i64 %rest)"
            )
        to, of = ("scratch", "end") if way == "gather" else ("end", "scratch")
        return (
            f"  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %{to}{k}, ptr align 1 %{of}{k}, "
            f"i64 %bytes{k}, i1 false)"
        )

    def bases(self) -> list[str]:
        lines = [f"  %base{k} = phi ptr [%start{k}, %begin], [%scratch{k}, %copy]"
                 for k, _ in self.moving]  # fmt: skip
        lines += [
            f"  %apart{k} = phi i64 [%stride{k}, %begin], [{c.size}, %copy]"
            for k, c in self.strided
        ]
        return lines

    def places(self) -> list[str]:
        """Where each vector of a block begins in an array whose elements lie apart."""
        return [
            f"  %o{k}_{u} = mul i64 %j{u}, %apart{k}\n"
            f"  %at{k}_{u} = getelementptr i8, ptr %base{k}, i64 %o{k}_{u}"
            for k, _ in self.strided
            for u in range(UNROLL)
        ]

    def copies(self) -> list[str]:
        """The functions that copy elements that lie apart."""
        ways = [(way, c.size) for cs, way in ((self.read, "gather"), (self.written, "scatter"))
                for _, c in cs if c.kind == "strided"]  # fmt: skip
        return [_copy(way, size) for way, size in sorted(set(ways))]


def frame(
    name: str,
    reads: Sequence[Column],
    writes: Sequence[Column],
    sums: int,
    numbers: Sequence[str],
    block: Sequence[str],
) -> list[str]:
    """The functions of a kernel.

    The last elements, fewer than a block, are copied to a scratch block on the stack and back, so
    nothing is read or written outside an array, and the block is there once.
    """
    columns = _Columns(reads, writes)
    totals = []
    for k in range(sums):
        totals += [
            f"  %total{k} = call double @{_REDUCE}(double -0.0, {_DOUBLES} %out{k})",
            f"  %place{k}w = mul i64 %w, {sums}",
            f"  %place{k}i = add i64 %place{k}w, {k}",
            f"  %place{k} = getelementptr double, ptr %sums, i64 %place{k}i",
            f"  store double %total{k}, ptr %place{k}",
        ]
    carried = [f"  %acc{k} = phi {_DOUBLES} [zeroinitializer, %begin], [%out{k}, %copy]"
               for k in range(sums)]  # fmt: skip
    inside = [f"phi {_DOUBLES} [%acc{k}, %pass], [%sum{k}_1, %loop]" for k in range(sums)]
    text = _FRAME.format(
        name=name,
        scratch="\n".join(columns.scratch()),
        columns=len(columns.all) + 1,
        last=len(columns.all),
        row="\n".join(columns.addresses()),
        starts="\n".join(columns.starts()),
        ends="\n".join(columns.ends()),
        numbers="\n".join(numbers),
        bases="\n".join([*columns.bases(), *carried]),
        running="\n".join(f"  %sum{k} = {phi}" for k, phi in enumerate(inside)),
        after="\n".join(f"  %out{k} = {phi}" for k, phi in enumerate(inside)),
        places="\n".join(
            [*(f"  %j{u} = add i64 %j, {u * LANES}" for u in range(UNROLL)), *columns.places()]
        ),
        block_lines="\n".join(block),
        block=BLOCK,
        mask=-BLOCK,
        into="\n".join(columns.into()),
        back="\n".join(columns.back()),
        totals="\n".join(totals),
    )
    return [*columns.copies(), text]


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
    found.add(f"declare double @{_REDUCE}(double, {_DOUBLES})")
    bodies = [line for line in lines if not line.startswith("declare")]
    return "\n".join([*bodies, *sorted(found), "attributes #0 = { nounwind }", ""])


# (table of rows, work, sums, from, to): items `from` to `to` of the work
_FRAME = """define void @{name}(ptr %rows, ptr %work, ptr %sums, i64 %from, i64 %to) #0 {{
entry:
{scratch}
  br label %next
next:
  %w = phi i64 [%from, %entry], [%w1, %done]
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
  br label %pass
pass:
  %main = phi i1 [true, %begin], [false, %copy]
  %size = phi i64 [%whole, %begin], [{block}, %copy]
  %limit = phi i64 [%whole, %begin], [%rest, %copy]
  %origin = phi i64 [0, %begin], [%whole, %copy]
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
{totals}
  %w1 = add i64 %w, 1
  br label %next
end:
  ret void
}}
"""
