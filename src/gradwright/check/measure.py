"""The derivative of a function at a point, measured from its values: all of it, or a sample."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .differences import Array, Vector, noise, scales, slopes
from .subject import Subject, flat

ALL = 64  # a function of no more elements is measured in every one of them
SAMPLE = 24  # of a larger one, so many elements are, and
PROBES = 4  # so many random directions
FINER = 1.37 * 2.0**-7
ROUNDING = 2.0**-44  # what some hundred roundings leave
HALF = 2.0**-26  # half of the digits of float64: what a gradient must agree to


class Probe(NamedTuple):
    """The derivatives of all outputs in one direction."""

    direction: Vector
    value: Vector
    error: Vector
    known: Vector
    rounding: float

    @property
    def tolerance(self) -> Vector:
        largest = float(np.max(np.abs(self.value[self.known]), initial=0.0))
        tolerance: Vector = self.error + HALF * np.abs(self.value) + self.rounding * largest
        return tolerance


@dataclass(frozen=True)
class Point:
    """An argument, and what the derivative is there: rows are outputs, columns elements."""

    subject: Subject
    elements: Sequence[int]  # which elements the columns are for
    value: Array
    tolerance: Array
    known: Array
    kink: Array
    left: Array
    right: Array
    probes: Sequence[Probe]
    seed: int
    fine: float = 1.0  # what steps are multiplied by

    @cached_property
    def finer(self) -> "Point":
        """The same point by much smaller steps: a fault must be seen with these, too."""
        return self if self.subject.slope is None else measure(self.subject, self.seed, FINER)

    @property
    def is_whole(self) -> bool:
        return len(self.elements) == self.subject.vector.size

    @cached_property
    def outs(self) -> list[Array]:
        return self.subject.value(self.subject.arrays)

    def cotangents(self, rng: np.random.Generator) -> list[Any]:
        """A random one for each float output, ``None`` for the others."""
        return [drawn(rng, out.shape) if out.dtype.kind == "f" else None for out in self.outs]

    def unit(self, o: int) -> list[Any]:
        """The cotangent that is one output element."""
        cts: list[Any] = []
        for out in self.outs:
            if out.dtype.kind != "f":
                cts.append(None)
                continue
            ct = np.zeros(out.shape)
            if 0 <= o < out.size:
                ct.flat[o] = 1.0
            o -= out.size
            cts.append(ct)
        return cts

    def kinks(self) -> list[str]:
        """The elements at a kink, and the derivatives on both sides."""
        found = []
        for c, i in enumerate(self.elements):
            rows = np.flatnonzero(self.kink[:, c] & np.isfinite(self.left[:, c] + self.right[:, c]))
            if rows.size:
                o = rows[0]
                name, at = self.subject.element(i)
                where = f"{name}[{', '.join(map(str, at))}]" if at else name
                left, right = _short(self.left[o, c]), _short(self.right[o, c])
                found.append(f"{where}: {left} from the left, {right} from the right")
        return found


def _short(x: float) -> str:
    return f"{0.0 if abs(x) < 1e-9 else x:.3g}"


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Between 1/2 and 3/2 in size, of either sign: none is lost beside another."""
    array: Array = np.asarray(rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape))
    return array


def floats(arrays: Sequence[Any]) -> Vector:
    """The float ones among results, end to end."""
    return flat([a for a in arrays if a.dtype.kind in "fc"])


def vector_function(subject: Subject) -> Callable[[Vector], Vector]:
    """The function whose derivative is the right one, of one vector."""
    assert subject.slope is not None
    slope = subject.slope
    return lambda v: floats(slope(subject.moved(v)))


def measure(subject: Subject, seed: int, fine: float = 1.0) -> Point:
    """Measure the derivative of a subject at its arrays."""
    if subject.slope is None or not subject.vector.size:
        return unmeasured(subject)
    f, x = vector_function(subject), subject.vector
    rng = np.random.default_rng(seed)
    scale = fine * scales([subject.arrays[k] for k in subject.wrt])
    rounding = noise(f, x, scale, seed)
    rounded = HALF if subject.is_on_host else ROUNDING
    elements = list(range(x.size))
    if x.size > ALL:
        elements = sorted(map(int, rng.choice(x.size, SAMPLE, replace=False)))
    alone = np.zeros((len(elements), x.size))
    alone[np.arange(len(elements)), elements] = scale[elements]
    probes = rng.choice([-1.0, 1.0], (PROBES if x.size > ALL else 0, x.size)) * scale
    s = slopes(f, x, np.concatenate([alone, probes]), rounding, subject.is_analytic)
    n, known = len(elements), s.is_known
    per = scale[elements]
    value, error, left, right = (a[:n].T / per for a in (s.value, s.error, s.left, s.right))
    with np.errstate(invalid="ignore"):
        tolerance = error + HALF * np.abs(value) + rounded * _size(value, f(x), per)
    far = [
        Probe(v, s.value[n + k], s.error[n + k], known[n + k], rounded)
        for k, v in enumerate(probes)
    ]
    return Point(
        subject, elements, value, tolerance, known[:n].T, s.is_kink[:n].T, left, right, far,
        seed, fine,
    )  # fmt: skip


def unmeasured(subject: Subject) -> Point:
    """A point where nothing is known: the derivative is another than that of the values."""
    outs = subject.value(subject.arrays)
    shape = sum(a.size for a in outs if a.dtype.kind == "f"), subject.vector.size
    nan, no = np.full(shape, np.nan), np.zeros(shape, bool)
    return Point(subject, range(shape[1]), nan, nan, no, no, nan, nan, (), 0)


def as_given(point: Point, value: Array) -> Point:
    """The same point with a derivative that one mode gave, for the others to be compared with."""
    known = np.isfinite(value)
    tolerance = HALF * np.abs(value) + ROUNDING * np.max(np.abs(value[known]), initial=0.0)
    return replace(point, value=value, tolerance=tolerance, known=known)


def _size(value: Array, out: Vector, per: Vector) -> Array:
    """The size of terms that cancel where a derivative is zero: the largest one's, or f/x."""
    finite = np.where(np.isfinite(value), np.abs(value), 0)
    size = np.where(np.isfinite(out), np.abs(out), 0)
    terms: Array = np.max(finite, initial=0.0) + size[:, None] / per
    return terms


def moved_away(subject: Subject, far: float, seed: int) -> Subject:
    """Another point: the example may sit on a kink, be all zeros, or meet one branch only."""
    rng = np.random.default_rng([seed, 3])
    vector = subject.vector
    scale = scales([subject.arrays[k] for k in subject.wrt])
    return subject.at(subject.moved(vector + far * scale * drawn(rng, vector.shape)))
