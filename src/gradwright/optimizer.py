"""A step of a rule over many parameters, the same for every target.

What differs by target (its arrays, how they are written, groups, checkpoints) is in its own
package; what a step *is* is here: the value of every keyword, both clocks, which rule a parameter
belongs to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import targets
from .equation import Given, PerParam, Required, Shared, initial
from .errors import SignatureError
from .op import Meta, is_eager
from .philox import MAX_SEED
from .plan import Part, Result, Run, advance
from .rng import Rng
from .rule import Rule, TotalNeeded, _collected, _totals
from .schedules import Schedule


@dataclass(frozen=True)
class Runner:
    """How a target runs the parts of a plan."""

    meta: Callable[[Any], Meta]
    run: Run  # a graph on the target's arrays
    numbers: Run  # a graph of numbers
    add: Callable[[Any, Any], Any]  # two summands of a total
    view: Callable[[Any], np.ndarray[Any, Any]]  # an array as NumPy's, to start slots from
    like: Callable[[np.ndarray[Any, Any], Any], Any]  # a NumPy array as the target's, beside w


@dataclass(frozen=True)
class Entry:
    """What one parameter brings to a step: its arrays, its clock, its group's keywords."""

    rule: Rule[Any]
    name: str
    w: Any
    g: Any
    slots: Sequence[Any]  # its own
    identity: int
    steps: int  # updates it has had
    values: Mapping[str, Any]  # keywords of its group
    now: Mapping[str, Any]  # keywords of this step


def checked_seed(rule: Rule[Any], seed: Any) -> Any:
    """The seed of an optimizer, or `None` if its rule draws nothing."""
    if isinstance(seed, Required):
        raise SignatureError(f"{rule.name} draws random numbers and has no seed", "rng=0")
    if seed is not None and not (isinstance(seed, (int, np.integer)) and 0 <= seed < MAX_SEED):
        raise SignatureError(f"rng={seed!r}", f"an integer seed from 0 to {MAX_SEED - 1}")
    return None if seed is None else int(seed)


def resolved(entry: Entry, count: int) -> dict[str, Any]:
    """This step's value of every keyword for one parameter."""
    found = {}
    for name, default in entry.rule.hyperparams.items():
        value = entry.now.get(name, entry.values.get(name, default))
        if isinstance(value, PerParam):
            value = value.function(entry.name, entry.w)
        if isinstance(value, Schedule):
            value = value(count)
        if isinstance(value, Given):
            raise SignatureError(
                f"{entry.rule.name}: {name} arrives at every step, and did not",
                f"optimizer.step(…, {name}=…)",
            )
        if isinstance(value, Required):
            raise SignatureError(
                f"{entry.rule.name} has no value for {name}", f"{name}=… when the optimizer is made"
            )
        # a 0-d array is a number
        found[name] = (
            value.item()
            if isinstance(value, (np.ndarray, np.generic)) and not value.ndim
            else value
        )
    return found


def compute(
    entries: Sequence[Entry],
    count: int,
    seed: int | None,
    shared: Mapping[str, float],
    runner: Runner,
) -> tuple[list[Result], dict[str, float]]:
    """The new values of all parameters, and of the shared slots; nothing is written.

    Parameters of one rule are computed together, since it may sum over them.
    """
    if is_eager():
        return _compute_plainly(entries, count, seed, shared)
    results: list[Any] = [None] * len(entries)
    new_shared = dict(shared)
    for rule in {id(e.rule): e.rule for e in entries}.values():
        mine = [k for k, e in enumerate(entries) if e.rule is rule]
        parts = [_part(entries[k], count, seed, shared, runner) for k in mine]
        got = advance(parts, runner.run, runner.numbers, runner.add, rule.name)
        for k, result in zip(mine, got, strict=True):
            results[k] = result
        new_shared |= _agreed(rule, [r.shared for r in got])
    return results, new_shared


def _part(
    e: Entry, count: int, seed: int | None, shared: Mapping[str, float], runner: Runner
) -> Part:
    return e.rule.part(
        e.name,
        (e.w, e.g, *e.slots),
        resolved(e, count),
        [shared[s] for s in e.rule.shared_slots],
        e.identity,
        e.steps + 1,
        seed or 0,
        runner.meta,
    )


def _agreed(rule: Rule[Any], values: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The new values of the shared slots, which must be the same by every parameter's numbers."""
    for slot, column in zip(rule.shared_slots, zip(*values, strict=True), strict=True):
        if any(isinstance(v, float) and v != column[0] and v == v for v in column):
            raise SignatureError(
                f"the shared slot {slot} of {rule.name} would differ by parameter: "
                f"{sorted(set(map(float, column)))[:3]}",
                "the same hyperparameters for all parameters, where a shared slot depends on them",
            )
    return dict(zip(rule.shared_slots, values[0], strict=True))


def _compute_plainly(
    entries: Sequence[Entry], count: int, seed: int | None, shared: Mapping[str, float]
) -> tuple[list[Result], dict[str, float]]:
    """The same by running the user's functions themselves on NumPy arrays, for print and pdb.

    A sum over all parameters needs every parameter's part: the functions run up to it, and then
    once more with the total.
    """
    totals: list[Any] = []
    while True:
        summands, results = [], []
        new_shared = dict(shared)
        for e in entries:
            try:
                result = _plain(e, count, seed, shared, iter(totals))
            except TotalNeeded as needed:
                summands.append(needed.summand)
                continue
            results.append(result)
            new_shared |= _agreed(e.rule, [result.shared])
        if not summands:
            return results, new_shared
        totals.append(sum(summands))


def _plain(
    e: Entry, count: int, seed: int | None, shared: Mapping[str, float], totals: Any
) -> Result:
    w, g, *slots = (np.asarray(a) for a in (e.w, e.g, *e.slots))
    records: dict[str, Any] = {}
    tokens = _collected.set(records), _totals.set(totals)
    try:
        named = dict(zip(e.rule.own_slots, slots, strict=True)) | {
            s: shared[s] for s in e.rule.shared_slots
        }
        rng = Rng(w, e.steps + 1, e.identity, seed or 0)
        state, new = e.rule.compute({"w": w, "g": g}, named, resolved(e, count), e.steps + 1, rng)
    finally:
        _collected.reset(tokens[0])
        _totals.reset(tokens[1])
    own = [
        np.broadcast_to(np.asarray(new[s], old.dtype), old.shape)
        for s, old in zip(e.rule.own_slots, slots, strict=True)
    ]
    values = (np.asarray(state["w"], w.dtype), *own, *records.values())
    return Result(values, tuple(new[s] for s in e.rule.shared_slots), tuple(records))


def one_step(rule: Rule[Any], arrays: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """``rule(w, g, *slots, **keywords)``: the new w, or (w, *slots), in the arrays' framework."""
    first = rule.equations[0]
    names = [*first.takes, *rule.own_slots]
    if (
        len(arrays) > len(names)
        or len(arrays) < len(first.takes)
        or any(isinstance(a, (bool, int, float)) for a in arrays)
    ):
        raise SignatureError(
            f"{rule.name} was called with {len(arrays)} positional values",
            f"keywords for a preset, {rule.name}(lr=…); arrays for one step, "
            f"{rule.name}({', '.join(names)})",
        )
    rule.check_names(keywords)
    runner = targets.runner(arrays, rule.name)
    bound = dict(zip(names, arrays, strict=False))
    w = bound.get("w", bound.get("g"))
    slots = [
        bound[s] if s in bound else runner.like(initial(rule.initial(s), runner.view(w)), w)
        for s in rule.own_slots
    ]
    shared = {s: _number(rule.initial(s)) for s in rule.shared_slots}
    seed = checked_seed(rule, keywords.get("rng", rule.seed))
    entry = Entry(rule, "w", w, bound.get("g", w), slots, 0, 0, {}, keywords)
    (result,), new_shared = compute([entry], 0, seed, shared, runner)
    values = [*result.values[: 1 + len(slots)], *new_shared.values()]
    return values[0] if len(values) == 1 else tuple(values)


def _number(value: Any) -> float:
    return value.initial if isinstance(value, Shared) else float(value)
