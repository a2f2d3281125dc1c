"""The saved state of a torch optimizer: what is added to torch's form, and whose it is.

torch keeps ``{"state": {index: {slot: tensor}}, "param_groups": [...]}`` and matches by position.
Counters, seed and names are plain numbers and text in the param groups, under one key: torch would
cast tensors of the state to the parameter's dtype.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import StateError
from ...rule import Rule

MARKS = "gradwright"  # the key in a saved param group
STEP = "step"  # the key of a parameter's count of updates, which torch does not cast
SUMMED = "summed gradients"  # no slot can have this name


def marks_of(groups: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What we noted in the param groups of a saved state."""
    found = [group.get(MARKS) for group in groups]
    if not found or None in found:
        raise StateError(
            "the state is no gradwright optimizer's", "a state that opt.state_dict() gave"
        )
    return [marks for marks in found if marks is not None]


def check_rules(marks: Sequence[Mapping[str, Any]], rules: Sequence[Rule[Any]]) -> None:
    saved, here = [m["rule"] for m in marks], [r.name for r in rules]
    if saved != here:
        raise StateError(
            f"the state of {', '.join(saved)} for {', '.join(here)}",
            "an optimizer of the same rule, with the same groups",
        )


class Saved:
    """The saved state of every parameter, by name, or by position where there are no names."""

    def __init__(self, state: Mapping[str, Any], named: bool) -> None:
        self.marks = marks_of(state["param_groups"])
        self.named = named and all(m["names"] is not None for m in self.marks)
        self.states: dict[Any, Mapping[str, Any]] = {}
        self.identities: dict[Any, int] = {}
        for group, marks in zip(state["param_groups"], self.marks, strict=True):
            for k, index in enumerate(group["params"]):
                key = marks["names"][k] if self.named else len(self.states)
                self.states[key] = state["state"].get(index, {})
                self.identities[key] = marks["identities"][k]

    def check(self, keys: Sequence[Any]) -> None:
        """Raise unless it is the state of these parameters."""
        missing = [str(k) for k in keys if k not in self.states]
        extra = [str(k) for k in self.states if k not in keys]
        parts = [f"nothing for {', '.join(missing)}"] * bool(missing)
        parts += [f"{', '.join(extra)}, which is not here"] * bool(extra)
        if parts:
            raise StateError(f"the state has {' and '.join(parts)}", "the same parameters")


def check_slots(name: str, saved: Mapping[str, Any], wanted: Mapping[str, Tensor | None]) -> None:
    """Raise unless a parameter's saved slots are those of its rule; ``None`` fits every tensor."""
    slots = {k: v for k, v in saved.items() if k not in (STEP, SUMMED)}
    if STEP in saved and set(slots) != set(wanted):
        raise StateError(
            f"the state has the slots {sorted(slots)} for {name}, here it has {sorted(wanted)}",
            "an optimizer of the same rule",
        )
    for slot, value in slots.items():
        like = wanted[slot]
        if like is not None and (like.shape, like.dtype) != (value.shape, value.dtype):
            raise StateError(
                f"the state has {slot} of {name} as {value.dtype}{tuple(value.shape)}, here it is "
                f"{like.dtype}{tuple(like.shape)}",
                "the same parameters",
            )


def restored(saved: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """A parameter's state with tensors of its own, in the dtypes that were saved."""
    return {
        k: v.detach().to(device, copy=True) if isinstance(v, Tensor) else v
        for k, v in saved.items()
    }
