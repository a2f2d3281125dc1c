"""NumPy's functions on vectors: exact ones by instructions, the common others by own polynomials.

Polynomials are for float32; their coefficients are those of the Cephes library and of Eigen, which
are minimax fits. What is not here is called lane by lane in the C library (`LIBRARY`), whose last
bits depend on the machine.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .ir import LANES, Builder, Lanes, vector

Function = Callable[..., Lanes]

INF = math.inf


def _b(x: Lanes) -> Builder:
    return x.builder


def _select(condition: Lanes, x: Any, y: Any) -> Lanes:
    return condition.builder.select(condition, x, y)


# --- exact -------------------------------------------------------------------------------------
def absolute(x: Lanes) -> Lanes:
    if x.is_float:
        return _b(x).intrinsic("fabs", x)
    return x if x.dtype.startswith(("u", "b")) else _select(x < 0, -x, x)


def sign(x: Lanes) -> Lanes:
    one = _select(x > 0, _b(x).splat(1, x.dtype), 0)
    if x.dtype.startswith("u"):
        return one
    one = _select(x < 0, -1, one)
    return _select(x.is_nan(), x, one) if x.is_float else one


def maximum(x: Lanes, y: Lanes) -> Lanes:
    """NaN if either is."""
    if x.is_float:
        return _select(x.is_nan(), x, _select(x >= y, x, y))
    return _select(x >= y, x, y)


def minimum(x: Lanes, y: Lanes) -> Lanes:
    if x.is_float:
        return _select(x.is_nan(), x, _select(x <= y, x, y))
    return _select(x <= y, x, y)


def fmax(x: Lanes, y: Lanes) -> Lanes:
    return _select(y.is_nan(), x, _select(x > y, x, y))


def fmin(x: Lanes, y: Lanes) -> Lanes:
    return _select(y.is_nan(), x, _select(x < y, x, y))


def copysign(x: Lanes, y: Lanes) -> Lanes:
    return _b(x).intrinsic("copysign", x, y)


def _sign_bit(x: Lanes) -> Lanes:
    return x.bits(_ints(x)) < 0


def _ints(x: Lanes) -> str:
    return "int32" if x.dtype == "float32" else "int64"


def isfinite(x: Lanes) -> Lanes:
    return absolute(x) < INF


def isinf(x: Lanes) -> Lanes:
    return absolute(x).equals(INF)


def isnan(x: Lanes) -> Lanes:
    return x.is_nan()


def nextafter(x: Lanes, y: Lanes) -> Lanes:
    """The neighbour of x towards y: one step in the integers that order the floats."""
    ints = _ints(x)
    tiny = _b(x).splat(np.nextafter(np.zeros(1, x.dtype), 1)[0], x.dtype)
    up = _select((y > x), _b(x).splat(1, "bool"), False)
    away = _select(x > 0, up, ~up)
    step = _select(away, _b(x).splat(1, ints), -1)
    moved = (x.bits(ints) + step).bits(x.dtype)
    moved = _select(x.equals(0), copysign(tiny, y), moved)
    return _select(x.is_nan(), x, _select(y.is_nan(), y, _select(x.equals(y), y, moved)))


def _remainder_towards_zero(x: Lanes, y: Lanes) -> Lanes:
    """C's fmod, exact: one fused multiply-add below a quotient of 2**23, the library above it."""
    return _b(x).define(
        f"gw_fmod_{x.dtype}", lambda name: _guarded(name, x.dtype, _fast_fmod, _frem), x, y
    )


def _guarded(name: str, dtype: str, fast: Any, rest: Any, arguments: str = "xy") -> str:
    """A function of the module: the fast way if every lane allows it, else lane by lane too.

    `fast` gives (the condition, the value), `rest` the value that is right everywhere.
    """
    b = Builder("r")
    xs = [Lanes(b, f"%{a}", dtype) for a in arguments]
    condition, value = fast(*xs)
    before = list(b.lines)
    either = b.select(condition, value, rest(*xs))
    kind, flag = vector(dtype), vector("bool")
    parameters = ", ".join(f"{kind} {x.text}" for x in xs)
    lines = [
        *sorted(b.declared),
        f"declare i1 @llvm.vector.reduce.and.v{LANES}i1({flag})",
        f"define internal {kind} @{name}({parameters}) #0 {{",
        *before,
        f"  %all = call i1 @llvm.vector.reduce.and.v{LANES}i1({flag} {condition.text})",
        "  br i1 %all, label %fast, label %slow",
        f"fast:\n  ret {kind} {value.text}",
        "slow:",
        *b.lines[len(before) :],
        f"  ret {kind} {either.text}\n}}",
    ]
    return "\n".join(lines)


def _fast_fmod(x: Lanes, y: Lanes) -> tuple[Lanes, Lanes]:
    b = _b(x)
    quotient = x / y
    rest = b.fma(-b.intrinsic("trunc", quotient), y, x)
    # the quotient is right, or one too large in size where it rounded up to an integer
    over = rest.differs(0) & (_sign_bit(rest) ^ _sign_bit(x))
    rest = b.select(over, rest + copysign(absolute(y), x), rest)
    infinite = isinf(y) & isfinite(x)
    rest = copysign(b.select(infinite, x, rest), x)
    limit = 2.0**23 if x.dtype == "float32" else 2.0**52
    return (absolute(quotient) < limit) | infinite, rest


def _frem(x: Lanes, y: Lanes) -> Lanes:
    return _b(x).emit(f"frem {x.type} {x.text}, {y.text}", x.dtype)


def remainder(x: Lanes, y: Lanes) -> Lanes:
    """NumPy's floor modulo: of the sign of y."""
    if not x.is_float:
        return _int_divided(x, y)[1]
    rest = _remainder_towards_zero(x, y)
    wrong = rest.differs(0) & ((y < 0) ^ (rest < 0))
    return _select(wrong, rest + y, rest)


def floor_divide(x: Lanes, y: Lanes) -> Lanes:
    """NumPy's algorithm, exact where ``floor(x / y)`` rounds up to the next integer."""
    if not x.is_float:
        return _int_divided(x, y)[0]
    rest = _remainder_towards_zero(x, y)
    quotient = (x - rest) / y
    down = rest.differs(0) & ((y < 0) ^ (rest < 0))
    quotient = _select(down, quotient - 1, quotient)
    whole = _b(x).intrinsic("floor", quotient)
    whole = _select((quotient - whole) > 0.5, whole + 1, whole)
    return _select(y.equals(0), x / y, whole)


def _int_divided(x: Lanes, y: Lanes) -> tuple[Lanes, Lanes]:
    """Floor division and modulo of integers; by zero both are 0, as in NumPy."""
    b, unsigned = _b(x), x.dtype.startswith("u")
    # the one overflow, MIN / -1, is NumPy's MIN, remainder 0
    safe = _select(y.equals(0), b.splat(1, x.dtype), y)
    negated = None
    if not unsigned:
        negated = y.equals(-1)
        safe = _select(negated, b.splat(1, x.dtype), safe)
    d, r = ("udiv", "urem") if unsigned else ("sdiv", "srem")
    quotient = b.emit(f"{d} {x.type} {x.text}, {safe.text}", x.dtype)
    rest = b.emit(f"{r} {x.type} {x.text}, {safe.text}", x.dtype)
    if negated is not None:
        down = rest.differs(0) & ((rest < 0) ^ (safe < 0))
        quotient = _select(down, quotient - 1, quotient)
        rest = _select(down, rest + safe, rest)
        quotient = _select(negated, -x, quotient)
        rest = _select(negated, b.splat(0, x.dtype), rest)
    zero = y.equals(0)
    return _select(zero, b.splat(0, x.dtype), quotient), _select(zero, b.splat(0, x.dtype), rest)


# --- exponentials and logarithms, float32 ------------------------------------------------------
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6


def _scaled(y: Lanes, n: Lanes) -> Lanes:
    """y · 2**n in two steps, so that no power leaves the range."""
    k = n.to("int32")
    half = k >> 1
    rest = k - half
    return y * ((half + 127) << 23).bits("float32") * ((rest + 127) << 23).bits("float32")


def _exp_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """(p, n) with exp(x) = (1 + p) · 2**n."""
    b = _b(x)
    n = b.intrinsic("rint", x * 1.44269504088896341)
    n = _select(n > -190, n, -190.0)
    n = _select(n < 190, n, 190.0)
    r = b.fma(n, -LN2_LOW, b.fma(n, -LN2_HIGH, x))
    q = b.polynomial(
        r,
        [
            *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
            *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
        ],
    )
    return b.fma(q, r * r, r), n


def exp(x: Lanes) -> Lanes:
    p, n = _exp_parts(x)
    y = _scaled(p + 1, n)
    y = _select(x > 89, INF, y)
    return _select(x < -104, 0.0, y)


def expm1(x: Lanes) -> Lanes:
    b = _b(x)
    p, n = _exp_parts(x)
    # (1 + p) 2**n - 1 = p 2**n + (2**n - 1), with the larger part last
    scale = _scaled(b.splat(1, "float32"), n)
    y = b.fma(p, scale, scale - 1)
    y = _select(x > 60, exp(x), y)
    y = _select(x < -18, -1.0, y)
    return _select(x.equals(0), x, y)


def _log_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """(f, e) with x = (1 + f) · 2**e and 1 + f in [√½, √2)."""
    small = x < 1.1754943508222875e-38
    bits = _select(small, x * 8388608, x).bits("int32")
    t = bits - 0x3F3504F3
    e = (t >> 23).to("float32")
    e = _select(small, e - 23, e)
    return ((t & 0x7FFFFF) + 0x3F3504F3).bits("float32") - 1, e


def _log_of_one_plus(f: Lanes) -> tuple[Lanes, Lanes]:
    """(y, z) with log(1 + f) = f + (y - z/2), z = f²."""
    z = f * f
    p = _b(f).polynomial(
        f,
        [
            *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1),
            *(1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1),
            3.3333331174e-1,
        ],
    )
    return p * f * z, z


def _log_edges(x: Lanes, y: Lanes) -> Lanes:
    y = _select(x.equals(0), -INF, y)
    y = _select((x < 0) | x.is_nan(), math.nan, y)
    return _select(x.equals(INF), INF, y)


def log(x: Lanes) -> Lanes:
    b = _b(x)
    f, e = _log_parts(x)
    y, z = _log_of_one_plus(f)
    y = b.fma(z, -0.5, b.fma(e, -2.12194440e-4, y))
    return _log_edges(x, b.fma(e, 0.693359375, f + y))


def _log_base(x: Lanes, high: float, low: float, unit_high: float, unit_low: float) -> Lanes:
    """log(x) / log(base): 1/log(base) = high + low, and e · log(2)/log(base)."""
    b = _b(x)
    f, e = _log_parts(x)
    y, z = _log_of_one_plus(f)
    y = b.fma(z, -0.5, y)
    small = b.fma(f, low, b.fma(y, high, y * low))
    small = b.fma(e, unit_low, small) if unit_low else small
    return _log_edges(x, b.fma(e, unit_high, b.fma(f, high, small)))


def log2(x: Lanes) -> Lanes:
    return _log_base(x, 1.4423828125, 3.1222839111e-4, 1.0, 0.0)


def log10(x: Lanes) -> Lanes:
    return _log_base(x, 0.43408203125, 2.1245065325e-4, 0.30102920532226562, 7.9034151668e-7)


def exp2(x: Lanes) -> Lanes:
    b = _b(x)
    n = b.intrinsic("rint", x)
    n = _select(n > -160, n, -160.0)
    n = _select(n < 160, n, 160.0)
    r = x - n
    p = b.polynomial(
        r,
        [
            *(1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3),
            *(5.550332471162809e-2, 2.402264791363012e-1, 6.931472028550421e-1),
        ],
    )
    y = _scaled(b.fma(p, r, 1.0), n)
    y = _select(x >= 128, INF, y)
    return _select(x < -150, 0.0, y)


def log1p(x: Lanes) -> Lanes:
    u = x + 1
    y = log(u) + (x - (u - 1)) / u
    return _select((x.equals(INF)) | (absolute(x) < 1e-10), x, _select(u.equals(0), -INF, y))


def tanh(x: Lanes) -> Lanes:
    """t / (t + 2) with t = exp(2|x|) - 1; from |x| = 10 on it is 1."""
    size = absolute(x)
    t = expm1(2 * _select(size < 10, size, 10.0))
    return _select(x.is_nan(), x, copysign(t / (t + 2), x))


def expit(x: Lanes) -> Lanes:
    """1 / (1 + exp(-x)), from the side where nothing overflows."""
    e = exp(-absolute(x))
    return _select(x < 0, e, e._with(1)) / (e + 1)


# --- sine and cosine, float32 ------------------------------------------------------------------
def _quarter(x: Lanes) -> tuple[Lanes, Lanes]:
    """(k, t) with x = k · π/2 + t, |t| <= π/4, in double precision: exact enough below 2**28."""
    wide = x.to("float64")
    n = _b(x).intrinsic("rint", wide * (2 / math.pi))
    t = _b(x).fma(n, -1.5707963267948966, wide)
    t = _b(x).fma(n, -6.123233995736766e-17, t)
    return n.to("int64").to("int32"), t.to("float32")


def _sine(t: Lanes) -> Lanes:
    z = t * t
    p = _b(t).polynomial(z, [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1])
    return _b(t).fma(p * z, t, t)


def _cosine(t: Lanes) -> Lanes:
    b, z = _b(t), t * t
    p = b.polynomial(z, [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2])
    return b.fma(p * z, z, b.fma(z, -0.5, 1.0))


def _turned(k: Lanes, t: Lanes) -> Lanes:
    y = _select((k & 1).differs(0), _cosine(t), _sine(t))
    return _select((k & 2).differs(0), -y, y)


def _trigonometric(name: str, quarters: int) -> Function:
    def fast(x: Lanes) -> tuple[Lanes, Lanes]:
        k, t = _quarter(x)
        y = _turned(k + quarters, t)
        y = _select(x.equals(0), x, y) if not quarters else y
        return absolute(x) < 2.0**28, y

    def function(x: Lanes) -> Lanes:
        return _b(x).define(
            f"gw_{name}",
            lambda known: _guarded(
                known, x.dtype, fast, lambda x: _b(x).intrinsic(name, x), arguments="x"
            ),
            x,
        )

    return function


sin, cos = _trigonometric("sin", 0), _trigonometric("cos", 1)


def _ratio(a: float, b: float, x: Lanes) -> float:
    """a / b as NumPy has it: divided in the dtype of x."""
    number = np.dtype(x.dtype).type
    return float(number(a) / number(b))


FUNCTIONS: dict[str, Function] = {
    name: globals()[name]
    for name in (
        "absolute sign maximum minimum fmax fmin copysign isfinite isinf isnan nextafter remainder "
        "floor_divide"
    ).split()
} | {
    "add": lambda x, y: x + y if x.dtype != "bool" else x | y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y if x.dtype != "bool" else x & y,
    "divide": lambda x, y: x / y,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "fabs": absolute,
    "fmod": _remainder_towards_zero,
    "sqrt": lambda x: _b(x).intrinsic("sqrt", x),
    "floor": lambda x: _b(x).intrinsic("floor", x),
    "ceil": lambda x: _b(x).intrinsic("ceil", x),
    "trunc": lambda x: _b(x).intrinsic("trunc", x),
    "rint": lambda x: _b(x).intrinsic("rint", x),
    "signbit": _sign_bit,
    "heaviside": lambda x, y: _select(
        x.is_nan(), x, _select(x.equals(0), y, _select(x > 0, x._with(1), 0.0))
    ),
    "equal": lambda x, y: x.equals(y),
    "not_equal": lambda x, y: x.differs(y),
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "logical_and": lambda x, y: x.to("bool") & y.to("bool"),
    "logical_or": lambda x, y: x.to("bool") | y.to("bool"),
    "logical_xor": lambda x, y: x.to("bool") ^ y.to("bool"),
    "logical_not": lambda x: ~x.to("bool"),
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "invert": lambda x: ~x,
    "left_shift": lambda x, y: x << y,
    "right_shift": lambda x, y: x >> y,
    "where": lambda c, x, y: c.builder.select(c, x, y),
    "deg2rad": lambda x: x * _ratio(math.pi, 180, x),
    "radians": lambda x: x * _ratio(math.pi, 180, x),
    "rad2deg": lambda x: x * _ratio(180, math.pi, x),
    "degrees": lambda x: x * _ratio(180, math.pi, x),
}

# What these do for integers and for booleans too; the rest is for floats.
ON_INTEGERS = frozenset(
    (
        "absolute sign maximum minimum remainder floor_divide add subtract multiply negative "
        "positive square equal not_equal less less_equal greater greater_equal logical_and "
        "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor invert left_shift "
        "right_shift where"
    ).split()
)
ON_BOOLEANS = frozenset(
    (
        "add multiply equal not_equal less less_equal greater greater_equal logical_and logical_or "
        "logical_xor logical_not bitwise_and bitwise_or bitwise_xor invert where maximum minimum"
    ).split()
)

# for float32 only
POLYNOMIALS: dict[str, Function] = {
    name: globals()[name]
    for name in "exp expm1 log log2 log10 log1p exp2 tanh expit sin cos".split()
}
