"""float16 and bfloat16: 16 bits in memory and in registers, float32 to compute with.

A result is rounded once, to the nearest, ties to even, by instructions on integers: so it has the
same bits on every machine, subnormal numbers are kept, and nothing of the C library is called.
F. Giesen: Float to half done quickly, 2012, has the cases of float16.
"""

from .ir import Lanes, select

_SIGN, _HIDDEN = 2**31, 23  # of float32: its sign's bit, the bits of its mantissa
_INFINITE = 0x7F800000
# of float16, as float32 has them: the bits more, what the biases differ by, the least normal number
_MORE, _BIAS, _LEAST = 13, 112 << _HIDDEN, 113 << _HIDDEN


def widened(x: Lanes) -> Lanes:
    """The float32 that a float16 or a bfloat16 is."""
    bits = x.bits("uint16").to("uint32")
    if x.dtype == "bfloat16":
        return (bits << 16).bits("float32")
    size = (bits & 0x7FFF) << _MORE
    normal = size + _BIAS
    normal = select(size >= (0x7C00 << _MORE), normal + _BIAS, normal)
    small = (size + _LEAST).bits("float32") - x.builder.splat(_LEAST, "uint32").bits("float32")
    size = select(size < (0x400 << _MORE), small.bits("uint32"), normal)
    return (size | ((bits & 0x8000) << 16)).bits("float32")


def narrowed(x: Lanes, dtype: str) -> Lanes:
    """The float16 or bfloat16 nearest to a float32."""
    bits = x.bits("uint32")
    rounded = _to_bfloat16(bits) if dtype == "bfloat16" else _to_float16(bits)
    return rounded.to("uint16").bits(dtype)


def _to_bfloat16(bits: Lanes) -> Lanes:
    even = (bits >> 16) & 1
    is_nan = (bits & (_SIGN - 1)) > _INFINITE
    return select(is_nan, bits | 2**22, bits + even + 0x7FFF) >> 16


def _to_float16(bits: Lanes) -> Lanes:
    sign, size = bits & _SIGN, bits & (_SIGN - 1)
    half = size.builder.splat(0.5, "float32")  # its last bit is float16's least number
    small = (size.bits("float32") + half).bits("uint32") - half.bits("uint32")
    normal = (size + ((size >> _MORE) & 1) - (_BIAS - 0xFFF)) >> _MORE
    large = select(size > _INFINITE, size.builder.splat(0x7E00, "uint32"), 0x7C00)
    rounded = select(size < _LEAST, small, select(size < (143 << _HIDDEN), normal, large))
    return rounded | (sign >> 16)
