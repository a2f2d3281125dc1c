"""A Function is a graph together with its derivatives, which are Functions too.

For ``y = f(x)`` the vjp maps a cotangent of y to one of x, and the jvp a tangent of x to one of y.
Both are graphs of ``(inputs, outputs, seeds)``: nothing in between is kept, it is computed again
where it is needed, so a derivative of a derivative is right to any order.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import dims
from .adjoint import Maybe, Tracers, fit, scaled, widened, zeros
from .derive import backward, forward, refused
from .dims import Shape
from .errors import GradwrightError, SignatureError, TraceError
from .graph import Graph, Node, replay, sizes
from .trace.tracer import Specialise, Tracer, is_float, lift, node


@dataclass(frozen=True)
class Own:
    """A user's derivative: its kind, and the rule on flat lists of tracers.

    ``vjp``: (cotangents, inputs, outputs) -> one per input; ``jvp``: (tangents, inputs, outputs)
    -> one per output; ``partials``: (inputs, outputs) -> one per input; ``surrogate``: inputs ->
    outputs, another function whose derivative is used; ``none``: raises, whatever it is given.
    """

    kind: str
    rule: Callable[..., Sequence[Any]]
    # inputs that it gives nothing for: what is said to who asks, and what to write instead
    refused: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    jvp: Callable[..., Sequence[Any]] | None = None  # a forward rule beside a vjp

    @property
    def is_forward(self) -> bool:
        """Whether forward mode is the user's own, for all inputs at once."""
        return self.kind == "jvp" or self.jvp is not None


def no_rule(what: str, instead: str, inputs: Iterable[int]) -> Own:
    """The derivative of a function that has none."""

    def refuse(*_values: Any) -> Sequence[Any]:
        raise TraceError(what, instead)

    return Own("none", refuse, dict.fromkeys(inputs, (what, instead)))


class Function:
    """A graph together with its derivatives, which are Functions too, made when first asked."""

    def __init__(self, primal: Graph, name: str, own: Own | None = None) -> None:
        self.primal, self.name, self.own = primal, name, own

    @cached_property
    def key(self) -> str:
        """A hash of what it computes and of its own derivatives."""
        kind = [self.own.kind] if self.own else []
        parts = [self.primal.key, *kind, *(derivative.key for derivative in self.trace_own())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def trace_own(self) -> list["Function"]:
        """The derivatives that its author wrote, traced; integers have none."""
        if self.own is None or not self.smooth:
            return []
        modes = {"vjp": ["vjp"], "jvp": ["jvp"], "none": []}.get(self.own.kind, ["vjp", "jvp"])
        modes = ["vjp", "jvp"] if self.own.jvp else modes
        return [getattr(self, mode) for mode in modes]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{self.name}#{self.key}"

    @property
    def ins(self) -> list[Node]:
        return [self.primal.nodes[i] for i in self.primal.inputs]

    @property
    def outs(self) -> list[Node]:
        return [self.primal.nodes[i] for i in self.primal.outputs]

    @cached_property
    def wrt(self) -> list[int]:
        """The inputs that have a derivative."""
        return [k for k in self._floats if k not in self.refused]

    @property
    def _floats(self) -> list[int]:
        return [k for k, n in enumerate(self.ins) if is_float(n.dtype)]

    @cached_property
    def refused(self) -> dict[int, GradwrightError]:
        """The float inputs whose derivative nobody knows, with the error for who asks for it.

        These are options of an op with a rule of its own, and inputs that reach one.
        """
        if self.own is None:
            return refused(self.primal, self._floats, self.smooth)
        if self.own.kind == "surrogate":
            return self._surrogate().refused
        return {
            k: TraceError(what, instead, where="")
            for k, (what, instead) in self.own.refused.items()
            if k in self._floats
        }

    @cached_property
    def is_pure(self) -> bool:
        """Whether equal arguments give equal results, so that it may run once or again."""
        return self.impure is None

    @cached_property
    def is_on_host(self) -> bool:
        """Whether it runs Python on the host."""
        nodes = [self.primal.nodes[i] for i in self.primal.live()]
        return any(
            n.prim == "host" or (n.prim == "call" and n["function"].is_on_host) for n in nodes
        )

    @property
    def impure(self) -> Any:
        """A call in it that is not pure, if there is one."""
        nodes = [self.primal.nodes[i] for i in self.primal.live()]
        called = [n["function"] for n in nodes if n.prim in ("call", "host")]
        found = (f.impure if isinstance(f, Function) else f for f in called if not f.is_pure)
        return next(found, None)

    def _once(self, derivative: "Function") -> "Function":
        """A derivative, unless it runs again what may then give another result."""
        if (again := derivative.impure) is not None:
            raise TraceError(
                f"the derivative of {self.name} runs {again.host.name} again, which is not pure",
                f"{again.host.name} outside of {self.name}, its result as an argument; or a rule "
                f"for {self.name} that reads out",
            )
        return derivative

    def check_asked(self, asked: Iterable[int]) -> None:
        """Raise if a derivative by one of these inputs is not known."""
        for k in asked:
            if (why := self.refused.get(k)) is not None:
                raise TraceError(why.what, why.instead)

    @cached_property
    def smooth(self) -> list[int]:
        """The outputs that have a derivative."""
        return [k for k, n in enumerate(self.outs) if is_float(n.dtype)]

    def result_type(self, k: int, shapes: Sequence[Shape]) -> tuple[Shape, str]:
        known = sizes(self.primal, shapes)
        out = self.outs[k]
        return tuple(dims.substitute(d, known) for d in out.shape), out.dtype

    def known_types(
        self, shapes: Sequence[Sequence[int | None]]
    ) -> list[tuple[tuple[int | None, ...], str]]:
        """The shape and dtype of every output, where some sizes are not known yet."""
        open_ = [
            tuple(("in", k, axis) if d is None else d for axis, d in enumerate(shape))
            for k, shape in enumerate(shapes)
        ]
        found = [self.result_type(k, open_) for k in range(len(self.outs))]
        return [
            (tuple(d if isinstance(d, int) else None for d in shape), dtype)
            for shape, dtype in found
        ]

    def _stage(self) -> tuple[Graph, list[Tracer], list[Tracer]]:
        """A new graph with the inputs and the outputs of this function as inputs."""
        g = Graph()
        xs = [
            Tracer(g, g.input(name, n.shape, n.dtype))
            for name, n in zip(self.primal.names, self.ins, strict=True)
        ]
        names = ["out"] if len(self.outs) == 1 else [f"out{k}" for k in range(len(self.outs))]
        outs = [
            Tracer(g, g.input(name, n.shape, n.dtype))
            for name, n in zip(names, self.outs, strict=True)
        ]
        return g, xs, outs

    @cached_property
    def vjp(self) -> "Function":
        """(inputs, outputs, cotangents of the smooth outputs) -> cotangents of `wrt`."""
        if self.own and self.own.kind == "jvp":
            return self._transposed(self.jvp, "jvp")
        g, xs, outs = self._stage()
        cts = _seeds(g, "g", [outs[k] for k in self.smooth])
        back = self._reverse(xs, outs, cts)
        if len(back) != len(xs):
            raise SignatureError(
                f"the {self.own.kind if self.own else 'vjp'} of {self.name} gives {len(back)} "
                f"values for {len(xs)} arrays",
                "one value for each array argument, None where there is no derivative",
            )
        g.outputs = tuple(self._fitted(back[k], xs, outs, k).i for k in self.wrt)
        return self._once(Function(g, f"{self.name}_vjp"))

    def _reverse(self, xs: Tracers, outs: Tracers, cts: Tracers) -> Sequence[Any]:
        if self.own is None:
            env = self._replayed(xs, outs)
            roots: dict[int, Tracer] = {}
            for k, ct in zip(self.smooth, cts, strict=True):
                i = self.primal.outputs[k]
                roots[i] = roots[i] + ct if i in roots else ct
            got = backward(self.primal, env, roots, [self.primal.inputs[k] for k in self.wrt])
            return [got.get(i) for i in self.primal.inputs]
        if self.own.kind == "partials":
            partials = self.own.rule(xs, outs)
            return [None if p is None else scaled(cts[0], p) for p in partials]
        if self.own.kind == "surrogate":
            other = self._surrogate()
            return other.pull(xs, apply(other, xs), dict(zip(self.smooth, cts, strict=True)))
        return self.own.rule(cts, xs, outs)

    @cached_property
    def jvp(self) -> "Function":
        """(inputs, outputs, tangents of `wrt`) -> tangents of the smooth outputs."""
        if self.own and self.own.kind == "vjp" and self.own.jvp is None:
            return self._transposed(self.vjp, "vjp")
        g, xs, outs = self._stage()
        ts = _seeds(g, "t", [xs[k] for k in self.wrt])
        got = self._forward(xs, outs, ts)
        if len(got) != len(outs):
            raise SignatureError(
                f"the jvp of {self.name} gives {len(got)} values for {len(outs)} outputs",
                "one tangent for each output, None for integers",
            )
        g.outputs = tuple(widened(0 if got[k] is None else got[k], outs[k]).i for k in self.smooth)
        return self._once(Function(g, f"{self.name}_jvp"))

    def _forward(self, xs: Tracers, outs: Tracers, ts: Tracers) -> Sequence[Any]:
        full = dict(zip(self.wrt, ts, strict=True))
        if self.own is None:
            env = self._replayed(xs, outs)
            roots = {self.primal.inputs[k]: t for k, t in full.items()}
            tangents = forward(self.primal, env, roots)
            return [tangents.get(i) for i in self.primal.outputs]
        if self.own.kind == "partials":
            partials = self.own.rule(xs, outs)
            pairs = [(full[k], p) for k, p in enumerate(partials) if k in full and p is not None]
            terms = [term for t, p in pairs if (term := scaled(t, p)) is not None]
            return [sum(terms[1:], terms[0]) if terms else None]
        if self.own.kind == "surrogate":
            other = self._surrogate()
            got = other.push(xs, apply(other, xs), [full.get(k) for k in range(len(xs))])
            return [got.get(k) for k in range(len(outs))]
        rule = self.own.jvp or self.own.rule
        return rule([full.get(k) for k in range(len(xs))], xs, outs)

    def _surrogate(self) -> "Function":
        """The function whose derivative stands in, with the same inputs."""
        assert self.own is not None
        g = Graph()
        inputs = [
            Tracer(g, g.input(name, n.shape, n.dtype))
            for name, n in zip(self.primal.names, self.ins, strict=True)
        ]
        outs = [Tracer(g, out.i) for out in self.own.rule(inputs)]
        for out, like in zip(outs, self.outs, strict=True):
            self._check_surrogate(out, like)
        g.outputs = tuple(out.i for out in outs)
        return Function(g, f"{self.name}_surrogate")

    def _check_surrogate(self, out: Tracer, like: Node) -> None:
        """Raise unless a surrogate's result has the shape of the op's, whose place it takes."""
        unequal = [(d, e) for d, e in zip(out.dims, like.shape, strict=False) if d != e]
        read = {at for pair in unequal for d in pair for at in dims.inputs_of(d)}
        if out.ndim == len(like.shape) and read:
            raise Specialise(("size", *at) for at in read)
        if out.ndim != len(like.shape) or unequal:
            raise SignatureError(
                f"the surrogate of {self.name} gives an array of shape {_shown(out.dims)} where "
                f"{self.name} gives {_shown(like.shape)}",
                "a surrogate whose result has the shape of the op's",
            )

    def _replayed(self, xs: Tracers, outs: Tracers) -> dict[int, Tracer]:
        """The primal in the derivative's graph; its outputs are there already."""
        g = (xs or outs)[0].graph
        kept = {
            i: out.i
            for i, out in zip(self.primal.outputs, outs, strict=True)
            if self.primal.nodes[i].prim not in ("input", "const")
        }
        at = replay(self.primal, g, [x.i for x in xs], kept)
        for i, out in zip(self.primal.outputs, outs, strict=True):
            at.setdefault(i, out.i)
        return {i: Tracer(g, j) for i, j in at.items()}

    def _fitted(self, value: Any, xs: Tracers, outs: Tracers, k: int) -> Tracer:
        """The cotangent of input k; a user's is looked at before it is summed to shape."""
        x = xs[k]
        if value is None:
            return zeros(x)
        if self.own and self.own.kind == "vjp" and not isinstance(value, (bool, int, float)):
            self._check_shape(lift(x.graph, value), x, outs, k)
        return fit(value, x)

    def _check_shape(self, ct: Tracer, x: Tracer, outs: Tracers, k: int) -> None:
        widest = max([x.ndim, *(out.ndim for out in outs)])
        narrow = [
            (axis, ct.dims[axis - x.ndim + ct.ndim])
            for axis, d in enumerate(x.dims)
            if ct.ndim >= x.ndim and ct.dims[axis - x.ndim + ct.ndim] != d
        ]
        unknown = [
            ("size", k, axis) for axis, d in narrow if d == 1 and not isinstance(x.dims[axis], int)
        ]
        if unknown:
            raise Specialise(unknown)
        wrong = any(
            isinstance(d, int) and isinstance(x.dims[a], int) and x.dims[a] != 1 for a, d in narrow
        )
        if ct.ndim < x.ndim or ct.ndim > widest or wrong:
            raise SignatureError(
                f"the vjp of {self.name} gives an array of shape {_shown(ct.dims)} for the "
                f"argument {self.primal.names[k]} of shape {_shown(x.dims)}",
                "one cotangent of the argument's shape, or of what it was broadcast to",
            )

    def _transposed(self, linear: "Function", given: str) -> "Function":
        """The other mode of a rule that is linear in its seeds: their reverse mode."""
        g, xs, outs = self._stage()
        first = len(xs) + len(outs)
        smooth, wrt = [outs[k] for k in self.smooth], [xs[k] for k in self.wrt]
        of, to = (smooth, wrt) if given == "vjp" else (wrt, smooth)
        old = _seeds(g, "old", of)
        new = _seeds(g, "t" if given == "vjp" else "g", to)
        at = replay(linear.primal, g, [x.i for x in [*xs, *outs, *old]])
        env = {i: Tracer(g, j) for i, j in at.items()}
        roots: dict[int, Tracer] = {}
        for i, v in zip(linear.primal.outputs, new, strict=True):
            roots[i] = roots[i] + v if i in roots else v
        seeds = linear.primal.inputs[first:]
        got = backward(linear.primal, env, roots, seeds)
        g.outputs = tuple(widened(got.get(i, 0), z).i for i, z in zip(seeds, old, strict=True))
        if any(g.reads(z.i) for z in old):
            what, mode = ("cotangent", "forward") if given == "vjp" else ("tangent", "reverse")
            raise TraceError(
                f"{mode} mode of {self.name}: its {given} is not linear in the {what}, so the "
                "other mode does not follow from it",
                f"{mode} mode only with a linear rule, .partials, or a rule for it",
            )
        return Function(
            _without(g, [z.i for z in old]), f"{self.name}_{'jvp' if given == 'vjp' else 'vjp'}"
        )

    def pull(self, xs: Tracers, outs: Tracers, cts: Mapping[int, Tracer]) -> list[Any]:
        """Cotangents of the inputs (``None`` where there is none), from those of some outputs."""
        full = [widened(cts.get(k, 0), outs[k]) for k in self.smooth]
        back = dict(zip(self.wrt, apply(self.vjp, [*xs, *outs, *full]), strict=True))
        return [back.get(k) for k in range(len(xs))]

    def push(self, xs: Tracers, outs: Tracers, ts: Maybe) -> dict[int, Tracer]:
        """Tangents of the smooth outputs, from those of some inputs."""
        full = [zeros(xs[k]) if (t := ts[k]) is None else widened(t, xs[k]) for k in self.wrt]
        return dict(zip(self.smooth, apply(self.jvp, [*xs, *outs, *full]), strict=True))


def _shown(shape: Shape) -> str:
    known = [d if isinstance(d, int) else "?" for d in shape]
    return f"({', '.join(map(str, known))}{',' if len(known) == 1 else ''})"


def _seeds(g: Graph, name: str, like: Tracers) -> list[Tracer]:
    """Inputs with the shapes and dtypes of others."""
    return [
        Tracer(g, g.input(name if len(like) == 1 else f"{name}{k}", x.dims, x.node.dtype))
        for k, x in enumerate(like)
    ]


def _without(graph: Graph, unread: Sequence[int]) -> Graph:
    """The same graph without some inputs, which nothing reads."""
    g, at = Graph(), {}
    for i, name in zip(graph.inputs, graph.names, strict=True):
        if i not in unread:
            at[i] = g.input(name, graph.nodes[i].shape, graph.nodes[i].dtype)
    for i in graph.live():
        n = graph.nodes[i]
        if n.prim != "input":
            at[i] = g.copy(n, [at[a] for a in n.args])
    g.outputs = tuple(at[i] for i in graph.outputs)
    return g


def apply(function: Function, xs: Tracers) -> list[Tracer]:
    """Use a Function inside a graph: one node if it has a rule of its own, else its equations."""
    g = xs[0].graph
    if function.own is None:
        at = replay(function.primal, g, [x.i for x in xs])
        for name, i in function.primal.records.items():
            g.records[name] = at[i]
        return [Tracer(g, at[i]) for i in function.primal.outputs]
    call = node(g, "call", xs, function=function)
    return [node(g, "item", [call], k=k) for k in range(len(function.outs))]


def inlined(graph: Graph) -> Graph:
    """The same graph with every call replaced by the body of its function."""
    if not any(graph.nodes[i].prim == "call" for i in graph.live()):
        return graph
    g, at = Graph(), {}
    bodies: dict[int, list[int]] = {}
    for i, name in zip(graph.inputs, graph.names, strict=True):
        at[i] = g.input(name, graph.nodes[i].shape, graph.nodes[i].dtype)
    for i in graph.live():
        n = graph.nodes[i]
        if n.prim == "call":
            body = inlined(n["function"].primal)
            inner = replay(body, g, [at[a] for a in n.args])
            bodies[i] = [inner[j] for j in body.outputs]
        elif n.prim == "item" and n.args[0] in bodies:
            at[i] = bodies[n.args[0]][n["k"]]
        elif n.prim != "input":
            at[i] = g.copy(n, [at[a] for a in n.args])
        if i in graph.lines and i in at:
            g.lines.setdefault(at[i], graph.lines[i])
    g.outputs = tuple(at[i] for i in graph.outputs)
    g.records = {name: at[i] for name, i in graph.records.items()}
    return g
