"""Optimizers of TensorFlow variables, in graphs of TensorFlow 1, in `tf.function` and eagerly."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Never

import numpy as np
import tensorflow as tf

from ...equation import PerParam, Shared
from ...errors import GradwrightError, SignatureError
from ...op import is_eager
from ...optimizer import Entry, SlotError, SwappedError, check_step, checked_seed, compute
from ...plan import Result
from ...rule import Rule
from .runner import RUNNER as RUNNER
from .runner import Now, number, tensor
from .variables import assign, first_value, name_of, operations, read, shape_only, with_gradients

v1 = tf.compat.v1
Live = Sequence[tuple[int, Any, Any]]  # position, gradient, variable


class Optimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]  # TensorFlow ships no types
    """The optimizer of a rule for TensorFlow variables.

    A hyperparameter is a number, a tensor, a variable, a function that gives one of these, or a
    schedule of the optimizer's own count of updates. A session that assigns to such a variable in
    the same run does so before or after the update, unless `tf.control_dependencies` says which.
    Variables of one call are updated together. Sparse gradients are made dense, duplicates summed.
    """

    rule: Rule[Any]

    def __init__(
        self,
        *params: Never,
        use_locking: bool = False,
        name: str | None = None,
        **keywords: Any,
    ) -> None:
        if params:
            raise SignatureError(
                f"{self.rule.name}.tf1 was given {len(params)} positional values: optimizers of "
                "TensorFlow 1 are made without variables",
                f"{self.rule.name}.tf1(lr=…), then .minimize(loss, var_list=[…])",
            )
        super().__init__(use_locking, name or self.rule.name)
        self._preset = self.rule.preset(keywords)
        self._seed = checked_seed(self._preset, self._preset.seed)
        if self._preset.settings.accumulate > 1:
            raise _not_yet("accumulate", "gradients that are means already")
        self._seen: list[Any] = []
        self._recorded: dict[str, dict[str, Any]] = {}
        self._swapped: str | None = None

    # --- state ---
    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            for slot, value in self._first_values(v):
                if self.get_slot(v, slot) is None:
                    self._get_or_make_slot(v, value(), slot, f"{self._name}/{slot}")
        for name in self._common_values():
            self._common(var_list[0], name)

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: Any
    ) -> None:
        """Make all slots before one is restored: TensorFlow would give it the variable's dtype."""
        if tf.executing_eagerly():
            self._see([variable])
            self._create_slots([variable])
        super()._create_or_restore_slot_variable(slot_variable_position, slot_name, variable)

    def _see(self, found: Sequence[Any]) -> None:
        self._seen += [v for v in found if not any(v is w for w in self._seen)]

    def _first_values(self, v: Any) -> list[tuple[str, Callable[[], Any]]]:
        """What is kept for one variable: its slots, its clock, and who it is for the noise."""
        rule = self._rule_of(v)
        slots: list[tuple[str, Callable[[], Any]]] = [
            (s, partial(first_value, rule.initial(s), v)) for s in rule.own_slots
        ]
        if rule.has_clock:
            slots.append(("step", partial(tf.constant, 0, tf.int64)))
        if rule.seed is not None:
            slots.append(("identity", partial(tf.constant, self._position(v), tf.int64)))
        return slots

    def _common_values(self) -> dict[str, Any]:
        """What is kept once for all variables."""
        shared = {s: _shared_value(self._preset.initial(s)) for s in self._preset.shared_slots}
        seed = {} if self._seed is None else {"seed": np.int64(self._seed)}
        return {"count": np.int64(0), **seed, **shared}

    def _common(self, v: Any, name: str) -> Any:
        """One of these, in the graph of a variable that is updated."""
        value = self._common_values()[name]
        return self._create_non_slot_variable(value, f"{self._name}_{name}", v)

    def _rule_of(self, v: Any) -> Rule[Any]:
        return self._preset.assign(name_of(v))

    def _position(self, v: Any) -> int:
        """Where a variable is among those of its graph that this optimizer was given."""
        same = [w for w in self._seen if getattr(w, "graph", None) is getattr(v, "graph", None)]
        return next(k for k, w in enumerate(same) if w is v)

    # --- stepping ---
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
        **now: Any,
    ) -> Any:
        """Update every variable whose gradient is not ``None``, and return the operation.

        A keyword holds for this step: a number, or a list with one value for each pair.
        """
        pairs = list(grads_and_vars)
        self._check(now)
        live = with_gradients(pairs)
        self._see([v for _, v in pairs])
        with tf.init_scope():
            self._create_slots([v for _, _, v in live])
        with tf.name_scope(name or self._name):
            done = self._guarded(live, now, global_step)
        if tf.executing_eagerly():
            return None
        v1.add_to_collection(v1.GraphKeys.TRAIN_OP, done)
        return done

    # AutoGraph reads this attribute and leaves the method alone: converting it takes seconds
    apply_gradients.__dict__["autograph_info__"] = {}

    def _check(self, now: Mapping[str, Any]) -> None:
        if self._swapped is not None:
            raise SwappedError(self._swapped)
        check_step(self._preset, now)
        if tf.distribute.has_strategy() and tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise _not_yet("a tf.distribute.Strategy of several replicas", "one replica")
        if is_eager() and not tf.executing_eagerly():
            raise GradwrightError(
                "a step inside gw.eager() and in a graph, where tensors have no values",
                "tf.config.run_functions_eagerly(True)",
            )

    def _guarded(self, live: Live, now: Mapping[str, Any], global_step: Any) -> Any:
        """The update, unless a gradient is not finite and such a step is to be skipped."""
        update = partial(self._updated, live, now, global_step)
        if not self._preset.settings.skip_nonfinite:
            return update()
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for _, g, _ in live])

        def updated() -> Any:
            with tf.control_dependencies(operations([update()])):
                return tf.constant(True)

        return tf.group(tf.cond(finite, updated, lambda: tf.constant(False)))

    def _updated(self, live: Live, now: Mapping[str, Any], global_step: Any) -> Any:
        """Compute all new values, and only then assign them."""
        common = partial(self._common, live[0][2])
        seed = None if self._seed is None else number(read(common("seed")))
        shared = {s: number(read(common(s))) for s in self._preset.shared_slots}
        numbers = Now(read(common("count")))
        entries = [self._entry(k, g, v, now, numbers) for k, g, v in live]
        results, new_shared = compute(entries, 0, seed, shared, RUNNER)
        self._record(entries, results)
        fresh = {s: tensor(x) for s, x in new_shared.items()}
        with tf.control_dependencies([*(x for r in results for x in r.values), *fresh.values()]):
            done = [op for e, r in zip(live, results, strict=True) for op in self._commit(e[2], r)]
            done += [assign(common(s), x) for s, x in fresh.items()]
            done.append(v1.assign_add(common("count"), 1))
        with tf.control_dependencies(operations(done)):
            done += [] if global_step is None else [v1.assign_add(global_step, 1)]
        return tf.group(*operations(done))

    def _entry(self, k: int, g: Any, v: Any, now: Mapping[str, Any], numbers: Now) -> Entry:
        rule, name = self._rule_of(v), name_of(v)
        values = {}
        for keyword, default in rule.hyperparams.items():
            raw = now.get(keyword, default)
            raw = raw[k] if isinstance(raw, (list, tuple)) else raw
            raw = raw.function(name, shape_only(v)) if isinstance(raw, PerParam) else raw
            values[keyword] = numbers.value(raw, self.rule.hyperparams.get(keyword))
        slots = [read(self.get_slot(v, s)) for s in rule.own_slots]
        identity, steps = self._counter(v, "identity"), self._counter(v, "step")
        return Entry(rule, name, read(v), g, slots, identity, steps, {}, values)

    def _counter(self, v: Any, name: str) -> Any:
        slot = self.get_slot(v, name)
        if slot is None:
            return 0
        return int(slot) if is_eager() else read(slot)

    def _commit(self, v: Any, result: Result) -> list[Any]:
        w, *rest = result.values
        done = [assign(v, w if v.constraint is None else v.constraint(w))]
        for slot, value in zip(self._rule_of(v).own_slots, rest, strict=False):
            done.append(assign(self.get_slot(v, slot), value))
        if (steps := self.get_slot(v, "step")) is not None:
            done.append(v1.assign_add(steps, 1))
        return done

    # --- looking at it ---
    def _record(self, entries: Sequence[Entry], results: Sequence[Result]) -> None:
        if not tf.executing_eagerly() and v1.get_default_graph().building_function:
            return  # these tensors mean nothing outside of the function
        self._recorded = {}
        for e, r in zip(entries, results, strict=True):
            last = r.values[len(r.values) - len(r.records) :]
            for name, value in zip(r.records, last, strict=True):
                self._recorded.setdefault(name, {})[e.name] = value

    @property
    def recorded(self) -> dict[str, dict[str, Any]]:
        """The last value of each `gw.record` by variable: in a graph, the tensor to fetch."""
        return self._recorded

    @property
    def steps(self) -> Any:
        """How many updates there were: a number, or the tensor that says so."""
        if not self._seen:
            return 0
        count = self._common(self._seen[-1], "count")
        return int(count) if tf.executing_eagerly() else read(count)

    @contextmanager
    def swapped(self, slot: str) -> Iterator[None]:
        """Inside, the variables hold a slot's values (an average, say); after it, their own."""
        if not tf.executing_eagerly():
            raise _not_yet("swapped in a graph", "get_slot, and an assignment")
        holders = [v for v in self._seen if self.get_slot(v, slot) is not None]
        if slot not in self._preset.own_slots:
            raise SlotError(slot, self._preset)
        kept = [v.numpy() for v in holders]
        for v in holders:
            v.assign(self.get_slot(v, slot))
        before, self._swapped = self._swapped, slot
        try:
            yield
        finally:
            for v, own in zip(holders, kept, strict=True):
                v.assign(own)
            self._swapped = before


def bind(rule: Rule[Any]) -> type[Optimizer]:
    """The optimizer class of a rule."""
    return type(rule.name, (Optimizer,), {"rule": rule, "__doc__": rule.__doc__})


def _shared_value(value: Any) -> Any:
    return np.float64(value.initial if isinstance(value, Shared) else value)


def _not_yet(what: str, instead: str) -> GradwrightError:
    return GradwrightError(f"{what} is not in this version for TensorFlow", instead)
