"""Optimizers of TensorFlow variables, in graphs of TensorFlow 1, in `tf.function` and eagerly."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Never

import numpy as np
import tensorflow as tf

from ...equation import PerParam, Shared
from ...errors import GradwrightError, SignatureError, StateError
from ...op import is_eager
from ...optimizer import (
    Entry,
    SlotError,
    SwappedError,
    check_step,
    check_sums,
    checked_seed,
    compute,
    is_by_element,
    only_rows,
)
from ...plan import Result
from ...rule import Rule
from . import sparse
from .runner import RUNNER as RUNNER
from .runner import Now, number, tensor
from .variables import assign, first_value, name_of, operations, read, shape_only, with_gradients

v1 = tf.compat.v1
SUMMED = "gradients.sum"  # what holds it; no slot has such a name
Live = Sequence[tuple[int, Any, Any]]  # position, gradient, variable


class Optimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]  # TensorFlow ships no types
    """The optimizer of a rule for TensorFlow variables.

    A hyperparameter is a number, a tensor, a variable, a function that gives one of these, or a
    schedule of the optimizer's own count of updates. A session that assigns to such a variable in
    the same run does so before or after the update, unless `tf.control_dependencies` says which.
    Variables of one call are updated together. What repeats in a sparse gradient is summed.
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
        _check_options(self._preset)
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
        if rule.settings.accumulate > 1:
            slots.append((SUMMED, partial(first_value, 0.0, v)))
        if rule.seed is not None:
            slots.append(("identity", partial(tf.constant, self._position(v), tf.int64)))
        return slots

    def _common_values(self) -> dict[str, Any]:
        """What is kept once for all variables."""
        shared = {s: _shared_value(self._preset.initial(s)) for s in self._preset.shared_slots}
        seed = {} if self._seed is None else {"seed": np.int64(self._seed)}
        micro = {"micro": np.int64(0)} if self._preset.settings.accumulate > 1 else {}
        return {"count": np.int64(0), **micro, **seed, **shared}

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
        live = with_gradients(pairs, self._preset.settings.sparse == "lazy")
        self._check_sums(pairs)
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

    def _check_sums(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Raise where a variable has a sum of gradients, and no gradient now."""
        for g, v in pairs:
            if g is None and self.get_slot(v, SUMMED) is not None:
                raise StateError(
                    f"no gradient of {name_of(v)}, of which earlier ones are accumulated",
                    "a gradient for the same variables at every step, tf.zeros_like(v) say",
                )

    def _guarded(self, live: Live, now: Mapping[str, Any], global_step: Any) -> Any:
        """The update, unless a gradient is not finite and such a step is to be skipped."""
        update = partial(self._accumulated, live, now, global_step)
        if not self._preset.settings.skip_nonfinite:
            return update()
        gradients = [sparse.values(g) for _, g, _ in live]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
        return _if(finite, update, lambda: None)

    def _accumulated(self, live: Live, now: Mapping[str, Any], global_step: Any) -> Any:
        """One update from the mean of the last gradients, when there are enough of them."""
        if (k := self._preset.settings.accumulate) == 1:
            return self._updated(live, now, global_step)
        micro = self._common(live[0][2], "micro")
        holders = [self.get_slot(v, SUMMED) for _, _, v in live]
        pairs = zip(holders, live, strict=True)
        sums = [read(s) + tf.cast(g, s.dtype.base_dtype) for s, (_, g, _) in pairs]

        def keep(values: Sequence[Any], count: Any) -> Any:
            done = [assign(s, x) for s, x in zip(holders, values, strict=True)]
            return tf.group(*operations([*done, assign(micro, count)]))

        def enough() -> Any:
            means = [(at, s / k, v) for s, (at, _, v) in zip(sums, live, strict=True)]
            with tf.control_dependencies(operations([self._updated(means, now, global_step)])):
                return keep([tf.zeros_like(s) for s in sums], tf.constant(0, tf.int64))

        count = read(micro) + 1
        with tf.control_dependencies([*sums, count]):
            return _if(tf.equal(count, k), enough, lambda: keep(sums, count))

    def _updated(self, live: Live, now: Mapping[str, Any], global_step: Any) -> Any:
        """Compute all new values, and only then assign them."""
        common = partial(self._common, live[0][2])
        seed = None if self._seed is None else number(read(common("seed")))
        shared = {s: number(read(common(s))) for s in self._preset.shared_slots}
        numbers = Now(read(common("count")))
        known = 0, seed, shared, RUNNER
        entries = [self._entry(k, g, v, now, numbers) for k, g, v in live]
        pairs = zip(entries, live, strict=True)
        of_rows = [self._is_of_rows(e, v, known) for e, (_, _, v) in pairs]
        entries = [self._computed(*x) for x in zip(entries, live, of_rows, strict=True)]
        results, new_shared = compute(entries, *known)
        self._record(entries, results)
        fresh = {s: tensor(x) for s, x in new_shared.items()}
        with tf.control_dependencies([*(x for r in results for x in r.values), *fresh.values()]):
            changes = zip(entries, results, live, of_rows, strict=True)
            done = [op for change in changes for op in self._commit(*change)]
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

    def _is_of_rows(self, e: Entry, v: Any, known: Any) -> bool:
        """Whether only the rows of a sparse gradient are read and written."""
        is_sparse = isinstance(e.g, tf.IndexedSlices)
        # the gradient is as large as w
        return is_sparse and is_by_element(e._replace(g=e.w), *known) and v.constraint is None

    def _computed(self, e: Entry, live: Any, of_rows: bool) -> Entry:
        """What is computed for one variable: all of it, or rows."""
        g, v = live[1:]
        if not of_rows:
            return e._replace(g=sparse.dense(g, v))
        return sparse.rows_of(e, g, [v, *(self.get_slot(v, s) for s in e.rule.own_slots)])

    def _commit(self, e: Entry, result: Result, live: Any, of_rows: bool) -> list[Any]:
        """Assign the new values of one variable."""
        g, v = live[1:]
        if isinstance(g, tf.IndexedSlices) and not of_rows:
            result = only_rows(e, result, sparse.is_there(g.indices, e.w.shape), tf.where)
        write = partial(sparse.write_rows, rows=g.indices) if of_rows else assign
        w, *rest = result.values
        done = [write(v, new=w if v.constraint is None else v.constraint(w))]
        for slot, new in zip(e.rule.own_slots, rest, strict=False):
            done.append(write(self.get_slot(v, slot), new=new))
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


def _if(condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """One of two operations, chosen when the graph runs."""

    def ran(done: Callable[[], Any]) -> Any:
        with tf.control_dependencies(operations([done()])):
            return tf.constant(True)

    return tf.group(tf.cond(condition, partial(ran, then), partial(ran, other)))


def _check_options(rule: Rule[Any]) -> None:
    """Raise unless TensorFlow does all that the options say."""
    settings = rule.settings
    if settings.engine != "auto":
        raise GradwrightError(
            f"engine={settings.engine!r} for TensorFlow, which has its own compiler",
            'engine="auto"',
        )
    check_sums(rule)


def _not_yet(what: str, instead: str) -> GradwrightError:
    return GradwrightError(f"{what} is not in this version for TensorFlow", instead)
