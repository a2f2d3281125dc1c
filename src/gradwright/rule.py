"""Update rules: equations threaded through (w, g), traced once, bound to optimizers."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    Unpack,
)

import numpy as np

from . import targets
from .captures import Captures, Capturing
from .equation import REQUIRED, Equation, Given, PerParam, Required, initial, seeded
from .equations import Equations
from .errors import SignatureError
from .op import Meta, number_meta
from .plan import Part, Plan
from .precision import STORAGES, Storage
from .ruletrace import Tracing, is_number_meta, layout_of
from .schedules import Schedule
from .signature import Layout
from .trace.specialise import Need, Specialising

P = ParamSpec("P")
Precision = Literal["nearest", "master", "stochastic", "kahan"]


@dataclass(frozen=True)
class Options:
    """What happens around the equations, in this order: check, accumulate, rule, round."""

    engine: str = "auto"
    sparse: str = "dense"
    precision: str = "nearest"
    accumulate: int = 1
    skip_nonfinite: bool = False

    # what this version does; the rest is refused by name
    ALLOWED = {
        "engine": ("auto", "numpy", "fused"),
        "sparse": ("dense", "lazy"),
        "precision": tuple(STORAGES),
    }

    def check(self) -> None:
        """Raise unless this version does all of it."""
        for name, allowed in self.ALLOWED.items():
            if (value := getattr(self, name)) not in allowed:
                raise SignatureError(
                    f"{name}={value!r} is not in this version",
                    f"{name}={' or '.join(map(repr, allowed))}",
                )
        if not isinstance(self.accumulate, int) or self.accumulate < 1:
            raise SignatureError(f"accumulate={self.accumulate!r}", "a number of steps, at least 1")


class OptionNames(TypedDict, total=False):
    """The same, as keywords."""

    engine: str
    sparse: Literal["dense", "lazy"]
    precision: Precision
    accumulate: int
    skip_nonfinite: bool


class Optimizer(Protocol):
    """What the optimizer of NumPy arrays has; the native ones have it beside their own."""

    steps: int
    param_groups: list[dict[str, Any]]

    @property
    def recorded(self) -> Mapping[str, Any]: ...
    def step(self, grads: Any, **now: Any) -> None: ...
    def swapped(self, slot: str) -> AbstractContextManager[None]: ...
    def save(self, path: str) -> None: ...
    def load(self, path: str, *, strict: bool = ...) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = ...) -> None: ...


DEFAULT = Options()


class Rule(Equations, Capturing, Generic[P]):
    """An update rule: ``(w, g, *slots) -> (w, *slots)``, an equation or a chain of them.

    Called with keywords it is a preset, called with arrays one step; `numpy`, `torch`, `keras`,
    `tf1`, `optax` are optimizer classes of it.
    """

    # TensorFlow's AutoGraph reads this attribute, and leaves the rule as it is
    autograph_info__: Mapping[str, Any] = {}

    def __init__(
        self,
        equations: Sequence[Equation],
        settings: Options = DEFAULT,
        rounding: Any = REQUIRED,  # the seed of stochastic rounding, where no equation draws
    ) -> None:
        super().__init__(equations)
        self._rounding = rounding
        Capturing.__init__(self, [e.function for e in equations])
        self.settings = settings
        self.__module__ = self.__wrapped__.__module__
        self._plans: Specialising[Plan] = Specialising()  # others once an equation is traced anew
        self._plans_of_floats: dict[tuple[Meta, ...], Plan] = {}  # where every keyword is a float

    def __copy__(self) -> "Rule[P]":
        return self  # it never changes

    def __deepcopy__(self, memo: dict[int, Any]) -> "Rule[P]":
        return self

    def __reduce__(self) -> Any:
        """By its import path, as functions are; a preset or a chain by those of its equations."""
        name = self.__wrapped__.__qualname__
        named = getattr(sys.modules.get(self.__module__), name, None)
        return name if named is self else (type(self), self._made_of)

    @property
    def _made_of(self) -> tuple[Any, ...]:
        return self.equations, self.settings, self._rounding

    def __repr__(self) -> str:
        hypers = [f"{k}={v!r}" for k, v in self.hyperparams.items()]
        return f"<rule {self.name}({', '.join([*self.slots, '*', *hypers])})>"

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]  # the user's text, not the class's
        return self.__wrapped__.__doc__

    # --- presets, options ---
    def preset(self, keywords: Mapping[str, Any]) -> "Rule[P]":
        """The same rule with other defaults."""
        self.check_names(keywords)
        equations = [
            e.preset(
                {
                    local: keywords[name]
                    for name in keywords
                    for local in (name.removeprefix(f"{label}."), name)
                }
            )
            for label, e in zip(self._labels, self.equations, strict=True)
        ]
        return type(self)(equations, self.settings, seeded(keywords.get("rng", self._rounding)))

    # --- how w is stored ---
    @cached_property
    def storage(self) -> Storage:
        return STORAGES[self.settings.precision if self.rewrites == "w" else "nearest"]

    @cached_property
    def own_slots(self) -> list[str]:
        """The slots that each parameter has for itself; last, what is kept beside w."""
        return [*super().own_slots, *self.storage.slots]

    def initial(self, slot: str) -> Any:
        """The initial value that a slot was declared with."""
        return self.storage.slots[slot] if slot in self.storage.slots else super().initial(slot)

    @property
    def seed(self) -> Any:
        """The default seed; REQUIRED where there is none, ``None`` where nothing is drawn."""
        drawn = super().seed
        return self._rounding if drawn is None and self.storage.draws else drawn

    def options(self, *, domain: str | None = None, **options: Unpack[OptionNames]) -> "Rule[P]":
        """Return the rule with other options.

        ``accumulate=k``: one update from the mean of k gradients; ``skip_nonfinite=True``: a step
        with an infinite or NaN gradient changes nothing; ``domain="[low, high)"``: the parameter
        never leaves it; ``sparse="dense"|"lazy"``: rows that a sparse gradient has not are updated
        with a gradient of 0, or left alone with their slots; ``engine="auto"|"numpy"|"fused"``;
        ``precision="nearest"|"master"|"kahan"|"stochastic"``: how float16 and bfloat16 parameters
        keep what rounding would lose: in a float32 copy, in a second number of their own dtype, or
        on average (`rng` is its seed).
        """
        names = {f.name for f in fields(Options)}
        if unknown := set(options) - names:
            raise SignatureError(
                f"no option {', '.join(sorted(unknown))}",
                f"one of {', '.join(sorted(names | {'domain'}))}",
            )
        equations = list(self.equations)
        if domain is not None:
            last = max((k for k, e in enumerate(equations) if e.rewrites == "w"), default=0)
            equations[last] = equations[last].with_domain(domain)
        settings = replace(self.settings, **options)
        settings.check()
        return type(self)(equations, settings, self._rounding)

    def __call__(self, *arrays: Any, **keywords: Any) -> Any:
        if not arrays:
            return self.preset(keywords)
        from .optimizer import one_step

        return one_step(self, arrays, keywords)

    # --- one trace for every rank and dtype ---
    def renew(self) -> None:
        """Drop what was traced, if something that an equation captured was bound anew.

        Asked once before a step, so that all its parameters have the same equations.
        """
        if self._captures.are_rebound():
            self._plans, self._captures = Specialising(), Captures()
            self._plans_of_floats.clear()

    def part(
        self,
        name: str,
        arrays: tuple[Any, ...],
        keywords: Mapping[str, Any],
        shared: Sequence[Any],
        identity: int,
        step: Any,
        seed: Any,
        meta: Callable[[Any], Meta],
    ) -> Part:
        """What one parameter brings to a step.

        `arrays` are w, g and its own slots; `keywords` have this step's values, numbers or arrays
        that arrive for this parameter; `meta` says what is known of a target's array.
        """
        metas = tuple([meta(a) for a in arrays])
        if all(type(value) is float for value in keywords.values()):
            plan = self._plan_of_floats(metas, keywords)
            return Part(plan, name, arrays, identity, (*shared, *keywords.values(), step, seed))
        leaves, layout = layout_of(keywords)
        given = [meta(leaf) for leaf in leaves]
        extra = [leaf for leaf, m in zip(leaves, given, strict=True) if not is_number_meta(m)]
        numbers = [leaf for leaf, m in zip(leaves, given, strict=True) if is_number_meta(m)]
        plan = self._plan_for(metas, given, layout)
        return Part(plan, name, (*arrays, *extra), identity, (*shared, *numbers, step, seed))

    def _plan_of_floats(self, metas: tuple[Meta, ...], keywords: Mapping[str, Any]) -> Plan:
        """The plan where nothing but the arrays decides it, found at once the second time."""
        if (plan := self._plans_of_floats.get(metas)) is None:
            leaves, layout = layout_of(keywords)
            plan = self._plan_for(metas, [number_meta(leaf) for leaf in leaves], layout)
            self._plans_of_floats[metas] = plan
        return plan

    def _plan_for(self, metas: Sequence[Meta], given: Sequence[Meta], layout: Layout) -> Plan:
        w = metas[0].shape
        kind = (
            layout,
            tuple((len(m.shape), m.dtype, m.shape == w) for m in (*metas, *given)),
            len(metas),
        )
        extra = [m for m in given if not is_number_meta(m)]
        numbers = [m for m in given if is_number_meta(m)]
        inputs = [*metas, *extra, *[Meta((), "int")] * (1 + len(self.shared_slots)), *numbers]

        def known(need: Need) -> Any:
            what, k, *axis = need
            found = inputs[k].value if what == "value" else inputs[k].shape[axis[0]]
            if found is None:
                raise _unknown(self.name, what)
            return found

        def make(fixed: Mapping[Need, Any]) -> Plan:
            plan = Tracing(self, self.storage, metas, given, layout, fixed).plan()
            self._captures = Captures(self._functions)
            return plan

        return self._plans.get(kind, known, make)

    def example_plan(self, rank: int = 1) -> Plan:
        """The plan of the rule for float32 parameters of a rank, to look at."""
        self.renew()
        metas, given, layout = self._example(rank)
        return self._plan_for(metas, given, layout)

    def _example(self, rank: int) -> tuple[list[Meta], list[Meta], Layout]:
        keywords = {name: _typical(value) for name, value in self.hyperparams.items()}
        leaves, layout = layout_of(keywords)
        w = np.ones((3,) * rank, np.float32)
        slots = [initial(self.initial(slot), w) for slot in self.own_slots]
        metas = [Meta(a.shape, a.dtype.name) for a in (w, w, *slots)]
        return metas, [number_meta(leaf) for leaf in leaves], layout

    # --- optimizers ---
    def assign(self, name: str) -> "Rule[Any]":
        """The rule that a parameter of this name is updated by."""
        return self

    def given_to(self, rule: "Rule[Any]", keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keywords by the names that they have in the rule of one parameter."""
        return keywords

    def check_update(self) -> None:
        """Raise unless the rule gives a new parameter."""
        if self.rewrites == "g":
            raise SignatureError(
                f"{self.name} rewrites g, and nothing applies it to w",
                f"gw.chain({self.name}, gw.rules.sgd); or (w, g) in that order, if it is an update",
                self.equations[0].where,
            )

    def _bound(self, target: str) -> Any:
        self.check_update()
        return targets.part(target, "optimizer").bind(self)

    @cached_property
    def numpy(self) -> Callable[Concatenate[Any, P], Optimizer]:
        """The optimizer class for NumPy arrays: ``rule.numpy(params, **keywords)``."""
        made: Callable[Concatenate[Any, P], Optimizer] = self._bound("numpy")
        return made

    @cached_property
    def torch(self) -> Callable[Concatenate[Any, P], Any]:
        """A ``torch.optim.Optimizer`` class: ``rule.torch(params, **keywords)``."""
        made: Callable[Concatenate[Any, P], Any] = self._bound("torch")
        return made

    @cached_property
    def tf1(self) -> Callable[P, Any]:
        """A ``tf.compat.v1.train.Optimizer`` class: ``rule.tf1(**keywords)``."""
        made: Callable[P, Any] = self._bound("tensorflow")
        return made

    @cached_property
    def keras(self) -> Callable[P, Any]:
        """A ``keras.optimizers.Optimizer`` class: ``rule.keras(**keywords)``."""
        made: Callable[P, Any] = self._bound("keras")
        return made

    @cached_property
    def optax(self) -> Callable[P, Any]:
        """An ``optax.GradientTransformationExtraArgs`` class: ``rule.optax(**keywords)``."""
        made: Callable[P, Any] = self._bound("jax")
        return made

    # --- looking at it ---
    def source(self, target: str = "numpy", /) -> str:
        """The rule as source of one target, for float32 vectors."""
        from . import show

        return show.rule_source(self, target)

    def explain(self) -> str:
        """The rule as an equation, with its slots, hyperparameters and bytes per parameter."""
        from . import show

        return show.explain_rule(self)

    def latex(self) -> str:
        """The rule as an equation in LaTeX."""
        from . import show

        return show.latex_rule(self)

    def _repr_latex_(self) -> str:
        return f"$${self.latex()}$$"


def _unknown(name: str, what: str) -> SignatureError:
    return SignatureError(
        f"{name} reads a {what} as a Python number, and a graph that is compiled does not know it",
        "a Python number for it, or np.where instead of if",
    )


def _typical(value: Any) -> Any:
    """A value that stands for a hyperparameter whose own is not known yet."""
    return 1.0 if isinstance(value, (Given, Required, Schedule, PerParam)) else value
