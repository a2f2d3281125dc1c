"""Philox4x32-10 on vectors: sixteen counters at a time, four words each."""

from collections.abc import Sequence

from ...philox import KEY_STEPS, LOW, MULTIPLIERS, ROUNDS
from .ir import LANES, Builder, Lanes, vector

_HALF = LANES // 2
_KIND = f"<{_HALF} x i64>"  # half of the counters, one in each lane
_FEW = LANES // 4
_KEYS = f"<{_FEW} x i64>"  # one register of equal keys serves both registers of counters
_FOUR = "{ " + ", ".join([vector("uint32")] * 4) + " }"


def _splat(name: str, number: str, lanes: int = _HALF) -> list[str]:
    kind, equal = f"<{lanes} x i64>", f"<{lanes} x i32> zeroinitializer"
    return [
        f"  %{name}_0 = insertelement {kind} poison, i64 {number}, i32 0",
        f"  %{name} = shufflevector {kind} %{name}_0, {kind} poison, {equal}",
    ]


def _number(value: int) -> str:
    return f"splat (i64 {value})"


def _round(h: int) -> list[str]:
    """One round of half of the counters: words w0 … w3 to v0 … v3."""
    twice = ", ".join(f"i32 {k % _FEW}" for k in range(_HALF))
    lines = [
        f"  %key{k}{h} = shufflevector {_KEYS} %k{k}{h}, {_KEYS} poison, <{_HALF} x i32> <{twice}>"
        for k in (0, 1)
    ]
    for k, key in ((0, f"key1{h}"), (2, f"key0{h}")):
        lines += [
            f"  %f{k}{h} = and {_KIND} %w{k}{h}, {_number(LOW)}",
            f"  %v{3 - k}{h} = mul {_KIND} %f{k}{h}, {_number(MULTIPLIERS[k // 2])}",
            f"  %h{k}{h} = lshr {_KIND} %v{3 - k}{h}, {_number(32)}",
            f"  %x{k}{h} = xor {_KIND} %w{3 - k}{h}, %{key}",
            f"  %v{2 - k}{h} = xor {_KIND} %h{k}{h}, %x{k}{h}",
        ]
    return lines


def _rounds(h: int, before: str, after: str) -> list[str]:
    """All rounds of half of the counters, between two labels."""
    lanes = ", ".join(f"i64 {k}" for k in range(h * _HALF, (h + 1) * _HALF))
    starts = enumerate([f"%block{h}", f"%low{h}", "%c2_all", "%c3_all"])
    return [
        f"{before}:",
        f"  %block{h} = add {_KIND} %first_all, <{lanes}>",
        f"  %high{h} = lshr {_KIND} %block{h}, {_number(32)}",
        f"  %low{h} = or {_KIND} %high{h}, %c1_all",
        f"  br label %round{h}",
        f"round{h}:",
        f"  %turn{h} = phi i64 [{ROUNDS}, %{before}], [%left{h}, %round{h}]",
        *(
            f"  %w{k}{h} = phi {_KIND} [{start}, %{before}], [%v{k}{h}, %round{h}]"
            for k, start in starts
        ),
        *(
            f"  %k{k}{h} = phi {_KEYS} [%k{k}_all, %{before}], [%next{k}{h}, %round{h}]"
            for k in (0, 1)
        ),
        *_round(h),
        *(f"  %next{k}{h} = add {_KEYS} %k{k}{h}, {_number(KEY_STEPS[k])}" for k in (0, 1)),
        f"  %left{h} = sub i64 %turn{h}, 1",
        f"  %more{h} = icmp ne i64 %left{h}, 0",
        f"  br i1 %more{h}, label %round{h}, label %{after}",
    ]


def _joined(k: int, made: str) -> list[str]:
    """Word k of both halves, as part of the result."""
    half, order = f"<{_HALF} x i32>", ", ".join(f"i32 {k}" for k in range(LANES))
    return [
        *(f"  %s{k}{h} = trunc {_KIND} %v{k}{h} to {half}" for h in (0, 1)),
        f"  %s{k} = shufflevector {half} %s{k}0, {half} %s{k}1, <{LANES} x i32> <{order}>",
        f"  %made{k} = insertvalue {_FOUR} {made}, {vector('uint32')} %s{k}, {k}",
    ]


def _philox() -> str:
    """The function of the module: sixteen counters from the first block on, and a key.

    Words are the lower halves of 64-bit lanes; what is above them is never read. The rounds are a
    loop, since all instructions have to be compiled, and there is one for each half of the
    counters, since no more words than these fit into sixteen registers.
    """
    numbers = "first", "c1", "c2", "c3", "k0", "k1"
    joined = [line for k in range(4) for line in _joined(k, f"%made{k - 1}" if k else "poison")]
    lines = [
        f"define internal {_FOUR} @gw_philox({', '.join(f'i64 %{n}' for n in numbers)}) #0 {{",
        *(line for name in numbers[:4] for line in _splat(f"{name}_all", f"%{name}")),
        *(line for name in numbers[4:] for line in _splat(f"{name}_all", f"%{name}", _FEW)),
        "  br label %half0",
        *_rounds(0, "half0", "half1"),
        *_rounds(1, "half1", "done"),
        "done:",
        *joined,
        f"  ret {_FOUR} %made3",
        "}",
    ]
    return "\n".join(lines)


class Words:
    """The random words of one block of 64 elements; lane c belongs to elements 4c … 4c + 3."""

    def __init__(self, b: Builder, at: str, row: Builder) -> None:
        self.b, self.row = b, row
        self.block = b.emit(f"lshr i64 {at}, 2", "uint64")
        self.made: dict[tuple[str, ...], list[Lanes]] = {}

    def word(self, k: int, lane: str, draw: int, at: Sequence[Lanes]) -> Lanes:
        """The word that elements 4c + k see."""
        if lane == "place":
            return self.b.splat(k & 1, "uint32")
        four = self._four(draw, at)
        if lane == "own":
            return four[k]
        return four[k & 2] if lane == "even" else four[k | 1]

    def _four(self, draw: int, at: Sequence[Lanes]) -> list[Lanes]:
        key = (str(draw), *(x.text for x in at))
        if key not in self.made:
            self.b.defined.setdefault("gw_philox", _philox())
            known = ", ".join(f"i64 {x}" for x in self._counter_and_key(draw, at))
            call = f"call {_FOUR} @gw_philox(i64 {self.block.text}, {known})"
            four = self.b.emit(call, "uint32").text
            self.made[key] = [
                self.b.emit(f"extractvalue {_FOUR} {four}, {k}", "uint32") for k in range(4)
            ]
        return self.made[key]

    def _counter_and_key(self, draw: int, at: Sequence[Lanes]) -> list[str]:
        """The numbers that `philox` defines, made once for the row."""

        def made(instruction: str) -> str:
            return self.row.emit(instruction, "uint64").text

        step, identity, seed = (
            made(f"extractelement {vector('uint64')} {x.text}, i32 0") for x in at
        )
        step_high, seed_high = made(f"lshr i64 {step}, 32"), made(f"lshr i64 {seed}, 32")
        key_high = made(f"shl i64 {seed_high}, 8")
        return [
            made(f"shl i64 {step_high}, 16"),
            step,
            identity,
            seed,
            made(f"or i64 {key_high}, {draw}"),
        ]

    def in_order(self, four: Sequence[Lanes]) -> list[Lanes]:
        """Four vectors by word to four vectors by element: a transposition."""
        pairs = [self._shuffled(four[0], four[1], half) for half in (0, 1)]
        others = [self._shuffled(four[2], four[3], half) for half in (0, 1)]
        out = []
        for half in (0, 1):
            out += [self._merged(pairs[half], others[half], q) for q in (0, 1)]
        return out

    def _shuffled(self, x: Lanes, y: Lanes, half: int) -> Lanes:
        """x and y of one half of the counters, side by side."""
        picks = [p for c in range(half * 8, half * 8 + 8) for p in (c, LANES + c)]
        return self._picked(x, y, picks)

    def _merged(self, x: Lanes, y: Lanes, quarter: int) -> Lanes:
        """Pairs of words of four counters to elements."""
        picks = []
        for c in range(quarter * 4, quarter * 4 + 4):
            picks += [2 * c, 2 * c + 1, LANES + 2 * c, LANES + 2 * c + 1]
        return self._picked(x, y, picks)

    def _picked(self, x: Lanes, y: Lanes, picks: Sequence[int]) -> Lanes:
        lanes = ", ".join(f"i32 {p}" for p in picks)
        return self.b.emit(
            f"shufflevector {x.type} {x.text}, {y.type} {y.text}, <{LANES} x i32> <{lanes}>",
            x.dtype,
        )
