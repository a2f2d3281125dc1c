"""Vectors in LLVM's assembly: a builder, and values that read like NumPy expressions.

Every value is a vector of `LANES` lanes; LLVM splits it on machines with narrower registers, and
the bits are the same. No fast-math flag is ever set: a product and a sum are rounded one after the
other, as NumPy rounds them, unless `fma` is asked for.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LANES = 16

# NumPy's dtype to the type of a lane; booleans are one bit in registers, a byte in memory; floats
# of 16 bits are bits only, and `low` converts them
LANE = {
    "float32": "float",
    "float64": "double",
    "bool": "i1",
    "float16": "i16",
    "bfloat16": "i16",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def vector(dtype: str, lanes: int = LANES) -> str:
    return f"<{lanes} x {LANE[dtype]}>"


def literal(value: Any, dtype: str) -> str:
    """A number in LLVM's spelling; a float is the hexadecimal form of the double it equals."""
    if dtype == "bool":
        return str(bool(value)).lower()
    number = np.dtype(dtype).type(value)
    if number.dtype.kind == "f":
        return "0x" + struct.pack(">d", float(number)).hex().upper()
    return str(int(number))


@dataclass(eq=False)
class Lanes:
    """One vector value; operators emit instructions."""

    builder: "Builder"
    text: str
    dtype: str

    @property
    def type(self) -> str:
        return vector(self.dtype)

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float32", "float64")

    def like(self, other: Any) -> "Lanes":
        """A number as a vector of this dtype; a vector as it is."""
        return other if isinstance(other, Lanes) else self.builder.splat(other, self.dtype)

    def _op(self, on_floats: str, on_ints: str, other: Any, swap: bool = False) -> "Lanes":
        x, y = (self.like(other), self) if swap else (self, self.like(other))
        name = on_floats if self.is_float else on_ints
        return self.builder.emit(f"{name} {self.type} {x.text}, {y.text}", self.dtype)

    def __add__(self, other: Any) -> "Lanes":
        return self._op("fadd", "add", other)

    def __radd__(self, other: Any) -> "Lanes":
        return self._op("fadd", "add", other, swap=True)

    def __sub__(self, other: Any) -> "Lanes":
        return self._op("fsub", "sub", other)

    def __rsub__(self, other: Any) -> "Lanes":
        return self._op("fsub", "sub", other, swap=True)

    def __mul__(self, other: Any) -> "Lanes":
        return self._op("fmul", "mul", other)

    def __rmul__(self, other: Any) -> "Lanes":
        return self._op("fmul", "mul", other, swap=True)

    def __truediv__(self, other: Any) -> "Lanes":
        return self._op("fdiv", "sdiv", other)

    def __rtruediv__(self, other: Any) -> "Lanes":
        return self._op("fdiv", "sdiv", other, swap=True)

    def __neg__(self) -> "Lanes":
        if self.is_float:
            return self.builder.emit(f"fneg {self.type} {self.text}", self.dtype)
        return 0 - self

    def __and__(self, other: Any) -> "Lanes":
        return self._op("", "and", other)

    def __or__(self, other: Any) -> "Lanes":
        return self._op("", "or", other)

    def __xor__(self, other: Any) -> "Lanes":
        return self._op("", "xor", other)

    def __invert__(self) -> "Lanes":
        ones = {"b": True, "u": _largest(self.dtype)}.get(self.dtype[0], -1)
        return self ^ ones

    def __lshift__(self, bits: Any) -> "Lanes":
        return self._op("", "shl", bits)

    def __rshift__(self, bits: Any) -> "Lanes":
        """Logical for unsigned integers, arithmetic for signed ones."""
        return self._op("", "lshr" if self.dtype.startswith("u") else "ashr", bits)

    # comparisons are false where a lane is NaN, except `!=`
    def _compare(self, on_floats: str, on_ints: str, other: Any) -> "Lanes":
        y = self.like(other)
        if self.is_float:
            return self.builder.emit(f"fcmp {on_floats} {self.type} {self.text}, {y.text}", "bool")
        sign = "u" if self.dtype.startswith(("u", "b")) and on_ints not in ("eq", "ne") else "s"
        name = on_ints if on_ints in ("eq", "ne") else sign + on_ints
        return self.builder.emit(f"icmp {name} {self.type} {self.text}, {y.text}", "bool")

    def __lt__(self, other: Any) -> "Lanes":
        return self._compare("olt", "lt", other)

    def __le__(self, other: Any) -> "Lanes":
        return self._compare("ole", "le", other)

    def __gt__(self, other: Any) -> "Lanes":
        return self._compare("ogt", "gt", other)

    def __ge__(self, other: Any) -> "Lanes":
        return self._compare("oge", "ge", other)

    def equals(self, other: Any) -> "Lanes":
        return self._compare("oeq", "eq", other)

    def differs(self, other: Any) -> "Lanes":
        return self._compare("une", "ne", other)

    def is_nan(self) -> "Lanes":
        return self.builder.emit(f"fcmp uno {self.type} {self.text}, {self.text}", "bool")

    def bits(self, dtype: str) -> "Lanes":
        """The same bits as another dtype of the same size."""
        return self.builder.emit(f"bitcast {self.type} {self.text} to {vector(dtype)}", dtype)

    def to(self, dtype: str) -> "Lanes":
        """The value converted, as C converts."""
        if dtype == self.dtype:
            return self
        if dtype == "bool":
            return self.differs(0)
        return self.builder.emit(
            f"{_conversion(self.dtype, dtype)} {self.type} {self.text} to {vector(dtype)}", dtype
        )


def _largest(dtype: str) -> int:
    return int(np.iinfo(dtype).max) if dtype != "bool" else 1


def _conversion(old: str, new: str) -> str:
    was_float, is_float = old.startswith("float"), new.startswith("float")
    unsigned = old.startswith(("u", "b"))
    if was_float and is_float:
        return "fpext" if np.dtype(new).itemsize > np.dtype(old).itemsize else "fptrunc"
    if was_float:
        return "fptoui" if new.startswith("u") else "fptosi"
    if is_float:
        return "uitofp" if unsigned else "sitofp"
    if np.dtype(new).itemsize == np.dtype(old).itemsize and old != "bool":
        return "bitcast"
    if np.dtype(new).itemsize < np.dtype(old).itemsize:
        return "trunc"
    return "zext" if unsigned else "sext"


@dataclass
class Builder:
    """The instructions of one block; equal instructions are one."""

    prefix: str = "v"
    lines: list[str] = field(default_factory=list)
    declared: set[str] = field(default_factory=set)
    defined: dict[str, str] = field(default_factory=dict)
    comment: str = ""  # the user's line that what follows comes from
    _seen: dict[str, str] = field(default_factory=dict)

    def emit(self, instruction: str, dtype: str) -> Lanes:
        name = self._seen.get(instruction)
        if name is None:
            name = self._seen[instruction] = f"%{self.prefix}{len(self._seen)}"
            note = f"  ; {self.comment}" if self.comment else ""
            self.lines.append(f"  {name} = {instruction}{note}")
        return Lanes(self, name, dtype)

    def beside(self, prefix: str) -> "Builder":
        """The builder of another block of the same module."""
        return Builder(prefix, declared=self.declared, defined=self.defined)

    def splat(self, value: Any, dtype: str) -> Lanes:
        return Lanes(self, f"splat ({LANE[dtype]} {literal(value, dtype)})", dtype)

    def constant(self, values: Sequence[Any], dtype: str) -> Lanes:
        inside = ", ".join(f"{LANE[dtype]} {literal(v, dtype)}" for v in values)
        return Lanes(self, f"<{inside}>", dtype)

    def select(self, condition: Lanes, x: Any, y: Any) -> Lanes:
        like = x if isinstance(x, Lanes) else y
        x, y = like.like(x), like.like(y)
        return self.emit(
            f"select {vector('bool')} {condition.text}, {like.type} {x.text}, {like.type} {y.text}",
            like.dtype,
        )

    def call(self, name: str, *xs: Lanes, result: str | None = None) -> Lanes:
        """Call an LLVM intrinsic, or a function of the module, on vectors."""
        dtype = result or xs[0].dtype
        arguments = ", ".join(f"{x.type} {x.text}" for x in xs)
        self.declared.add(f"declare {vector(dtype)} @{name}({', '.join(x.type for x in xs)})")
        return self.emit(f"call {vector(dtype)} @{name}({arguments})", dtype)

    def named(self, name: str, definition: str, arguments: str, dtype: str) -> Lanes:
        """Call a function that the module defines once, on no vectors."""
        self.defined.setdefault(name, definition)
        return self.emit(f"call {vector(dtype)} @{name}({arguments})", dtype)

    def intrinsic(self, name: str, *xs: Lanes) -> Lanes:
        kind = {"float": "f32", "double": "f64"}.get(lane := LANE[xs[0].dtype], lane)
        return self.call(f"llvm.{name}.v{LANES}{kind}", *xs)

    def fma(self, x: Any, y: Any, z: Any) -> Lanes:
        """x·y + z, rounded once: for our own polynomials, never for the user's expression."""
        like = next(v for v in (x, y, z) if isinstance(v, Lanes))
        return self.intrinsic("fma", *(like.like(v) for v in (x, y, z)))

    def polynomial(self, x: Lanes, coefficients: Sequence[float]) -> Lanes:
        """Horner's scheme, the highest power first."""
        result: Any = coefficients[0]
        for c in coefficients[1:]:
            result = self.fma(result, x, c)
        return result  # type: ignore[no-any-return]  # kept in a dict of Any


def select(condition: Lanes, x: Any, y: Any) -> Lanes:
    """x where the condition holds, else y; one of them may be a number."""
    return condition.builder.select(condition, x, y)
