"""The error function: a polynomial near 0, a scaled one times exp(-x²) further out."""

from collections.abc import Mapping, Sequence

from ..ir import Lanes, select
from ..outline import outlined
from .exact import absolute
from .exponential import exp

# erf(x)/x in x², |x| ≤ 1
_NEAR: Mapping[str, Sequence[float]] = {
    "float32": (
        7.87258250056766e-05, -0.000801595626398921, 0.005188994109630585, -0.026854168623685837,
        0.11283593624830246, -0.3761262595653534, 1.1283791065216064,
    ),
    "float64": (
        5.954471583153482e-11, -1.1371291831047954e-09, 1.4659383821340068e-08,
        -1.6350256278696497e-07, 1.6460995338195411e-06, -1.4925594957596026e-05,
        0.00012055331099279798, -0.0008548326980509413, 0.005223977624812638,
        -0.02686617064507627, 0.11283791670954876, -0.3761263890318375, 1.1283791670955126,
    ),
}  # fmt: skip
# (1 + 2x)·exp(x²)·erfc(x) in (x - 3)/(x + 3), x ≥ ½
_FAR: Mapping[str, Sequence[float]] = {
    "float32": (
        -0.0005648089572787285, 0.0018033654196187854, 0.002409873064607382,
        -0.023744337260723114, 0.06833503395318985, -0.11927725374698639, 0.1296427696943283,
        -0.04756210371851921, -0.13562104105949402, 1.2530080080032349,
    ),
    "float64": (
        2.4798990449665396e-09, -6.759406370117507e-09, -1.7780566598620653e-08,
        4.1266289444324814e-08, 1.076870886738872e-07, -1.431151190042049e-07,
        -6.210218976592234e-07, 3.5891488653425864e-07, 3.474511553002294e-06,
        -7.327932507717507e-07, -2.0101240721282947e-05, 4.949946620834361e-06,
        0.0001250994994060882, -0.00010515990116664647, -0.0007798322938582855,
        0.0018886903724153925, 0.002529391818158291, -0.023770514919596884,
        0.06830802734385936, -0.1192736634152758, 0.1296451587027639, -0.04756229435345117,
        -0.1356211061245812, 1.2530080582697296,
    ),
}  # fmt: skip


def _near(x: Lanes) -> Lanes:
    return x * x.builder.polynomial(x * x, _NEAR[x.dtype])


def _far(x: Lanes) -> Lanes:
    """erfc(x) for x ≥ ½."""
    b = x.builder
    square = x * x
    lost = b.fma(x, x, -square)
    decay = exp(-square)
    decay = b.fma(decay, -lost, decay)
    g = b.polynomial((x - 3) / (x + 3), _FAR[x.dtype])
    return decay * (g / (2 * x + 1))


def _inside(x: Lanes) -> Lanes:
    """|x| up to where erfc is 0, NaN too."""
    size = absolute(x)
    return select(size < 30, size, 30.0)


def erf(x: Lanes) -> Lanes:
    return outlined("erf", _erf, x)


def _erf(x: Lanes) -> Lanes:
    size = _inside(x)
    y = select(size < 1, _near(size), 1 - _far(size))
    return select(x.is_nan(), x, x.builder.intrinsic("copysign", y, x))


def erfc(x: Lanes) -> Lanes:
    return outlined("erfc", _erfc, x)


def _erfc(x: Lanes) -> Lanes:
    far = _far(_inside(x))
    far = select(x < 0, 2 - far, far)
    y = select(absolute(x) < 0.5, 1 - _near(x), far)
    return select(x.is_nan(), x, y)
