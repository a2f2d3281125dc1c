"""Philox4x32-10 on vectors: sixteen counters at a time, four words each."""

from collections.abc import Sequence

from ...philox import KEY_STEPS, LOW, MULTIPLIERS, ROUNDS
from .ir import LANES, Builder, Lanes

QUARTER_TURN = 2**30


class Words:
    """The random words of one block of 64 elements; lane c belongs to elements 4c … 4c + 3."""

    def __init__(self, b: Builder, at: str) -> None:
        self.b = b
        kind = f"<{LANES} x i64>"
        lanes = ", ".join(f"i64 {4 * k}" for k in range(LANES))
        first = b.emit(f"insertelement {kind} poison, i64 {at}, i32 0", "uint64")
        splat = b.emit(
            f"shufflevector {kind} {first.text}, {kind} poison, <{LANES} x i32> zeroinitializer",
            "uint64",
        )
        elements = b.emit(f"add {kind} {splat.text}, <{lanes}>", "uint64")
        self.block = elements >> 2
        self.made: dict[tuple[str, ...], list[Lanes]] = {}

    def word(self, k: int, lane: str, draw: int, at: Sequence[Lanes]) -> Lanes:
        """The word that elements 4c + k see."""
        four = self._four(draw, at)
        if lane == "own":
            return four[k]
        if lane == "even":
            return four[k & 2]
        return four[k | 1] - QUARTER_TURN if k & 1 else four[k | 1]

    def _four(self, draw: int, at: Sequence[Lanes]) -> list[Lanes]:
        key = (str(draw), *(x.text for x in at))
        if key not in self.made:
            self.made[key] = self._philox(draw, *(x.bits("uint64") for x in at))
        return self.made[key]

    def _philox(self, draw: int, step: Lanes, identity: Lanes, seed: Lanes) -> list[Lanes]:
        """Rounds on 64-bit lanes, whose lower halves are the words."""
        c = [
            self.block & LOW,
            (self.block >> 32) | ((step >> 32) << 16),
            step & LOW,
            identity & LOW,
        ]
        k0, k1 = seed & LOW, ((seed >> 32) << 8) | draw
        for _ in range(ROUNDS):
            p0, p1 = (c[0] & LOW) * MULTIPLIERS[0], (c[2] & LOW) * MULTIPLIERS[1]
            c = [(p1 >> 32) ^ c[1] ^ k0, p1, (p0 >> 32) ^ c[3] ^ k1, p0]
            k0, k1 = (k0 + KEY_STEPS[0]) & LOW, (k1 + KEY_STEPS[1]) & LOW
            c = [c[0], c[1] & LOW, c[2], c[3] & LOW]
        return [x.to("uint32") for x in c]

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
