"""One trace of a rule: its inputs in order, its body run on tracers, its results as stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import plan as planning
from . import tree
from .equation import shown
from .equations import Equations
from .errors import SignatureError
from .graph import WEAK, Graph
from .op import Meta
from .plan import Plan
from .precision import LOW, Storage
from .rng import Rng
from .signature import Layout, is_static
from .trace import Tracer, cast, lift, trace
from .trace.functions import resized
from .trace.specialise import Need


def is_number_meta(m: Meta) -> bool:
    """Whether a keyword's value is a number for all elements, not an array."""
    return not m.shape and m.dtype in (*WEAK, "bool")


def layout_of(keywords: Mapping[str, Any]) -> tuple[list[Any], Layout]:
    """The leaves of the keywords that are no part of the program, and how they make them up."""
    static = tuple((k, v) for k, v in keywords.items() if is_static(v))
    rest = {k: tree.flatten(v) for k, v in keywords.items() if not is_static(v)}
    specs = tuple(spec for _, spec in rest.values())
    return [x for leaves, _ in rest.values() for x in leaves], Layout(tuple(rest), specs, static)


@dataclass(frozen=True)
class Tracing:
    """One trace of a rule, for one kind of parameter and keywords."""

    rule: Equations
    storage: Storage
    metas: Sequence[Meta]  # w, g, own slots
    given: Sequence[Meta]  # the leaves of the keywords
    layout: Layout
    fixed: Mapping[Need, Any]

    def plan(self) -> Plan:
        arrays = len(self.metas) + sum(not is_number_meta(m) for m in self.given)
        own = 1 + len(self.rule.own_slots)
        shared = range(own, own + len(self.rule.shared_slots))
        graph = trace(self.build, self.rule.name)
        sized = any(what == "size" for what, *_ in self.fixed)
        return planning.make(graph, arrays, shared, self.rule.name, sized)

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
        beside = [slot_values[s] for s in self.storage.slots]
        rng = Rng(w, step, identity, seed)
        state, new = self.rule.compute(
            {"w": self.storage.read(w, *beside), "g": g}, slot_values, keywords, step, rng
        )
        first = state[self.rule.rewrites]
        if self.rule.rewrites == "w":
            first, *kept = self._kept(self._shaped("w", lift(graph, first), w), keywords, rng)
            new |= zip(self.storage.slots, kept, strict=True)
        values = [first, *(new[s] for s in own)]
        stored = [
            self._stored(name, lift(graph, value), m, x)
            for name, value, m, x in zip(
                [self.rule.rewrites, *own],
                values,
                [self.metas[0], *self.metas[2:]],
                [w, *slots],
                strict=True,
            )
        ]
        return [*stored, *(cast(lift(graph, new[s]), "float") for s in shared)]

    def _kept(self, w: Tracer, keywords: Mapping[str, Any], rng: Rng) -> list[Any]:
        """w as it is stored and what is kept beside it, both in the domain."""
        dtype = self.metas[0].dtype
        if dtype in LOW:
            w = cast(w, "float32")
        rounded = w.node.dtype != dtype
        if rounded:
            w = self.rule.kept(w, keywords, rounded=False)
        first, *beside = self.storage.write(w, dtype, lambda x: cast(x, dtype), rng.rounding)
        return [self.rule.kept(first, keywords, rounded), *beside]

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
            xs.append(cast(x, "float32") if meta.dtype in LOW else x)
        return xs

    def _number(self, graph: Graph, name: str, meta: Meta) -> Any:
        k = len(graph.inputs)
        x = _input(graph, name, meta.dtype)
        if meta.dtype in ("int", "bool"):
            graph.readable.add(k)
        return self.fixed.get(("value", k), x)

    def _shaped(self, name: str, x: Tracer, like: Tracer) -> Tracer:
        """A new value in the shape that it is stored in."""
        clash = any(
            isinstance(d, int) and isinstance(e, int) and d not in (1, e)
            for d, e in zip(x.dims[::-1], like.dims[::-1], strict=False)
        )
        if x.ndim > like.ndim or clash:
            raise SignatureError(
                f"{self.rule.name} gives {name} {x.ndim} dimensions {shown(x.dims)}, it has "
                f"{like.ndim} {shown(like.dims)}",
                "a value of the same shape",
            )
        if x.ndim < like.ndim or any(d == 1 != e for d, e in zip(x.dims, like.dims, strict=True)):
            x = resized("broadcast_to", x, like.dims)
        return x

    def _stored(self, name: str, value: Tracer, meta: Meta, like: Tracer) -> Tracer:
        """A new value in the shape and dtype that it is stored in."""
        if not meta.dtype.startswith(("float", "bfloat")) and value.dtype.kind == "f":
            raise SignatureError(
                f"{self.rule.name} gives {name} a {value.node.dtype} value, it is {meta.dtype}",
                f"an initial value of that dtype, or .astype(np.{meta.dtype})",
            )
        return cast(self._shaped(name, value, like), meta.dtype)


def _split(pairs: Sequence[tuple[str, Meta]]) -> tuple[list[str], list[Meta]]:
    return [name for name, _ in pairs], [meta for _, meta in pairs]


def _input(graph: Graph, name: str, dtype: str) -> Tracer:
    return Tracer(graph, graph.input(name.replace(".", "_"), (), dtype))
