"""Equations in a row: what they declare together, and (w, g) threaded through them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from .domain import Domain
from .equation import Equation, Shared, check_number
from .errors import SignatureError


class Equations:
    """One update equation or several, each on what the one before gave."""

    def __init__(self, equations: Sequence[Equation]) -> None:
        self.equations = tuple(equations)

    @property
    def name(self) -> str:
        return "_".join(self._labels)

    @property
    def rewrites(self) -> str:
        """What the rule gives: w, the parameter, or g, where nothing applies it to w."""
        return "w" if any(e.rewrites == "w" for e in self.equations) else "g"

    @property
    def takes(self) -> list[str]:
        """The arrays of one step before the slots, the one that is rewritten first."""
        read = {name for e in self.equations for name in e.takes}
        return [self.rewrites, *sorted(read - {self.rewrites})]

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The user's own function (of a chain: the first that rewrites w)."""
        return next((e for e in self.equations if e.rewrites == "w"), self.equations[0]).function

    @cached_property
    def _labels(self) -> list[str]:
        """The name of each equation, told apart by a number where two are equal."""
        seen: Counter[str] = Counter()
        labels = []
        for equation in self.equations:
            seen[equation.name] += 1
            k = seen[equation.name]
            labels.append(equation.name if k == 1 else f"{equation.name}{k}")
        return labels

    @cached_property
    def _slots(self) -> dict[str, tuple[int, str]]:
        """Each slot's name in the rule, to its equation and its name there."""
        counts = Counter(slot for e in self.equations for slot in e.slots)
        return {
            slot if counts[slot] == 1 else f"{label}.{slot}": (k, slot)
            for k, (label, e) in enumerate(zip(self._labels, self.equations, strict=True))
            for slot in e.slots
        }

    @cached_property
    def _keywords(self) -> dict[str, list[tuple[int, str]]]:
        """Each hyperparameter to the equations that read it.

        One name is one hyperparameter, unless presets gave it different values.
        """
        found: dict[str, list[tuple[int, str]]] = {}
        for k, (label, e) in enumerate(zip(self._labels, self.equations, strict=True)):
            for name in e.keywords:
                found.setdefault(name if self._one_value(name) else f"{label}.{name}", []).append(
                    (k, name)
                )
        return found

    @cached_property
    def _names(self) -> dict[tuple[int, str], str]:
        """The rule's name for each slot and keyword of each equation."""
        found = {at: name for name, at in self._slots.items()}
        return found | {at: name for name, readers in self._keywords.items() for at in readers}

    def _one_value(self, name: str) -> bool:
        """Whether every equation that reads a keyword has it from the same preset, or from none."""
        having = [e for e in self.equations if name in e.keywords]
        fixed = [e.keywords[name] for e in having if name in e.set_here]
        same = all(value is fixed[0] or value == fixed[0] for value in fixed)
        return not fixed or (same and len(fixed) == len(having))

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of what the rule keeps for each parameter."""
        return tuple(self._slots)

    @cached_property
    def hyperparams(self) -> Mapping[str, Any]:
        """The hyperparameters and their defaults."""
        return MappingProxyType({name: self._default(name) for name in self._keywords})

    def _default(self, name: str) -> Any:
        k, local = self._keywords[name][0]
        return self.equations[k].keywords[local]

    def initial(self, slot: str) -> Any:
        """The initial value that a slot was declared with."""
        k, local = self._slots[slot]
        return self.equations[k].slots[local]

    @cached_property
    def own_slots(self) -> list[str]:
        """The slots that each parameter has for itself."""
        return [s for s in self.slots if not isinstance(self.initial(s), Shared)]

    @cached_property
    def shared_slots(self) -> list[str]:
        """The slots that are one number for all parameters."""
        return [s for s in self.slots if isinstance(self.initial(s), Shared)]

    @property
    def seed(self) -> Any:
        """The default seed; REQUIRED where there is none, ``None`` where nothing is drawn."""
        return next((e.rng for e in self.equations if e.rng is not None), None)

    @property
    def has_clock(self) -> bool:
        """Whether the rule reads the count of its parameter's updates."""
        return self.seed is not None or any(e.step is not None for e in self.equations)

    def check_names(self, keywords: Iterable[str]) -> None:
        """Raise unless every keyword is one of the rule's."""
        for name in keywords:
            if name not in self.known:
                raise SignatureError(
                    f"{self.name} has no keyword {name}",
                    f"one of {', '.join(sorted(self.known)) or 'none'}",
                )

    @cached_property
    def known(self) -> set[str]:
        """What may be given when an optimizer is made."""
        known = {*self._keywords, *self._slots, *(n for e in self.equations for n in e.keywords)}
        return known | ({"rng"} if self.seed is not None else set())

    @cached_property
    def numbers(self) -> frozenset[str]:
        """The hyperparameters that were declared with a number."""
        return frozenset(
            name
            for name, readers in self._keywords.items()
            if all(local in self.equations[k].numbers for k, local in readers)
        )

    def check_numbers(self, keywords: Mapping[str, Any]) -> None:
        """Raise where a number was declared, and something else is given."""
        for name in self.numbers & set(keywords):
            check_number(self.name, name, keywords[name])

    def check_domains(self, keywords: Mapping[str, Any]) -> None:
        """Raise where a domain has nothing in it by the values of a step."""
        for k, domain in self._bounded:
            domain.check(self.name, self._read_by(k, keywords))

    @cached_property
    def _bounded(self) -> list[tuple[int, Domain]]:
        """The domains with a bound that may change."""
        return [
            (k, e.domain)
            for k, e in enumerate(self.equations)
            if e.domain is not None
            and (isinstance(e.domain.low, str) or isinstance(e.domain.high, str))
        ]

    def compute(
        self,
        state: Mapping[str, Any],
        slots: Mapping[str, Any],
        keywords: Mapping[str, Any],
        step: Any,
        rng: Any,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Thread (w, g) through the equations: new (w, g), new slots. Tracers or NumPy arrays."""
        state, slots = dict(state), dict(slots)
        for k, equation in enumerate(self.equations):
            mine = {local: name for name, (at, local) in self._slots.items() if at == k}
            values = self._read_by(k, keywords)
            state[equation.rewrites], new = equation(
                state, {local: slots[name] for local, name in mine.items()}, values, step, rng
            )
            slots.update({mine[local]: value for local, value in new.items()})
        return state, slots

    def _read_by(self, k: int, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of equation k, by its own names for them."""
        return {
            local: keywords[name]
            for name, readers in self._keywords.items()
            for at, local in readers
            if at == k
        }

    def kept(self, w: Any, keywords: Mapping[str, Any], rounded: bool) -> Any:
        """A new parameter in the domain that was declared last.

        The equation that declared it has seen to that, unless w was rounded or changed since.
        """
        if self._confining is None:
            return w
        k, domain = self._confining
        last = max(j for j, e in enumerate(self.equations) if e.rewrites == "w")
        is_kept = not rounded and k == last
        return w if is_kept else domain.nearest(w, self._read_by(k, keywords))

    def interval(self, keywords: Mapping[str, Any]) -> tuple[Domain, Any, Any] | None:
        """The domain that was declared last, and the values of its bounds."""
        if self._confining is None:
            return None
        k, domain = self._confining
        values = self._read_by(k, keywords)
        low, high = (values[b] if isinstance(b, str) else b for b in (domain.low, domain.high))
        return domain, low, high

    @property
    def _confining(self) -> tuple[int, Domain] | None:
        """The last equation that declares a domain for w."""
        declared = [
            (k, e.domain)
            for k, e in enumerate(self.equations)
            if e.rewrites == "w" and e.domain is not None
        ]
        return declared[-1] if declared else None
