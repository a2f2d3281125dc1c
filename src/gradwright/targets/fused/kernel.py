"""An elementwise graph as one loop over vectors, for any number of parameters in one call.

The kernel reads a table with a row for each parameter: pointers to its arrays, in and out, then a
pointer to its numbers, 8 bytes each. A second table lists the work: (row, first element, count).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Graph, Node
from .functions import FUNCTIONS, ON_BOOLEANS, ON_INTEGERS, POLYNOMIALS
from .ir import LANE, LANES, Builder, Lanes, vector
from .random import Words

UNROLL = 4
BLOCK = LANES * UNROLL  # elements an iteration: 16 counters of Philox, four words each
_EQUAL = f"<{LANES} x i32> zeroinitializer"  # a shuffle that repeats the first lane
_REDUCE = f"llvm.vector.reduce.fadd.v{LANES}f64"
ITEM = 8192  # elements of one item of work at most; sums are made by item, whoever does it

NUMBERS = {"int": "int64", "float": "float64"}
_SAFE = ("int32", "int64")  # integers to which processors cast floats as NumPy does


# dtypes as they lie in memory
def _stored(dtype: str) -> str:
    return "uint8" if dtype == "bool" else NUMBERS.get(dtype, dtype)


@dataclass(frozen=True)
class Kernel:
    """The assembly of a kernel and what its tables hold."""

    name: str
    assembly: str
    arrays: tuple[tuple[str, str], ...]  # name and dtype of the arrays read, in order
    numbers: tuple[tuple[str, str], ...]  # of the numbers
    outputs: tuple[str, ...]  # dtypes of the arrays written
    numbers_back: tuple[tuple[int, int], ...]  # results that are numbers: (result, number)
    sums: int  # how many sums over the elements it makes for each item of work, float64


def unfusable(graph: Graph) -> str | None:
    """Why a graph is not one elementwise loop with sums over all of it, or `None` if it is."""
    nodes = [(i, graph.nodes[i]) for i in graph.live()]
    shapes = {n.shape for _, n in nodes if n.shape}
    if len(shapes) != 1:
        return "arrays of several shapes" if shapes else "no array with dimensions"
    totals = _totals(graph)
    if any(a in totals for i, n in nodes if i not in totals for a in n.args):
        return "a sum that the elements read"
    return next((why for i, n in nodes if i not in totals and (why := _refused(graph, n))), None)


def cost(graph: Graph) -> int:
    """Roughly, how many passes over its arrays NumPy makes for a graph."""
    nodes = [graph.nodes[i] for i in graph.live()]
    passes = sum(1 for n in nodes if n.args and n.prim != "astype")
    return passes + 100 * sum(n.prim == "random_bits" for n in nodes)


def _totals(graph: Graph) -> set[int]:
    """The roots that are sums over all elements, with the sum itself below a cast."""
    found = {i for i in graph.roots if _summand(graph, i) is not None}
    return found | {a for i in found for a in graph.nodes[i].args if graph.nodes[a].prim == "sum"}


def _refused(graph: Graph, n: Node) -> str | None:
    if n.dtype not in LANE and n.dtype not in NUMBERS:
        return f"{n.dtype} arrays"
    if n.prim == "const" and n.shape:
        return "a captured array"
    if n.prim in ("input", "const", "random_bits", "stop_gradient", "variable"):
        return None
    of = graph.nodes[n.args[-1]].dtype
    if n.prim == "astype":
        loses = of.startswith("float") and not n.dtype.startswith(("float", "bool"))
        return f"a cast from {of} to {n.dtype}" if loses and n.dtype not in _SAFE else None
    if n.prim in POLYNOMIALS and of == "float32":
        return None
    known = FUNCTIONS.keys() if of.startswith("float") else ON_INTEGERS
    known = ON_BOOLEANS if of == "bool" else known
    return None if n.prim in known else f"{n.prim} of {of}"


class _Kernel:
    """One kernel being written."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name
        nodes = graph.nodes
        self.arrays = [i for i in graph.inputs if nodes[i].shape]
        self.scalars = [i for i in graph.inputs if not nodes[i].shape]
        self.sums = [i for i in graph.roots if (_summand(graph, i)) is not None]
        self.stored = [i for i in graph.roots if i not in self.sums and not self.is_number(i)]
        totals = _totals(graph)
        self.live = [i for i in graph.live() if i not in totals]
        self.varying = self._varying()
        self.random = self._random_only()

    def is_number(self, i: int) -> bool:
        """Whether a result is a number that was given: the kernel need not pass it on."""
        return self.graph.nodes[i].prim == "input" and not self.graph.nodes[i].shape

    def _varying(self) -> set[int]:
        """Nodes that differ from element to element."""
        found: set[int] = set()
        for i in self.live:
            n = self.graph.nodes[i]
            if n.shape or any(a in found for a in n.args):
                found.add(i)
        return found

    def _random_only(self) -> set[int]:
        """Nodes made of random words and numbers only: computed before words are put in order."""
        found: set[int] = set()
        for i in self.live:
            n = self.graph.nodes[i]
            known = n.args and all(a in found or a not in self.varying for a in n.args)
            if n.prim == "random_bits" or (known and any(a in found for a in n.args)):
                found.add(i)
        return found

    # --- values ---
    def value(self, n: Node, xs: Sequence[Lanes]) -> Lanes:
        if n.prim in ("stop_gradient", "variable"):
            return xs[0]
        if n.prim == "astype":
            return xs[0].to(NUMBERS.get(n.dtype, n.dtype))
        function = POLYNOMIALS.get(n.prim) if xs[-1].dtype == "float32" else None
        return (function or FUNCTIONS[n.prim])(*xs)

    def evaluate(self, b: Builder, env: dict[int, Lanes], chosen: Sequence[int]) -> None:
        for i in chosen:
            n = self.graph.nodes[i]
            if i in env or n.prim == "input":
                continue
            b.comment = _short(self.graph.lines.get(i, ""))
            if n.prim == "const":
                env[i] = b.splat(n["value"], NUMBERS.get(n.dtype, n.dtype))
            else:
                env[i] = self.value(n, [env[a] for a in n.args])
        b.comment = ""

    def iteration(self, b: Builder, numbers: dict[int, Lanes]) -> None:
        """The instructions for one block of elements."""
        env0 = dict(numbers)
        self.evaluate(b, env0, [i for i in self.live if i not in self.varying])
        drawn = self._drawn(b, env0)
        todo = [i for i in self.live if i in self.varying and i not in self.random]
        summands: list[list[Lanes]] = [[] for _ in self.sums]
        for u in range(UNROLL):
            env = {**env0, **{i: four[u] for i, four in drawn.items()}}
            for k, i in enumerate(self.arrays):
                env[i] = self._load(b, k, self.graph.nodes[i].dtype, u)
            self.evaluate(b, env, todo)
            for k, i in enumerate(self.stored, len(self.arrays)):
                self._store(b, k, env[i], u)
            for found, i in zip(summands, self.sums, strict=True):
                summand = _summand(self.graph, i)
                assert summand is not None
                found.append(self._inside(b, env[summand], u))
        for k, four in enumerate(summands):
            wide = [x.to("float64") for x in four]
            total = (wide[0] + wide[1]) + (wide[2] + wide[3])
            b.lines.append(f"  %sum{k}_1 = fadd {total.type} %sum{k}, {total.text}")

    def _inside(self, b: Builder, x: Lanes, u: int) -> Lanes:
        """x where a lane lies within the array, else 0."""
        kind = f"<{LANES} x i64>"
        at = b.emit(f"insertelement {kind} poison, i64 %left, i32 0", "int64")
        left = b.emit(
            f"shufflevector {kind} {at.text}, {kind} poison, <{LANES} x i32> zeroinitializer",
            "int64",
        )
        return b.select(b.constant(range(u * LANES, (u + 1) * LANES), "int64") < left, x, 0)

    def _drawn(self, b: Builder, env: dict[int, Lanes]) -> dict[int, list[Lanes]]:
        """Random values that arrays meet, in element order: one vector for each of the block."""
        if not self.random:
            return {}
        words = Words(b, "%element")
        four = [dict(env) for _ in range(4)]
        for i in sorted(self.random):
            n = self.graph.nodes[i]
            for k, one in enumerate(four):
                if n.prim == "random_bits":
                    one[i] = words.word(k, n["lane"], n["draw"], [env[a] for a in n.args])
                else:
                    self.evaluate(b, one, [i])
        users = [i for i in self.live if i in self.varying and i not in self.random]
        met = {a for i in users for a in self.graph.nodes[i].args} | set(self.graph.roots)
        return {i: words.in_order([one[i] for one in four]) for i in self.random if i in met}

    # --- memory ---
    def _pointer(self, b: Builder, k: int, dtype: str, u: int) -> str:
        name = f"%at{k}_{u}"
        b.lines.append(f"  {name} = getelementptr {LANE[dtype]}, ptr %base{k}, i64 %j{u}")
        return name

    def _load(self, b: Builder, k: int, dtype: str, u: int) -> Lanes:
        stored = _stored(dtype)
        pointer = self._pointer(b, k, stored, u)
        align = np.dtype(stored).itemsize
        x = b.emit(f"load {vector(stored)}, ptr {pointer}, align {align}", stored)
        return x.to("bool") if dtype == "bool" else x

    def _store(self, b: Builder, k: int, x: Lanes, u: int) -> None:
        x = x.to(_stored(x.dtype))
        pointer = self._pointer(b, k, x.dtype, u)
        align = np.dtype(x.dtype).itemsize
        b.lines.append(f"  store {x.type} {x.text}, ptr {pointer}, align {align}")

    # --- the whole ---
    def build(self) -> Kernel:
        numbers, block = Builder("n"), Builder("v")
        loaded = self._numbers(numbers)
        self.iteration(block, {i: Lanes(block, x.text, x.dtype) for i, x in loaded.items()})
        reads = [_stored(self.graph.nodes[i].dtype) for i in self.arrays]
        writes = [_stored(self.graph.nodes[i].dtype) for i in self.stored]
        frame = _frame(self.name, reads, writes, len(self.sums), numbers.lines, block.lines)
        texts = [*block.defined.values(), frame]
        nodes = self.graph.nodes
        return Kernel(
            self.name,
            _assembled(texts, block.declared),
            tuple((self.graph.names[nodes[i]["k"]], nodes[i].dtype) for i in self.arrays),
            tuple((self.graph.names[nodes[i]["k"]], _stored(nodes[i].dtype)) for i in self.scalars),
            tuple(nodes[i].dtype for i in self.stored),
            tuple(
                (k, self.scalars.index(i))
                for k, i in enumerate(self.graph.roots)
                if self.is_number(i)
            ),
            len(self.sums),
        )

    def _numbers(self, b: Builder) -> dict[int, Lanes]:
        """Load every number of the row once, as a vector of equal lanes."""
        found = {}
        for k, i in enumerate(self.scalars):
            dtype = _stored(self.graph.nodes[i].dtype)
            kind = vector(dtype)
            b.lines += [
                f"  %cell{k} = getelementptr i64, ptr %cells, i64 {k}",
                f"  %number{k} = load {LANE[dtype]}, ptr %cell{k}",
                f"  %first{k} = insertelement {kind} poison, {LANE[dtype]} %number{k}, i32 0",
                f"  %splat{k} = shufflevector {kind} %first{k}, {kind} poison, {_EQUAL}",
            ]
            x = Lanes(b, f"%splat{k}", dtype)
            found[i] = x.to("bool") if self.graph.nodes[i].dtype == "bool" else x
        return found


def _summand(graph: Graph, i: int) -> int | None:
    """What a root sums over all elements, if it is such a sum in double precision."""
    n = graph.nodes[i]
    if n.prim == "astype" and n.dtype == "float64" and not n.shape:
        i, n = n.args[0], graph.nodes[n.args[0]]
    return n.args[0] if n.prim == "sum" and not n.shape else None


def _frame(
    name: str,
    reads: Sequence[str],
    writes: Sequence[str],
    sums: int,
    numbers: Sequence[str],
    block: Sequence[str],
) -> str:
    """The loops around one block: over items of work, and over the blocks of an item.

    The last elements, fewer than a block, are copied to a scratch block on the stack and back, so
    nothing is read or written outside an array, and the block is there once.
    """
    columns = list(enumerate([*reads, *writes]))
    size = {k: np.dtype(d).itemsize for k, d in columns}
    double = f"<{LANES} x double>"
    row = [
        f"  %slot{k} = getelementptr ptr, ptr %row, i64 {k}\n"
        f"  %array{k} = load ptr, ptr %slot{k}\n"
        f"  %start{k} = getelementptr {LANE[d]}, ptr %array{k}, i64 %first"
        for k, d in columns
    ]
    copy = "  call void @llvm.memcpy.p0.p0.i64(ptr align 1 {}, ptr align 1 {}, i64 {}, i1 false)"
    ends = [
        f"  %whole{k} = mul i64 %whole, {size[k]}\n"
        f"  %bytes{k} = mul i64 %rest, {size[k]}\n"
        f"  %end{k} = getelementptr i8, ptr %start{k}, i64 %whole{k}"
        for k, _ in columns
    ]
    into = [copy.format(f"%scratch{k}", f"%end{k}", f"%bytes{k}") for k in range(len(reads))]
    back = [
        copy.format(f"%end{k}", f"%scratch{k}", f"%bytes{k}")
        for k in range(len(reads), len(columns))
    ]
    totals = []
    for k in range(sums):
        totals += [
            f"  %total{k} = call double @{_REDUCE}(double -0.0, {double} %acc{k})",
            f"  %place{k}w = mul i64 %w, {sums}",
            f"  %place{k}i = add i64 %place{k}w, {k}",
            f"  %place{k} = getelementptr double, ptr %sums, i64 %place{k}i",
            f"  store double %total{k}, ptr %place{k}",
        ]
    bases = [f"  %base{k} = phi ptr [%start{k}, %begin], [%scratch{k}, %copy]" for k, _ in columns]
    carried = [
        f"  %acc{k} = phi {double} [zeroinitializer, %begin], [%out{k}, %copy]" for k in range(sums)
    ]
    running = [
        f"  %sum{k} = phi {double} [%acc{k}, %pass], [%sum{k}_1, %loop]" for k in range(sums)
    ]
    after = [f"  %out{k} = phi {double} [%acc{k}, %pass], [%sum{k}_1, %loop]" for k in range(sums)]
    return _FRAME.format(
        name=name,
        scratch="\n".join(
            f"  %scratch{k} = alloca [{BLOCK} x {LANE[d]}], align 64\n"
            f"  store [{BLOCK} x {LANE[d]}] zeroinitializer, ptr %scratch{k}"
            for k, d in columns
        ),
        columns=len(columns) + 1,
        last=len(columns),
        row="\n".join(row),
        ends="\n".join(ends),
        numbers="\n".join(numbers),
        bases="\n".join([*bases, *carried]),
        running="\n".join(running),
        after="\n".join(after),
        places="\n".join(f"  %j{u} = add i64 %j, {u * LANES}" for u in range(UNROLL)),
        block_lines="\n".join(block),
        block=BLOCK,
        mask=-BLOCK,
        into="\n".join(into),
        back="\n".join(back),
        totals="\n".join(totals).replace("%acc", "%out"),
    )


def _assembled(texts: Sequence[str], declared: Iterable[str]) -> str:
    """One module: what is declared is declared once, behind the functions."""
    lines = [line for text in texts for line in text.split("\n")]
    found = {line for line in lines if line.startswith("declare")} | set(declared)
    found.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    found.add(f"declare double @{_REDUCE}(double, <{LANES} x double>)")
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


def _short(line: str) -> str:
    return line.rsplit("/", 1)[-1]


def build(graph: Graph, name: str) -> Kernel:
    """Write the kernel of an elementwise graph."""
    return _Kernel(graph, name).build()
