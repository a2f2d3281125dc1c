"""A gradwright Function as an `autograd.Function` with our derivative.

The derivative of a Function is a Function again, and is bound in the same way: second and higher
derivatives use the op's own rule too.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ... import emit
from ...errors import GradwrightError
from ...function import Function
from ...graph import Graph
from ..fused.op import Fused
from . import SPELLING
from .memory import MEMORY


class Absent:
    """Stands for a tensor of which a derivative reads the shape alone: it is not kept alive."""

    requires_grad = False

    def __init__(self, like: Any) -> None:
        self.shape: torch.Size = like.shape
        self.dtype: torch.dtype = like.dtype
        self.device: torch.device = like.device


Value: TypeAlias = Tensor | Absent


class Pull(NamedTuple):
    """The reverse derivative by some inputs, and what it needs of the inputs and outputs."""

    vjp: "Bound"
    wrt: list[int]
    read: list[int]  # whose values it reads
    absent: list[int]  # inputs of which it reads the shape at most


class Bound:
    """One Function in torch: its program, and its derivatives, bound when first asked for."""

    def __init__(self, function: Function, engine: str) -> None:
        self.function, self.engine, self.smooth = function, engine, function.smooth
        self.count = len(function.ins) + len(function.outs)
        self.discrete = [k for k in range(len(function.outs)) if k not in self.smooth]
        self.program = program(function.primal, function.name, engine)
        self._pulls: dict[Sequence[bool], Pull] = {}

    def run(self, xs: Sequence[Any]) -> tuple[Tensor, ...]:
        """The value, which no autocast changes: the dtypes of a graph are explicit."""
        if torch._C._is_any_autocast_enabled():
            with torch.autocast(xs[0].device.type, enabled=False):
                return self.program(*xs)
        return self.program(*xs)

    def pull(self, needed: Sequence[bool]) -> Pull:
        """The reverse derivative by those inputs that need one."""
        if needed not in self._pulls:
            self.function.check_asked(k for k, is_needed in enumerate(needed) if is_needed)
            wrt = [k for k in self.function.wrt if needed[k]]
            vjp = vjp_by(self.function, wrt)
            inputs = vjp.primal.inputs[: self.count]
            read = [k for k, i in enumerate(inputs) if vjp.primal.reads(i)]
            absent = [k for k in range(len(needed)) if k not in read]
            self._pulls[needed] = Pull(bound(vjp, self.engine), wrt, read, absent)
        return self._pulls[needed]

    def pull_or_none(self, needed: Sequence[bool]) -> Pull | None:
        """``None`` where no derivative is known: backward says so, if it is ever run."""
        try:
            return self._pulls.get(needed) or self.pull(needed)
        except GradwrightError:
            return None

    @cached_property
    def push(self) -> "Bound":
        return bound(self.function.jvp, self.engine)

    def cotangents(self, needed: Sequence[bool], values: Sequence[Value], cts: Any) -> list[Any]:
        """One for each input, ``None`` where it needs none."""
        pull = self.pull(needed)
        outs = values[len(needed) :]
        seeds = [_zeros(outs[k]) if (ct := cts[k]) is None else _dense(ct) for k in self.smooth]
        found = dict(zip(pull.wrt, apply(pull.vjp, [*values, *seeds]), strict=True))
        return [found.get(k) for k in range(len(needed))]

    def tangents(self, values: Sequence[Value], ts: Sequence[Tensor | None]) -> list[Any]:
        """One for each output, ``None`` for integers."""
        self.function.check_asked(k for k, t in enumerate(ts) if t is not None)
        seeds = [_zeros(values[k]) if (t := ts[k]) is None else t for k in self.function.wrt]
        found = dict(zip(self.smooth, apply(self.push, [*values, *seeds]), strict=True))
        return [found.get(k) for k in range(len(self.function.outs))]


def vjp_by(function: Function, wrt: list[int]) -> Function:
    """The reverse derivative by some inputs: the others may have none that is known."""
    if function.own is None:
        part = Function(function.primal, function.name)
        part.wrt = wrt
        return part.vjp
    vjp = function.vjp
    outputs = tuple(vjp.primal.outputs[function.wrt.index(k)] for k in wrt)
    return Function(replace(vjp.primal, outputs=outputs, programs={}), vjp.name)


def _dense(ct: Tensor) -> Tensor:
    return ct if ct.layout is torch.strided else ct.to_dense()


def _zeros(x: Value) -> Tensor:
    return torch.zeros(x.shape, dtype=x.dtype, device=x.device)


def program(graph: Graph, name: str, engine: str) -> Callable[..., tuple[Tensor, ...]]:
    """The graph as a callable on tensors: torch's functions, or those and kernels."""
    return (
        emit.program(graph, name, SPELLING)
        if engine == "numpy"
        else Fused(graph, name, engine, MEMORY)
    )


def bound(function: Function, engine: str) -> Bound:
    """What torch made of a Function; it lives as long as the Function's graph."""
    made = function.primal.programs
    if f"torch function {engine}" not in made:
        made[f"torch function {engine}"] = Bound(function, engine)
    return made[f"torch function {engine}"]  # type: ignore[no-any-return]  # in a dict of Any


class _Eager(torch.autograd.Function):
    """For eager reverse mode: keeps only the tensors that the derivative reads."""

    @staticmethod
    def forward(ctx: Any, bound: Bound, *xs: Any) -> tuple[Tensor, ...]:
        outs = bound.run(xs)
        ctx.bound, ctx.needed = bound, ctx.needs_input_grad[1:]
        ctx.pull = pull = bound.pull_or_none(ctx.needed)
        if pull is not None:
            values = (*xs, *outs)
            ctx.save_for_backward(*[values[k] for k in pull.read])
            ctx.absent = [Absent(xs[k]) for k in pull.absent]
        if bound.discrete:
            ctx.mark_non_differentiable(*[outs[k] for k in bound.discrete])
        return outs

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple[Any, ...]:
        pull = ctx.pull or ctx.bound.pull(ctx.needed)
        values = [None] * len(ctx.needed) + [*cts]  # an output that is not kept has this shape
        for k, x in zip((*pull.read, *pull.absent), (*ctx.saved_tensors, *ctx.absent), strict=True):
            values[k] = x
        return (None, *ctx.bound.cotangents(ctx.needed, values, cts))


class _Transformed(torch.autograd.Function):
    """For torch.func and forward mode, which need a rule for every transform."""

    generate_vmap_rule = True

    @staticmethod
    def forward(bound: Bound, *xs: Any) -> tuple[Tensor, ...]:
        return bound.run(xs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.bound, *xs = inputs
        values = [*xs, *output]
        ctx.absent = [x if isinstance(x, Absent) else None for x in values]
        tensors = [x for x in values if not isinstance(x, Absent)]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*[output[k] for k in ctx.bound.discrete])
        ctx.set_materialize_grads(False)  # so that forward mode says which inputs it asks by

    @staticmethod
    def values(ctx: Any) -> list[Value]:
        tensors = iter(ctx.saved_tensors)
        return [next(tensors) if x is None else x for x in ctx.absent]

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[1:]
        return (None, *ctx.bound.cotangents(needed, _Transformed.values(ctx), cts))

    @staticmethod
    def jvp(ctx: Any, _bound: None, *ts: Any) -> tuple[Any, ...]:
        return tuple(ctx.bound.tangents(_Transformed.values(ctx), ts))


def apply(bound: Bound, xs: Sequence[Any]) -> tuple[Tensor, ...]:
    """The value of a Function, with its own derivative in whatever is being differentiated."""
    # torch leaves Function.apply untyped.
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return _Transformed.apply(bound, *xs)  # type: ignore[no-any-return,no-untyped-call]
    if bound.smooth and torch.is_grad_enabled():
        for x in xs:
            if x.requires_grad:
                return _Eager.apply(bound, *xs)  # type: ignore[no-any-return,no-untyped-call]
    return bound.run(xs)
