"""Optimizers of Keras: a rule as a `keras.optimizers.Optimizer`, on the backend's own arrays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np

from ...errors import GradwrightError, SignatureError, StateError
from ...optimizer import (
    Entry,
    SlotError,
    SwappedError,
    check_rows,
    check_shapes,
    check_step,
    check_sums,
    checked_seed,
    compute,
)
from ...plan import Result
from ...rule import Rule
from ...schedules import Schedule
from . import saved
from .state import Keywords, State, on
from .values import Now, select

REGISTERED = "gradwright>Optimizer"  # the name of the class in a saved model
_SETTINGS = (
    "name weight_decay clipnorm clipvalue global_clipnorm use_ema ema_momentum "
    "ema_overwrite_frequency loss_scale_factor gradient_accumulation_steps"
).split()
Changes = list[tuple[Any, Any]]  # variables, and their new values


class RateError(StateError, AttributeError):
    """No learning rate, or none that can be set."""


@keras.saving.register_keras_serializable("gradwright", "Optimizer")
class Optimizer(keras.optimizers.Optimizer):  # type: ignore[misc]  # Keras ships no types
    """The optimizer of a rule for Keras variables, and for TensorFlow's.

    A hyperparameter is a number, a schedule, or a function that gives a number; numbers are
    variables in `hyperparams`, and ``lr`` is Keras' `learning_rate`. ``name`` and Keras' own
    settings (``clipnorm``, ``use_ema``, …) are keywords, too, where the rule has none of that name.
    What repeats in a sparse gradient is summed. A step that fails changes nothing.
    """

    rule: Rule[Any]

    def __init__(self, **keywords: Any) -> None:
        known = self.rule.known
        settings = {k: v for k, v in keywords.items() if k in _SETTINGS and k not in known}
        preset = self.rule.preset({k: v for k, v in keywords.items() if k not in settings})
        seed = checked_seed(preset, preset.seed)
        names = Keywords(preset)
        settings = _accumulating(_checked(preset), {"name": preset.name, **settings})
        rate = names.rate
        super().__init__(learning_rate=0.0 if rate is None else rate, **settings)
        self._state = State(self, preset, names, seed)

    def build(self, variables: Sequence[Any]) -> None:
        """Make the variables of the optimizer, for all variables of the model."""
        if self.built:
            return
        with on.making():
            super().build(variables)
            self._state.build(variables)

    # --- stepping ---
    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], **now: Any) -> Any:
        """Update every variable whose gradient is not ``None``; a keyword holds for this step."""
        grads, variables = zip(*grads_and_vars, strict=True)
        self.apply(grads, variables, **now)
        return self._iterations

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None, **now: Any
    ) -> None:
        """Update every variable whose gradient is not ``None``; a keyword holds for this step."""
        state = self._state
        if state.swapped is not None:
            raise SwappedError(state.swapped)
        check_step(state.preset, now)
        if not len(grads):
            return
        found = self._filter_empty_gradients(grads, self._given(grads, trainable_variables))
        gradients, variables = self._overwrite_variables_directly_with_gradients(*found)
        live = [self._get_variable_index(v) for v in variables]
        if len(set(live)) < len(live):
            names = [on.name(v) for v in variables]
            raise StateError(f"a variable twice among {names}", "the sum of its gradients, once")
        strategy = getattr(self, "_distribution_strategy", None)
        on.update(strategy, partial(self._step, live, now), gradients, state.variables[0].variable)

    # AutoGraph reads this attribute and leaves the methods alone: converting them takes seconds
    apply.__dict__["autograph_info__"] = apply_gradients.__dict__["autograph_info__"] = {}

    def _given(self, grads: Sequence[Any], variables: Sequence[Any] | None) -> Sequence[Any]:
        """The variables of the gradients; the first time, the optimizer is built for them."""
        if variables is not None:
            self.build(list(variables))
            self._check_variables_are_known(variables)
            return variables
        known = self._trainable_variables
        if not self.built or len(grads) != len(known):
            raise StateError(
                f"{len(grads)} gradients without variables, for an optimizer of {len(known)}",
                "apply(grads, variables), or build(variables) before",
            )
        return known  # type: ignore[no-any-return]  # Keras ships no types

    def _step(self, live: Sequence[int], now: Mapping[str, Any], gradients: Sequence[Any]) -> None:
        """Compute all new values, and only then assign them."""
        mine = [self._state.variables[k] for k in live]
        rows = [self._rows(g, of.variable) for g, of in zip(gradients, mine, strict=True)]
        gradients = [on.gradient(g, of.variable) for g, of in zip(gradients, mine, strict=True)]
        if self.loss_scale_factor is not None:
            gradients = [g / self.loss_scale_factor for g in gradients]
        is_good = self._is_good(gradients)
        if is_good is False:
            return
        gradients, is_last, changes = self._accumulated(live, gradients)
        if is_last is not False:
            new = self._changes(live, gradients, rows, now)
            changes += [(v, select(is_last, x, v)) for v, x in new]
        changes.append((self._iterations, on.read(self._iterations) + 1))
        for v, x in [(v, select(is_good, x, v)) for v, x in changes]:
            self.assign(v, x)

    def _rows(self, g: Any, v: Any) -> Any:
        """Which rows are updated; ``True`` for all."""
        return on.rows(g, v) if self._state.preset.settings.sparse == "lazy" else True

    def _is_good(self, gradients: Sequence[Any]) -> Any:
        """Whether a step is not to be skipped."""
        if not self._state.preset.settings.skip_nonfinite:
            return True
        finite = [keras.ops.all(keras.ops.isfinite(g)) for g in gradients]
        return on.decide(keras.ops.all(keras.ops.stack(finite)))

    def _accumulated(
        self, live: Sequence[int], gradients: Sequence[Any]
    ) -> tuple[Sequence[Any], Any, Changes]:
        """The mean of the gradients, whether it is complete, and the sums that go on."""
        k = self.gradient_accumulation_steps
        if not k:
            return gradients, True, []
        holders = [self._accumulated_gradients[i] for i in live]
        sums = [on.read(a) + g for a, g in zip(holders, gradients, strict=True)]
        is_last = on.decide(keras.ops.equal((on.read(self._iterations) + 1) % k, 0))
        rest = [
            (a, select(is_last, keras.ops.zeros_like(s), s))
            for a, s in zip(holders, sums, strict=True)
        ]
        return [s / k for s in sums], is_last, rest

    def _changes(
        self,
        live: Sequence[int],
        gradients: Sequence[Any],
        rows: Sequence[Any],
        now: Mapping[str, Any],
    ) -> Changes:
        """New values of everything that an update changes."""
        state, runner = self._state, on.runner()
        gradients = self._clip_gradients(gradients)
        steps = [0] * len(state.variables) if state.updates is None else on.counts(state.updates)
        seed = None if state.seed is None else on.seed(state.seed)
        shared = {s: on.number(on.read(v)) for s, v in state.shared.items()}
        values = Now(self, now)
        entries = [
            self._entry(k, g, steps[k], values) for k, g in zip(live, gradients, strict=True)
        ]
        results, new_shared = compute(entries, 0, seed, shared, runner)
        for e, result in zip(entries, results, strict=True):
            check_shapes(e.name, e.rule, [e.w, *e.slots], result)
        self._record(entries, results)
        changes = [(state.shared[s], on.tensor(x)) for s, x in new_shared.items()]
        if state.updates is not None:
            moved = np.isin(np.arange(len(state.variables)), live).astype(on.COUNT)
            changes.append((state.updates, on.read(state.updates) + on.tensor(moved)))
        ws: dict[int, Any] = {}
        for k, e, result, mine in zip(live, entries, results, rows, strict=True):
            if mine is not True:
                check_rows(e)
            of = state.variables[k]
            w, *rest = result.values
            w = select(mine, w, of.variable)
            constraint = getattr(of.variable, "constraint", None)
            ws[k] = w if constraint is None else constraint(w)
            kept = zip(of.slots.values(), rest, strict=False)
            changes += [(slot, select(mine, x, slot)) for slot, x in kept]
        averages = self._averages(ws)
        return [*changes, *averages, *((state.variables[k].variable, w) for k, w in ws.items())]

    def _entry(self, k: int, g: Any, steps: Any, values: "Now") -> Entry:
        of = self._state.variables[k]
        w = on.read(of.variable)
        if self.weight_decay is not None and self._use_weight_decay(of.variable):
            w = w - w * keras.ops.cast(self.weight_decay * self.learning_rate, w.dtype)
        slots = [on.read(s) for s in of.slots.values()]
        return Entry(of.rule, of.name, w, g, slots, k, steps, {}, values.of(of))

    def _averages(self, ws: dict[int, Any]) -> Changes:
        """Keras' own average of the weights, of those that a constraint has seen."""
        if not self.use_ema:
            return []
        count = on.read(self._iterations) // (self.gradient_accumulation_steps or 1)
        changes = []
        is_over = False
        if self.ema_overwrite_frequency:
            is_over = on.decide(keras.ops.equal((count + 1) % self.ema_overwrite_frequency, 0))
        for k, (of, holder) in enumerate(
            zip(self._state.variables, self._model_variables_moving_average, strict=True)
        ):
            if holder is None:
                continue
            w = ws.get(k, on.read(of.variable))
            kept = keras.ops.where(keras.ops.equal(count, 0), 0.0, self.ema_momentum)
            kept = keras.ops.cast(kept, w.dtype)
            average = kept * keras.ops.cast(on.read(holder), w.dtype) + (1 - kept) * w
            changes.append((holder, average))
            if is_over is not False:
                ws[k] = select(is_over, average, w)
        return changes

    # --- the learning rate ---
    def _get_current_learning_rate(self) -> Any:
        if isinstance(self._learning_rate, Schedule):
            return self._scheduled(self._learning_rate)
        return super()._get_current_learning_rate()

    def _scheduled(self, schedule: Schedule) -> Any:
        return on.scheduled(schedule, keras.ops.cast(self.iterations, on.COUNT))

    @property
    def learning_rate(self) -> Any:
        """The rule's ``lr``: a variable, or a schedule's value."""
        self._check_rate()
        return self._get_current_learning_rate()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self._check_rate()
        if isinstance(self._learning_rate, Schedule):
            raise RateError(
                f"the learning rate of {self.name} is {self._learning_rate}, and cannot be set",
                "lr=0.1 when the optimizer is made",
            )
        keras.optimizers.Optimizer.learning_rate.fset(self, value)

    def _check_rate(self) -> None:
        if self._state.keywords.rate is None:
            raise RateError(
                f"{self.name} has no hyperparameter lr that all variables share",
                f"optimizer.hyperparams, which has {', '.join(self.hyperparams) or 'none'}",
            )

    # --- looking at it ---
    @property
    def hyperparams(self) -> dict[str, Any]:
        """The hyperparameters: variables, which may be assigned to, and what is fixed."""
        rate = {} if self._state.keywords.rate is None else {"lr": self._learning_rate}
        return {**rate, **self._state.hyperparams}

    @property
    def slots(self) -> dict[str, list[Any]]:
        """The slots as variables, in the order of the model's; ``None`` where one has none."""
        names = dict.fromkeys(s for of in self._state.variables for s in of.slots)
        return {s: [of.slots.get(s) for of in self._state.variables] for s in names}

    @property
    def steps(self) -> int:
        """How many updates there were."""
        return int(keras.ops.convert_to_numpy(self.iterations))

    @property
    def recorded(self) -> dict[str, dict[str, Any]]:
        """The last value of each `gw.record` by variable, of steps that ran eagerly."""
        return self._state.recorded

    def _record(self, entries: Sequence[Entry], results: Sequence[Result]) -> None:
        self._state.recorded = {}
        for e, r in zip(entries, results, strict=True) if on.is_concrete(entries) else ():
            last = r.values[len(r.values) - len(r.records) :]
            for name, x in zip(r.records, last, strict=True):
                self._state.recorded.setdefault(name, {})[e.name] = x

    @contextmanager
    def swapped(self, slot: str) -> Iterator[None]:
        """Inside, the variables hold a slot's values (an average, say); after it, their own."""
        state = self._state
        if slot not in state.preset.own_slots:
            raise SlotError(slot, state.preset)
        holders = [of for of in state.variables if slot in of.slots]
        kept = [on.array(of.variable).copy() for of in holders]
        for of in holders:
            self.assign(of.variable, on.read(of.slots[slot]))
        before, state.swapped = state.swapped, slot
        try:
            yield
        finally:
            for of, own in zip(holders, kept, strict=True):
                self.assign(of.variable, own)
            state.swapped = before

    # --- saving ---
    def get_config(self) -> dict[str, Any]:
        """The rule by its equations' import paths, what was set of it, and Keras' settings."""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        return {**settings, "rule": saved.config_of(self._state.current(self._learning_rate))}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> "Optimizer":
        """An optimizer of the same rule, whose module was imported."""
        settings = dict(config)
        return bind(saved.rule_of(settings.pop("rule")))(**settings)

    def save_own_variables(self, store: Any) -> None:
        """Keras' form, and the rule's name."""
        super().save_own_variables(store)
        store["rule"] = np.frombuffer(self._state.preset.name.encode(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        """Load what the same rule saved, for variables in the same order."""
        keys = set(store.keys())
        name = bytes(np.asarray(store["rule"])).decode() if "rule" in keys else "another"
        count = len(keys - {"rule"})
        if name != self._state.preset.name or count != len(self.variables):
            raise StateError(
                f"the state of {name} ({count} variables) for the rule "
                f"{self._state.preset.name} ({len(self.variables)} variables)",
                "an optimizer of the same rule, built for the same variables",
            )
        for k, v in enumerate(self.variables):
            v.assign(store[str(k)])


def _checked(preset: Rule[Any]) -> Rule[Any]:
    """The rule, if Keras can do all that its options say."""
    settings = preset.settings
    able = replace(settings, engine="auto")
    if settings != able:
        raise GradwrightError(
            f"{preset.name}.keras with {settings}: not in this version for Keras",
            "engine='auto'",
        )
    check_sums(preset)
    return preset


def _accumulating(preset: Rule[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, with the rule's own option accumulate as Keras has it."""
    k, theirs = preset.settings.accumulate, settings.get("gradient_accumulation_steps")
    if k > 1 and theirs not in (None, k):
        raise SignatureError(
            f"accumulate={k} beside gradient_accumulation_steps={theirs}", "one of them"
        )
    return {**settings, "gradient_accumulation_steps": k} if k > 1 else settings


def _unwrapped(xs: Iterable[Any]) -> Iterator[Any]:
    return (on.read(x) if isinstance(x, keras.Variable) else x for x in xs)


# One step of a rule called on Keras variables: it computes on their values.
RUNNER = replace(
    on.RUNNER,
    meta=lambda x: on.RUNNER.meta(*_unwrapped([x])),
    run=lambda graph: lambda *xs: on.RUNNER.run(graph)(*_unwrapped(xs)),
    view=lambda x: on.RUNNER.view(*_unwrapped([x])),
    like=lambda a, w: on.RUNNER.like(a, *_unwrapped([w])),
)


def bind(rule: Rule[Any]) -> type[Optimizer]:
    """The optimizer class of a rule."""
    # Keras saves a class that it does not know by its name, and finds the one that it knows
    made = type(REGISTERED, (Optimizer,), {"rule": rule, "__doc__": rule.__doc__})
    made.__qualname__ = rule.name
    return made
