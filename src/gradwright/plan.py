"""Cut the graph of a rule where it must be cut, and run the pieces over all parameters.

Three kinds of things are in the graph of a rule. *Numbers* are made of hyperparameters and the
step only: they are computed once, in float64, so ``1 - b2**step`` is accurate. A *phase* is what
every parameter adds to a `global_sum`. The *final* part gives a parameter its new values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from .errors import SignatureError
from .function import inlined
from .graph import Graph, Node
from .primitives import PRIMITIVES

_BY_ELEMENT = "elementwise compare integer select cast identity".split()
Run: TypeAlias = Callable[[Graph], Callable[..., Any]]  # a graph to a callable of some target


@dataclass(frozen=True)
class Stage:
    """Numbers that depend on earlier totals, then the totals that depend on those numbers."""

    numbers: Graph  # (numbers…, totals so far…) -> the numbers that later parts read
    phase: Graph | None  # (arrays…, identity, numbers read so far…) -> one summand per total


@dataclass(frozen=True, eq=False)
class Plan:
    """The pieces of one rule for parameters of one rank and dtype."""

    graph: Graph  # all of it: (w, g, slots, arrays given, identity, shared slots, numbers…)
    stages: tuple[Stage, ...]
    final: Graph  # (arrays…, identity, all numbers read…) -> new w, new slots, what is recorded
    shared: int  # how many of the last stage's numbers are new values of shared slots
    totals: tuple[int, ...]  # how many totals each stage sums
    sized: bool = False  # whether a size of an array was read while it was traced

    @cached_property
    def is_by_element(self) -> bool:
        """Whether each element's new values are made of numbers and what is at its place only.

        Then a part of a parameter can be updated without the rest of it.
        """
        final = self.final
        nodes = [final.nodes[i] for i in final.live()]
        shapes = {n.shape for n in nodes if not _is_one(n)}
        apart = not (self.sized or self.totals or final.records) and len(shapes) == 1
        return apart and all(_is_by_element(final, n) for n in nodes)


def _is_one(n: Node) -> bool:
    return all(size == 1 for size in n.shape)


def _is_by_element(graph: Graph, n: Node) -> bool:
    if n.prim == "input":
        return True
    if n.prim in ("const", "broadcast_to", "expand_dims", "reshape"):
        return _is_one(n if n.prim == "const" else graph.nodes[n.args[0]])
    return PRIMITIVES[n.prim].kind in _BY_ELEMENT


def make(graph: Graph, arrays: int, shared: Sequence[int], name: str, sized: bool = False) -> Plan:
    """Plan a rule's graph; inputs after the first `arrays` and the identity are numbers.

    `shared` names the outputs that are one number for all parameters; `sized` says whether the
    trace holds for some sizes only.
    """
    graph, of_shared = inlined(graph), set(shared)
    levels = _levels(graph, arrays)
    kept = [out for k, out in enumerate(graph.outputs) if k not in of_shared]
    ends = [graph.outputs[k] for k in shared]
    for k, i in zip(shared, ends, strict=True):
        if levels.get(i) is None and graph.nodes[i].prim != "const":
            raise SignatureError(
                f"{name} gives a shared slot (output {k}) a value that differs by parameter",
                "only hyperparameters, shared slots, step and gw.global_sum(x) in it",
            )
    depth = max([0, *(levels[i] for i in levels if graph.nodes[i].prim == "global_sum")])
    totals = [
        [i for i in graph.live() if graph.nodes[i].prim == "global_sum" and levels[i] == level]
        for level in range(1, depth + 1)
    ]
    read = _numbers_read(graph, levels, [*kept, *graph.records.values()])
    stages, known, summed = [], [], []  # type: list[Stage], list[int], list[int]
    for level in range(depth + 1):
        new = [i for i in read if levels[i] == level]
        outs = [*new, *(ends if level == depth else [])]
        numbers = cut(graph, graph.inputs[arrays + 1 :], summed, outs)
        known += new
        phase = None
        if level < depth:
            summands = [graph.nodes[i].args[0] for i in totals[level]]
            phase = cut(graph, graph.inputs[: arrays + 1], known, summands)
            summed = summed + totals[level]
        stages.append(Stage(numbers, phase))
    final = cut(graph, graph.inputs[: arrays + 1], known, kept, graph.records)
    return Plan(graph, tuple(stages), final, len(ends), tuple(map(len, totals)), sized)


def _levels(graph: Graph, arrays: int) -> dict[int, int]:
    """The nodes that are numbers for all parameters, and how many sums over them come before."""
    level = dict.fromkeys(graph.inputs[arrays + 1 :], 0)
    after = dict.fromkeys(graph.inputs, 0)  # the same count, for every node
    for i in graph.live():
        n = graph.nodes[i]
        before = max((after.get(a, 0) for a in n.args), default=0)
        after[i] = before + (n.prim == "global_sum")
        if n.prim == "global_sum" or _is_number(graph, i, level):
            level[i] = after[i]
    return level


def _is_number(graph: Graph, i: int, numbers: Mapping[int, int]) -> bool:
    """Whether a node is made of numbers only."""
    n = graph.nodes[i]
    if not n.args or n.shape or PRIMITIVES[n.prim].kind == "random":
        return False
    return all(a in numbers or graph.nodes[a].prim == "const" for a in n.args)


def _numbers_read(graph: Graph, levels: Mapping[int, int], roots: Sequence[int]) -> list[int]:
    """The numbers that the parts of single parameters read."""
    read = {i for i in roots if i in levels}
    for i in graph.live():
        if i not in levels or graph.nodes[i].prim == "global_sum":
            read.update(a for a in graph.nodes[i].args if a in levels)
    return sorted(read)


def cut(
    graph: Graph,
    inputs: Sequence[int],
    known: Sequence[int],
    outputs: Sequence[int],
    records: Mapping[str, int] | None = None,
) -> Graph:
    """The part of a graph that computes `outputs` from inputs and values known already."""
    part, at = Graph(), {}
    taken: set[str] = set()
    for i in [*inputs, *known]:
        if i not in at:
            n = graph.nodes[i]
            at[i] = part.input(_unique(_name(graph, i), taken), n.shape, n.dtype)
    for i in graph.live([*outputs, *(records or {}).values()]):
        n = graph.nodes[i]
        if i in at or not _computable(graph, i, at):
            continue
        at[i] = part.copy(n, [at[a] for a in n.args])
        part.lines[at[i]] = graph.lines.get(i, "")
    part.outputs = tuple(at[i] for i in outputs)
    part.records = {name: at[i] for name, i in (records or {}).items()}
    return part


def _computable(graph: Graph, i: int, at: Mapping[int, int]) -> bool:
    """Whether a node belongs to this part: what lies only above known values does not."""
    n = graph.nodes[i]
    return n.prim not in ("input", "global_sum") and all(a in at for a in n.args)


def _name(graph: Graph, i: int) -> str:
    """A readable name for a value that becomes an input: the hyperparameter's where it is one."""
    n = graph.nodes[i]
    if n.prim == "input":
        return str(graph.names[n["k"]])
    if n.prim == "astype" and graph.nodes[n.args[0]].prim == "input":
        return _name(graph, n.args[0])
    return "total" if n.prim == "global_sum" else "s"


def _unique(name: str, taken: set[str]) -> str:
    found, k = name, 1
    while found in taken:
        k += 1
        found = f"{name}{k}"
    taken.add(found)
    return found


class Part(NamedTuple):
    """What one parameter brings to a step."""

    plan: Plan
    name: str
    arrays: tuple[Any, ...]  # w, g, slots, arrays given
    identity: int
    numbers: tuple[Any, ...]  # shared slots, hyperparameters, step, seed


class Result(NamedTuple):
    """What a step gives one parameter: new w and slots, records, new shared slots."""

    values: tuple[Any, ...]
    shared: tuple[Any, ...]
    records: tuple[str, ...] = ()  # the names of the last values


class Ready(NamedTuple):
    """A parameter before the last part of a step: all that part reads is known."""

    part: Part
    read: tuple[Any, ...]  # the numbers, and the totals over all parameters
    shared: tuple[Any, ...]  # new values of the shared slots


def advance(
    parts: Sequence[Part], run: Run, run_numbers: Run, add: Callable[[Any, Any], Any], rule: str
) -> list[Ready]:
    """Compute what a step of a rule needs to know of all parameters; nothing is written."""
    if not parts:
        return []
    if len(parts) == 1 and len(parts[0].plan.stages) == 1:
        return [_alone(parts[0], run_numbers)]
    _same_totals(parts, rule)
    totals: list[Any] = []
    read: list[tuple[Any, ...]] = [()] * len(parts)
    shared: list[tuple[Any, ...]] = [()] * len(parts)
    for level in range(len(parts[0].plan.stages)):
        memo: dict[Any, tuple[Any, ...]] = {}  # the same numbers are computed once
        sums: list[Any] = []
        for j, part in enumerate(parts):
            stage = part.plan.stages[level]
            key = (
                id(part.plan),
                *(n if isinstance(n, (int, float)) else id(n) for n in part.numbers),
            )
            if key not in memo:
                memo[key] = _numbers_of(stage, run_numbers, (*part.numbers, *totals))
            fresh = memo[key]
            if level == len(part.plan.stages) - 1:
                cut = len(fresh) - part.plan.shared
                fresh, shared[j] = fresh[:cut], fresh[cut:]
            read[j] = (*read[j], *fresh)
            if stage.phase is not None:
                terms = run(stage.phase)(*part.arrays, part.identity, *read[j])
                sums = (
                    [add(s, t) for s, t in zip(sums, terms, strict=True)] if sums else list(terms)
                )
        totals += sums
    return [Ready(p, r, s) for p, r, s in zip(parts, read, shared, strict=True)]


def finish(ready: Ready, run: Run) -> Result:
    """Compute a parameter's new values, as new arrays."""
    final, part = ready.part.plan.final, ready.part
    values = run(final)(*part.arrays, part.identity, *ready.read)
    return Result(tuple(values), ready.shared, tuple(final.records))


def _alone(part: Part, run_numbers: Run) -> Ready:
    """The step of one parameter, which sums over no others."""
    numbers = _numbers_of(part.plan.stages[0], run_numbers, part.numbers)
    read = len(numbers) - part.plan.shared
    return Ready(part, numbers[:read], numbers[read:])


def _numbers_of(stage: Stage, run: Run, known: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(run(stage.numbers)(*known)) if stage.numbers.outputs else ()


def _same_totals(parts: Sequence[Part], rule: str) -> None:
    first = parts[0]
    for part in parts:
        if part.plan.totals != first.plan.totals:
            raise SignatureError(
                f"{rule} calls gw.global_sum {sum(first.plan.totals)} times for the parameter "
                f"{first.name} and {sum(part.plan.totals)} times for {part.name}: a sum over all "
                "parameters needs all of them",
                "gw.global_sum outside the if, for every parameter",
            )
