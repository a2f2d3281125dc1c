"""An elementwise graph as loops over vectors, for any number of rows in one call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...graph import Graph, Node
from ...precision import LOW
from . import access, low, phases
from .bounds import bounds
from .frame import ROW, UNROLL, Column, Phase, Sum, assembled, frame
from .functions import FUNCTIONS, POLYNOMIALS, logarithm, power
from .functions.exact import maximum, minimum
from .fusable import NUMBERS, is_row_sum, is_same, totals
from .ir import LANE, LANES, Builder, Lanes
from .random import Words

ITEM = 8192  # elements of one item of work at most; sums are made by item, whoever does it
_JOINED = {"max": maximum, "min": minimum}
_START = {"max": -float("inf"), "min": float("inf")}


_BITS = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}


def stored(dtype: str) -> str:
    """A dtype as it lies in memory."""
    return _BITS.get(dtype) or NUMBERS.get(dtype, dtype)


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
        self.bounds = bounds(graph, self.live)
        kinds = [c.kind for c in self.columns[len(self.arrays) :]]
        self.each = [i for i, kind in zip(self.stored, kinds, strict=True) if kind != "row"]
        self.loops, self.rank = phases.planned(graph, self.live, self.each, self.sums, self.varying)

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

    def results(self) -> Iterator[tuple[int, int]]:
        """The arrays written, by number, and what is in them."""
        return enumerate(self.stored, len(self.arrays))

    def column_of(self, i: int) -> int:
        """Where a result is among the arrays."""
        return len(self.arrays) + self.stored.index(i)

    # --- what is known when ---
    def _varying(self) -> set[int]:
        """Nodes that differ from element to element."""
        known = zip(self.arrays, self.columns, strict=False)
        found = {i for i, column in known if column.kind != "one"}
        for i in self.live:
            n = self.graph.nodes[i]
            inside = any(a in found for a in n.args) and not is_row_sum(self.graph, n)
            if n.prim == "random_bits" or inside:
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
        if is_same(self.graph, n) or (n.prim == "astype" and xs[0].dtype == n.dtype):
            return xs[0]
        wide = [low.widened(x) if x.dtype in LOW else x for x in xs]
        if n.dtype in LOW:
            return low.narrowed(self._computed(n, wide), n.dtype)
        return self._computed(n, wide)

    def _computed(self, n: Node, xs: Sequence[Lanes]) -> Lanes:
        if n.prim == "astype":
            dtype = "float32" if n.dtype in LOW else NUMBERS.get(n.dtype, n.dtype)
            return self._signed(n.args[0], xs[0]).to(dtype)
        if n.prim == "log" and self._is_normal(n.args[0]):
            return logarithm.log_of_normal(xs[0])
        if n.prim == "power" and (by_number := self._power_by_number(n, xs[0])) is not None:
            return by_number
        function = POLYNOMIALS.get(n.prim) if xs[-1].is_float else None
        return (function or FUNCTIONS[n.prim])(*xs)

    def _signed(self, i: int, x: Lanes) -> Lanes:
        """Unsigned integers that are known to be signed ones too, which are converted faster."""
        known = self.bounds.get(i)
        return x.bits("int32") if x.dtype == "uint32" and known and known.high < 2**31 else x

    def _is_normal(self, i: int) -> bool:
        """Whether a float is known to be positive, finite and not subnormal."""
        return i in self.bounds and self.bounds[i].low >= 2.0**-100

    def _power_by_number(self, n: Node, x: Lanes) -> Lanes | None:
        exponent = self.graph.nodes[n.args[1]]
        return power.by_number(x, exponent["value"]) if exponent.prim == "const" else None

    def evaluate(self, b: Builder, env: dict[int, Lanes], chosen: Sequence[int]) -> None:
        for i in chosen:
            n = self.graph.nodes[i]
            if i in env or n.prim == "input":
                continue
            b.comment = _short(self.graph.lines.get(i, ""))
            if n.prim == "const" and n.dtype in LOW:
                env[i] = low.narrowed(b.splat(n["value"], "float32"), n.dtype)
            elif n.prim == "const":
                env[i] = b.splat(n["value"], NUMBERS.get(n.dtype, n.dtype))
            else:
                env[i] = self.value(n, [env[a] for a in n.args])
        b.comment = ""

    # --- the loops ---
    def phase(self, b: Builder, p: int, known: Mapping[int, Lanes]) -> Phase:
        """One loop, given what does not differ by element."""
        loop = self.loops[p]
        env0 = {i: Lanes(b, x.text, x.dtype) for i, x in known.items()}
        drawn = self._drawn(b, env0)
        read = {i: k for k, i in enumerate(self.arrays) if i in loop.needed}
        read |= {i: self.column_of(k) for i, k in loop.kept.items() if i in loop.needed}
        written = [(i, self.column_of(k)) for i, k in loop.keeps.items()]
        # a result may be there twice: a slot that is recorded, too
        written += [(i, k) for k, i in self.results() if i in loop.stored]
        todo = [i for i in self.live if i in loop.needed and i not in self.random]
        envs = [env0 | {i: four[u] for i, four in drawn.items()} for u in range(UNROLL)]
        for u, env in enumerate(envs):
            for i, k in read.items():
                env[i] = access.load(b, k, self.columns[k], self.graph.nodes[i].dtype, u)
        for i in todo:  # in turns: while one vector waits for a result, another goes on
            for env in envs:
                self.evaluate(b, env, [i])
        for u, env in enumerate(envs):
            for i, k in written:
                access.store(b, k, self.columns[k], env[i], u)
        summands = [
            [
                self._inside(b, env[phases.summed(self.graph, i)], u, self._start(i))
                for u, env in enumerate(envs)
            ]
            for i in loop.sums
        ]
        made = enumerate(zip(loop.sums, summands, strict=True))
        sums = [self._carried(b, k, i, four) for k, (i, four) in made]
        return Phase(b.lines, frozenset(read.values()), frozenset(k for _, k in written), sums, [])

    def _start(self, i: int) -> float:
        return _START.get(self.graph.nodes[i].prim, 0.0)

    def _join(self, i: int) -> Callable[[Lanes, Lanes], Lanes]:
        return _JOINED.get(self.graph.nodes[i].prim, _plus)

    def _carried(self, b: Builder, k: int, i: int, four: Sequence[Lanes]) -> Sum:
        join = self._join(i)
        wide = [x.to("float64") if join is _plus else x for x in four]
        total = join(join(wide[0], wide[1]), join(wide[2], wide[3]))
        return Sum(total.dtype, self._start(i), join(Lanes(b, f"%sum{k}", total.dtype), total).text)

    def _inside(self, b: Builder, x: Lanes, u: int, start: float) -> Lanes:
        """x where a lane lies within the array, else what a sum starts from."""
        left = access.spread(b, "%left", "int64")
        return b.select(b.constant(range(u * LANES, (u + 1) * LANES), "int64") < left, x, start)

    def after(self, b: Builder, p: int, sums: Sequence[Sum], known: dict[int, Lanes]) -> list[str]:
        """What follows a loop: its sums, and what waited for them and is one for the row."""
        for m, (i, s) in enumerate(zip(self.loops[p].sums, sums, strict=True)):
            x = Lanes(b, f"%out{m}", s.dtype)
            for apart in (8, 4, 2, 1):
                x = self._join(i)(x, access.crossed(b, x, apart))
            if i in self.sums:
                total = access.first_lane(b, x)
                for k in (k for k, other in enumerate(self.sums) if other == i):
                    _store_total(b, total, k, len(self.sums))
            else:
                known[i] = x.to(self.graph.nodes[i].dtype)
        known.update({i: Lanes(b, x.text, x.dtype) for i, x in known.items()})
        waited = [i for i in self.live if i not in self.varying and self.rank[i] == p + 1]
        self.evaluate(b, known, waited)
        if p + 1 == len(self.loops):
            for k, i in self.results():
                if self.columns[k].kind == "row":
                    x = access.in_memory(known[i], self.columns[k])
                    lane = f"{LANE[x.dtype]} {access.first_lane(b, x)}"
                    b.lines.append(f"  store {lane}, ptr %array{k}")
        return b.lines

    def _drawn(self, b: Builder, env: dict[int, Lanes]) -> dict[int, list[Lanes]]:
        """Random values that arrays meet, in element order: one vector for each of the block."""
        if not self.random:
            return {}
        words = Words(b, "%element", self.row)
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

    # --- the whole ---
    def build(self) -> Kernel:
        numbers = self.row = Builder("n")
        known = self._numbers(numbers)
        self.evaluate(numbers, known, [i for i in self.live if i not in self.varying and
                                       not self.rank[i]])  # fmt: skip
        made = []
        for p in range(len(self.loops)):
            found = self.phase(numbers.beside("v"), p, known)
            after = self.after(numbers.beside(f"{ROW}{p}_"), p, found.sums, known)
            made.append(found._replace(after=after))
        texts = [
            *numbers.defined.values(),
            *frame(self.name, self.columns, numbers.lines, made),
        ]
        nodes = self.graph.nodes
        return Kernel(
            self.name,
            assembled(texts, numbers.declared),
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
            dtype = self.graph.nodes[i].dtype
            b.lines.append(f"  %cell{k} = getelementptr i64, ptr %cells, i64 {k}")
            found[i] = access.splat(b, f"{k}", f"%cell{k}", stored(dtype), dtype)
        for k, (i, column) in enumerate(zip(self.arrays, self.columns, strict=False)):
            if column.kind == "one":
                dtype = self.graph.nodes[i].dtype
                found[i] = access.splat(b, f"_of{k}", f"%array{k}", column.dtype, dtype)
        return found


def _plus(x: Lanes, y: Lanes) -> Lanes:
    return x + y


def _store_total(b: Builder, total: str, k: int, count: int) -> None:
    """Store a sum over the elements of an item."""
    b.lines += [
        f"  %place{k}w = mul i64 %w, {count}",
        f"  %place{k}i = add i64 %place{k}w, {k}",
        f"  %place{k} = getelementptr double, ptr %sums, i64 %place{k}i",
        f"  store double {total}, ptr %place{k}",
    ]


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
