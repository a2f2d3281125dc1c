"""A derivative that the author of an op wrote, on the flat lists of tracers that derive uses."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import tree
from .errors import SignatureError, place
from .function import Own
from .graph import Graph
from .primitives import PRIMITIVES
from .signature import Layout, Signature
from .trace import Tracer, lift, strong
from .trace.tracer import is_float


def check(
    signature: Signature, kind: str, rule: Callable[..., Any], more: Sequence[str], by_name: bool
) -> None:
    """Raise unless a rule takes what a rule of its kind is given, and `more` behind it if it likes.

    By name: what is given behind is told from a mistake by what it is called.
    """
    lead = {"vjp": ["g"], "jvp": [f"d{name}" for name in signature.arrays]}.get(kind, [])
    wanted = [*lead, *signature.arrays]
    kinds = inspect.Parameter
    parameters = inspect.signature(rule).parameters.values()
    got = positional(rule)
    options = [p.name for p in parameters if p.kind is kinds.KEYWORD_ONLY]
    variadic = any(p.kind is kinds.VAR_POSITIONAL for p in parameters)
    behind = got[len(wanted) :]
    fits = len(wanted) <= len(got) <= len(wanted) + len(more)
    fits = fits and not (by_name and behind != [*more][: len(behind)])
    if not (variadic or fits) or set(options) - {*signature.options}:
        optional = "".join(f"[, {name}" for name in more) + "]" * len(more)
        raise SignatureError(
            f"the {kind} of {signature.name} takes ({', '.join(got + options)})",
            f"({', '.join(wanted)}{optional}), and the options it needs after *",
        )
    moved = [] if variadic else [n for n, w in zip(got, wanted, strict=False) if n != w]
    if moved and set(moved) & set(wanted):
        name = next(n for n in moved if n in wanted)
        raise SignatureError(
            f"the {kind} of {signature.name} takes ({', '.join(got)}): {name} stands where "
            f"{wanted[got.index(name)]} is given",
            f"({', '.join(wanted)}), in this order",
        )


def positional(rule: Callable[..., Any]) -> list[str]:
    """The parameters that are given by position."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return [n for n, p in inspect.signature(rule).parameters.items() if p.kind in kinds]


_ELEMENTWISE = ("elementwise", "compare", "integer", "select", "cast", "identity", "size", "item")


def _mixing(graph: Graph) -> str | None:
    """A primitive by which one element of the result depends on several of the arguments."""
    for i in graph.live():
        n = graph.nodes[i]
        if n.prim == "call":
            if (found := _mixing(n["function"].primal)) is not None:
                return found
        elif n.prim == "host":
            if not n["function"].is_elementwise:
                return f"host op {n['function'].host.name}"
        elif n.prim not in ("input", "const") and PRIMITIVES[n.prim].kind not in _ELEMENTWISE:
            return n.prim
    return None


@dataclass(frozen=True)
class OwnRule:
    """A user's rule for one layout of the arguments."""

    signature: Signature
    kind: str
    rule: Callable[..., Any]
    layout: Layout
    out: tree.Spec  # the tree that the op's outputs form
    fixed: Mapping[Any, Any]  # options that the op's body read as numbers

    def own(self, graph: Graph) -> Own:
        """The rule, once it is known to suit the op's graph."""
        if self.kind == "partials" and (prim := _mixing(graph)) is not None:
            raise SignatureError(
                f"partials of {self.signature.name}, which is not elementwise: its {prim} makes a "
                "result of several elements, whose derivatives partials cannot say",
                "@….vjp with (g, …) -> one cotangent for each argument, or no rule at all",
            )
        return Own(self.kind, getattr(self, self.kind), self._refused())

    def _refused(self) -> dict[int, tuple[str, str]]:
        """The leaves of options, which a rule gives no derivative for; a surrogate may use them."""
        if self.kind == "surrogate":
            return {}
        return {k: self._refusal(n) for k, n in self.layout.options(self.signature).items()}

    def _refusal(self, option: str) -> tuple[str, str]:
        what = (
            f"the derivative of {self.signature.name} with respect to its option {option}: the "
            f"op's own {self.kind} gives none"
        )
        instead = (
            f"the option before *, as an argument that the rule gives a derivative for, or "
            f"gw.stop_gradient({option}), {option}.detach(), tf.stop_gradient({option})"
        )
        return what, instead

    def partials(self, xs: Sequence[Tracer], outs: Sequence[Tracer]) -> list[Any]:
        return self._by_argument(self._called([], xs, outs))

    def vjp(self, cts: Sequence[Tracer], xs: Sequence[Tracer], outs: Sequence[Tracer]) -> list[Any]:
        smooth = iter(cts)
        leaves = [next(smooth) if is_float(x.dtype.name) else None for x in outs]
        return self._by_argument(self._called([tree.unflatten(self.out, leaves)], xs, outs))

    def jvp(self, ts: Sequence[Any], xs: Sequence[Tracer], outs: Sequence[Tracer]) -> list[Any]:
        tangents = self.layout.arguments(ts)
        lead = [tangents[name] for name in self.signature.arrays]
        return self._like_out(self._called(lead, xs, outs))

    def surrogate(self, xs: Sequence[Tracer]) -> list[Tracer]:
        outs = self._like_out(self._called([], xs, ()))
        return [strong(lift(xs[0].graph, x)) for x in outs]

    def _called(self, lead: Sequence[Any], xs: Sequence[Any], outs: Sequence[Any]) -> Any:
        """Run the user's rule on the arguments as the user wrote them."""
        leaves = [self.fixed.get(("value", k), x) for k, x in enumerate(xs)]
        values = self.layout.arguments(leaves)
        takes = inspect.signature(self.rule).parameters
        given = [*lead, *(values[name] for name in self.signature.arrays)]
        if self.kind != "surrogate":
            given += self._last(len(positional(self.rule)) - len(given), outs, xs)
        options = {name: values[name] for name in self.signature.options if name in takes}
        result = self.rule(*given, **options)
        if result is None:
            raise SignatureError(
                f"the {self.kind} of {self.signature.name} returns None",
                "return … in it; (None,) for an argument without a derivative",
                place(self.rule),
            )
        return result

    def _last(self, count: int, outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        """What a rule may take after the arguments: the result."""
        return [tree.unflatten(self.out, outs)] if count > 0 else []

    def _by_argument(self, result: Any) -> list[Any]:
        """One value for each leaf; options have no derivative."""
        specs = dict(zip(self.layout.names, self.layout.specs, strict=True))
        arrays = [specs.pop(name) for name in self.signature.arrays]
        # a tuple holds one value an argument, unless the only argument is a tree itself
        one_tree = len(arrays) == 1 and arrays != ["*"]
        parts = result if isinstance(result, tuple) and not one_tree else (result,)
        if len(parts) != len(arrays):
            raise SignatureError(
                f"the {self.kind} of {self.signature.name} gives {len(parts)} values for "
                f"{len(arrays)} arguments ({', '.join(self.signature.arrays)})",
                "one value for each array argument, None where there is no derivative",
            )
        leaves = [
            leaf
            for spec, part in zip(arrays, parts, strict=True)
            for leaf in tree.flatten_like(spec, part, self._mismatch)
        ]
        return leaves + [None] * sum(map(tree.leaves_of, specs.values()))

    def _like_out(self, result: Any) -> list[Any]:
        return tree.flatten_like(self.out, result, self._mismatch)

    @functools.cached_property
    def _mismatch(self) -> Callable[[str], Exception]:
        start = f"the {self.kind} of {self.signature.name} gives"
        return lambda what: SignatureError(f"{start} {what}", "a value of the same structure")
