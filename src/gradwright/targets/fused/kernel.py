"""An elementwise graph as one loop over vectors, for any number of rows in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...graph import Graph, Node
from .frame import EQUAL, UNROLL, Column, assembled, frame
from .functions import FUNCTIONS, POLYNOMIALS, power
from .fusable import NUMBERS, is_same, summand, totals
from .ir import LANE, LANES, Builder, Lanes, vector
from .random import Words

ITEM = 8192  # elements of one item of work at most; sums are made by item, whoever does it


# dtypes as they lie in memory
def stored(dtype: str) -> str:
    return "uint8" if dtype == "bool" else NUMBERS.get(dtype, dtype)


@dataclass(frozen=True)
class Kernel:
    """The assembly of a kernel and what its tables hold."""

    name: str
    assembly: str
    arrays: tuple[tuple[str, str], ...]  # name and dtype of the arrays read, in order
    numbers: tuple[tuple[str, str], ...]  # of the numbers; distances of strided arrays follow
    outputs: tuple[str, ...]  # dtypes of the arrays written
    numbers_back: tuple[tuple[int, int], ...]  # results that are numbers: (result, number)
    sums: int  # how many sums over the elements it makes for each item of work, float64


class _Kernel:
    """One kernel being written.

    `reads` says how the arrays lie that it reads, by input, and `writes` how the results do; where
    it is not said, inputs without dimensions are numbers of the row, and the rest is contiguous.
    """

    def __init__(
        self, graph: Graph, name: str, reads: Mapping[int, str] | None, writes: Sequence[str] | None
    ) -> None:
        self.graph, self.name = graph, name
        nodes = graph.nodes
        self.scalars = [] if reads is not None else [i for i in graph.inputs if not nodes[i].shape]
        if reads is None:
            reads = {i: "each" for i in graph.inputs if nodes[i].shape}
        self.arrays = list(reads)
        sums = totals(graph)
        self.sums = [i for i in graph.roots if i in sums]
        self.stored = [i for i in graph.roots if i not in sums and not self.is_number(i)]
        self.columns = self._columns([*reads.values(), *(writes or ["each"] * len(self.stored))])
        self.live = [i for i in graph.live() if i not in sums]
        self.varying = self._varying()
        self.random = self._random_only()

    def is_number(self, i: int) -> bool:
        """Whether a result is a number that was given: the kernel need not pass it on."""
        return i in self.scalars

    def _columns(self, kinds: Sequence[str]) -> list[Column]:
        dtypes = [stored(self.graph.nodes[i].dtype) for i in [*self.arrays, *self.stored]]
        found: list[Column] = []
        for dtype, kind in zip(dtypes, kinds, strict=True):
            before = sum(c.kind == "strided" for c in found)
            found.append(Column(dtype, kind, len(self.scalars) + before))
        return found

    def _varying(self) -> set[int]:
        """Nodes that differ from element to element."""
        known = zip(self.arrays, self.columns, strict=False)
        found = {i for i, column in known if column.kind != "one"}
        for i in self.live:
            n = self.graph.nodes[i]
            if n.prim == "random_bits" or any(a in found for a in n.args):
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
        if is_same(self.graph, n):
            return xs[0]
        if n.prim == "astype":
            return xs[0].to(NUMBERS.get(n.dtype, n.dtype))
        if n.prim == "power" and (by_number := self._power_by_number(n, xs[0])) is not None:
            return by_number
        function = POLYNOMIALS.get(n.prim) if xs[-1].is_float else None
        return (function or FUNCTIONS[n.prim])(*xs)

    def _power_by_number(self, n: Node, x: Lanes) -> Lanes | None:
        exponent = self.graph.nodes[n.args[1]]
        return power.by_number(x, exponent["value"]) if exponent.prim == "const" else None

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
                if i not in env:
                    env[i] = self._load(b, k, self.graph.nodes[i].dtype, u)
            self.evaluate(b, env, todo)
            for k, i in enumerate(self.stored, len(self.arrays)):
                self._store(b, k, env[i], u)
            for found, i in zip(summands, self.sums, strict=True):
                of = summand(self.graph, i)
                assert of is not None
                found.append(self._inside(b, env[of], u))
        for k, four in enumerate(summands):
            wide = [x.to("float64") for x in four]
            total = (wide[0] + wide[1]) + (wide[2] + wide[3])
            b.lines.append(f"  %sum{k}_1 = fadd {total.type} %sum{k}, {total.text}")

    def _inside(self, b: Builder, x: Lanes, u: int) -> Lanes:
        """x where a lane lies within the array, else 0."""
        kind = vector("int64")
        at = b.emit(f"insertelement {kind} poison, i64 %left, i32 0", "int64")
        left = b.emit(f"shufflevector {kind} {at.text}, {kind} poison, {EQUAL}", "int64")
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
    def _pointer(self, b: Builder, k: int, u: int) -> str:
        name = f"%at{k}_{u}"
        kind = LANE[self.columns[k].dtype]
        b.lines.append(f"  {name} = getelementptr {kind}, ptr %base{k}, i64 %j{u}")
        return name

    def _load(self, b: Builder, k: int, dtype: str, u: int) -> Lanes:
        column = self.columns[k]
        if column.kind == "strided":
            place = f"ptr %at{k}_{u}, i64 %apart{k}"
            x = b.named(f"gw_load_{column.dtype}", _strided_load(column), place, column.dtype)
        else:
            pointer = self._pointer(b, k, u)
            kind = vector(column.dtype)
            x = b.emit(f"load {kind}, ptr {pointer}, align {column.size}", column.dtype)
        return x.to("bool") if dtype == "bool" else x

    def _store(self, b: Builder, k: int, x: Lanes, u: int) -> None:
        column = self.columns[k]
        x = x.to(column.dtype)
        if column.kind == "strided":
            name = f"gw_store_{column.dtype}"
            b.defined.setdefault(name, _strided_store(column))
            place = f"ptr %at{k}_{u}, i64 %apart{k}"
            b.lines.append(f"  call void @{name}({place}, {x.type} {x.text})")
        else:
            pointer = self._pointer(b, k, u)
            b.lines.append(f"  store {x.type} {x.text}, ptr {pointer}, align {column.size}")

    # --- the whole ---
    def build(self) -> Kernel:
        numbers, block = Builder("n"), Builder("v")
        loaded = self._numbers(numbers)
        self.iteration(block, {i: Lanes(block, x.text, x.dtype) for i, x in loaded.items()})
        count = len(self.arrays)
        reads, writes = self.columns[:count], self.columns[count:]
        texts = [
            *block.defined.values(),
            *frame(self.name, reads, writes, len(self.sums), numbers.lines, block.lines),
        ]
        nodes = self.graph.nodes
        return Kernel(
            self.name,
            assembled(texts, block.declared),
            tuple((self.graph.names[nodes[i]["k"]], nodes[i].dtype) for i in self.arrays),
            tuple((self.graph.names[nodes[i]["k"]], stored(nodes[i].dtype)) for i in self.scalars),
            tuple(nodes[i].dtype for i in self.stored),
            tuple(
                (k, self.scalars.index(i))
                for k, i in enumerate(self.graph.roots)
                if self.is_number(i)
            ),
            len(self.sums),
        )

    def _numbers(self, b: Builder) -> dict[int, Lanes]:
        """Load what is one for the whole row once, as a vector of equal lanes."""
        found = {}
        for k, i in enumerate(self.scalars):
            cell = f"%cell{k}"
            b.lines.append(f"  {cell} = getelementptr i64, ptr %cells, i64 {k}")
            found[i] = self._splat(b, f"{k}", cell, i)
        for k, (i, column) in enumerate(zip(self.arrays, self.columns, strict=False)):
            if column.kind == "one":
                found[i] = self._splat(b, f"_of{k}", f"%array{k}", i)
        return found

    def _splat(self, b: Builder, mark: str, pointer: str, i: int) -> Lanes:
        dtype = self.graph.nodes[i].dtype
        kind, lane = vector(stored(dtype)), LANE[stored(dtype)]
        b.lines += [
            f"  %number{mark} = load {lane}, ptr {pointer}",
            f"  %first{mark} = insertelement {kind} poison, {lane} %number{mark}, i32 0",
            f"  %splat{mark} = shufflevector {kind} %first{mark}, {kind} poison, {EQUAL}",
        ]
        x = Lanes(b, f"%splat{mark}", stored(dtype))
        return x.to("bool") if dtype == "bool" else x


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


def _short(line: str) -> str:
    return line.rsplit("/", 1)[-1]


def build(
    graph: Graph,
    name: str,
    reads: Mapping[int, str] | None = None,
    writes: Sequence[str] | None = None,
) -> Kernel:
    """Write the kernel of an elementwise graph."""
    return _Kernel(graph, name, reads, writes).build()
