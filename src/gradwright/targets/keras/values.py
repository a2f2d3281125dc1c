"""The values of one step: what hyperparameters are now, and which new values are taken."""

from collections.abc import Mapping
from typing import Any

import keras

from ...schedules import Schedule
from .op import value
from .state import KERAS_SCHEDULE, Of, on


class Now:
    """The hyperparameters of one step, each worked out once."""

    def __init__(self, optimizer: Any, now: Mapping[str, Any]) -> None:
        self._optimizer, self._state, self._now = optimizer, optimizer._state, now
        self._made: dict[str, Any] = {}

    def of(self, of: Of) -> dict[str, Any]:
        """The values for one variable, by the names of its rule."""
        now = self._state.preset.given_to(of.rule, self._now)
        found = {}
        for name, key in self._state.keywords.of(of.rule):
            if name in now:
                found[name] = self._value(now[name])
            elif name in of.own:
                found[name] = self._value(of.own[name])
            else:
                found[name] = self._of_all(key)
        return found

    def _of_all(self, key: str) -> Any:
        """A value that all variables of a rule have."""
        if key not in self._made:
            source, declared = self._optimizer.hyperparams[key], self._state.keywords.values[key]
            is_held = isinstance(source, keras.Variable) and isinstance(declared, (int, float))
            self._made[key] = (
                on.hyperparameter(source, float(declared)) if is_held else self._value(source)
            )
        return self._made[key]

    def _value(self, source: Any) -> Any:
        """A keyword's value as a number of the backend's, an array, or what is static."""
        if isinstance(source, Schedule):
            return self._optimizer._scheduled(source)
        if isinstance(source, KERAS_SCHEDULE):
            source = source(self._optimizer._iterations)
        elif _is_thunk(source):
            source = source()
        source = value(source)
        is_number = keras.ops.is_tensor(source) and not len(source.shape)
        return on.number(source) if is_number else source


def _is_thunk(source: Any) -> bool:
    return (
        callable(source)
        and not isinstance(source, (type, keras.Variable))
        and not keras.ops.is_tensor(source)
    )


def select(condition: Any, new: Any, v: Any) -> Any:
    """A new value where a condition holds, else what is there."""
    if condition is True:
        return new
    old = on.read(v) if isinstance(v, keras.Variable) or not keras.ops.is_tensor(v) else v
    return keras.ops.where(condition, keras.ops.cast(new, old.dtype), old)
