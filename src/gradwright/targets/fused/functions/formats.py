"""The two formats of floats, as their bits are put together."""

from dataclasses import dataclass

from ..ir import Lanes


@dataclass(frozen=True)
class Format:
    """A float is ±1.m · 2**(e - bias); adding `magic` rounds, and leaves an integer in the bits."""

    ints: str  # integers of the same size
    mantissa: int  # bits of m
    bias: int
    magic: float
    tiny: float  # the least normal number
    root_half: int  # the bits of √½
    exp_range: tuple[float, float]  # where exp is a normal number


FORMATS = {
    "float32": Format(
        "int32", 23, 127, 12582912.0, 2.0**-126, 0x3F3504F3,
        (-87.33654, 88.72283),
    ),
    "float64": Format(
        "int64", 52, 1023, 6755399441055744.0, 2.0**-1022, 0x3FE6A09E667F3BCD,
        (-708.3964185322641, 709.782712893384),
    ),
}  # fmt: skip


def of(x: Lanes) -> Format:
    return FORMATS[x.dtype]


def whole(x: Lanes) -> Lanes:
    """x that was rounded by adding `magic`: the integer that its low bits hold, at the exponent."""
    form = of(x)
    return x.bits(form.ints) << form.mantissa


def power_of_two(n: Lanes) -> Lanes:
    """2**n for integers n of normal powers."""
    form = FORMATS["float32" if n.dtype == "int32" else "float64"]
    return ((n + form.bias) << form.mantissa).bits("float32" if n.dtype == "int32" else "float64")
