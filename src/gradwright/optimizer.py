"""A step of a rule over many parameters, the same for every target.

What differs by target (its arrays, how they are written, groups, checkpoints) is in its own
package; what a step *is* is here: the value of every keyword, both clocks, which rule a parameter
belongs to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import targets, tree
from .body import TotalNeeded, collected, totals_known
from .equation import Given, PerParam, Required, Shared, check_number, initial
from .errors import SignatureError, StateError, TraceError
from .graph import Graph
from .op import Meta, is_eager
from .philox import MAX_SEED
from .plan import Part, Ready, Result, Run, advance, finish
from .precision import LOW
from .rng import Rng
from .rule import Rule
from .schedules import Schedule
from .trace import Tracer, lift, trace
from .trace.tracer import graph_of


@dataclass(frozen=True)
class Runner:
    """How a target runs the parts of a plan."""

    meta: Callable[[Any], Meta]
    run: Run  # a graph on the target's arrays
    numbers: Run  # a graph of numbers
    add: Callable[[Any, Any], Any]  # two summands of a total
    view: Callable[[Any], np.ndarray[Any, Any]]  # an array as NumPy's
    like: Callable[[np.ndarray[Any, Any], Any], Any]  # a NumPy array as the target's, beside w


class Entry(NamedTuple):
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


class SwappedError(StateError, RuntimeError):
    """A step, or saving, while the parameters hold a slot's values."""

    def __init__(self, slot: str, action: str = "step") -> None:
        what = f"{action} inside swapped({slot!r}): the parameters hold the slot's values"
        super().__init__(what, f"the {action} after the with block", where=None)


class SlotError(StateError, KeyError):
    """No slot of that name."""

    __str__ = Exception.__str__  # KeyError would quote the text

    def __init__(self, slot: str, rule: Rule[Any]) -> None:
        known = ", ".join(rule.own_slots) or "none: it has no slots"
        super().__init__(f"no slot {slot!r} in {rule.name}", f"one of {known}")


def check_step(rule: Rule[Any], now: Mapping[str, Any]) -> None:
    """Raise unless every keyword of a step is a hyperparameter."""
    if not now:
        return
    rule.check_names(now)
    _refuse_state(rule, now, rule.slots, "starts when the optimizer is made, not at a step")


def check_group(rule: Rule[Any], own: Mapping[str, Any]) -> None:
    """Raise unless every keyword of a group is the rule's, and may differ by group."""
    rule.check_names(own)
    rule.check_numbers(own)
    _refuse_state(rule, own, rule.shared_slots, "is one for all groups")


def _refuse_state(
    rule: Rule[Any], keywords: Mapping[str, Any], slots: Sequence[str], why: str
) -> None:
    for name in keywords:
        if name == "rng" or name in slots:
            raise SignatureError(
                f"{rule.name}: {name} {why}", f"{name}=… when the optimizer is made"
            )


def check_shapes(name: str, rule: Rule[Any], arrays: Sequence[Any], result: Result) -> None:
    """Raise unless new values have the shapes of w and slots: sizes only the arrays can tell."""
    for what, old, new in zip(["w", *rule.own_slots], arrays, result.values, strict=False):
        if tuple(np.shape(new)) != tuple(old.shape):
            raise SignatureError(
                f"{rule.name} gives {what} of {name} the shape {tuple(np.shape(new))}, "
                f"it is {tuple(old.shape)}",
                "a value of the same shape",
            )


def summed(sums: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
    """Add gradients to sums, where ``None`` is nothing."""
    return [
        g if s is None else s if g is None else s + g for s, g in zip(sums, gradients, strict=True)
    ]


def checked_seed(rule: Rule[Any], seed: Any) -> Any:
    """The seed of an optimizer, or `None` if its rule draws nothing."""
    if isinstance(seed, Required) or (seed is None and rule.seed is not None):
        raise SignatureError(f"{rule.name} draws random numbers and has no seed", "rng=0")
    if seed is not None and not (isinstance(seed, (int, np.integer)) and 0 <= seed < MAX_SEED):
        raise SignatureError(f"rng={seed!r}", f"an integer seed from 0 to {MAX_SEED - 1}")
    return None if seed is None else int(seed)


def resolved(entry: Entry, count: int) -> dict[str, Any]:
    """This step's value of every keyword for one parameter."""
    found = {}
    for name, default in entry.rule.hyperparams.items():
        value = entry.now.get(name, entry.values.get(name, default))
        if type(value) is float:  # nothing to work out
            found[name] = value
            continue
        source = ""
        if isinstance(value, PerParam):
            source, value = f"gw.per_param for {entry.name}", value.function(entry.name, entry.w)
        if isinstance(value, Schedule):
            source, value = f"the schedule {value!r}", value(count)
        if isinstance(value, Given):
            raise SignatureError(
                f"{entry.rule.name}: {name} arrives at every step, and did not",
                f"optimizer.step(…, {name}=…)",
            )
        if isinstance(value, Required):
            raise SignatureError(
                f"{entry.rule.name} has no value for {name}", f"{name}=… when the optimizer is made"
            )
        if name in entry.rule.numbers:
            check_number(entry.rule.name, name, value, source)
        found[name] = number(value)
    entry.rule.check_domains(found)
    return found


def number(value: Any) -> Any:
    """A value, or the number that an array without dimensions holds."""
    holds_one = getattr(value, "ndim", 1) == 0 and hasattr(value, "item")
    return value.item() if holds_one else value


def schedule_graph(schedule: Schedule) -> Graph:
    """A schedule as a graph of the count, for targets that do not know the count yet."""

    def build(graph: Graph) -> list[Tracer]:
        return [lift(graph, schedule(Tracer(graph, graph.input("count", (), "int"))))]

    return trace(build, "schedule")


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
        return _compute_plainly(entries, count, seed, shared, runner)
    made, new_shared = prepare(entries, count, seed, shared, runner)
    return [finish(r, runner.run) for r in made], new_shared


def prepare(
    entries: Sequence[Entry],
    count: int,
    seed: int | None,
    shared: Mapping[str, float],
    runner: Runner,
) -> tuple[list[Ready], dict[str, float]]:
    """All of a step but its last part: sums over parameters, numbers, new shared slots."""
    if len(entries) == 1 and not shared:
        entries[0].rule.renew()
        part = _part(entries[0], count, seed, shared, runner)
        return advance([part], runner.run, runner.numbers, runner.add, entries[0].rule.name), {}
    made: list[Any] = [None] * len(entries)
    new_shared = dict(shared)
    for rule in {id(e.rule): e.rule for e in entries}.values():
        rule.renew()
        mine = [k for k, e in enumerate(entries) if e.rule is rule]
        parts = [_part(entries[k], count, seed, shared, runner) for k in mine]
        got = advance(parts, runner.run, runner.numbers, runner.add, rule.name)
        for k, ready in zip(mine, got, strict=True):
            made[k] = ready
        new_shared |= _agreed(rule, [r.shared for r in got])
    return made, new_shared


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


def is_by_element(
    e: Entry, count: int, seed: int | None, shared: Mapping[str, float], runner: Runner
) -> bool:
    """Whether rows of a parameter may be updated apart from the others, as ``sparse="lazy"`` asks.

    Otherwise all rows are computed, and those of the gradient taken.
    """
    check_rows(e)
    if is_eager():
        return False
    part = _part(e, count, seed, shared, runner)
    return part.plan.is_by_element and len(part.arrays) == 2 + len(e.slots)


def check_rows(e: Entry) -> None:
    """Raise unless every slot has the rows of its parameter."""
    for slot, array in zip(e.rule.own_slots, e.slots, strict=True):
        if tuple(array.shape) != tuple(e.w.shape):
            raise SignatureError(
                f'{e.rule.name} with sparse="lazy" leaves rows of {e.name} alone, and its slot '
                f"{slot} has the shape {tuple(array.shape)}",
                'slots of the shape of w, or sparse="dense"',
            )


def only_rows(e: Entry, result: Result, there: Any, where: Callable[..., Any]) -> Result:
    """A result in which the rows that are not `there` are as they were."""
    olds = (e.w, *e.slots)
    new = [where(there, x, old) for x, old in zip(result.values, olds, strict=False)]
    return result._replace(values=(*new, *result.values[len(olds) :]))


def check_sums(rule: Rule[Any]) -> None:
    """Raise where rows are to be left alone, and gradients are added up as dense arrays."""
    k = rule.settings.accumulate
    if k > 1 and rule.settings.sparse == "lazy":
        raise SignatureError(
            f'{rule.name} with accumulate={k} and sparse="lazy": a sum of gradients has all rows',
            'sparse="dense", or accumulate=1',
        )


def _agreed(rule: Rule[Any], values: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The new values of the shared slots, which must be the same by every parameter's numbers."""
    if not rule.shared_slots:
        return {}
    for slot, column in zip(rule.shared_slots, zip(*values, strict=True), strict=True):
        if any(isinstance(v, float) and v != column[0] and v == v for v in column):
            raise SignatureError(
                f"the shared slot {slot} of {rule.name} would differ by parameter: "
                f"{sorted(set(map(float, column)))[:3]}",
                "the same hyperparameters for all parameters, where a shared slot depends on them",
            )
    return dict(zip(rule.shared_slots, values[0], strict=True))


def _compute_plainly(
    entries: Sequence[Entry],
    count: int,
    seed: int | None,
    shared: Mapping[str, float],
    runner: Runner,
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
                result = _plain(e, count, seed, shared, runner, iter(totals))
            except TotalNeeded as needed:
                summands.append(needed.summand)
                continue
            results.append(result)
            new_shared |= _agreed(e.rule, [result.shared])
        if not summands:
            return results, new_shared
        totals.append(sum(summands))


def _seen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the user's function gets: low precision is widened, as in a trace, and nothing can be
    written through it, since a failed step changes nothing."""
    seen = array.astype(np.float32) if array.dtype.name in LOW else array.view()
    seen.flags.writeable = False
    return seen


def _stored(value: Any, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A new value in the dtype it is stored in, and in the shape if it can be."""
    x: np.ndarray[Any, Any] = np.asarray(value).astype(like.dtype)
    try:
        return np.broadcast_to(x, like.shape)
    except ValueError:
        return x  # whoever writes it compares the shapes, and says what is wrong


def _as_numpy(value: Any, runner: Runner) -> Any:
    leaves, spec = tree.flatten(value)
    return tree.unflatten(spec, [runner.view(x) if hasattr(x, "ndim") else x for x in leaves])


def _plain(
    e: Entry,
    count: int,
    seed: int | None,
    shared: Mapping[str, float],
    runner: Runner,
    totals: Any,
) -> Result:
    olds = [runner.view(a) for a in (e.w, e.g, *e.slots)]
    w, g, *slots = map(_seen, olds)
    keywords = {name: _as_numpy(value, runner) for name, value in resolved(e, count).items()}
    records: dict[str, Any] = {}
    tokens = collected.set(records), totals_known.set(totals)
    try:
        named = dict(zip(e.rule.own_slots, slots, strict=True)) | {
            s: shared[s] for s in e.rule.shared_slots
        }
        rng = Rng(w, e.steps + 1, e.identity, seed or 0)
        storage = e.rule.storage
        full = storage.read(w, *(named[s] for s in storage.slots))
        state, new = e.rule.compute({"w": full, "g": g}, named, keywords, e.steps + 1, rng)
    finally:
        collected.reset(tokens[0])
        totals_known.reset(tokens[1])
    first = state[e.rule.rewrites]
    if e.rule.rewrites == "w":
        first, *kept = _kept(e.rule, first, olds[0], keywords, rng)
        new |= zip(storage.slots, kept, strict=True)
    first = _stored(first, olds[0])
    own = [_stored(new[s], old) for s, old in zip(e.rule.own_slots, olds[2:], strict=True)]
    values = (first, *own, *records.values())
    return Result(values, tuple(new[s] for s in e.rule.shared_slots), tuple(records))


def _kept(
    rule: Rule[Any], w: Any, old: Any, keywords: Mapping[str, Any], rng: Rng
) -> list[np.ndarray[Any, Any]]:
    """w as it is stored and what is kept beside it, both in the domain."""
    dtype = old.dtype.name
    w = np.asarray(w, np.float32 if dtype in LOW else None)
    rounded = w.dtype != old.dtype
    if rounded:
        w = rule.kept(w, keywords, rounded=False)
    first, *beside = rule.storage.write(w, dtype, lambda x: _stored(x, old), rng.rounding)
    return [rule.kept(first, keywords, rounded), *beside]


def one_step(rule: Rule[Any], arrays: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """``rule(w, g, *slots, **keywords)``: the new w, or (w, *slots), in the arrays' framework."""
    rule = rule.assign("w")
    if graph_of(arrays) is not None:
        raise TraceError(
            f"the rule {rule.name} is called on traced arrays: inside an op, a rule or gw.grad",
            "gw.chain of rules; a plain function of NumPy for what an op or a rule shares with it",
        )
    names = [*rule.takes, *rule.own_slots]
    if (
        len(arrays) > len(names)
        or len(arrays) < len(rule.takes)
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
