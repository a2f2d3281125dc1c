"""The parameters of a torch optimizer: groups, names, and what is known of each."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ... import tree
from ...compose import Partition
from ...errors import StateError
from ...optimizer import check_group, checked_seed
from ...rule import Rule
from .groups import NOTES, Group, Options, check_required, split
from .parameters import apart, by_rule, check, in_order, named


class Parameter(NamedTuple):
    """One tensor that is optimized, and what belongs to it."""

    w: Tensor
    name: str
    position: int
    identity: int
    group: Group
    options: Options


class Collection(torch.optim.Optimizer):
    """The parameters of an optimizer, in groups of one rule each."""

    rule: Rule[Any]
    _again: Any = None  # how the next steps are one call; never copied: it has these tensors
    _OWN = "_preset _seed steps _groups _labels _named _shared _micro _swapped _recorded _single"

    def __init__(self, params: Any, /, **keywords: Any) -> None:
        preset = self._preset = self.rule.preset(keywords)
        preset.check_numbers(preset.hyperparams)
        self._seed = checked_seed(preset, preset.seed)
        self.steps = 0
        self._groups: list[Group] = []
        self._labels: list[str] = []  # of every parameter, by position
        self._named = False
        self._shared = {s: preset.initial(s).initial for s in preset.shared_slots}
        self._micro = 0
        self._swapped: str | None = None
        self._recorded: dict[str, dict[int, Any]] = {}
        self._single = isinstance(params, Tensor)
        super().__init__(in_order(params), _defaults(preset))

    # --- parameters ---
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with keywords of their own: one param group for each rule among them."""
        known = self._preset.hyperparams
        own = {k: v for k, v in param_group.items() if k in known or k not in NOTES}
        check_group(self._preset, own)
        notes = {k: v for k, v in param_group.items() if k not in own}
        names, tensors = named(notes.pop("params"))
        names = notes.pop("param_names", names)
        labels = self._labelled(names, len(tensors))
        parts = by_rule(self._preset, names, len(tensors))
        self._check(tensors, labels)
        first = len(self._labels)
        self._again = None
        self._labels, self._named = [*self._labels, *labels], names is not None
        for rule, members in parts:
            options = {**notes, "params": [tensors[k] for k in members]}
            if names is not None:
                options["param_names"] = [names[k] for k in members]
            self._add(rule, [first + k for k in members], options, own)

    def _check(self, tensors: Sequence[Any], labels: Sequence[str]) -> None:
        for w, label in zip(tensors, labels, strict=True):
            check(w, label)
        apart(((p.name, p.w) for p in self._parameters()), zip(labels, tensors, strict=True))

    def _add(self, rule: Rule[Any], positions: list[int], options: Any, keywords: Any) -> None:
        own = self._preset.given_to(rule, keywords)
        check_required(rule, own)
        plain, sources = split(rule, own)
        initials = {k: v for k, v in own.items() if k in rule.slots}
        group = Group(rule, positions, list(positions), sources, initials)
        super().add_param_group({**options, **plain})
        self._groups.append(group)
        group.show(self.param_groups[-1], self.steps)

    def _labelled(self, names: Sequence[str] | None, count: int) -> list[str]:
        """What tells parameters apart: names; with the group's number where names repeat."""
        if self._labels and self._named != (names is not None):
            raise StateError("some groups have names and some have none", "names in all groups")
        first, at = len(self._labels), len(self._groups)
        if names is None:
            return [str(first + k) for k in range(count)]
        labels = [f"{at}.{name}" if name in self._labels else name for name in names]
        for name in labels:
            if labels.count(name) > 1 or name in self._labels:
                raise StateError(f"two parameters are named {name}", "a name for each")
        return labels

    def _parameters(self) -> Iterator[Parameter]:
        for group, options in zip(self._groups, self.param_groups, strict=True):
            columns = options["params"], group.names(options), group.positions, group.identities
            for w, name, position, identity in zip(*columns, strict=True):
                yield Parameter(w, name, position, identity, group, options)

    @property
    def _structure(self) -> Any:
        """The positions of the parameters, in the structure of `params`."""
        count = len(self._labels)
        if self._named:
            return dict(zip(self._labels, range(count), strict=True))
        return 0 if self._single and count == 1 else list(range(count))

    def _each(self, name: str, value: Any) -> dict[int, Any]:
        """A keyword's value for every position: one each where it has the structure of params."""
        is_array = isinstance(value, (Tensor, np.ndarray)) and value.ndim > 0
        if not is_array and not isinstance(value, (list, dict)):
            return dict.fromkeys(range(len(self._labels)), value)

        def mismatch(text: str) -> StateError:
            return StateError(f"{name} has {text}", "one value for each parameter")

        positions, spec = tree.flatten(self._structure)
        return dict(zip(positions, tree.flatten_like(spec, value, mismatch), strict=True))

    # --- copies ---
    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            **{name: getattr(self, name) for name in self._OWN.split()},
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> "Collection":
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return made


def _defaults(preset: Rule[Any]) -> dict[str, Any]:
    """What torch takes for a group's defaults, and where OneCycleLR looks for betas or momentum."""
    if isinstance(preset, Partition):
        return {}  # each of its rules has its own
    options, sources = split(preset, {})
    Group(preset, [], [], sources, {}).show(options, 0)
    return options
