"""Optimizers of TensorFlow variables, in graphs of TensorFlow 1, in `tf.function` and eagerly."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from ... import emit
from ...equation import PerParam, Shared, initial
from ...errors import GradwrightError, SignatureError, StateError
from ...op import Meta, Op, is_eager, number_meta
from ...optimizer import Entry, Runner, checked_seed, compute
from ...plan import Result
from ...rule import Rule
from ...schedules import Schedule
from ...signature import is_number
from ...trace import Tracer, lift, trace
from . import SPELLING, compiled

v1 = tf.compat.v1
_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


# --- how tensors run the parts of a plan ---------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Scalar:
    """A number that is known when the graph runs: an int64, a float64 or a bool without dimensions.

    It is no array of the rule's, whatever its dtype: it is as weak as a Python number.
    """

    tensor: Any

    @property
    def meta(self) -> Meta:
        return Meta((), {"int64": "int", "float64": "float"}.get(self.tensor.dtype.name, "bool"))


def _number(x: Any) -> Any:
    """A tensor or a variable as a number of a rule; inside gw.eager(), its value."""
    if is_eager():
        return np.asarray(x).item()
    x = tf.convert_to_tensor(x)
    if x.shape.rank != 0:
        raise SignatureError(f"a hyperparameter of shape {x.shape}", "a tensor without dimensions")
    wide = tf.float64 if x.dtype.is_floating else tf.bool if x.dtype == tf.bool else tf.int64
    return Scalar(tf.cast(x, wide))


def _tensor(x: Any) -> Any:
    if isinstance(x, Scalar):
        return x.tensor
    if is_number(x):
        return tf.constant(x, {"int": tf.int64, "float": tf.float64}.get(number_meta(x).dtype))
    return tf.convert_to_tensor(x)


def _meta(value: Any) -> Meta:
    if isinstance(value, Scalar):
        return value.meta
    if is_number(value):
        return number_meta(value)
    x = tf.convert_to_tensor(value)
    if x.shape.rank is None:
        raise SignatureError("a tensor of unknown rank", "x.set_shape([None, …]) before the call")
    return Meta(tuple(x.shape), x.dtype.name)


def _on_tensors(program: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: program(*map(_tensor, xs))


def _view(w: Any) -> Any:
    """The values of a tensor; NaN where a graph has none yet."""
    x = tf.convert_to_tensor(w)
    if hasattr(x, "numpy") and tf.executing_eagerly():
        return x.numpy()
    if not x.shape.is_fully_defined():
        raise SignatureError("a first step on a tensor of unknown shape", "the slots, after w and g")
    return _shape_only(x)


RUNNER = Runner(
    meta=_meta,
    run=lambda graph: _on_tensors(compiled.program(graph)),
    numbers=lambda graph: _on_tensors(emit.program(graph, "numbers", SPELLING)),
    add=lambda a, b: a + b,
    view=_view,
    like=lambda a, w: tf.constant(a),
)


# --- variables -----------------------------------------------------------------------------------
def _name_of(v: Any) -> str:
    return str(v.name).partition(":")[0]


def _is_resource(v: Any) -> bool:
    return bool(v.dtype == v.dtype.base_dtype)  # the other kind has float32_ref


def _read(v: Any) -> Any:
    """The value of a variable as of now, which no later assignment changes."""
    return v.read_value() if _is_resource(v) else tf.raw_ops.DeepCopy(x=v)


def _assign(v: Any, value: Any) -> Any:
    if not _is_resource(v):
        return v1.assign(v, value).op
    return v.assign(value, read_value=False)


def _shape_only(v: Any) -> Any:
    """An array of NaN as large as a variable, which takes no memory."""
    return np.broadcast_to(np.array(np.nan, v.dtype.base_dtype.as_numpy_dtype), tuple(v.shape))


def _variable(v: Any) -> Any:
    if not isinstance(v, tf.Variable) or v.dtype.base_dtype not in _FLOATS:
        what = getattr(v, "dtype", None)
        raise StateError(f"{v!r} is optimized, a {type(v).__name__} of {what}", "a float tf.Variable")
    if not v.shape.is_fully_defined():
        raise StateError(f"the variable {v.name} has the shape {v.shape}", "one that is known")
    return v


def _dense(g: Any, v: Any) -> Any:
    """A gradient as a tensor like its variable; rows of a sparse one that repeat are summed."""
    if isinstance(g, tf.IndexedSlices):
        g = tf.math.unsorted_segment_sum(g.values, g.indices, v.shape[0])
    g = tf.convert_to_tensor(g)
    if not g.shape.is_compatible_with(v.shape) or not g.dtype.is_floating:
        raise StateError(
            f"the gradient of {_name_of(v)} is {g.dtype.name}{g.shape}, the variable {v.shape}",
            "the gradient of this variable, or None",
        )
    return g if g.shape.is_fully_defined() else tf.ensure_shape(g, v.shape)


def _first(value: Any, v: Any) -> Any:
    """The first value of a slot."""
    if not callable(value):
        return tf.fill(v.shape, tf.constant(value, v.dtype.base_dtype))
    if v1.executing_eagerly_outside_functions():
        return tf.constant(initial(value, v.numpy()))
    return tf.convert_to_tensor(Op(value)(tf.ensure_shape(_start(v), v.shape)))


def _start(v: Any) -> Any:
    """The value of a graph's variable, also while it is being initialized."""
    if _is_resource(v):
        known = v1.is_variable_initialized(v)
        return tf.cond(known, v.read_value, lambda: v.initial_value)
    if v1.control_flow_v2_enabled():
        raise GradwrightError(
            f"a slot starts from {_name_of(v)}, a reference variable, which the control flow of "
            "TensorFlow 2 cannot initialize",
            "use_resource=True, or tf.compat.v1.disable_control_flow_v2()",
        )
    return v.read_value()  # TensorFlow itself waits for it to be initialized


# --- the optimizer -------------------------------------------------------------------------------
class _Now:
    """The numbers of one step, each made once for all variables that read it."""

    def __init__(self, count: Any) -> None:
        self.count = count
        self._made: dict[int, tuple[Any, Any]] = {}  # with what it was made from, which keeps the id

    def value(self, raw: Any, default: Any) -> Any:
        """A keyword's value: a Python number, a `Scalar`, a tensor, or what is static."""
        if isinstance(raw, (tf.Tensor, tf.Variable, Schedule)) or _is_thunk(raw, default):
            if id(raw) not in self._made:
                self._made[id(raw)] = raw, self._make(raw)
            return self._made[id(raw)][1]
        return raw

    def _make(self, raw: Any) -> Any:
        if isinstance(raw, Schedule):
            return _scheduled(raw, self.count)
        x = raw() if callable(raw) else raw
        if is_number(x):
            return x
        x = tf.convert_to_tensor(x)
        return _number(x) if x.shape.rank == 0 else x


def _is_thunk(raw: Any, default: Any) -> bool:
    """Whether a keyword is a function that gives its value, as TensorFlow's optimizers allow."""
    return callable(raw) and not callable(default)


def _scheduled(schedule: Schedule, count: Any) -> Any:
    """A schedule's value at a count: by NumPy where there is a number, else as operations."""
    if tf.executing_eagerly():
        return float(schedule(int(count)))
    graph = trace(lambda g: [_traced(schedule, Tracer(g, g.input("count", (), "int")))], "schedule")
    return Scalar(tf.cast(emit.program(graph, "schedule", SPELLING)(count)[0], tf.float64))


def _traced(schedule: Schedule, count: Tracer) -> Tracer:
    return lift(count.graph, schedule(count))


class Optimizer(v1.train.Optimizer):  # type: ignore[misc]
    """The optimizer of a rule for TensorFlow variables.

    A hyperparameter is a number, a tensor, a variable, a function that gives one of these, or a
    schedule of the optimizer's own count of updates. All variables of a call are updated together.
    Sparse gradients are made dense, duplicates summed.
    """

    rule: Rule[Any]

    def __init__(self, *, use_locking: bool = False, name: str | None = None, **keywords: Any):
        super().__init__(use_locking, name or self.rule.name)
        self._preset = self.rule.preset(keywords)
        self._seed = checked_seed(self._preset, self._preset.seed)
        if self._preset.settings.accumulate > 1:
            raise _not_yet("accumulate", "gradients that were averaged before")
        self._seen: list[Any] = []
        self._recorded: dict[str, dict[str, Any]] = {}

    # --- state ---
    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for v in var_list:
            for slot, value in self._first_values(v):
                if self.get_slot(v, slot) is None:
                    self._get_or_make_slot(v, value(), slot, f"{self._name}/{slot}")
        for name in self._common_values:
            self._common(var_list[0], name)

    def _first_values(self, v: Any) -> list[tuple[str, Callable[[], Any]]]:
        rule, identity = self._rule_of(v), self._identity(v)
        slots = [(s, partial(_first, rule.initial(s), v)) for s in rule.own_slots]
        if _has_clock(rule):
            slots.append(("step", partial(tf.constant, 0, tf.int64)))
        if rule.seed is not None:
            slots.append(("identity", partial(tf.constant, identity, tf.int64)))
        return slots

    @property
    def _common_values(self) -> dict[str, Any]:
        """What is kept once, and its first value."""
        shared = {s: _shared_value(self._preset.initial(s)) for s in self._preset.shared_slots}
        seed = {} if self._seed is None else {"seed": np.int64(self._seed)}
        return {"count": np.int64(0), **seed, **shared}

    def _common(self, v: Any, name: str) -> Any:
        """A variable of the optimizer's own, in the graph of one that it updates."""
        value = self._common_values[name]
        return self._create_non_slot_variable(value, f"{self._name}_{name}", v)

    def _rule_of(self, v: Any) -> Rule[Any]:
        return self._preset.assign(_name_of(v))

    def _identity(self, v: Any) -> int:
        """The position of a variable among those that this optimizer saw in its graph."""
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
        self._preset.check_names(now)
        live = _checked(pairs)
        self._seen += [v for _, v in pairs if not any(v is w for w in self._seen)]
        with tf.init_scope():
            self._create_slots([v for _, _, v in live])
        with tf.name_scope(name or self._name):
            done = self._guarded(live, now, global_step)
        if tf.executing_eagerly():
            return None
        v1.add_to_collection(v1.GraphKeys.TRAIN_OP, done)
        return done

    def _guarded(self, live: Sequence[Any], now: Mapping[str, Any], global_step: Any) -> Any:
        """The update, unless a gradient is not finite and the rule is to skip such a step."""
        if not self._preset.settings.skip_nonfinite:
            return self._updated(live, now, global_step)
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for _, g, _ in live])

        def update() -> Any:
            with tf.control_dependencies(_operations([self._updated(live, now, global_step)])):
                return tf.constant(True)

        return tf.group(tf.cond(finite, update, lambda: tf.constant(False)))

    def _updated(self, live: Sequence[Any], now: Mapping[str, Any], global_step: Any) -> Any:
        """Compute all new values, then assign them."""
        anchor = live[0][2]
        count = _read(self._common(anchor, "count"))
        seed = None if self._seed is None else _number(_read(self._common(anchor, "seed")))
        shared = {s: _number(_read(self._common(anchor, s))) for s in self._preset.shared_slots}
        numbers = _Now(count)
        entries = [self._entry(k, g, v, now, numbers) for k, g, v in live]
        results, new_shared = compute(entries, count, seed, shared, RUNNER)
        values = [x for r in results for x in r.values] + [_tensor(x) for x in new_shared.values()]
        with tf.control_dependencies(values):
            done = [op for e, r in zip(live, results, strict=True) for op in self._commit(e[2], r)]
            done += [_assign(self._common(anchor, s), _tensor(x)) for s, x in new_shared.items()]
            done.append(v1.assign_add(self._common(anchor, "count"), 1))
        with tf.control_dependencies(_operations(done)):
            done += [] if global_step is None else [v1.assign_add(global_step, 1)]
        self._record(entries, results)
        return tf.group(*_operations(done))

    def _entry(self, k: int, g: Any, v: Any, now: Mapping[str, Any], numbers: _Now) -> Entry:
        rule, name = self._rule_of(v), _name_of(v)
        values = {}
        for keyword, default in rule.hyperparams.items():
            raw = now.get(keyword, default)
            raw = raw[k] if isinstance(raw, (list, tuple)) else raw
            raw = raw.function(name, _shape_only(v)) if isinstance(raw, PerParam) else raw
            values[keyword] = numbers.value(raw, self.rule.hyperparams.get(keyword))
        slots = [_read(self.get_slot(v, s)) for s in rule.own_slots]
        identity, steps = self._counter(v, "identity"), self._counter(v, "step")
        return Entry(rule, name, _read(v), g, slots, identity, steps, {}, values)

    def _counter(self, v: Any, name: str) -> Any:
        slot = self.get_slot(v, name)
        if slot is None:
            return 0
        return int(slot) if is_eager() else _read(slot)

    def _commit(self, v: Any, result: Result) -> list[Any]:
        slots = self._rule_of(v).own_slots
        w, *rest = result.values
        w = w if v.constraint is None else v.constraint(w)
        done = [_assign(v, w)]
        done += [_assign(self.get_slot(v, s), x) for s, x in zip(slots, rest, strict=False)]
        if (steps := self.get_slot(v, "step")) is not None:
            done.append(v1.assign_add(steps, 1))
        return done

    # --- looking at it ---
    def _record(self, entries: Sequence[Entry], results: Sequence[Result]) -> None:
        if not tf.executing_eagerly() and v1.get_default_graph().building_function:
            return  # these tensors mean nothing outside of the function
        self._recorded = {}
        for e, r in zip(entries, results, strict=True):
            for name, value in zip(r.records, r.values[len(r.values) - len(r.records) :], strict=True):
                self._recorded.setdefault(name, {})[e.name] = value

    @property
    def recorded(self) -> dict[str, dict[str, Any]]:
        """The last value of each `gw.record` by variable: in a graph, the tensor to fetch."""
        return self._recorded

    @property
    def steps(self) -> Any:
        """How many updates there were: a number, in a graph a tensor."""
        if not self._seen:
            return 0
        count = self._common(self._seen[-1], "count")
        return int(count) if tf.executing_eagerly() else _read(count)


def bind(rule: Rule[Any]) -> type[Optimizer]:
    """The optimizer class of a rule."""
    return type(rule.name, (Optimizer,), {"rule": rule, "__doc__": rule.__doc__})


def _has_clock(rule: Rule[Any]) -> bool:
    """Whether a rule reads the count of its parameter's updates."""
    return rule.seed is not None or any(e.step is not None for e in rule.equations)


def _shared_value(value: Any) -> Any:
    return np.float64(value.initial if isinstance(value, Shared) else value)


def _operations(done: Iterable[Any]) -> list[Any]:
    """Operations and tensors of a graph; nothing is left of them in eager mode."""
    return [getattr(x, "op", x) for x in done if x is not None and not tf.executing_eagerly()]


def _checked(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[int, Any, Any]]:
    """The position, the dense gradient and the variable of each pair that has a gradient."""
    live = [(k, _dense(g, _variable(v)), v) for k, (g, v) in enumerate(pairs) if g is not None]
    if not live:
        raise StateError(
            f"no gradients for any of {[_name_of(v) for _, v in pairs]}",
            "variables that the loss depends on",
        )
    if tf.distribute.has_strategy() and tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise _not_yet("a tf.distribute.Strategy of several replicas", "one replica")
    if is_eager() and not tf.executing_eagerly():
        raise GradwrightError(
            "a step inside gw.eager() and in a graph, where tensors have no values",
            "tf.config.run_functions_eagerly(True)",
        )
    return live


def _not_yet(what: str, instead: str) -> GradwrightError:
    return GradwrightError(f"{what} is not in this version for TensorFlow", instead)
