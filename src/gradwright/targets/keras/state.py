"""What an optimizer of Keras keeps: hyperparameters, slots and counts as Keras variables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from ...compose import Partition
from ...equation import PerParam, Shared, initial
from ...errors import StateError
from ...precision import LOW
from ...rule import Rule
from ...schedules import Schedule
from . import backends

on = backends.optimizers()
_FLOATS = ("float16", "bfloat16", "float32", "float64")
KERAS_SCHEDULE = keras.optimizers.schedules.LearningRateSchedule


def rules_of(preset: Rule[Any]) -> Mapping[str, Rule[Any]]:
    """The rules that variables are updated by, by the pattern of their names."""
    return preset.rules if isinstance(preset, Partition) else {"": preset}


class Keywords:
    """The hyperparameters by name: one for all rules that give it one value, else one for each."""

    def __init__(self, preset: Rule[Any]) -> None:
        self.values: dict[str, Any] = {}
        self._keys: dict[tuple[int, str], str] = {}
        rules = rules_of(preset)
        for pattern, rule in rules.items():
            for name, value in rule.hyperparams.items():
                others = [r.hyperparams[name] for r in rules.values() if name in r.hyperparams]
                same = all(_is_same(value, other) for other in others)
                key = name if same else f"{pattern}.{name}"
                self.values[key] = value
                self._keys[id(rule), name] = key

    def of(self, rule: Rule[Any]) -> Iterator[tuple[str, str]]:
        """The names of a rule's hyperparameters, and the keys that they have here."""
        return ((name, self._keys[id(rule), name]) for name in rule.hyperparams)

    @property
    def rate(self) -> Any:
        """The learning rate as Keras takes it; ``None`` where there is none for all variables."""
        value = self.values.get("lr")
        if isinstance(value, (int, float, np.number)):
            return float(value)
        is_changing = isinstance(value, (Schedule, KERAS_SCHEDULE))
        is_function = callable(value) and not isinstance(value, PerParam)
        return value if is_changing or is_function else None


def _is_same(a: Any, b: Any) -> bool:
    """Whether two hyperparameters are one: also when both were read from a file."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Schedule):
        return a is b or (a.text == b.text and not a.text.startswith("of("))
    if isinstance(a, KERAS_SCHEDULE):
        return bool(a.get_config() == b.get_config())
    return a is b or (isinstance(a, (int, float)) and a == b)


class Of(NamedTuple):
    """What is kept for one variable of the model."""

    variable: Any
    name: str
    rule: Rule[Any]
    slots: dict[str, Any]
    own: dict[str, Any]  # hyperparameters that differ by parameter


class State:
    """The variables of one optimizer, beside those that Keras itself makes."""

    def __init__(self, optimizer: Any, preset: Rule[Any], keywords: Keywords, seed: Any) -> None:
        self._optimizer, self.preset, self.keywords = optimizer, preset, keywords
        self.hyperparams = {
            key: self._number(key, value) if type(value) is float else value
            for key, value in keywords.values.items()
            if key != "lr" or keywords.rate is None
        }
        self.seed = None if seed is None else self._count("seed", [seed % 2**28, seed >> 28])
        self.shared = {s: self._shared(s, preset.initial(s)) for s in preset.shared_slots}
        self.variables: list[Of] = []
        self.updates: Any = None  # how many each variable has had
        self.recorded: dict[str, dict[str, Any]] = {}
        self.swapped: str | None = None

    def build(self, variables: Sequence[Any]) -> None:
        """Make what is kept for each variable."""
        self.variables = [self._of(v) for v in variables]
        if self.preset.has_clock:
            self.updates = self._count("updates", np.zeros(len(variables), on.COUNT))

    def _of(self, v: Any) -> Of:
        name = on.name(v)
        rule = self.preset.assign(name)
        dtype = keras.backend.standardize_dtype(v.dtype)
        if dtype not in _FLOATS:
            raise StateError(f"the variable {name} is {dtype}", "real floats: float32, say")
        if rule.storage.slots and (changed := self._changed_by_keras(v)):
            raise StateError(
                f"{changed} of Keras would change {name}, and not what "
                f"precision={rule.settings.precision!r} keeps beside it",
                "gw.chain of the rule with rules.decay, rules.clamp, rules.ema, …",
            )
        shape_only = np.broadcast_to(np.float32(np.nan), tuple(v.shape))
        own = {
            k: value.function(name, shape_only)
            for k, value in rule.hyperparams.items()
            if isinstance(value, PerParam)
        }
        slots = {s: self._slot(s, rule.initial(s), v, dtype) for s in rule.own_slots}
        return Of(v, name, rule, slots, own)

    def _changed_by_keras(self, v: Any) -> str:
        """Which of Keras' own settings write a variable."""
        settings = {
            "constraint": getattr(v, "constraint", None),
            "weight_decay": self._optimizer.weight_decay,
            "ema_overwrite_frequency": self._optimizer.ema_overwrite_frequency,
        }
        return ", ".join(name for name, value in settings.items() if value is not None)

    def current(self, rate: Any) -> Rule[Any]:
        """The rule with the hyperparameters that it has now."""
        holders = {"lr": rate, **self.hyperparams}
        rules = {pattern: self._as_now(r, holders) for pattern, r in rules_of(self.preset).items()}
        return Partition(rules) if isinstance(self.preset, Partition) else rules[""]

    def _as_now(self, rule: Rule[Any], holders: Mapping[str, Any]) -> Rule[Any]:
        changed = {}
        for name, key in self.keywords.of(rule):
            v = holders[key]
            if isinstance(v, keras.Variable):
                now = on.array(v).item()
                if now != np.dtype(v.dtype).type(rule.hyperparams[name]):
                    changed[name] = now
        return rule.preset(changed)

    # --- making variables ---
    def _slot(self, name: str, value: Any, v: Any, dtype: str) -> Any:
        """A slot, in float32 at least where it starts from a number."""
        if callable(value):
            first = initial(value, on.array(v))
            return self._variable(name, first, first.dtype.name, like=v)
        dtype = "float32" if dtype in LOW else dtype
        return self._variable(name, np.full(tuple(v.shape), value, dtype), dtype, like=v)

    def _number(self, name: str, value: float) -> Any:
        return self._variable(name, value, on.NUMBER)

    def _shared(self, name: str, value: Any) -> Any:
        return self._number(name, value.initial if isinstance(value, Shared) else float(value))

    def _count(self, name: str, value: Any) -> Any:
        return self._variable(name, value, on.COUNT)

    def _variable(self, name: str, value: Any, dtype: str, like: Any = None) -> Any:
        """A variable of the optimizer's with a first value."""
        array = value if isinstance(value, np.ndarray) else np.asarray(value, dtype)

        def start(shape: Any, dtype: Any) -> Any:
            return keras.ops.convert_to_tensor(array, dtype=dtype)

        if like is not None and dtype == keras.backend.standardize_dtype(like.dtype):
            return self._optimizer.add_variable_from_reference(like, name, start)
        label = name.replace("/", "_").replace("*", "_")
        return self._optimizer.add_variable(
            array.shape, start, dtype, "only_first_replica", name=label
        )
