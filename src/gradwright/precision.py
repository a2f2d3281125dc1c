"""How a new parameter is stored that was computed with more digits than its dtype has.

Arithmetic on float16 and bfloat16 is in float32. ``nearest`` rounds the result once. An update
that is smaller than half a unit in the last place is then lost at every step, and three ways keep
it: ``master`` has the parameter in float32 beside it, ``kahan`` what rounding lost, in the
parameter's own dtype, and ``stochastic`` rounds up or down at random, right on average.

P. Zamirai et al.: Revisiting BFloat16 training. arXiv 2010.06192, 2020 (kahan, stochastic).
P. Micikevicius et al.: Mixed precision training. ICLR 2018 (master).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from .errors import TraceError
from .graph import Graph

LOW = ("float16", "bfloat16")
DIGITS = {"float16": 11, "bfloat16": 8}  # binary ones
LEAST = {"float16": 2.0**-24, "bfloat16": 2.0**-126}  # distance of two numbers next to zero
Cast: TypeAlias = Callable[[Any], Any]  # to the dtype of the parameter
Bits: TypeAlias = Callable[[], Any]  # 32 random ones for every element


def is_narrow(dtypes: Iterable[str]) -> bool:
    """Whether an op's float32 results are rounded to bfloat16: the widest float it was given.

    NumPy has no bfloat16; what an op computes of it is computed in float32, and rounded once.
    """
    return {dtype for dtype in dtypes if "float" in dtype} == {"bfloat16"}


def check_widened(graph: Graph) -> None:
    """Raise where what bfloat16 is computed in, and rounded from, gives another result."""
    for i in graph.live():
        if graph.nodes[i].prim == "nextafter":
            raise TraceError(
                "np.nextafter of bfloat16, which is computed in float32: the neighbour there is "
                "rounded back",
                "float32 arrays",
                where=graph.lines.get(i, ""),
            )


def dropped(dtype: str) -> int:
    """How many binary digits float32 has more."""
    return 24 - DIGITS[dtype]


def widened(w: Any) -> Any:
    """w in the precision that it is computed in."""
    return w.astype(np.promote_types(w.dtype, np.float32))


@dataclass(frozen=True)
class Storage:
    """One way: what is kept beside w, how w is read, and how it is written."""

    slots: Mapping[str, Any]  # none or one, with its initial value
    read: Callable[..., Any]  # w, *slots -> w to compute with
    write: Callable[[Any, str, Cast, Bits], tuple[Any, ...]]  # new w, its dtype -> w, *slots
    draws: bool = False


def _at_random(x: Any, dtype: str, stored: Cast, bits: Bits) -> tuple[Any, ...]:
    """Round x up or down, with the probability of how near it is.

    Its distance to zero is counted in units in the last place of the dtype, as a number with
    `drop` binary digits behind the point; a uniform one of as many digits is added, exactly.
    """
    if dtype not in LOW:
        return (stored(x),)
    drop = dropped(dtype)
    size = np.abs(x)
    unit = np.maximum((np.nextafter(size, np.float32(np.inf)) - size) * 2.0**drop, LEAST[dtype])
    uniform = (bits() >> (32 - drop)).astype(np.float32) * 2.0**-drop
    rounded = np.floor(size / unit + uniform) * unit
    return (stored(np.where(np.isfinite(x), np.where(x < 0, -rounded, rounded), x)),)


def _nearest(x: Any, dtype: str, stored: Cast, bits: Bits) -> tuple[Any, ...]:
    return (stored(x),)


def _with_master(x: Any, dtype: str, stored: Cast, bits: Bits) -> tuple[Any, ...]:
    return stored(x), x


def _compensated(x: Any, dtype: str, stored: Cast, bits: Bits) -> tuple[Any, ...]:
    w = stored(x)
    return w, x - w.astype(x.dtype)


STORAGES = {
    "nearest": Storage({}, lambda w: w, _nearest),
    "master": Storage({"w.master": widened}, lambda w, master: master, _with_master),
    "kahan": Storage({"w.lost": np.zeros_like}, lambda w, lost: w + lost, _compensated),
    "stochastic": Storage({}, lambda w: w, _at_random, draws=True),
}
