"""Update rules: equations threaded through (w, g), traced once, bound to optimizers."""

import fnmatch
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, overload

import numpy as np

from . import plan as planning
from . import targets, tree
from .equation import Equation, Given, PerParam, Required, Shared, initial, read
from .errors import GradwrightError, SignatureError, StateError
from .graph import WEAK, Graph
from .op import Meta, number_meta
from .plan import Part, Plan
from .rng import Rng
from .schedules import Schedule
from .signature import Layout, is_static
from .trace import Tracer, cast, lift, trace
from .trace.functions import resized
from .trace.specialise import Need, Specialising
from .trace.tracer import node

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
    ALLOWED = {"engine": ("auto", "numpy"), "sparse": ("dense",), "precision": ("nearest",)}

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


_DEFAULT = Options()
LOW_PRECISION = ("float16", "bfloat16")  # computed in float32, rounded once


class Rule(Generic[P]):
    """An update rule: ``(w, g, *slots) -> (w, *slots)``, an equation or a chain of them.

    Called with keywords it is a preset, called with arrays one step; `numpy`, `torch`, `keras`,
    `tf1`, `optax` are optimizer classes of it.
    """

    # TensorFlow's AutoGraph reads this attribute, and leaves the rule as it is
    autograph_info__: Mapping[str, Any] = {}

    def __init__(self, equations: Sequence[Equation], settings: Options = _DEFAULT) -> None:
        self.equations, self.settings = tuple(equations), settings
        self._plans: Specialising[Plan] = Specialising()
        self._plans_of_floats: dict[tuple[Meta, ...], Plan] = {}  # where every keyword is a float

    # --- what it declares ---
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

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.__wrapped__.__doc__

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

    def __repr__(self) -> str:
        hypers = [f"{k}={v!r}" for k, v in self.hyperparams.items()]
        return f"<rule {self.name}({', '.join([*self.slots, '*', *hypers])})>"

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
        return type(self)(equations, self.settings)

    def check_names(self, keywords: Mapping[str, Any]) -> None:
        """Raise unless every keyword is one of the rule's."""
        known = {*self._keywords, *self._slots, *(n for e in self.equations for n in e.keywords)}
        known |= {"rng"} if self.seed is not None else set()
        for name in keywords:
            if name not in known:
                raise SignatureError(
                    f"{self.name} has no keyword {name}",
                    f"one of {', '.join(sorted(known)) or 'none'}",
                )

    def options(self, *, domain: str | None = None, **options: Any) -> "Rule[P]":
        """Return the rule with other options.

        ``accumulate=k``: one update from the mean of k gradients; ``skip_nonfinite=True``: a step
        with an infinite or NaN gradient changes nothing; ``domain="[low, high)"``: the parameter
        never leaves it; ``engine="auto"|"numpy"``.
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
        return type(self)(equations, settings)

    def __call__(self, *arrays: Any, **keywords: Any) -> Any:
        if not arrays:
            return self.preset(keywords)
        from .optimizer import one_step

        return one_step(self, arrays, keywords)

    # --- the equations themselves ---
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
        updates = [(k, e) for k, e in enumerate(self.equations) if e.rewrites == "w"]
        declared = [(k, e.domain) for k, e in updates if e.domain is not None]
        if not declared or (not rounded and declared[-1][0] == updates[-1][0]):
            return w
        k, domain = declared[-1]
        return domain.nearest(w, self._read_by(k, keywords))

    # --- one trace for every rank and dtype ---
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
        if all([type(value) is float for value in keywords.values()]):
            plan = self._plan_of_floats(metas, keywords)
            return Part(plan, name, arrays, identity, (*shared, *keywords.values(), step, seed))
        leaves, layout = _layout(keywords)
        given = [meta(leaf) for leaf in leaves]
        extra = [leaf for leaf, m in zip(leaves, given, strict=True) if not is_number_meta(m)]
        numbers = [leaf for leaf, m in zip(leaves, given, strict=True) if is_number_meta(m)]
        plan = self._plan_for(metas, given, layout)
        return Part(plan, name, (*arrays, *extra), identity, (*shared, *numbers, step, seed))

    def _plan_of_floats(self, metas: tuple[Meta, ...], keywords: Mapping[str, Any]) -> Plan:
        """The plan where nothing but the arrays decides it, found at once the second time."""
        if (plan := self._plans_of_floats.get(metas)) is None:
            leaves, layout = _layout(keywords)
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
            return _Tracing(self, metas, given, layout, fixed).plan()

        return self._plans.get(kind, known, make)

    def example_plan(self, rank: int = 1) -> Plan:
        """The plan of the rule for float32 parameters of a rank, to look at."""
        metas, given, layout = self._example(rank)
        return self._plan_for(metas, given, layout)

    def _example(self, rank: int) -> tuple[list[Meta], list[Meta], Layout]:
        keywords = {name: _typical(value) for name, value in self.hyperparams.items()}
        leaves, layout = _layout(keywords)
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
        return import_module(f"{targets.__name__}.{target}.optimizer").bind(self)

    @cached_property
    def numpy(self) -> Any:
        """The optimizer class for NumPy arrays: ``rule.numpy(params, **keywords)``."""
        return self._bound("numpy")

    @cached_property
    def torch(self) -> Any:
        """A ``torch.optim.Optimizer`` class: ``rule.torch(params, **keywords)``."""
        return self._bound("torch")

    @cached_property
    def tf1(self) -> Any:
        """A ``tf.compat.v1.train.Optimizer`` class: ``rule.tf1(**keywords)``."""
        return self._bound("tensorflow")

    @property
    def keras(self) -> Any:
        """A ``keras.optimizers.Optimizer`` class (not in this version)."""
        raise _not_yet(self.name, "keras", "rule.tf1 in tf.function, or rule.numpy")

    @property
    def optax(self) -> Any:
        """An optax transformation (not in this version)."""
        raise _not_yet(self.name, "optax", "rule.numpy")

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


def _not_yet(name: str, target: str, instead: str) -> GradwrightError:
    return GradwrightError(f"{name}.{target} is not in this version", instead)


def _unknown(name: str, what: str) -> SignatureError:
    return SignatureError(
        f"{name} reads a {what} as a Python number, and a graph that is compiled does not know it",
        "a Python number for it, or np.where instead of if",
    )


def is_number_meta(m: Meta) -> bool:
    """Whether a keyword's value is a number for all elements, not an array."""
    return not m.shape and m.dtype in (*WEAK, "bool")


def _layout(keywords: Mapping[str, Any]) -> tuple[list[Any], Layout]:
    """The leaves of the keywords that are no part of the program, and how they make them up."""
    static = tuple((k, v) for k, v in keywords.items() if is_static(v))
    rest = {k: tree.flatten(v) for k, v in keywords.items() if not is_static(v)}
    specs = tuple(spec for _, spec in rest.values())
    return [x for leaves, _ in rest.values() for x in leaves], Layout(tuple(rest), specs, static)


def _typical(value: Any) -> Any:
    """A value that stands for a hyperparameter whose own is not known yet."""
    return 1.0 if isinstance(value, (Given, Required, Schedule, PerParam)) else value


@dataclass(frozen=True)
class _Tracing:
    """One trace of a rule, for one kind of parameter and keywords."""

    rule: Rule[Any]
    metas: Sequence[Meta]  # w, g, own slots
    given: Sequence[Meta]  # the leaves of the keywords
    layout: Layout
    fixed: Mapping[Need, Any]

    def plan(self) -> Plan:
        arrays = len(self.metas) + sum(not is_number_meta(m) for m in self.given)
        own = 1 + len(self.rule.own_slots)
        shared = range(own, own + len(self.rule.shared_slots))
        graph = trace(self.build, self.rule.name)
        return planning.make(graph, arrays, shared, self.rule.name)

    def build(self, graph: Graph) -> list[Tracer]:
        own, shared = self.rule.own_slots, self.rule.shared_slots
        w, g, *slots = self._arrays(graph, ["w", "g", *own], self.metas)
        leaf_names = self.layout.leaf_names()
        pairs = list(zip(leaf_names, self.given, strict=True))
        arrays = iter(self._arrays(graph, *_split([p for p in pairs if not is_number_meta(p[1])])))
        identity = _input(graph, "identity", "int")
        common = [_input(graph, name, "float") for name in shared]
        numbers = iter([self._number(graph, n, m) for n, m in pairs if is_number_meta(m)])
        step, seed = _input(graph, "step", "int"), _input(graph, "seed", "int")
        leaves = [next(numbers if is_number_meta(m) else arrays) for m in self.given]
        slot_values = dict(zip([*own, *shared], [*slots, *common], strict=True))
        keywords = self.layout.arguments(leaves)
        state, new = self.rule.compute(
            {"w": w, "g": g}, slot_values, keywords, step, Rng(w, step, identity, seed)
        )
        rewritten = self.rule.rewrites
        first = self._stored(graph, rewritten, state[rewritten], self.metas[0], w)
        if rewritten == "w":
            rounded = lift(graph, state["w"]).node.dtype != self.metas[0].dtype
            first = self.rule.kept(first, keywords, rounded)
        rest = [
            self._stored(graph, s, new[s], m, x)
            for s, m, x in zip(own, self.metas[2:], slots, strict=True)
        ]
        return [first, *rest, *(cast(lift(graph, new[s]), "float") for s in shared)]

    def _arrays(self, graph: Graph, names: Sequence[str], metas: Sequence[Meta]) -> list[Tracer]:
        """Inputs; those of w's shape share its sizes. Low precision is widened to float32."""
        xs = []
        for name, meta in zip(names, metas, strict=True):
            k = len(graph.inputs)
            shape: Sequence[Any] = [
                self.fixed.get(("size", k, axis)) for axis in range(len(meta.shape))
            ]
            if k and meta.shape == self.metas[0].shape:
                shape = graph.nodes[graph.inputs[0]].shape
            x = Tracer(graph, graph.input(name.replace(".", "_"), shape, meta.dtype))
            xs.append(cast(x, "float32") if meta.dtype in LOW_PRECISION else x)
        return xs

    def _number(self, graph: Graph, name: str, meta: Meta) -> Any:
        k = len(graph.inputs)
        x = _input(graph, name, meta.dtype)
        if meta.dtype in ("int", "bool"):
            graph.readable.add(k)
        return self.fixed.get(("value", k), x)

    def _stored(self, graph: Graph, name: str, value: Any, meta: Meta, like: Tracer) -> Tracer:
        """A new value in the shape and dtype that it is stored in."""
        x = lift(graph, value)
        clash = any(
            isinstance(d, int) and isinstance(e, int) and d not in (1, e)
            for d, e in zip(x.dims[::-1], like.dims[::-1], strict=False)
        )
        if x.ndim > like.ndim or clash:
            raise SignatureError(
                f"{self.rule.name} gives {name} {x.ndim} dimensions {_sizes(x)}, it has "
                f"{like.ndim} {_sizes(like)}",
                "a value of the same shape",
            )
        if not meta.dtype.startswith(("float", "bfloat")) and x.dtype.kind == "f":
            raise SignatureError(
                f"{self.rule.name} gives {name} a {x.node.dtype} value, it is {meta.dtype}",
                f"an initial value of that dtype, or .astype(np.{meta.dtype})",
            )
        if x.ndim < like.ndim or any(d == 1 != e for d, e in zip(x.dims, like.dims, strict=True)):
            x = resized("broadcast_to", x, like.dims)
        return cast(x, meta.dtype)


def _split(pairs: Sequence[tuple[str, Meta]]) -> tuple[list[str], list[Meta]]:
    return [name for name, _ in pairs], [meta for _, meta in pairs]


def _input(graph: Graph, name: str, dtype: str) -> Tracer:
    return Tracer(graph, graph.input(name.replace(".", "_"), (), dtype))


def _sizes(x: Tracer) -> str:
    return f"({', '.join(str(d) if isinstance(d, int) else '?' for d in x.dims)})"


# --- what a rule's body may call ---------------------------------------------------------------
_collected: ContextVar[dict[str, Any] | None] = ContextVar("gradwright_records", default=None)
_totals: ContextVar[Iterator[Any] | None] = ContextVar("gradwright_totals", default=None)


class TotalNeeded(Exception):
    """A rule run as plain NumPy asks for a sum over all parameters: this one's part of it."""

    def __init__(self, summand: Any) -> None:
        super().__init__()
        self.summand = summand


def record(name: str, value: Any, /) -> Any:
    """Return the value, and keep its last one in ``optimizer.recorded[name]``.

    >>> import numpy as np, gradwright as gw
    >>> @gw.rule
    ... def sgd(w, g, *, lr=0.1):
    ...     return w - gw.record("step size", lr * g)
    >>> w = np.ones(2)
    >>> optimizer = sgd.numpy(w)
    >>> optimizer.step(np.ones(2))
    >>> optimizer.recorded["step size"]
    array([0.1, 0.1])
    """
    if isinstance(value, Tracer):
        value.graph.records[name] = value.i
    elif (found := _collected.get()) is not None:
        found[name] = value
    return value


def global_sum(x: Any, /) -> Any:
    """Sum x over all its elements and over all parameters that the rule sees.

    A number in double precision. All groups count, parameters without a gradient do not. Called
    on arrays outside an optimizer, it is the sum over that one array.
    """
    if isinstance(x, Tracer):
        # summed in x's dtype within a parameter, in double precision over parameters
        return node(x.graph, "global_sum", [cast(lift(x.graph, np.sum(x)), "float64")])
    totals = _totals.get()
    if totals is None:
        return np.sum(x)
    try:
        return next(totals)
    except StopIteration:
        raise TotalNeeded(np.float64(np.sum(x))) from None


# --- making rules ------------------------------------------------------------------------------
class _Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Any, P], Any], /) -> Rule[P]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], Any], /) -> Rule[P]: ...


@overload
def rule(function: Callable[Concatenate[Any, Any, P], Any], /) -> Rule[P]: ...
@overload
def rule(function: Callable[Concatenate[Any, P], Any], /) -> Rule[P]: ...
@overload
def rule(
    *,
    domain: str = ...,
    sparse: Literal["dense", "lazy"] = ...,
    precision: Precision = ...,
    engine: str = ...,
    accumulate: int = ...,
    skip_nonfinite: bool = ...,
) -> _Decorator: ...
def rule(
    function: Any = None,
    /,
    *,
    domain: str | None = None,
    **options: Any,
) -> Any:
    """Make a NumPy function an update rule.

    ``(w, g, *slots, *, hyperparameters, step=1, rng) -> w | (w, *slots) | (w, {"slot": value})``.
    The default of a slot is its initial value; a hyperparameter is a number, a schedule, or
    `gw.per_param`; a name without default is given when the optimizer is made.

    >>> import numpy as np, gradwright as gw
    >>> @gw.rule
    ... def momentum(w, g, m=0.0, *, lr=0.01, mu=0.9):
    ...     m = mu * m + g
    ...     return w - lr * m, m
    >>> w = np.ones(2, np.float32)
    >>> momentum.numpy(w, lr=0.1).step(np.ones(2, np.float32))
    >>> w
    array([0.9, 0.9], dtype=float32)
    """

    def decorate(f: Callable[..., Any]) -> Rule[Any]:
        return Rule([read(f, domain)]).options(**options)

    return decorate if function is None else decorate(function)


def chain(*rules: Rule[Any]) -> Rule[Any]:
    """Apply rules in order, each to what the one before gave: (w, g) is threaded through.

    Gradient rules come before the update, projections after it.

    >>> import gradwright as gw
    >>> from gradwright.rules import adam, clip_by_global_norm
    >>> gw.chain(clip_by_global_norm(max_norm=1.0), adam).slots
    ('m', 'v')
    """
    for r in rules:
        if not isinstance(r, Rule) or isinstance(r, Partition):
            raise SignatureError(
                f"gw.chain of {r!r}", "rules; a partition of chains, not the reverse"
            )
    equations = [e for r in rules for e in r.equations]
    late = next(
        (
            e
            for k, e in enumerate(equations)
            if e.rewrites == "g" and any(b.rewrites == "w" for b in equations[:k])
        ),
        None,
    )
    if not equations or late is not None:
        what = (
            f"{late.name} rewrites g after w was updated, so nothing reads it"
            if late
            else "no rules"
        )
        raise SignatureError(
            f"gw.chain: {what}", "gradient rules first, then the update, then projections"
        )
    changed = [r.settings for r in rules if r.settings != _DEFAULT]
    if len(changed) > 1:
        raise SignatureError(
            "gw.chain of several rules with options of their own", "gw.chain(…).options(…)"
        )
    return Rule(equations, changed[0] if changed else _DEFAULT)


class Partition(Rule[Any]):
    """Rules by parameter name: the first pattern that matches."""

    def __init__(self, rules: Mapping[str, Rule[Any]]) -> None:
        super().__init__([e for r in rules.values() for e in r.equations])
        self.rules = dict(rules)
        self.settings = next(iter(rules.values())).settings

    @property
    def name(self) -> str:
        return "partition"

    def _each(self, change: Callable[[Rule[Any]], Rule[Any]]) -> "Partition":
        return Partition({pattern: change(r) for pattern, r in self.rules.items()})

    def preset(self, keywords: Mapping[str, Any]) -> "Partition":
        """Set a keyword in every rule that has it."""
        self.check_names(keywords)
        return self._each(lambda r: r.preset(self.given_to(r, keywords)))

    def options(self, **options: Any) -> "Partition":
        """Return the partition with other options, the same for all its rules."""
        return self._each(lambda r: r.options(**options))

    def assign(self, name: str) -> Rule[Any]:
        for pattern, found in self.rules.items():
            if fnmatch.fnmatchcase(name, pattern):
                return found
        raise StateError(
            f"no pattern of the partition matches the parameter {name!r}: {list(self.rules)}",
            'a last pattern "*" for all the others',
        )

    def given_to(self, rule: Rule[Any], keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """The keywords that one of the rules has, by its own names for them.

        A name of the partition may carry a label, ``adam.lr``, that the rule has no need of.
        """
        first = 0
        for r in self.rules.values():
            if r is rule:
                break
            first += len(r.equations)
        own = {self._names[first + k, local]: name for (k, local), name in rule._names.items()}
        known = {*rule._names.values(), *(local for _, local in rule._names)}
        known |= {"rng"} if rule.seed is not None else set()
        named = {own.get(name, name): value for name, value in keywords.items()}
        return {name: value for name, value in named.items() if name in known}

    def explain(self) -> str:
        """Each rule as an equation, after the pattern of its parameters' names."""
        return "\n\n".join(f"{p!r}: {r.explain()}" for p, r in self.rules.items())

    def latex(self) -> str:
        """The rules as equations in LaTeX."""
        rows = [rf"\text{{{p}}}: & \quad {r.latex()}" for p, r in self.rules.items()]
        return r"\begin{aligned} " + r" \\ ".join(rows) + r" \end{aligned}"

    def source(self, target: str = "numpy", /) -> str:
        """The rules as source of one target, for float32 vectors."""
        return "\n".join(f"# {p}\n{r.source(target)}" for p, r in self.rules.items())


def partition(rules: Mapping[str, Rule[Any]], /) -> Rule[Any]:
    """Choose the rule by the parameter's name: the first pattern that matches (``fnmatch``).

    >>> import gradwright as gw
    >>> from gradwright.rules import adam, sgd
    >>> mixed = gw.partition({"*.bias": sgd, "*": adam(lr=3e-4)})
    """
    for pattern, r in rules.items():
        if not isinstance(r, Rule) or isinstance(r, Partition):
            raise SignatureError(
                f"gw.partition of {r!r} for {pattern!r}", "a rule for each pattern"
            )
        r.check_update()
    if len({r.settings for r in rules.values()}) != 1:
        what = "rules with different options" if rules else "no rules"
        raise SignatureError(
            f"gw.partition of {what}", "gw.partition({pattern: rule, …}).options(…)"
        )
    return Partition(rules)
