"""One trace for all sizes and values, except those that the traced function reads."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from .tracer import Specialise

T = TypeVar("T")
Need: TypeAlias = tuple[Any, ...]  # ("size", input, axis) or ("value", input)


class Specialising(Generic[T]):
    """What was made for each kind of arguments, traced again where the body reads a number."""

    def __init__(self) -> None:
        self._needs: dict[Hashable, frozenset[Need]] = {}
        self._made: dict[Hashable, T] = {}

    def __len__(self) -> int:
        return len(self._made)

    def first(self) -> T | None:
        """What was made first, if anything was."""
        return next(iter(self._made.values()), None)

    def get(
        self,
        kind: Hashable,
        known: Callable[[Need], Any],
        make: Callable[[Mapping[Need, Any]], T],
    ) -> T:
        """Find or make it; `known` gives the values that the body turned out to read."""
        while True:
            needs = self._needs.get(kind, frozenset())
            fixed = tuple((need, known(need)) for need in sorted(needs))
            if (made := self._made.get((kind, fixed))) is not None:
                return made
            try:
                made = self._made[kind, fixed] = make(dict(fixed))
            except Specialise as missing:
                self._needs[kind] = needs | missing.needs
