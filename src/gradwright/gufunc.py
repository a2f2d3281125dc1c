"""Shapes in the notation of generalised ufuncs: ``"(n,n),(n)->(n)"``."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import SignatureError

_TERM = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?,?\s*\)"
_TERMS = rf"{_TERM}(?:\s*,\s*{_TERM})*"
Term = tuple[str | int, ...]


class Gufunc:
    """The sizes of arguments and results, by letters or as numbers."""

    def __init__(self, text: str, arrays: Sequence[str], name: str) -> None:
        self.text, self.name, self.arrays = text, name, arrays
        if not re.fullmatch(rf"\s*{_TERMS}\s*->\s*{_TERMS}\s*", text):
            raise SignatureError(
                f"out={text!r} of the host op {name} is no signature of shapes",
                'one like "(n,m),(m)->(n)", or a NumPy function of the arguments',
            )
        self.ins, self.outs = (_terms(side) for side in text.split("->"))
        if len(self.ins) != len(arrays):
            raise SignatureError(
                f"out={text!r} of the host op {name} names {len(self.ins)} arguments of "
                f"{len(arrays)} ({', '.join(arrays)})",
                "one shape for each array argument",
            )
        known = {letter for term in self.ins for letter in term if isinstance(letter, str)}
        unknown = {n for t in self.outs for n in t if isinstance(n, str)} - known
        if unknown:
            raise SignatureError(
                f"out={text!r} of the host op {name}: no argument has the size "
                f"{', '.join(sorted(unknown))}",
                "a size of an argument, a number, or a NumPy function of the arguments",
            )

    def sizes(self, shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """What each letter is; raises unless the shapes are such."""
        found: dict[str, Any] = {}
        if [len(s) for s in shapes] != [len(term) for term in self.ins]:
            raise self._misfit(shapes)
        for term, shape in zip(self.ins, shapes, strict=True):
            for letter, d in zip(term, shape, strict=True):
                known = letter if isinstance(letter, int) else found.setdefault(letter, d)
                # a size that is an expression is known when it runs
                if isinstance(d, int) and isinstance(known, int) and d != known:
                    raise self._misfit(shapes)
        return found

    def _misfit(self, shapes: Sequence[Sequence[Any]]) -> SignatureError:
        shown = ", ".join(f"({', '.join(_shown(d) for d in s)})" for s in shapes)
        return SignatureError(
            f"the host op {self.name} takes arrays of shapes {self.text.split('->')[0]}, and got "
            f"{shown}",
            "arrays of these shapes; for a batch of them jax.vmap, torch.vmap, "
            "tf.vectorized_map or a loop",
        )

    def results(self, sizes: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return [tuple(d if isinstance(d, int) else sizes[d] for d in term) for term in self.outs]


def _terms(side: str) -> list[Term]:
    found = (re.findall(r"\w+", term) for term in re.findall(_TERM, side))
    return [tuple(int(n) if n.isdigit() else n for n in names) for names in found]


def _shown(d: Any) -> str:
    return str(d) if isinstance(d, int) else "?"
