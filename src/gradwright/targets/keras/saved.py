"""A rule as plain data: its equations by their import paths, and what was set of them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import keras
import numpy as np

from ... import schedules
from ...compose import Partition
from ...equation import Equation, Shared, read
from ...errors import SignatureError, StateError
from ...rule import DEFAULT, Options, Rule
from ...schedules import Schedule
from .paths import at, path_of

_SCHEDULE = keras.optimizers.schedules.LearningRateSchedule
_PLAIN = (bool, int, float, str, type(None))


# --- rules -------------------------------------------------------------------------------------
def config_of(rule: Rule[Any]) -> dict[str, Any]:
    """A rule as data."""
    if isinstance(rule, Partition):
        return {"partition": {pattern: config_of(r) for pattern, r in rule.rules.items()}}
    settings = {f.name: getattr(rule.settings, f.name) for f in fields(Options)}
    changed = {k: v for k, v in settings.items() if v != getattr(DEFAULT, k)}
    return {"equations": [_equation(e) for e in rule.equations], "options": changed}


def rule_of(config: Mapping[str, Any]) -> Rule[Any]:
    """The rule that `config_of` gave."""
    if "partition" in config:
        return Partition({pattern: rule_of(c) for pattern, c in config["partition"].items()})
    return Rule([_rebuilt(c) for c in config["equations"]], Options(**config["options"]))


def _equation(e: Equation) -> dict[str, Any]:
    path = path_of(e.function, f"the rule {e.name}", lambda found: _has(found, e.function))
    base = _base(path)
    names = [k for k, v in e.keywords.items() if k in e.set_here or v is not base.keywords[k]]
    slots = [k for k, v in e.slots.items() if v is not base.slots[k]]
    changed = {k: e.keywords[k] for k in names} | {k: e.slots[k] for k in slots}
    if e.rng is not base.rng:
        changed["rng"] = e.rng
    domain = None if e.domain is None else e.domain.text
    values = {k: _saved(v, f"{k} of the rule {e.name}") for k, v in changed.items()}
    return {"path": path, "values": values, "domain": domain}


def _rebuilt(config: Mapping[str, Any]) -> Equation:
    values = {k: _loaded(v) for k, v in config["values"].items()}
    equation = _base(config["path"]).preset(values)
    return equation.with_domain(config["domain"]) if config["domain"] else equation


def _has(found: Any, function: Any) -> bool:
    if isinstance(found, Rule):
        return any(e.function is function for e in found.equations)
    return found is function


def _base(path: str) -> Equation:
    """The equation as it was written."""
    found = at(path, "rule")
    if isinstance(found, Rule):
        name = path.rpartition(".")[2].rpartition(":")[2]
        return next(e for e in found.equations if e.name == name)
    return read(found)


# --- values ------------------------------------------------------------------------------------
def _saved(value: Any, what: str) -> Any:
    """A value as data that Keras writes."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Shared):
        return value.initial
    if isinstance(value, (list, tuple)):
        return [_saved(v, what) for v in value]
    if isinstance(value, Schedule):
        return {"schedule": _checked(value, what)}
    if isinstance(value, _SCHEDULE):
        return {"keras": keras.saving.serialize_keras_object(value)}
    raise StateError(
        f"{what} cannot be saved: it is {value!r}",
        "a number, a schedule of gw.schedules, or the value in the rule's own signature",
    )


def _loaded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_loaded, value))
    if isinstance(value, Mapping) and "schedule" in value:
        return schedules.parse(value["schedule"])
    if isinstance(value, Mapping):
        return keras.saving.deserialize_keras_object(value["keras"])
    return value


def _checked(schedule: Schedule, what: str) -> str:
    """The text of a schedule that can be read again."""
    try:
        schedules.parse(schedule.text)
    except SignatureError:
        raise StateError(
            f"{what} cannot be saved: it is {schedule.text}, a function",
            "a schedule that gw.schedules has: linear, cosine, exponential, piecewise",
        ) from None
    return schedule.text
