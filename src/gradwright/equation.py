"""One update equation as its user wrote it: what its signature declares, what it returns."""

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .domain import Domain, parse
from .errors import SignatureError, place
from .graph import WEAK
from .schedules import Schedule
from .trace import Tracer, lift


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
    if not callable(function):
        raise SignatureError(
            f"gw.per_param of {function!r}, which is no function",
            "gw.per_param(lambda name, w: …); a dict d as lambda name, w: d[name]",
        )
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
    numbers: frozenset[str] = field(default_factory=frozenset)  # keywords declared with a number

    @property
    def rewrites(self) -> str:
        return self.takes[0]

    @property
    def where(self) -> str:
        return place(self.function)

    def preset(self, values: Mapping[str, Any]) -> "Equation":
        """The same equation with other defaults, of its slots too."""
        mine = {k: v for k, v in values.items() if k in self.keywords}
        for name in self.numbers & set(mine):
            if _is_no_number(mine[name]):
                raise no_number(self.name, name, mine[name])
        for name in set(self.slots) & set(values):
            check_start(self.name, name, values[name])
        slots = {k: _as_initial(self.slots[k], values.get(k, self.slots[k])) for k in self.slots}
        return replace(
            self,
            keywords={**self.keywords, **mine},
            slots=slots,
            rng=seeded(values.get("rng", self.rng)) if self.rng is not None else None,
            set_here=self.set_here | set(mine),
        )

    def __reduce__(self) -> Any:
        """By the import path of its function, and what presets changed."""
        declared = read(self.function)
        changed = {
            k: v
            for k, v in {**self.slots, **self.keywords}.items()
            if v is not {**declared.slots, **declared.keywords}[k]
        }
        if self.rng is not declared.rng:
            changed["rng"] = self.rng
        domain = None if self.domain is None else self.domain.text
        f = self.function
        path = f.__module__, f.__qualname__
        if "<" in f.__qualname__ or _imported(*path) is not f:
            raise SignatureError(
                f"the rule {self.name} is pickled by the import path of its function, and "
                f"{'.'.join(path)} is not it",
                "def at the top level of a module; .save or .state_dict() for what it has learnt",
                self.where,
            )
        return _restored, (*path, changed, domain)

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
        value = self._as_large(value, state[self.rewrites])
        if self.domain is not None:
            graph = getattr(value, "graph", None)  # of a traced value, to say where this is from
            with graph.written_at(self.where) if graph is not None else nullcontext():
                value = self.domain.nearest(value, keywords)
        return value, {**slots, **new}

    def _as_large(self, value: Any, old: Any) -> Any:
        """The new w or g if it is as large as the old; a number holds for all of it.

        NumPy would spread a mean over the rows, which is a mistake more often than it is meant.
        """
        new = lift(old.graph, value) if isinstance(old, Tracer) else value
        sizes, wanted = _sizes(new), _sizes(old)
        same_rank = len(sizes) == len(wanted)
        if same_rank and all(_may_be(d, e) for d, e in zip(sizes, wanted, strict=True)):
            return value
        if not sizes and _is_number(new):
            return np.full_like(old, new)
        raise SignatureError(
            f"{self.name} gives {self.rewrites} {len(sizes)} dimensions {shown(sizes)}, it has "
            f"{len(wanted)} {shown(wanted)}",
            "a value of the same shape",
            self.where,
        )

    def _returned(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """``w``, ``(w, *slots)`` or ``(w, {"slot": value})``."""
        if result is None:
            raise SignatureError(f"{self.name} returns None", f"return {self._results}", self.where)
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
            raise SignatureError(
                f"{self.name} returns {len(result)} value{'s' * (len(result) != 1)}, expected "
                f"{1 + len(self.slots)}: {self._results}",
                self._cure(),
                self.where,
            )
        return result[0], dict(zip(self.slots, result[1:], strict=True))

    @property
    def _results(self) -> str:
        return ", ".join([self.rewrites, *self.slots])

    def _cure(self) -> str:
        """What to return; or where hyperparameters stand, if that is what the slots look like."""
        starts = self.slots.values()
        if starts and all(isinstance(v, (int, float)) and v != 0 for v in starts):
            keywords = ", ".join(f"{k}={v!r}" for k, v in self.slots.items())
            return (
                f"hyperparameters after *: def {self.name}({', '.join(self.takes)}, *, {keywords})"
            )
        if not self.slots:
            return f"return {self._results}; a slot is an argument with an initial value, m=0.0"
        return f"return {self._results}, or {self.rewrites} and a dict of the slots that change"


def _sizes(x: Any) -> tuple[Any, ...]:
    return x.dims if isinstance(x, Tracer) else np.shape(x)


def shown(sizes: Sequence[Any]) -> str:
    """Sizes as a user reads them, where some are not known."""
    return f"({', '.join(str(d) if isinstance(d, int) else '?' for d in sizes)})"


def _may_be(new: Any, old: Any) -> bool:
    """Whether two sizes may be equal: one that is known to be 1 would be broadcast."""
    return new == old or (new != 1 and not (isinstance(new, int) and isinstance(old, int)))


def _is_number(x: Any) -> bool:
    """Whether what has no dimensions is made of numbers; of plain NumPy that cannot be told."""
    return not isinstance(x, Tracer) or x.node.dtype in WEAK or x.node.prim == "const"


def _is_no_number(value: Any) -> bool:
    return value is None or isinstance(value, (str, bytes, list, dict, set))


def is_function(value: Any) -> bool:
    """Whether a value is a plain function, in the place of a schedule or a number."""
    return (
        callable(value)
        and not isinstance(value, (Schedule, PerParam))
        and not hasattr(value, "dtype")
    )


def no_number(rule: str, name: str, value: Any, source: str = "") -> SignatureError:
    """The error for a hyperparameter that is a number, and was given something else."""
    return SignatureError(
        f"{rule}: {name} is {value!r}{f', from {source}' if source else ''}, where a number is "
        "expected",
        "a number, gw.schedules.of(f) for a function of the count, or gw.per_param(f)",
    )


def check_number(rule: str, name: str, value: Any, source: str = "") -> None:
    """Raise where a value can be no number of this step."""
    if _is_no_number(value) or is_function(value):
        raise no_number(rule, name, value, source)


def check_start(rule: str, slot: str, value: Any, where: str | None = None) -> None:
    """Raise unless a slot can start from a value."""
    if not (
        isinstance(value, (bool, int, float, Shared))
        or callable(value)
        or hasattr(value, "__array__")
    ):
        raise SignatureError(
            f"the slot {slot} of the rule {rule} starts at {value!r}",
            f"{slot}=0.0, or {slot}=lambda w: w",
            where,
        )


def _as_initial(old: Any, new: Any) -> Any:
    return Shared(float(new)) if isinstance(old, Shared) and not isinstance(new, Shared) else new


def read(function: Callable[..., Any], domain: str | None = None) -> Equation:
    """Read an equation from a function's signature."""
    if not callable(function):
        raise SignatureError(f"a rule of {function!r}, which is no function", "def rule(w, g, …)")
    kinds = inspect.Parameter
    name = getattr(function, "__name__", "rule")
    where = place(function) or None
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
        elif p.name in ("rng", "step"):
            raise SignatureError(
                f"the rule {name} takes {p.name} before *, where its slots are",
                f"{p.name} after *",
                where,
            )
        elif p.default is kinds.empty:
            raise SignatureError(
                f"the slot {p.name} of the rule {name} has no initial value",
                f"{p.name}=0.0, or {p.name}=lambda w: w",
                where,
            )
        else:
            check_start(name, p.name, p.default, where)
            slots[p.name] = p.default
    if not takes:
        raise SignatureError(f"the rule {name} takes no arrays", "def rule(w, g, …)", where)
    step = _first_step(name, keywords.pop("step"), where) if "step" in keywords else None
    rng = seeded(keywords.pop("rng")) if "rng" in keywords else None
    plain = (bool, int, float, np.generic, Schedule, PerParam)
    equation = Equation(
        function,
        name,
        tuple(takes),
        slots,
        keywords,
        step,
        rng,
        numbers=frozenset(k for k, v in keywords.items() if isinstance(v, plain)),
    )
    return equation.with_domain(domain) if domain is not None else equation


def _imported(module: str, name: str) -> Any:
    """The function at an import path, also where a rule made of it has its name."""
    found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    return getattr(found, "__wrapped__", found)


def _restored(module: str, name: str, changed: Mapping[str, Any], domain: str | None) -> Equation:
    """The equation of a function that is known by its import path, or of the rule made of it."""
    equation = read(_imported(module, name)).preset(changed)
    return equation if domain is None else equation.with_domain(domain)


def seeded(seed: Any) -> Any:
    """The default seed of an equation that draws; ``rng=None`` says that there is none yet."""
    return REQUIRED if seed is None else seed


def _first_step(rule: str, step: Any, where: str | None) -> int:
    """What `step` counts from."""
    if isinstance(step, Required):
        return 1
    if isinstance(step, (int, np.integer)) and not isinstance(step, bool) and step >= 0:
        return int(step)
    raise SignatureError(
        f"the clock of the rule {rule} starts at step={step!r}, which is no count",
        "another name for a step size (lr): step counts updates, from 1 or 0",
        where,
    )


def initial(value: Any, w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A slot's first value for one parameter: filled with a number, or what a function gives.

    A number is in the parameter's dtype, but in float32 where that has fewer digits: small terms
    would be lost in a slot that collects them.
    """
    if callable(value):
        return np.array(value(w))
    return np.full(w.shape, value, np.promote_types(w.dtype, np.float32))
