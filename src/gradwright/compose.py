"""Making rules: from a function, in a chain, and by the name of the parameter."""

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, overload

from .equation import read
from .errors import SignatureError, StateError
from .rule import DEFAULT
from .rule import Optimizer as Optimizer
from .rule import Precision as Precision
from .rule import Rule as Rule

P = ParamSpec("P")


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
    changed = [r.settings for r in rules if r.settings != DEFAULT]
    if len(changed) > 1:
        raise SignatureError(
            "gw.chain of several rules with options of their own", "gw.chain(…).options(…)"
        )
    return Rule(equations, changed[0] if changed else DEFAULT)


class Partition(Rule[Any]):
    """Rules by parameter name: the first pattern that matches."""

    def __init__(self, rules: Mapping[str, Rule[Any]]) -> None:
        super().__init__([e for r in rules.values() for e in r.equations])
        self.rules = dict(rules)
        self.settings = next(iter(rules.values())).settings

    @property
    def name(self) -> str:
        return "partition"

    @property
    def _made_of(self) -> tuple[Any, ...]:
        return (self.rules,)

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
