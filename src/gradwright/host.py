"""Host ops: any Python function of NumPy arrays, with a gradient, in every framework."""

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, ParamSpec

from . import dims, tree
from .errors import SignatureError
from .function import Function, Own, apply, no_rule
from .graph import Graph
from .gufunc import Gufunc
from .hostcall import Host, PullCall, ValueCall
from .kinds import number_dtype
from .op import Op
from .own import OwnRule
from .signature import Layout
from .trace import Tracer, constant, lift, strong
from .trace.tracer import is_float, node

P = ParamSpec("P")
Out = str | Callable[..., Any] | None

_BATCHES = ("loop", "elementwise")
_NO_DERIVATIVE = "gw.stop_gradient(x), x.detach() or tf.stop_gradient(x)"


class HostOp(Op[P]):
    """An op whose body is any Python: a solver, a simulator, a table.

    Call it on arrays of any framework. Its derivative is the one that it is given: by `vjp`, which
    may run on the host too, by `jvp` (both are allowed), by `surrogate`, or by `partials` if it is
    elementwise. Without one, differentiating raises.
    """

    is_traced = False

    def __init__(
        self, function: Callable[P, Any], out: Out, batch: str, pure: bool, saves: bool
    ) -> None:
        super().__init__(function)
        # the body is not traced, so what it captures may change
        self._functions = [out] if callable(out) else []
        self._out = Gufunc(out, self.signature.arrays, self.name) if isinstance(out, str) else out
        gufunc = self._out if isinstance(self._out, Gufunc) else None
        self.host = Host(self.signature, function, batch, pure, saves, gufunc)
        self._forward: Callable[..., Any] | None = None
        self._pulls_on_host = False

    @property
    def last_error(self) -> BaseException | None:
        """What the body or a rule on the host raised last; compiled code shows it in part only."""
        return self.host.last_error

    @property
    def reference(self) -> Callable[..., Any]:
        """The op itself: with what `out` declares, and without what is saved."""
        return self

    # --- what it returns ---
    def _outputs(
        self, graph: Graph, layout: Layout, leaves: Sequence[Any]
    ) -> tuple[list[Any], list[tree.Spec]]:
        declared, out = tree.flatten(self._declared(graph, layout.arguments(leaves)))
        outs = [strong(lift(graph, x)) for x in declared]
        xs = [Tracer(graph, i) for i in graph.inputs]
        self._check_declared(outs, xs)
        types = tuple(x.dims for x in outs), tuple(x.node.dtype for x in outs)
        ins, numbers = tuple(x.node.dtype for x in xs), self._numbers(xs, layout)
        call = self.host.call(
            (layout, out, ins, *types),
            lambda: ValueCall(self.host, layout, out, ins, numbers, *types),
        )
        whole = node(graph, "host", xs, function=call)
        return [node(graph, "item", [whole], k=k) for k in range(len(outs))], [out]

    def _declared(self, graph: Graph, values: Mapping[str, Any]) -> Any:
        """Traced arrays of the shapes and dtypes of the results."""
        arrays = [x for name in self.signature.arrays for x in tree.flatten(values[name])[0]]
        if self._out is None:
            return functools.reduce(operator.add, arrays)
        if isinstance(self._out, Gufunc):
            return self._by_gufunc(self._out, [lift(graph, x) for x in arrays])
        takes = inspect.signature(self._out).parameters
        options = [name for name in self.signature.options if name in takes]
        return self.signature.call(self._out, values, options)

    def _by_gufunc(self, gufunc: Gufunc, arrays: Sequence[Tracer]) -> Any:
        graph = arrays[0].graph
        sizes = gufunc.sizes([x.dims for x in arrays])
        numbers = [constant(graph, 0, x.node.dtype) for x in arrays]
        zero = functools.reduce(operator.add, numbers)
        shapes = gufunc.results(sizes)
        outs = [node(graph, "broadcast_to", [strong(zero)], shape=shape) for shape in shapes]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _check_declared(self, outs: Sequence[Tracer], xs: Sequence[Tracer]) -> None:
        shape = dims.broadcast(*(x.dims for x in xs))
        if not outs:
            raise SignatureError(
                f"out= of the host op {self.name} declares no array", "one array for each result"
            )
        if self.host.batch == "elementwise" and any(x.dims != shape for x in outs):
            raise SignatureError(
                f'out= of the host op {self.name} with batch="elementwise" declares another shape '
                "than the arguments broadcast to",
                'batch="loop"',
            )

    def _numbers(self, xs: Sequence[Tracer], layout: Layout) -> set[int]:
        """The arguments that the body gets as Python numbers."""
        options = layout.options(self.signature)
        weak = {k for k, x in enumerate(xs) if x.node.dtype in ("int", "float")}
        return weak | {k for k in options if not xs[k].ndim}

    # --- its derivative ---
    def _derivative(
        self, graph: Graph, layout: Layout, out: tree.Spec, fixed: Mapping[Any, Any]
    ) -> Own | None:
        if self._own is None:
            return no_rule(
                f"the derivative of the host op {self.name}, which has no rule",
                f"@{self.name}.vjp with (g, …) -> one cotangent for each argument, or "
                f"{_NO_DERIVATIVE}",
                range(len(graph.inputs)),
            )
        value = next(n["function"] for n in graph.nodes if n.prim == "host")
        kind, function = self._own
        rule = HostRule(
            self.signature, kind, function, layout, out, fixed, value, self._pulls_on_host
        )
        if self._forward is None:
            return rule.own(graph)
        forward = replace(rule, kind="jvp", rule=self._forward)
        return replace(rule.own(graph), jvp=forward.jvp)

    def vjp(self, rule: Any = None, /, *, host: bool = False) -> Any:
        """Declare the reverse rule, ``(g, x, y[, out[, saved]]) -> (cotangent of x, of y)``.

        In NumPy it is traced: then there are derivatives of any order. With `host=True` it is any
        Python, on arrays, and gets what the op saved; then there is the first derivative only.

        >>> import numpy as np, gradwright as gw
        >>> @gw.host_op(out=lambda x: x)
        ... def cube_root(x):
        ...     return np.array([v ** (1 / 3) for v in x.tolist()])
        >>> @cube_root.vjp
        ... def _(g, x, out):
        ...     return g / (3 * out**2)
        >>> gw.grad(lambda x: np.sum(cube_root(x)))(np.array([8.0])).round(4)
        array([0.0833])
        """
        if rule is None:
            return functools.partial(self.vjp, host=host)
        before, self._pulls_on_host = self._pulls_on_host, host
        try:
            self._attach("vjp", rule)
        except SignatureError:
            self._pulls_on_host = before
            raise
        if host:
            self._functions.remove(rule)  # it is not traced either
        return rule

    def _behind(self, kind: str) -> list[str]:
        saved = kind == "vjp" and self._pulls_on_host and self.host.saves
        return super()._behind(kind) + ["saved"] * saved

    def _attach(self, kind: str, rule: Callable[..., Any]) -> None:
        if self._own and {kind, self._own[0]} == {"vjp", "jvp"} and self._forward is None:
            self._accept(kind, rule)
            reverse, self._forward = (rule, self._own[1]) if kind == "vjp" else (self._own[1], rule)
            self._own = "vjp", reverse
            return
        if kind == "partials" and self.host.batch != "elementwise":
            raise SignatureError(
                f"partials of the host op {self.name}, which is not said to be elementwise",
                '@gw.host_op(batch="elementwise"), or vjp',
            )
        super()._attach(kind, rule)


@dataclass(frozen=True)
class HostRule(OwnRule):
    """A rule of a host op, which may run on the host itself."""

    value: ValueCall
    is_host: bool

    def vjp(self, cts: Sequence[Any], xs: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        if not self.is_host:
            return super().vjp(cts, xs, outs)
        options = self.layout.options(self.signature)
        wrt = [k for k, x in enumerate(xs) if is_float(x.node.dtype) and k not in options]
        if not wrt:
            return [None] * len(xs)
        back = apply(self._pull([*cts], [*xs], [*outs], wrt), [*cts, *xs, *outs])
        found = dict(zip(wrt, back, strict=True))
        return [found.get(k) for k in range(len(xs))]

    def _pull(
        self, cts: list[Tracer], xs: list[Tracer], outs: list[Tracer], wrt: list[int]
    ) -> Function:
        """The rule as a function of cotangents, arguments and results, without a derivative."""
        g = Graph()
        given = [_alike(g, f"x{k}", x) for k, x in enumerate([*cts, *xs, *outs])]
        n, m = len(cts), len(cts) + len(xs)
        ins, numbers = tuple(x.node.dtype for x in given), {n + k for k in self.value.numbers}
        shapes = tuple(given[n + k].dims for k in wrt)
        dtypes = tuple(number_dtype(xs[k].node.dtype).name for k in wrt)

        def run(arrays: Sequence[Any]) -> list[Any]:
            back = OwnRule.vjp(self, arrays[:n], arrays[n:m], arrays[m:])
            return [back[k] for k in wrt]

        call = self.value.host.call(
            ("vjp", self.layout, self.out, ins, shapes, dtypes),
            lambda: PullCall(self.value.host, self.rule, run, ins, numbers, shapes, dtypes),
        )
        whole = node(g, "host", given, function=call)
        g.outputs = tuple(node(g, "item", [whole], k=k).i for k in range(len(wrt)))
        name = self.signature.name
        none = no_rule(
            f"another derivative of the host op {name}, whose rule runs on the host",
            f"@{name}.vjp with a rule in NumPy, without host=True, which is traced",
            range(len(given)),
        )
        return Function(g, f"{name}_vjp", none)

    def _last(self, count: int, outs: Sequence[Any], xs: Sequence[Any]) -> list[Any]:
        more = super()._last(count, outs, xs)
        return [*more, self.value.saved(xs)] if count > 1 else more


def _alike(g: Graph, name: str, x: Tracer) -> Tracer:
    """An input like x, of which the same sizes are known."""
    shape = [d if isinstance(d, int) else None for d in x.dims]
    return Tracer(g, g.input(name, shape, x.node.dtype))


def host_op(
    *,
    out: Out = None,
    batch: Literal["loop", "elementwise"] = "loop",
    pure: bool = True,
    saves: bool = False,
) -> Callable[[Callable[P, Any]], HostOp[P]]:
    """Make any Python function of NumPy arrays an op, native in the framework of its arguments.

    The function runs on the host, on read-only arrays (options after ``*`` are Python values), and
    may do what it likes: call a solver, look something up. What it returns is compared with what
    `out` declares: an array of another shape is an error, floats are cast to the declared dtype.

    `out` is a NumPy function of the arguments that returns arrays of the shapes and dtypes of the
    results, or their shapes like ``"(n,m),(m)->(n)"``, the dtype being that which the arguments
    have together. Without it there is one result, of the shape that the arguments broadcast to.

    A batch (``vmap``) is a loop, unless ``batch="elementwise"`` says that the function computes
    each element by itself. With ``pure=False`` each call is run, in order, and none twice. With
    ``saves=True`` it returns ``(value, saved)``: any object, for a rule that runs on the host.

    Exceptions arrive as they are in eager code, and as the framework's in compiled code; the
    original is in `last_error`. In the function, the framework that called it must not be called.

    >>> import numpy as np, gradwright as gw
    >>> @gw.host_op(out="(n),(m)->(n,m)")
    ... def outer(x, y):
    ...     return [[a * b for b in y] for a in x]
    >>> @outer.vjp
    ... def _(g, x, y):
    ...     return g @ y, x @ g
    >>> outer(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    if batch not in _BATCHES:
        raise SignatureError(f"batch={batch!r} of a host op", " or ".join(map(repr, _BATCHES)))
    if saves and not pure:
        raise SignatureError(
            "a host op with saves=True and pure=False: what was saved is found by the values of "
            "the arguments",
            "one more result in place of what is saved, which a rule reads in out",
        )
    return lambda function: HostOp(function, out, batch, pure, saves)
