"""A parameter's step, prepared: what runs again while only numbers and the gradient change."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...optimizer import Entry, Runner


class Ready(NamedTuple):
    """The programs of a rule whose keywords are all floats, for one parameter."""

    dtype: np.dtype[Any]  # of the gradient
    keywords: tuple[str, ...]
    numbers: Callable[..., Any]
    final: Callable[..., Any]

    def __call__(self, e: Entry, seed: int) -> Any:
        """The new values; ``None`` if something else than numbers is different now."""
        values = [e.values[name] for name in self.keywords]
        if e.g.dtype is not self.dtype or any(type(v) is not float for v in values):
            return None
        numbers = self.numbers(*values, e.steps + 1, seed)
        return self.final(e.w, e.g, *e.slots, e.identity, *numbers)


def prepared(e: Entry, runner: Runner) -> Ready | None:
    """What can run again: one stage, nothing shared or recorded, floats for keywords."""
    keywords = {name: e.values.get(name) for name in e.rule.hyperparams}
    if any(type(value) is not float for value in keywords.values()):
        return None
    arrays = e.w, e.g, *e.slots
    plan = e.rule.part(e.name, arrays, keywords, (), e.identity, 1, 0, runner.meta).plan
    if len(plan.stages) > 1 or plan.shared or plan.final.records:
        return None
    numbers = plan.stages[0].numbers
    run = runner.numbers(numbers) if numbers.outputs else _nothing
    return Ready(e.g.dtype, tuple(keywords), run, runner.run(plan.final))


def _nothing(*numbers: Any) -> tuple[()]:
    return ()
