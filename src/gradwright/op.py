"""Ops: a NumPy function that is differentiable, and native in the framework of its arguments."""

import functools
import inspect
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, get_args

import numpy as np

from . import targets, tree
from .captures import Captures, Capturing
from .dims import inputs_of
from .errors import GradwrightError, SignatureError, TraceError, place
from .function import Function, Own, apply
from .graph import Graph
from .own import OwnRule, check
from .signature import Layout, Signature, plain
from .trace import Specialise, Tracer, lift, strong, trace
from .trace.specialise import Specialising
from .trace.tracer import concrete, graph_of

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])
Engine: TypeAlias = Literal["auto", "numpy", "fused"]

_numbers = itertools.count()
_eager: ContextVar[bool] = ContextVar("gradwright_eager", default=False)


@contextmanager
def eager() -> Iterator[None]:
    """Run ops and rules inside as plain NumPy, in every framework: ``print`` and ``pdb`` work.

    >>> import numpy as np, gradwright as gw
    >>> @gw.op
    ... def double(x):
    ...     print("x is", x)
    ...     return 2 * x
    >>> with gw.eager():
    ...     y = double(np.ones(2))
    x is [1. 1.]
    """
    token = _eager.set(True)
    try:
        yield
    finally:
        _eager.reset(token)


def is_eager() -> bool:
    return _eager.get()


ARRAYS: set[type] = {np.ndarray}  # a target that keeps what is `ready` adds its own


def array_kind(values: Sequence[Any]) -> Hashable:
    """All that decides how an op runs on plain arrays; ``None`` if other values are among them."""
    if not ARRAYS.issuperset(map(type, values)):
        return None
    return tuple([(x.dtype, x.ndim) for x in values])


# What a function raises on arrays where it wants a dict, say.
_OF_WRONG_KINDS = (ArithmeticError, LookupError, TypeError, ValueError)


class Meta(NamedTuple):
    """What is known of an argument before its values: ``None`` in a shape is not known."""

    shape: tuple[int | None, ...]
    dtype: str  # "int" and "float" for Python numbers
    value: Any = None  # of a Python int or bool, which the body may read


class Traced(NamedTuple):
    """A function made for one kind of arguments, and the tree that its outputs form."""

    function: Function
    out: tree.Spec
    for_any_size: bool = True  # whether it reads no size, nor a number


class Op(Capturing, Generic[P]):
    """A differentiable function of arrays, written once in NumPy.

    Call it on arrays of any framework; give it a derivative of its own with `partials`, `vjp`,
    `jvp` or `surrogate`, or none: then it is derived.
    """

    is_traced = True  # its body, for the graph; a host op's is run

    def __init__(self, function: Callable[P, Any], engine: Engine = "auto") -> None:
        functools.update_wrapper(self, function)
        super().__init__([function])
        self.engine = engine
        self.__wrapped__ = function
        self.signature = Signature(function, "the op")
        self._own: tuple[str, Callable[..., Any]] | None = None
        self._made: Specialising[Traced] = Specialising()
        self._was_used = False
        self.ready: dict[Hashable, Callable[..., Any]] = {}  # what runs on arrays of a kind
        self.identity = f"op{next(_numbers)}"  # torch.compile looks at no object's, but at text
        # TensorFlow's AutoGraph reads this attribute, and leaves the op as it is
        self.autograph_info__: dict[str, Any] = {}

    @property
    def reference(self) -> Callable[..., Any]:
        """What the op is, on NumPy arrays: the function as it was written."""
        return self.__wrapped__

    @property
    def name(self) -> str:
        return self.signature.name

    def options(self, *, engine: Engine) -> "Op[P]":
        """The same op with another engine.

        ``"fused"``: machine code for all that is elementwise, on NumPy arrays and tensors in this
        process's memory; ``"numpy"``: the functions of the array library; ``"auto"``: machine code
        where it is likely faster. Raise if there is no such engine.

        >>> import numpy as np, gradwright as gw
        >>> double = gw.op(lambda x: 2 * x).options(engine="fused")
        >>> double(np.ones(2))
        array([2., 2.])
        """
        if engine not in get_args(Engine):
            raise SignatureError(
                f"engine={engine!r} is not in this version",
                f"engine={' or '.join(map(repr, get_args(Engine)))}",
            )
        if not self.is_traced:
            raise SignatureError(
                f"{self.name} runs on the host: no engine computes it",
                "the engine of an op that calls it",
            )
        other: Op[P] = Op(self.__wrapped__, engine)
        other._own, other._functions = self._own, [*self._functions]
        return other

    def __repr__(self) -> str:
        rule = f" with its own {self._own[0]}" if self._own else ""
        return f"<op {self.name}{self.signature.python}{rule}>"

    def __reduce__(self) -> str:
        return self.__wrapped__.__qualname__  # by its import path, as functions are

    # --- calling ---
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        if targets.is_compiling():
            return targets.record(self, args, kwargs)
        self._renew()
        arrays: Any = args
        if kwargs and not self.signature.options:  # the same call, with its arguments in order
            arrays = tuple(self.signature.arguments(args, kwargs).values())
        ready = self.ready.get(array_kind(arrays))
        return self.run(args, kwargs) if ready is None or is_eager() else ready(*arrays)

    def run(self, args: Any, kwargs: Any) -> Any:
        """Call the op on arrays of any framework."""
        leaves, layout = self.signature.layout(args, kwargs)
        graph = graph_of(leaves)
        if graph is not None:
            return self._inside(graph, leaves, layout, args, kwargs)
        target = targets.of(leaves, self.name)
        if is_eager() and self.is_traced:
            return target.eager(self.__wrapped__, args, kwargs)
        return target.call(self, leaves, layout)

    @targets.at_compile_time
    def call_name(self, identity: str, spec: tree.Spec) -> str:
        assert identity == self.identity, "read there, so that compiled code is for this op alone"
        return targets.call_name(self, spec)

    @targets.at_compile_time
    def call_result(self, name: str) -> tree.Spec:
        return targets.call_result(name)  # type: ignore[no-any-return]  # kept in a dict of Any

    def _inside(self, graph: Graph, leaves: Any, layout: Layout, args: Any, kwargs: Any) -> Any:
        """Use the op in a function that is being traced."""
        if self.is_traced and self._own is None:
            result = self.__wrapped__(*args, **kwargs)
            self._was_used = True
            return result
        xs = [lift(graph, leaf) for leaf in leaves]
        metas = [
            Meta(tuple(d if isinstance(d, int) else None for d in x.dims), x.node.dtype, x)
            for x in xs
        ]
        made = self.traced(metas, layout)
        return tree.unflatten(made.out, apply(made.function, xs))

    def traced(self, metas: Sequence[Meta], layout: Layout) -> Traced:
        """The function for arguments of this kind: one for all sizes, unless the body reads one."""
        self._renew()
        kind = (layout, tuple((len(m.shape), m.dtype) for m in metas))
        return self._made.get(
            kind,
            lambda need: _known(need, metas, self.name),
            lambda fixed: self._trace(metas, layout, fixed),
        )

    def _renew(self) -> None:
        """Drop what was traced, if something that the function captured was bound anew."""
        if self._captures.are_rebound():
            self._made, self._captures = Specialising(), Captures()
            self.ready.clear()

    def _trace(
        self, metas: Sequence[Meta], layout: Layout, fixed: Mapping[tuple[Any, ...], Any]
    ) -> Traced:
        names = layout.leaf_names()
        spec: list[tree.Spec] = []

        def build(graph: Graph) -> list[Tracer]:
            leaves: list[Any] = []
            for k, (meta, name) in enumerate(zip(metas, names, strict=True)):
                shape = [fixed.get(("size", k, axis)) for axis in range(len(meta.shape))]
                x = Tracer(graph, graph.input(name, shape, meta.dtype))
                if meta.dtype in ("int", "bool") and not shape:
                    graph.readable.add(k)
                leaves.append(fixed.get(("value", k), x))
            outs, spec[:] = self._outputs(graph, layout, leaves)
            return [strong(lift(graph, x)) for x in outs]

        graph = trace(build, self.name)
        function = Function(graph, self.name, self._derivative(graph, layout, spec[0], fixed))
        function.trace_own()  # now, where it may still ask for a size or an option
        self._was_used = True
        self._captures = Captures(self._functions)  # as the trace left them: it may count itself
        return Traced(function, spec[0], not fixed)

    def _outputs(
        self, graph: Graph, layout: Layout, leaves: Sequence[Any]
    ) -> tuple[list[Any], list[tree.Spec]]:
        """What the op returns for arguments that are traced, and the tree that it forms."""
        values = layout.arguments(leaves)
        result = self.signature.call(self.__wrapped__, values, self.signature.options)
        outs, out = tree.flatten(result)
        if not outs:
            raise SignatureError(
                f"{self.name} returns {'None' if out == '-' else 'no arrays'}",
                "return an array, or a tree of arrays",
                place(self.__wrapped__),
            )
        return outs, [out]

    # --- derivatives of its own ---
    def _derivative(
        self, graph: Graph, layout: Layout, out: tree.Spec, fixed: Mapping[Any, Any]
    ) -> Own | None:
        if self._own is None:
            return None
        return OwnRule(self.signature, *self._own, layout, out, fixed).own(graph)

    def _attach(self, kind: str, rule: Callable[..., Any]) -> None:
        if self._own:
            raise SignatureError(
                f"{self.name} has its own {self._own[0]} already",
                "one of partials, vjp, jvp, surrogate; the others follow from it",
            )
        self._accept(kind, rule)
        self._own = kind, rule

    def _accept(self, kind: str, rule: Callable[..., Any]) -> None:
        if self._was_used:
            raise SignatureError(
                f"{self.name} was used before its {kind} was attached: what was traced then "
                "would go on without it",
                "the rule directly below the op",
            )
        check(self.signature, kind, rule, self._behind(kind), by_name=self.is_traced)
        self._functions.append(rule)

    def _behind(self, kind: str) -> list[str]:
        """What a rule may take behind the arguments."""
        return [] if kind == "surrogate" else ["out"]

    def partials(self, rule: F, /) -> F:
        """Declare the partial derivatives of an elementwise op.

        ``(x, y[, out]) -> (∂out/∂x, ∂out/∂y)``, each an expression of the arguments; reverse and
        forward mode follow.

        >>> import numpy as np, gradwright as gw
        >>> @gw.op
        ... def mod(x, y):
        ...     return np.mod(x, y)
        >>> @mod.partials
        ... def _(x, y):
        ...     return 1, -np.floor_divide(x, y)
        """
        self._attach("partials", rule)
        return rule

    def vjp(self, rule: Any = None, /, *, host: bool = False) -> Any:
        """Declare the reverse rule.

        ``(g, x, y[, out]) -> (cotangent of x, cotangent of y)``, where g is the cotangent of the
        result; ``None`` for integers. Broadcasting is undone and dtypes are restored for you.

        >>> import numpy as np, gradwright as gw
        >>> @gw.op
        ... def times(x, y):
        ...     return x * y
        >>> @times.vjp
        ... def _(g, x, y):
        ...     return g * y, g * x
        """
        if host:
            raise SignatureError(
                f"vjp(host=True) of {self.name}: only a host op has a rule that runs on the host",
                "a rule in NumPy, which is traced",
            )
        self._attach("vjp", rule)
        return rule

    def jvp(self, rule: F, /) -> F:
        """Declare the forward rule, ``(dx, dy, x, y[, out]) -> d out``."""
        self._attach("jvp", rule)
        return rule

    def surrogate(self, function: F, /) -> F:
        """Keep the op's value and use this function's derivative: straight-through, reversal.

        >>> import numpy as np, gradwright as gw
        >>> @gw.op
        ... def ste_round(x):
        ...     return np.round(x)
        >>> @ste_round.surrogate
        ... def _(x):
        ...     return x
        >>> float(gw.grad(ste_round)(0.7))
        1.0
        """
        self._attach("surrogate", function)
        return function

    # --- looking at it ---
    def layer(self, **options: Any) -> Any:
        """Make a Keras layer of the op: its arrays are the layer's inputs.

        `options` are the op's; ``name``, ``dtype`` and ``trainable``, where the op has no such
        option, are the layer's. A saved model has the op by its import path, so a program that
        loads one imports ``gradwright.targets.keras`` and the op's module before.
        """
        return targets.part("keras", "op").layer(self, options)

    def example(self) -> Traced:
        """The op as it was first used; before that on float32 vectors, else matrices."""
        if (made := self._made.first()) is not None:
            return made
        try:
            return self._on_floats(1)
        except (GradwrightError, *_OF_WRONG_KINDS) as error:
            with suppress(GradwrightError, *_OF_WRONG_KINDS):
                return self._on_floats(2)
            if isinstance(error, GradwrightError):
                raise
        raise SignatureError(
            f"{self.name} takes no plain vectors or matrices, so nothing is known to show it for",
            f"one call of {self.name} on arrays of yours, then this",
        )

    def _on_floats(self, rank: int) -> Traced:
        leaves, layout = self._placeholders()
        metas = [
            Meta((None,) * rank, "float32") if leaf is None else number_meta(leaf)
            for leaf in leaves
        ]
        return self.traced(metas, layout)

    def _placeholders(self) -> tuple[list[Any], Layout]:
        parameters = self.signature.python.parameters
        missing = {
            n for n in self.signature.arrays if parameters[n].default is inspect.Parameter.empty
        }
        hole = object()
        values = dict.fromkeys(missing, hole)
        leaves, layout = self.signature.layout([], values)
        return [None if leaf is hole else leaf for leaf in leaves], layout

    def source(self, target: str = "numpy", /) -> str:
        """The op as source of one target, for the arrays that it was first used on."""
        printed = targets.printer(target)
        return printed(self.example().function.primal, self.name)

    def explain(self) -> str:
        """The op as an equation, with its arguments and where its derivative comes from."""
        from . import show

        return show.explain_op(self)

    def latex(self) -> str:
        """The op as an equation in LaTeX."""
        from . import show

        return show.latex_op(self)

    def _repr_latex_(self) -> str:
        return f"$${self.latex()}$$"


def number_meta(value: Any) -> Meta:
    """What is known of a Python number."""
    if isinstance(value, float):
        return Meta((), "float")
    return Meta((), "bool" if isinstance(value, bool) else "int", value)


def _known(need: tuple[Any, ...], metas: Sequence[Meta], name: str) -> Any:
    """The value that a trace needs to know: a size, or a Python number."""
    kind, k, *axis = need
    meta = metas[k]
    if kind == "value":
        if isinstance(meta.value, Tracer):
            return concrete(meta.value, f"{name} reads an option as a number", "a Python number")
        if meta.value is None:
            raise TraceError(
                f"{name} reads argument {k} as a number, and its value is not known yet",
                "a Python bool or int (under jax.jit, one of its static_argnames), or np.where",
            )
        return meta.value
    size = meta.shape[axis[0]]
    if size is not None:
        return size
    if isinstance(meta.value, Tracer):
        raise Specialise(("size", *at) for at in inputs_of(meta.value.dims[axis[0]]))
    raise TraceError(
        f"{name} needs the size of axis {axis[0]} of argument {k} as a Python int, and it is not "
        "known yet",
        "np.zeros_like, np.ones_like, np.full_like or arithmetic on x.shape, which need no size",
    )


def op(function: Callable[P, Any], /) -> Op[P]:
    """Make a NumPy function a differentiable op, native in the framework of its arguments.

    Arguments before ``*`` are arrays, or dicts, lists and tuples of arrays; after it come options:
    numbers are runtime values, an int or bool becomes part of the program only if the body reads
    it, strings and None are part of the program.

    The function is traced once for each kind of arguments. A global or a closure variable that is
    bound to another object is seen, and it is traced again. A change *inside* of one is not seen:
    captured arrays are copied when traced, and attributes of captured objects are read then. Pass
    what changes as an argument.

    >>> import numpy as np, gradwright as gw
    >>> @gw.op
    ... def gelu(x):
    ...     return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    >>> gelu(np.float32([0, 1])).round(4)
    array([0.    , 0.8412], dtype=float32)
    """
    return Op(plain(function))
