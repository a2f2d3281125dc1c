"""A rule's equation in float64, and what an optimizer of it is given."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..equation import Shared, initial
from ..errors import GradwrightError
from ..graph import Graph
from ..op import eager
from ..optimizer import Entry, compute
from ..rule import Rule
from ..targets.numpy.optimizer import RUNNER
from .differences import Array
from .machines import MACHINES, Gradients, Machine, Make

SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (4,), (3, 4), ())
MATRICES: tuple[tuple[int, ...], ...] = ((3, 4), (4, 3), (3, 4))
STEPS = {"quick": 12, "normal": 40, "thorough": 200}
STEP_ROUNDING = 2.0**-23  # of the parameter, once a step
UPDATE_ROUNDING = 2.0**-17  # of an update: normals are within 2e-6, √ and ÷ within less
SEED = 11  # of the rule's noise


class Reference:
    """The user's functions, run by NumPy on float64 arrays, one parameter after the other."""

    def __init__(self, rule: Rule[Any], ws: Sequence[Array], keywords: Mapping[str, Any]) -> None:
        self.rule = rule.preset({k: v for k, v in keywords.items() if k != "rng"})
        self.seed = keywords.get("rng", SEED) if rule.seed is not None else None
        self.ws = [w.astype(np.float64) for w in ws]
        self.rules = [self.rule.assign(str(k)) for k in range(len(ws))]
        self.slots = [
            [np.array(initial(r.initial(s), w)) for s in r.own_slots]
            for r, w in zip(self.rules, self.ws, strict=True)
        ]
        shared = {s: r.initial(s) for r in self.rules for s in r.shared_slots}
        self.shared = {s: v.initial if isinstance(v, Shared) else v for s, v in shared.items()}
        self.steps = [0] * len(ws)
        self.count = 0

    def step(self, gradients: Gradients, clock: Callable[[int], int] = lambda t: t) -> None:
        """One step; `clock` may count otherwise, to see whether that is the fault."""
        live = [k for k, g in enumerate(gradients) if g is not None]
        entries = []
        for k in live:
            g = gradients[k]
            assert g is not None
            steps = clock(self.steps[k] + 1) - 1
            w, wide = self.ws[k], g.astype(np.float64)
            entry = Entry(self.rules[k], str(k), w, wide, self.slots[k], k, steps, {}, {})
            entries.append(entry)
        with eager(), np.errstate(all="ignore"):
            results, self.shared = compute(entries, self.count, self.seed, self.shared, RUNNER)
        for k, result in zip(live, results, strict=True):
            w, *rest = result.values
            self.ws[k], self.slots[k] = w, list(rest[: len(self.slots[k])])
            self.steps[k] += 1
        self.count += 1


@dataclass
class Trial:
    """One optimizer to be checked: how it is made, and what it is given."""

    rule: Rule[Any]
    framework: str
    make: Make
    keywords: Mapping[str, Any]
    effort: str
    seed: int

    @cached_property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Of the parameters: some rules are for matrices only."""
        try:
            self.rule.assign("0").example_plan(1)
            self.rule.assign("0").example_plan(0)
        except (GradwrightError, ValueError):
            return MATRICES
        return SHAPES

    @property
    def weights(self) -> list[Array]:
        """Starts inside the domain, of several shapes; two are equal, so noise must tell them."""
        low, high = self.bounds
        rng = np.random.default_rng(self.seed)
        return [np.asarray(rng.uniform(low, high, s), np.float32) for s in self.shapes]

    @property
    def bounds(self) -> tuple[float, float]:
        """Within which parameters start: half of the domain, or ±1."""
        found = interval(self.rule, self.keywords)
        if found is None:
            return -1.0, 1.0
        low, high = (max(-3.0, min(3.0, x)) for x in found[:2])
        return 0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high

    def gradients(self, steps: int, scale: float = 1.0) -> Iterator[list[Array]]:
        """Of sizes from 1e-6 to 1: eps is seen where they are small."""
        rng = np.random.default_rng([self.seed, 1])
        for _ in range(steps):
            sizes = [10.0 ** rng.uniform(-6, 0, s) for s in self.shapes]
            yield [np.asarray(scale * s * rng.normal(size=s.shape), np.float32) for s in sizes]

    def machine(
        self, arrays: Sequence[Array] | None = None, other: Mapping[str, Any] | None = None
    ) -> Machine:
        """A new optimizer, with other keywords where they are given."""
        started = self.weights if arrays is None else arrays
        return MACHINES[self.framework](self.make, started, {**self.keywords, **(other or {})})

    @property
    def graph(self) -> Graph:
        """The rule, traced for a matrix."""
        return self.rule.assign("0").example_plan(2).graph

    @property
    def sums_over_all(self) -> bool:
        """Whether a parameter's update depends on other parameters."""
        return bool(self.rule.shared_slots) or any(n.prim == "global_sum" for n in self.graph.nodes)

    @property
    def number(self) -> str | None:
        """A hyperparameter that is a number, and not 0."""
        found = self.rule.hyperparams.items()
        return next((name for name, x in found if isinstance(x, float) and x), None)

    @property
    def steps(self) -> int:
        return STEPS[self.effort]


def interval(rule: Rule[Any], keywords: Mapping[str, Any]) -> tuple[float, float, Any] | None:
    """The ends of a rule's domain, as numbers."""
    domains = [e.domain for e in rule.equations if e.domain is not None]
    if not domains:
        return None
    known = {**rule.hyperparams, **keywords}
    domain = domains[-1]
    ends = [known.get(x, x) if isinstance(x, str) else x for x in (domain.low, domain.high)]
    if not all(isinstance(x, (int, float)) for x in ends):
        return None
    return float(ends[0]), float(ends[1]), domain
