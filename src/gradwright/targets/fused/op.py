"""Ops by machine code: kernels where a graph is elementwise, the array library between them."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ... import emit
from ...dims import Shape, substitute
from ...errors import SignatureError
from ...graph import Graph, sizes
from ...primitives import PRIMITIVES
from .fusable import cost, is_uniform, refused
from .loop import Loop, Sized
from .memory import Memory
from .stages import BROADCASTS, Stage, pattern, shaped, spaces, staged

# A library is faster below this many passes times (elements, and what the call of each costs).
WORTH = 100_000
_KEPT = 64  # sizes that are remembered
_BY_ELEMENT = ("elementwise", "compare", "integer", "select", "cast")

_NOT_PLAIN = "what is no plain array, but a class made from it"
_NOT_PURE = "it calls Python that is not pure, whose order is kept"

Run = Callable[[Sequence[Any]], Sequence[Any]]


class Fused:
    """A graph as a callable on the arrays of one library."""

    def __init__(self, graph: Graph, name: str, engine: str, memory: Memory) -> None:
        self.graph, self.name, self.engine, self.memory = graph, name, engine, memory
        self.library = emit.program(graph, name, memory.spelling)
        read = {a for i in graph.live() for a in graph.nodes[i].args} | set(graph.roots)
        places = [k for k, i in enumerate(graph.inputs) if i in read]
        self._places = None if len(places) == len(graph.inputs) else places
        self._dtypes = [graph.nodes[graph.inputs[k]].dtype for k in places]
        self._cost = cost(graph)
        self._is_pure = all(graph.nodes[i].is_pure for i in graph.live())
        self._broadcasts = any(graph.nodes[i].prim in BROADCASTS for i in graph.live())
        self._plans: dict[Hashable, _Plan] = {}
        self._libraries: dict[Hashable, Callable[..., Any]] = {}
        self._made: dict[Hashable, tuple[Run | None, Callable[..., Any]]] = {}

    def __call__(self, *xs: Any) -> Any:
        shapes = self.memory.shapes(xs)
        made = self._made.get(shapes)
        run, library = self._make(shapes) if made is None else made
        if run is None:  # small, mostly: nothing else is asked
            return library(*xs)
        read = xs if self._places is None else [xs[k] for k in self._places]
        reason = self.memory.misfit(read, self._dtypes)
        if reason is not None:
            self._refuse(reason)
            return library(*xs)
        return run(xs)

    def _make(self, shapes: tuple[Shape, ...] | None) -> tuple[Run | None, Callable[..., Any]]:
        """What runs on arrays of these shapes: kernels, if they are worth it, and the library."""
        if len(self._made) >= _KEPT:
            self._made.clear()
        run = self._kernels(shapes)
        library = self.library if shapes is None or run else self._library(shapes)
        self._made[shapes] = run, library
        return run, library

    def _library(self, shapes: tuple[Shape, ...]) -> Callable[..., Any]:
        """The library's program for this pattern of broadcasting: without what changes nothing."""
        if not self._broadcasts:
            return self.library
        key = pattern(shapes)
        if key not in self._libraries:
            try:
                known = shaped(self.graph, key)
            except ValueError:  # they do not fit together: the library says so in its words
                return self.library
            self._libraries[key] = emit.program(known, self.name, self.memory.spelling)
        return self._libraries[key]

    def _kernels(self, shapes: tuple[Shape, ...] | None) -> Run | None:
        """What runs on arrays of these shapes; `None` where the library does it all."""
        if shapes is None or not self._is_pure:
            self._refuse(_NOT_PURE if shapes is not None else _NOT_PLAIN)
            return None
        try:
            largest = max(map(size_of, (*shapes, *_results(self.graph, shapes))))
        except ValueError:  # they do not fit together: the library says so in its words
            return None
        if self.engine == "auto" and not self._is_worth_it(self._cost, largest):
            return None
        key = pattern(shapes)
        if key not in self._plans:
            self._plans[key] = _Plan(shaped(self.graph, key), self.name, self.memory)
        plan = self._plans[key]
        if self.engine == "fused" and (reason := plan.misfit()) is not None:
            self._refuse(reason)
        return plan.sized(shapes, None if self.engine == "fused" else self._is_worth_it)

    def _is_worth_it(self, passes: int, size: int) -> bool:
        """Whether a kernel is likely faster than a library's operations."""
        return passes * (self.memory.call + size) > WORTH

    def _refuse(self, reason: str) -> None:
        """Raise if machine code was asked for."""
        if self.engine == "fused":
            raise SignatureError(
                f'{self.name} with engine="fused": {reason}',
                'engine="auto", which lets the array library do what no kernel does',
            )


def _results(graph: Graph, shapes: Sequence[Shape]) -> list[Shape]:
    known = sizes(graph, shapes)
    return [tuple([substitute(d, known) for d in graph.nodes[i].shape]) for i in graph.roots]


def _spread(function: Callable[..., Any]) -> Run:
    return lambda xs: function(*xs)


def size_of(shape: Sequence[int]) -> int:
    count = 1
    for d in shape:
        count *= d
    return count


class _Plan:
    """The stages of a graph for one pattern of broadcasting, and their programs."""

    def __init__(self, graph: Graph, name: str, memory: Memory) -> None:
        name = name if name.isidentifier() else "f"
        self.graph, self.memory = graph, memory
        self.stages = staged(graph)
        self.loops = [
            None if s.space is None else Loop(s.graph, name, s.space) for s in self.stages
        ]
        self.library = [emit.program(s.graph, name, memory.spelling) for s in self.stages]

    def misfit(self) -> str | None:
        """Why this is not what machine code was asked for."""
        done = spaces(self.graph)
        for i in self.graph.live():
            n = self.graph.nodes[i]
            by_element = PRIMITIVES[n.prim].kind in _BY_ELEMENT if n.args else False
            if by_element and i not in done and not is_uniform(n):
                return f"{refused(self.graph, n)}: the fused target has none"
        return None if any(self.loops) else "nothing in it is a loop over elements of arrays"

    def sized(self, shapes: Sequence[Shape], pays: Callable[[int, int], bool] | None) -> Run | None:
        """A callable for arrays of these shapes; `None` where no kernel is worth its call."""
        known = sizes(self.graph, shapes)
        steps: list[tuple[Stage, Run]] = []
        kernels = 0
        for stage, loop, library in zip(self.stages, self.loops, self.library, strict=True):
            run = _spread(library)
            if loop is not None:
                made = Sized(loop, known, self.memory)
                worth = pays is None or pays(cost(stage.graph), size_of(made.shape))
                if worth and 0 not in made.shape:
                    kernels += 1
                    run = made.run
            steps.append((stage, run))
        if not kernels:
            return None
        roots = self.graph.roots
        if len(steps) == 1 and steps[0][0].new == tuple(roots):
            return steps[0][1]
        return self._in_order(steps)

    def _in_order(self, steps: Sequence[tuple[Stage, Run]]) -> Run:
        roots, copy = self.graph.roots, self.memory.copy
        results = [(k, roots.index(i), i) for k, i in enumerate(roots)]  # none is there twice

        def run(xs: Sequence[Any]) -> Sequence[Any]:
            found = dict[int, Any]()
            for stage, step in steps:
                values = step([*xs, *(found[i] for i in stage.known)])
                found.update(zip(stage.new, values, strict=True))
            return tuple(found[i] if k == first else copy(found[i]) for k, first, i in results)

        return run
