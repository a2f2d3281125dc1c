"""A parameter's step, prepared: what runs again while only numbers and the gradient change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np

from ...optimizer import Entry, Runner
from ...plan import Part, Plan, Ready
from ...rule import Rule


@dataclass(eq=False, slots=True)
class Prepared:
    """The plan of a rule whose keywords are all floats, for one parameter."""

    dtype: np.dtype[Any]  # of the gradient
    keywords: tuple[str, ...]
    numbers: Callable[..., Any]
    is_steady: bool  # whether the numbers follow from the keywords alone
    plan: Plan
    plans: Any  # of the rule, which has others once it is traced anew
    final: Callable[..., Any] | None  # the last part, where NumPy runs it and nothing is recorded
    _last: tuple[list[Any], Any] = ([], None)  # keywords, and the numbers that follow from them

    def is_for(self, rule: Rule[Any], g: np.ndarray[Any, Any]) -> bool:
        return g.dtype is self.dtype and rule._plans is self.plans

    def read(self, keywords: Mapping[str, Any], steps: int, seed: int) -> Any:
        """The numbers that the last part reads; ``None`` if a keyword is no float."""
        values = [keywords[name] for name in self.keywords]
        last, found = self._last
        if found is not None and all(map(is_, values, last)):
            return found
        if {*map(type, values)} - {float}:
            return None
        found = self.numbers(*values, steps + 1, seed)
        if self.is_steady:
            self._last = values, found
        return found

    def __call__(self, e: Entry, seed: int, known: dict[Any, Any]) -> Ready | None:
        """All but the last part of a step; ``None`` if more than numbers is different now.

        `known` are the numbers that other parameters of the step had, which may be the same.
        """
        values = tuple([e.values[name] for name in self.keywords])
        if not self.is_for(e.rule, e.g) or any(type(v) is not float for v in values):
            return None
        key = self.plan, values, e.steps
        if (numbers := known.get(key)) is None:
            numbers = known[key] = self.numbers(*values, e.steps + 1, seed)
        return Ready(Part(self.plan, e.name, (e.w, e.g, *e.slots), e.identity, ()), numbers, ())


def prepared(e: Entry, runner: Runner, numpys: bool) -> Prepared | None:
    """What can run again: one stage, nothing shared, floats for keywords.

    `numpys` says that the last part was run by NumPy.
    """
    keywords = {name: e.values.get(name) for name in e.rule.hyperparams}
    if any(type(value) is not float for value in keywords.values()):
        return None
    arrays = e.w, e.g, *e.slots
    plan = e.rule.part(e.name, arrays, keywords, (), e.identity, 1, 0, runner.meta).plan
    if len(plan.stages) > 1 or plan.shared:
        return None
    numbers = plan.stages[0].numbers
    run = runner.numbers(numbers) if numbers.outputs else _nothing
    *_, step, seed = numbers.inputs
    is_steady = not (numbers.reads(step) or numbers.reads(seed))
    final = runner.run(plan.final) if numpys and not plan.final.records else None
    return Prepared(e.g.dtype, tuple(keywords), run, is_steady, plan, e.rule._plans, final)


def _nothing(*numbers: Any) -> tuple[()]:
    return ()
