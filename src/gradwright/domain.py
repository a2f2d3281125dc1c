"""The set that a parameter never leaves, ``"[low, high)"``: kept to the last bit."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import SignatureError
from .precision import LEAST, LOW, dropped
from .trace import Tracer, cast, lift

_FORM = re.compile(r"\s*([\[(])\s*([^,\s]+)\s*,\s*([^,\s\])]+)\s*([\])])\s*")


@dataclass(frozen=True)
class Domain:
    """An interval; a bound is a number or the name of a hyperparameter."""

    text: str
    low: str | float
    high: str | float
    has_low: bool
    has_high: bool

    def check(self, rule: str, keywords: Mapping[str, Any]) -> None:
        """Raise where the bounds of this step are numbers with nothing between them."""
        low, high = (keywords[b] if isinstance(b, str) else b for b in (self.low, self.high))
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and not low < high:
            raise SignatureError(
                f"{rule}: the domain {self.text} is empty, with {self.low}={low} and "
                f"{self.high}={high}",
                f"{self.low} < {self.high}",
            )

    def nearest(self, w: Any, keywords: Mapping[str, Any]) -> Any:
        """The member of the interval nearest to w, in w's dtype; NaN stays NaN.

        An equation that keeps a bound can still round onto it: in float32, ``mod(-1e-9, 1)`` is 1.
        """
        dtype = w.node.dtype if isinstance(w, Tracer) else w.dtype.name
        low, high = (
            _beside(w, keywords[bound] if isinstance(bound, str) else bound)
            for bound in (self.low, self.high)
        )
        if not self.has_low:
            low = _next(low, np.inf, dtype)
        if not self.has_high:
            high = _next(high, -np.inf, dtype)
        if dtype not in LOW:
            return np.minimum(np.maximum(w, low), high)
        kept = np.minimum(np.maximum(w.astype(np.float32), low), high)
        return cast(kept, dtype) if isinstance(kept, Tracer) else kept.astype(w.dtype)


def _beside(w: Any, bound: Any) -> Any:
    """A bound as a number of w's dtype, so that its neighbour is one of w's neighbours.

    Low precision is rounded so, and then computed with in float32.
    """
    if isinstance(w, Tracer):
        rounded = cast(lift(w.graph, bound), w.node.dtype)
        return cast(rounded, "float32") if w.node.dtype in LOW else rounded
    x = np.asarray(bound, w.dtype)
    return x.astype(np.float32) if w.dtype.name in LOW else x


def _next(bound: Any, toward: float, dtype: str) -> Any:
    """The neighbour of a bound among the numbers of a dtype."""
    near = np.nextafter(bound, np.float32(toward) if dtype in LOW else toward)
    if dtype not in LOW:
        return near
    unit = np.maximum(np.abs(near - bound) * 2.0 ** dropped(dtype), LEAST[dtype])
    return bound + unit if toward > 0 else bound - unit


def parse(text: str, names: Collection[str]) -> Domain:
    """Read ``"[low, high)"``; `names` are the hyperparameters that a bound may name."""
    found = _FORM.fullmatch(text)
    if not found:
        raise SignatureError(f"domain={text!r}", 'an interval such as "[0, bound)" or "(-1, 1]"')
    left, low, high, right = found.groups()
    bounds = _bound(low, names), _bound(high, names)
    numbers = [b for b in bounds if isinstance(b, float)]
    if len(numbers) == 2 and not numbers[0] < numbers[1]:
        raise SignatureError(
            f"domain={text!r} has nothing between its bounds", "[low, high), low < high"
        )
    return Domain(text, *bounds, left == "[", right == "]")


def _bound(token: str, names: Collection[str]) -> str | float:
    if token in names:
        return token
    try:
        return float(token)
    except ValueError:
        raise SignatureError(
            f"the bound {token!r} of a domain is no hyperparameter and no number",
            f"one of {', '.join(names) or 'no hyperparameters'}, or a number",
        ) from None
