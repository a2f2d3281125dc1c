"""One wrong use, and what its error says."""

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """`run` raises; the text has all of `texts`, and names a line of `run`'s own file."""

    run: Callable[..., Any]  # given a folder of its own, if it takes an argument
    texts: tuple[str, ...]
    where: bool = True

    @property
    def name(self) -> str:
        return self.texts[0]


def case(run: Callable[..., Any], *texts: str, where: bool = True) -> Case:
    return Case(run, texts, where)
