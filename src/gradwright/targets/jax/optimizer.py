"""A rule on trees of JAX arrays: the first state, and one step."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from ... import targets
from ...equation import Given, Required, Shared
from ...errors import GradwrightError, SignatureError, StateError
from ...op import is_eager
from ...optimizer import (
    Entry,
    check_rows,
    check_step,
    check_sums,
    checked_seed,
    compute,
    only_rows,
    resolved,
)
from ...plan import Result
from ...rule import Rule
from .hyperparameters import Hyperparameters, Parameter, parameters_of
from .runner import RUNNER as RUNNER
from .runner import Number, count, number, words_of
from .sparse import dense, is_there
from .state import State, check, first_value, matched

Gradients: TypeAlias = Sequence[Any]  # None where there is none
Updated: TypeAlias = tuple[list[Array], State]  # the new parameters, and the new state


def bind(rule: Rule[Any]) -> Any:
    """The transformation class of a rule."""
    base = targets.part("jax", "transformation", "optax").Transformation
    return type(rule.name, (base,), {"rule": rule, "__doc__": rule.__doc__})


@dataclass(frozen=True)
class Known:
    """What a step knows before it computes: the parameters, the state, this step's keywords."""

    found: Sequence[Parameter]
    spec: Any
    state: State
    keywords: Hyperparameters
    rows: Sequence[Any] = ()  # that are updated, of each parameter; True for all

    @property
    def old(self) -> list[Array]:
        return [p.w for p in self.found]

    def entry(self, k: int, g: Any) -> Entry:
        p, state = self.found[k], self.state
        slots = [self.spec.flatten_up_to(state.slots[s])[k] for s in p.rule.own_slots]
        steps: Any = count(state.steps[k])
        steps = int(steps) if is_eager() else steps
        return Entry(p.rule, p.leaf.name, p.w, g, slots, k, steps, self.keywords.of(k), {})


class Update:
    """The first state of a rule for some parameters, and its steps."""

    def __init__(self, rule: Rule[Any]) -> None:
        rule.check_numbers(rule.hyperparams)
        check_sums(rule)
        self.lazy = rule.settings.sparse == "lazy"
        self.rule, self.seed = rule, checked_seed(rule, rule.seed)
        if rule.settings.engine != "auto":
            raise GradwrightError(
                f"engine={rule.settings.engine!r} for JAX, which has its own compiler",
                'engine="auto"',
            )
        for name, value in rule.hyperparams.items():
            if isinstance(value, Required):
                raise SignatureError(
                    f"{rule.name} has no value for {name}", f"{name}=… when the optimizer is made"
                )

    def _found(self, params: Any) -> tuple[list[Parameter], Any]:
        found, spec = parameters_of(self.rule, params)
        if is_eager() and any(isinstance(p.w, jax.core.Tracer) for p in found):
            raise GradwrightError(
                "a step inside gw.eager() and in a function that JAX transforms, where arrays "
                "have no values",
                "jax.disable_jit()",
            )
        return found, spec

    # --- the first state -------------------------------------------------------------------------
    def init(self, params: Any) -> State:
        """The state before the first step; of most parameters the shapes are enough."""
        found, spec = self._found(params)
        sums = self.rule.settings.accumulate > 1
        state = State(
            updates=words_of(0),
            steps=jnp.zeros((len(found), 2), jnp.uint32),
            seed=None if self.seed is None else words_of(self.seed),
            hyperparams={},
            slots={s: spec.unflatten([_slot(p, s) for p in found]) for s in _slots(found)},
            shared={s: _shared(self.rule.initial(s)) for s in self.rule.shared_slots},
            recorded={},
            summed=spec.unflatten([first_value("", 0.0, p.leaf) for p in found]) if sums else None,
            micro=jnp.int32(0) if sums else None,
        )
        first = Hyperparameters(found, spec, {}, count(state.updates), {}).first()
        records = self._first_records(found, spec, state)
        return state._replace(hyperparams=first, recorded=records)

    def _first_records(self, found: Sequence[Parameter], spec: Any, state: State) -> dict[str, Any]:
        """Zeros for what `gw.record` will give, so that the state has one structure."""
        found = [replace(p, values=_with_ones(p.values)) for p in found]
        first = Hyperparameters(found, spec, {}, count(state.updates), {}).first()
        keywords = Hyperparameters(found, spec, first, count(state.updates), {})
        known = Known(found, spec, state, keywords)
        shared = [number(x) for x in state.shared.values()]
        with suppress(GradwrightError):  # of a keyword that will be an array, say
            entries = [known.entry(k, p.w) for k, p in enumerate(known.found)]
            parts = [
                e.rule.part("", (e.w, e.g, *e.slots), resolved(e, 0), shared, 0, 1, 0, RUNNER.meta)
                for e in entries
            ]
            if any(part.plan.final.records for part in parts):
                like = jax.eval_shape(lambda: self._updated(known, known.old)[1].recorded)
                zeros: dict[str, Any] = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
                return zeros
        return {}

    # --- a step ----------------------------------------------------------------------------------
    def known(self, params: Any, state: State, now: Mapping[str, Any]) -> Known:
        found, spec = self._found(params)
        check(state, self.rule.name, len(found), _slots(found))
        check_step(self.rule, now)
        keywords = Hyperparameters(found, spec, state.hyperparams, count(state.updates), now)
        return Known(found, spec, state, keywords)

    def step(self, known: Known, grads: Any) -> Updated:
        """The new parameters and the new state; a gradient of ``None`` changes nothing."""
        leaves = [p.leaf for p in known.found]
        found = matched(grads, known.spec, "the gradients", leaves)
        known = replace(known, rows=[is_there(g) if self.lazy else True for g in found])
        gradients = [dense(g) for g in found]
        live = [g for g in gradients if g is not None]
        if not live and leaves:
            raise StateError(
                f"no gradients for any of {[leaf.shown for leaf in leaves]}",
                "parameters that the loss depends on",
            )
        if not self.rule.settings.skip_nonfinite:
            return self._accumulated(known, gradients)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in live]))
        unchanged = lambda: (known.old, known.state)
        return _either(finite, lambda: self._accumulated(known, gradients), unchanged)

    def _accumulated(self, known: Known, gradients: Gradients) -> Updated:
        """One update from the mean of the last gradients, when there are enough of them."""
        k, state, micro = self.rule.settings.accumulate, known.state, known.state.micro
        if micro is None:
            return self._updated(known, gradients)
        sums = known.spec.flatten_up_to(state.summed)
        sums = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]

        def enough() -> Updated:
            means = [None if g is None else s / k for s, g in zip(sums, gradients, strict=True)]
            new, after = self._updated(known, means)
            zeros = jax.tree.map(jnp.zeros_like, state.summed)
            return new, after._replace(summed=zeros, micro=jnp.int32(0))

        def more() -> Updated:
            summed = known.spec.unflatten(sums)
            return known.old, state._replace(summed=summed, micro=micro + 1)

        return _either(jnp.equal(micro, k - 1), enough, more)

    def _updated(self, known: Known, gradients: Gradients) -> Updated:
        state, spec = known.state, known.spec
        live = [k for k, g in enumerate(gradients) if g is not None]
        entries = [known.entry(k, gradients[k]) for k in live]
        seed: Any = None if state.seed is None else count(state.seed)
        shared: dict[str, Any] = {s: number(x) for s, x in state.shared.items()}
        if is_eager():
            seed = None if seed is None else int(seed)
            shared = {s: x.value.item() for s, x in shared.items()}
        results, new_shared = compute(entries, 0, seed, shared, RUNNER)
        results = [_of_rows(e, r, known, k) for e, r, k in zip(entries, results, live, strict=True)]
        new, steps = known.old, list(state.steps)
        slots = {s: list(spec.flatten_up_to(tree)) for s, tree in state.slots.items()}
        for k, result in zip(live, results, strict=True):
            rule = known.found[k].rule
            new[k] = jnp.asarray(result.values[0])
            for slot, value in zip(rule.own_slots, result.values[1:], strict=False):
                slots[slot][k] = jnp.asarray(value)
            steps[k] = (count(steps[k]) + 1).words()
        return new, state._replace(
            updates=(count(state.updates) + 1).words(),
            steps=jnp.stack(steps),
            hyperparams=known.keywords.stored(),
            slots={s: spec.unflatten(leaves) for s, leaves in slots.items()},
            shared={s: _like(x, state.shared[s]) for s, x in new_shared.items()},
            recorded=_records(known, live, results),
        )


def _of_rows(e: Entry, result: Result, known: Known, k: int) -> Result:
    """A result in which the other rows than those of the gradient are as they were."""
    rows = known.rows[k] if known.rows else True
    if rows is True:
        return result
    check_rows(e)
    return only_rows(e, result, rows, jnp.where)


def _with_ones(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords, with numbers for those that arrive at every step."""
    return {name: 1.0 if isinstance(value, Given) else value for name, value in values.items()}


def _slots(found: Sequence[Parameter]) -> list[str]:
    return list(dict.fromkeys(s for p in found for s in p.rule.own_slots))


def _slot(p: Parameter, slot: str) -> Array | None:
    """A slot's first value for one parameter; ``None`` where its rule has no such slot."""
    has = slot in p.rule.own_slots
    return first_value(slot, p.rule.initial(slot), p.leaf) if has else None


def _shared(value: Any) -> Array:
    return jnp.asarray(float(value.initial if isinstance(value, Shared) else value))


def _like(x: Any, old: Array) -> Array:
    """A new value of a shared slot, as the state holds it."""
    return jnp.asarray(x.value if isinstance(x, Number) else x, old.dtype)


def _records(known: Known, live: Sequence[int], results: Sequence[Result]) -> dict[str, Any]:
    """The last value of each `gw.record`, in the structure of the parameters."""
    found: dict[str, list[Any]] = {}
    for k, r in zip(live, results, strict=True):
        last = r.values[len(r.values) - len(r.records) :]
        for name, value in zip(r.records, last, strict=True):
            found.setdefault(name, [None] * len(known.found))[k] = jnp.asarray(value)
    return {name: known.spec.unflatten(leaves) for name, leaves in found.items()}


def _either(condition: Array, then: Callable[[], Updated], other: Callable[[], Updated]) -> Updated:
    """One of two, chosen now where the condition is known."""
    if isinstance(condition, jax.core.Tracer):
        chosen: Updated = jax.lax.cond(condition, then, other)
        return chosen
    return then() if condition else other()
