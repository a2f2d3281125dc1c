"""One mode of a framework at one point, and how a check of it ended."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from .diagnose import cure
from .differences import Array, Vector
from .frameworks import Mode
from .measure import Point, drawn
from .report import Cell, Diagnosis
from .subject import Subject, split


@dataclass(frozen=True)
class Verdict:
    """How one check of one mode ended."""

    status: str
    text: str = ""
    diagnosis: Diagnosis | None = None


OK = Verdict("ok")


def fault(d: Diagnosis, *more: str) -> Verdict:
    text = "; ".join([d.text, *more])
    return Verdict("fault", f"{text}, {d.place}" if d.place else text, d)


def plain_fault(kind: str, text: str) -> Verdict:
    return fault(Diagnosis(kind, text, cure(kind)))


@dataclass
class Case:
    """One mode at one point."""

    mode: Mode
    base: Mode
    point: Point
    seed: int
    seen: dict[str, Any] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        return self.point.subject

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, 1])

    def by_argument(self, vector: Vector) -> Iterator[tuple[str, Array]]:
        """A vector over all elements as one array for each argument."""
        likes = [self.subject.arrays[k] for k in self.subject.wrt]
        names = [self.subject.names[k] for k in self.subject.wrt]
        yield from zip(names, split(vector, likes), strict=True)

    def tangents(self) -> list[Array]:
        """A random direction for each argument."""
        rng = np.random.default_rng([self.seed, 2])
        return [drawn(rng, self.subject.arrays[k].shape) for k in self.subject.wrt]


Check: TypeAlias = Callable[[Case], Verdict]


def renamed(d: Diagnosis, kind: str, text: str) -> Diagnosis:
    """The same place, under another kind."""
    return replace(d, kind=kind, text=text, instead=cure(kind, d.argument))


def cell(name: str, mode: Mode, v: Verdict, point: str = "") -> Cell:
    """A verdict as a cell of the report."""
    return Cell(name, mode.framework, mode.name, v.status, v.text, v.diagnosis, point)
