"""Where the numbers of a param group come from, and how they are shown to torch's schedulers.

A param group shows every hyperparameter as a plain number, as torch's schedulers and checkpoints
expect. Schedules and `gw.per_param` are kept here: a step writes the number that it uses into the
group (of `per_param`, that of the group's first parameter). Whoever writes another number into the
group takes over: it holds for all the group's parameters from then on.
"""

import difflib
import warnings
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import numpy as np
from torch import Tensor

from ...equation import Given, PerParam, Required
from ...errors import SignatureError
from ...optimizer import number
from ...rule import Rule
from ...schedules import Schedule

# What torch's schedulers call the hyperparameters of the equations.
ALIASES = {"betas": ("b1", "b2"), "momentum": ("mu",)}
# What torch, its schedulers and its users note in a group, which is no keyword of the rule.
NOTES = (
    "params param_names name differentiable initial_lr max_lr min_lr max_momentum base_momentum"
).split()

# What else torch's own optimizers have in their groups, or its schedulers read or write there.
_TORCHS = (
    "lr betas momentum eps weight_decay dampening nesterov maximize foreach capturable fused "
    "amsgrad alpha centered rho etas step_sizes lambd t0 lr_decay swa_lr swa_momentum base_lr "
    "last_lr decoupled_weight_decay ns_steps adjust_lr_fn lr_scale"
).split()

_FOREIGN = frozenset([*NOTES, *ALIASES, *_TORCHS])

Options = MutableMapping[str, Any]  # a param group of torch


@dataclass(eq=False)
class Group:
    """What belongs to a param group of one rule, beside its numbers."""

    rule: Rule[Any]
    positions: list[int]  # of its parameters, in the order they were given
    identities: list[int]  # of their noise
    sources: dict[str, Any]  # of the hyperparameters that are no plain number
    initials: Mapping[str, Any]  # of slots, where the group has its own
    shown: dict[str, Any] = field(default_factory=dict)  # what we last wrote into the param group
    _seen: list[Any] = field(default_factory=list)  # keys and values, as a step left them

    def driven(self) -> list[str]:
        """The hyperparameters that change by themselves."""
        return [k for k, v in self.sources.items() if isinstance(v, (Schedule, PerParam))]

    def follow_and_show(self, options: Options, count: int) -> None:
        """Read the numbers of the param group, and write those of this count."""
        if not self.driven() and same(self._seen, [*options, *options.values()]):
            return  # as the last step left it
        self.follow(options)
        self.show(options, count)
        self._seen = [*options, *options.values()]

    def check(self, options: Options) -> None:
        """Raise where a key is a keyword of the rule, misspelt; notes of others may be there."""
        known = self.rule.hyperparams
        for key in options.keys() - known.keys() - _FOREIGN:
            if close := difflib.get_close_matches(key, known, 1, 0.75):
                raise SignatureError(
                    f"a param group has {key!r}, which {self.rule.name} does not read",
                    f"{close[0]}, if that is meant",
                )

    def follow(self, options: Options) -> None:
        """Let the numbers win that somebody else wrote into the param group."""
        self.check(options)
        for alias, names in self._aliases(options):
            if alias in self.shown and _differs(options[alias], self.shown[alias]):
                values = options[alias] if len(names) > 1 else [options[alias]]
                options.update(zip(names, values, strict=True))
        for name in self.driven():
            if name in self.shown and _differs(options[name], self.shown[name]):
                self.release(name)

    def release(self, name: str) -> None:
        """Let the param group's number hold, where a schedule or `gw.per_param` was."""
        if isinstance(self.sources.pop(name), PerParam):
            warnings.warn(
                f"{name} was set in the param group: one number for all its parameters, where "
                "gw.per_param gave each its own",
                stacklevel=4,
            )
        self.shown.pop(name, None)

    def names(self, options: Options) -> list[str]:
        """The names of the parameters; their positions, where they have none."""
        return options.get("param_names") or [str(position) for position in self.positions]

    def show(self, options: Options, count: int) -> None:
        """Write the numbers of this count into the param group."""
        for name in self.driven():
            source = self.sources[name]
            if isinstance(source, PerParam):
                if not self.positions:
                    continue
                source = source.function(self.names(options)[0], options["params"][0].detach())
            value = number(source(count) if isinstance(source, Schedule) else source)
            options[name] = self.shown[name] = value
        self.alias(options)

    def starts(self) -> dict[str, Any]:
        """The initial values of the slots that each parameter has."""
        return {s: self.initials.get(s, self.rule.initial(s)) for s in self.rule.own_slots}

    def alias(self, options: Options) -> None:
        """Show some hyperparameters a second time, under the names that torch knows."""
        for alias, names in self._aliases(options):
            values = tuple(options[name] for name in names)
            options[alias] = self.shown[alias] = values if len(names) > 1 else values[0]

    def _aliases(self, options: Options) -> Iterator[tuple[str, tuple[str, ...]]]:
        for alias, names in ALIASES.items():
            if alias not in self.rule.hyperparams and all(name in options for name in names):
                yield alias, names

    def settle(self, options: Options, driven: Sequence[str]) -> None:
        """Take the numbers of a param group that was loaded as they are."""
        for name in self.driven():
            if name not in driven:
                del self.sources[name]
        self.shown = {name: options[name] for name in self.driven() if name in options}
        self.alias(options)


def same(xs: Sequence[Any], ys: Sequence[Any]) -> bool:
    return len(xs) == len(ys) and all(map(is_, xs, ys))


def _differs(a: Any, b: Any) -> bool:
    return a is not b and bool(a != b)


def _is_plain(value: Any) -> bool:
    """Whether a value may stand in a param group, and in a file that holds data only."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, Tensor))


def split(rule: Rule[Any], own: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The hyperparameters of a group: plain numbers, and the sources of the others."""
    plain, sources = {}, {}  # type: dict[str, Any], dict[str, Any]
    for name, default in rule.hyperparams.items():
        value = own.get(name, default)
        value = value.item() if isinstance(value, np.generic) else value
        if not isinstance(value, (Given, Required)):
            (plain if _is_plain(value) else sources)[name] = value
    return plain, sources


def check_required(rule: Rule[Any], own: Mapping[str, Any]) -> None:
    """Raise where a keyword without default was given neither by a group nor for all."""
    for name, default in rule.hyperparams.items():
        if isinstance(own.get(name, default), Required):
            raise SignatureError(
                f"{rule.name} has no value for {name}", f"{name}=… when the optimizer is made"
            )
