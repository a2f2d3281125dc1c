"""One update equation as its user wrote it: what its signature declares, what it returns."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .domain import Domain, parse
from .errors import SignatureError


class Given:
    """The default of a keyword that arrives at every step."""

    def __repr__(self) -> str:
        return "gw.given"


class Required:
    """The default of a keyword that has none: it is given when the optimizer is made."""

    def __repr__(self) -> str:
        return "required"


given: Any = Given()
REQUIRED = Required()


@dataclass(frozen=True)
class Shared:
    """The initial value of a slot that all parameters share."""

    initial: float


def shared(initial: float, /) -> Any:
    """Declare a slot that is one number for all parameters, with its initial value.

    Its new value is made of hyperparameters, shared slots, `step` and `gw.global_sum` only.
    """
    return Shared(float(initial))


@dataclass(frozen=True)
class PerParam:
    """A hyperparameter that differs by parameter."""

    function: Callable[[str, Any], Any]


def per_param(function: Callable[[str, Any], Any], /) -> Any:
    """Make a hyperparameter differ by parameter: ``f(name, w) -> number, schedule``.

    >>> import numpy as np, gradwright as gw
    >>> lr = gw.per_param(lambda name, w: 0.1 if name == "head" else 0.01)
    """
    return PerParam(function)


@dataclass(frozen=True)
class Equation:
    """``def f(w, g, slot=0.0, *, hyper=0.1, step=1, rng)``, read from its signature."""

    function: Callable[..., Any]
    name: str
    takes: tuple[str, ...]  # ("w", "g"), ("g", "w"), ("w",) or ("g",): it rewrites the first
    slots: Mapping[str, Any]  # initial values
    keywords: Mapping[str, Any]  # defaults
    step: int | None  # what `step` counts from, if the equation wants it
    rng: Any  # the default seed, REQUIRED, or None if it draws nothing
    domain: Domain | None = None
    set_here: frozenset[str] = field(default_factory=frozenset)  # keywords that a preset fixed

    @property
    def rewrites(self) -> str:
        return self.takes[0]

    @property
    def where(self) -> str:
        code = getattr(self.function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else ""

    def preset(self, values: Mapping[str, Any]) -> "Equation":
        """The same equation with other defaults, of its slots too."""
        mine = {k: v for k, v in values.items() if k in self.keywords}
        slots = {k: _as_initial(self.slots[k], values.get(k, self.slots[k])) for k in self.slots}
        return replace(
            self,
            keywords={**self.keywords, **mine},
            slots=slots,
            rng=values.get("rng", self.rng) if self.rng is not None else None,
            set_here=self.set_here | set(mine),
        )

    def with_domain(self, text: str) -> "Equation":
        return replace(self, domain=parse(text, self.keywords))

    def __call__(
        self,
        state: Mapping[str, Any],
        slots: Mapping[str, Any],
        keywords: Mapping[str, Any],
        step: Any,
        rng: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """The new value of w or g, and of every slot."""
        special: dict[str, Any] = {}
        if self.step is not None:
            special["step"] = step if self.step == 1 else step + (self.step - 1)
        if self.rng is not None:
            special["rng"] = rng
        arguments = [*(state[name] for name in self.takes), *(slots[name] for name in self.slots)]
        value, new = self._returned(self.function(*arguments, **keywords, **special))
        if self.domain is not None:
            graph = getattr(value, "graph", None)  # of a traced value, to say where this is from
            with graph.written_at(self.where) if graph is not None else nullcontext():
                value = self.domain.nearest(value, keywords)
        return value, {**slots, **new}

    def _returned(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """``w``, ``(w, *slots)`` or ``(w, {"slot": value})``."""
        if not isinstance(result, tuple):
            result = (result,)
        if len(result) == 2 and isinstance(result[1], dict):
            unknown = sorted(set(result[1]) - set(self.slots))
            if unknown:
                raise SignatureError(
                    f"{self.name} returns a value for {', '.join(unknown)}, which is no slot of it",
                    f"its slots: {', '.join(self.slots) or 'it has none'}",
                    self.where,
                )
            return result[0], dict(result[1])
        if len(result) != 1 + len(self.slots):
            wanted = ", ".join([self.rewrites, *self.slots])
            raise SignatureError(
                f"{self.name} returns {len(result)} values, it has {len(self.slots)} slots "
                f"({', '.join(self.slots)})",
                f"return {wanted}, or {self.rewrites} and a dict of the slots that change",
                self.where,
            )
        return result[0], dict(zip(self.slots, result[1:], strict=True))


def _as_initial(old: Any, new: Any) -> Any:
    return Shared(float(new)) if isinstance(old, Shared) and not isinstance(new, Shared) else new


def read(function: Callable[..., Any], domain: str | None = None) -> Equation:
    """Read an equation from a function's signature."""
    kinds = inspect.Parameter
    name = getattr(function, "__name__", "rule")
    code = getattr(function, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else None
    takes, slots, keywords = [], {}, {}  # type: list[str], dict[str, Any], dict[str, Any]
    for p in inspect.signature(function).parameters.values():
        if p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD):
            raise SignatureError(
                f"the rule {name} takes {p}", "every slot and every keyword by its name", where
            )
        if p.kind is kinds.KEYWORD_ONLY:
            keywords[p.name] = REQUIRED if p.default is kinds.empty else p.default
        elif p.name in ("w", "g") and not slots:
            takes.append(p.name)
        elif not takes:
            raise SignatureError(
                f"the first argument of the rule {name} is {p.name}",
                "w, the parameter, or g, its gradient: a rule rewrites its first argument",
                where,
            )
        elif p.default is kinds.empty:
            raise SignatureError(
                f"the slot {p.name} of the rule {name} has no initial value",
                f"{p.name}=0.0, or {p.name}=lambda w: w",
                where,
            )
        else:
            slots[p.name] = p.default
    if not takes:
        raise SignatureError(f"the rule {name} takes no arrays", "def rule(w, g, …)", where)
    step = keywords.pop("step", None)
    rng = keywords.pop("rng", None)
    equation = Equation(
        function,
        name,
        tuple(takes),
        slots,
        keywords,
        1 if isinstance(step, Required) else step,
        rng,
    )
    return equation.with_domain(domain) if domain is not None else equation


def initial(value: Any, w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A slot's first value for one parameter: filled with a number, or what a function gives."""
    if callable(value):
        return np.array(value(w))
    return np.full(w.shape, value, w.dtype)
