"""The `rng` of a rule: draws that depend only on seed, step, parameter, draw and element."""

from typing import Any, NoReturn

import numpy as np

from . import philox
from .errors import MissingAttribute, SignatureError, TraceError
from .trace import Tracer, lift
from .trace.tracer import dim_of, node


class Rng:
    """Random numbers of the shape of w, in float32, the same in every framework.

    Each call is a draw of its own. `like` is the parameter; the numbers may be traced.
    """

    def __init__(self, like: Any, step: Any, identity: Any, seed: Any) -> None:
        self._like, self._at, self._draws = like, (step, identity, seed), 0

    def _next_draw(self, size: Any) -> int:
        if size is not None and not self._is_own(size):
            raise SignatureError("a draw of another size than w", "rng.normal() without size")
        if self._draws == philox.MAX_DRAW:
            raise TraceError(f"more than {philox.MAX_DRAW} draws in one rule", "fewer draws")
        self._draws += 1
        return self._draws - 1

    def _is_own(self, size: Any) -> bool:
        """Whether a size, an int or a shape, is that of w."""
        sizes = size if isinstance(size, (tuple, list)) else (size,)
        return len(sizes) == self._like.ndim and all(
            dim_of(d) == dim_of(e) or d == e for d, e in zip(sizes, self._like.shape, strict=True)
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise MissingAttribute(
            f"rng has no {name}: what it draws is the same in every framework",
            "rng.normal(), uniform(), integers(low, high) or bits(), and a function of them",
        )

    def _bits(self, draw: int, lane: str) -> Any:
        if not isinstance(self._like, Tracer):
            return philox.random_bits(*self._at, draw=draw, lane=lane, shape=np.shape(self._like))
        graph = self._like.graph
        args = [lift(graph, x) for x in self._at]
        return node(graph, "random_bits", args, draw=draw, lane=lane, shape=self._like.dims)

    def rounding(self) -> Any:
        """The bits by which a new parameter is rounded at random."""
        return self._bits(philox.ROUNDING, "own")

    def bits(self, size: Any = None) -> Any:
        """32 random bits for each element, as uint32."""
        return self._named("bits", self._bits(self._next_draw(size), "own"))

    def _named(self, symbol: str, x: Any) -> Any:
        """Give a draw its sign in formulas; later draws of a rule get a number."""
        if isinstance(x, Tracer):
            k = sum(name.startswith(symbol) for name in x.graph.symbols.values())
            x.graph.symbols.setdefault(x.i, symbol if not k else f"{symbol}{k + 1}")
        return x

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Uniform on [low, high): multiples of 2**-24 of its length."""
        unit = self._unit(size)
        return unit if (low, high) == (0.0, 1.0) else low + unit * (high - low)

    def _unit(self, size: Any) -> Any:
        bits = self._bits(self._next_draw(size), "own")
        return self._named("u", (bits >> 8).astype(np.float32) * 2.0**-24)

    def integers(self, low: int, high: int | None = None, size: Any = None) -> Any:
        """Integers from [low, high), or from [0, low); at most 2**24 of them."""
        start, stop = (0, low) if high is None else (low, high)
        if not 0 < stop - start <= 2**24:
            raise SignatureError(f"integers from [{start}, {stop})", "between 1 and 2**24 of them")
        return np.floor(self._unit(size) * (stop - start)).astype(np.int32) + start

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Normal with mean `loc` and standard deviation `scale`, by Box and Muller."""
        draw = self._next_draw(size)
        u = ((self._bits(draw, "even") >> 8) + 1).astype(np.float32) * 2.0**-24  # in (0, 1]
        z = self._named("ε", np.sqrt(-2 * np.log(u)) * self._cosine(draw))
        z = z if scale == 1.0 else scale * z
        return z if loc == 0.0 else loc + z

    def standard_normal(self, size: Any = None) -> Any:
        """Normal with mean 0 and standard deviation 1."""
        return self.normal(size=size)

    def _cosine(self, draw: int) -> Any:
        """The cosine of a random angle; of odd elements, of the pair's angle less a quarter turn.

        The angle is cut at odd eighths of a turn, so sine and cosine are asked for |t| <= pi/4
        only, and are the same for both elements of a pair. There short polynomials have them right
        to an ulp or so (the coefficients are those of Cephes), with the same bits wherever a
        product and a sum are rounded one after the other.
        """
        eighth = (self._bits(draw, "odd") >> 8) + 2**21  # 2**24 are a full turn
        quarter = (eighth >> 22) - self._bits(draw, "place")
        rest = (eighth & (2**22 - 1)).astype(np.float32) - 2.0**21  # exact
        t = rest * (np.pi * 2.0**-23)
        z = t * t
        sine = t + t * z * (-1.6666654611e-1 + z * (8.3321608736e-3 + z * -1.9515295891e-4))
        tail = 4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5)
        cosine = 1 - 0.5 * z + z * z * tail
        size = np.where((quarter & 1) == 1, sine, cosine)
        return np.where(((quarter + 1) & 2) == 2, -size, size)
