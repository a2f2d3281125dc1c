"""Ops on torch tensors: a gradwright Function is an `autograd.Function` with our derivative.

The derivative of a Function is a Function again, and is bound in the same way: second and higher
derivatives use the op's own rule too.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from ... import emit, tree
from ...derive import Function
from ...errors import GradwrightError, SignatureError
from ...op import Meta, Op, number_meta
from ...signature import Layout, is_number
from . import SPELLING, held

_NAMES = {
    getattr(torch, name): name
    for name in ("bool uint8 int8 int16 int32 int64 uint16 uint32 float16 float32 float64").split()
}
_NARROW = torch.bfloat16  # NumPy has no such dtype: computed in float32, rounded once


# --- derivatives -------------------------------------------------------------------------------
class Absent:
    """Stands for a tensor of which a derivative reads the shape alone: it is not kept alive."""

    requires_grad = False

    def __init__(self, like: "Tensor | Absent") -> None:
        self.shape, self.dtype, self.device = like.shape, like.dtype, like.device


Value: TypeAlias = Tensor | Absent


class Pull(NamedTuple):
    """The reverse derivative by some inputs, and which inputs and outputs its value depends on."""

    vjp: "Bound"
    wrt: list[int]
    read: list[bool]


class Bound:
    """One Function in torch: its program, and its derivatives, bound when first asked for."""

    def __init__(self, function: Function) -> None:
        self.function, self.smooth = function, function.smooth
        self.program = emit.program(function.primal, function.name, SPELLING)
        self.discrete = [k for k in range(len(function.outs)) if k not in self.smooth]
        self._pulls: dict[Sequence[bool], Pull] = {}

    def run(self, xs: Sequence[Any]) -> tuple[Tensor, ...]:
        """The value, which no autocast changes: the dtypes of a graph are explicit."""
        device = xs[0].device.type
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return self.program(*xs)  # type: ignore[no-any-return]
        return self.program(*xs)  # type: ignore[no-any-return]

    def pull(self, needed: Sequence[bool]) -> Pull:
        """The reverse derivative by those inputs that need one."""
        if needed not in self._pulls:
            wrt = [k for k in self.function.wrt if needed[k]]
            vjp = vjp_by(self.function, wrt)
            count = len(self.function.ins) + len(self.function.outs)
            read = [vjp.primal.reads(i) for i in vjp.primal.inputs[:count]]
            self._pulls[needed] = Pull(bound(vjp), wrt, read)
        return self._pulls[needed]

    @cached_property
    def push(self) -> "Bound":
        return bound(self.function.jvp)

    def cotangents(self, needed: Sequence[bool], values: Sequence[Value], cts: Any) -> list[Any]:
        """One for each input, ``None`` where it needs none."""
        pull = self.pull(needed)
        seeds = [_dense(cts[k]) for k in self.smooth]
        found = dict(zip(pull.wrt, apply(pull.vjp, [*values, *seeds]), strict=True))
        return [found.get(k) for k in range(len(needed))]

    def tangents(self, values: Sequence[Value], ts: Sequence[Tensor | None]) -> list[Any]:
        """One for each output, ``None`` for integers."""
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


def bound(function: Function) -> Bound:
    """What torch made of a Function; it lives as long as the Function's graph."""
    made = function.primal.programs
    if "torch function" not in made:
        made["torch function"] = Bound(function)
    return made["torch function"]  # type: ignore[no-any-return]


# --- autograd ----------------------------------------------------------------------------------
class _Eager(torch.autograd.Function):
    """For eager reverse mode: keeps only the tensors that the derivative reads."""

    @staticmethod
    def forward(ctx: Any, bound: Bound, *xs: Any) -> tuple[Tensor, ...]:
        outs = bound.run(xs)
        ctx.bound, ctx.needed = bound, ctx.needs_input_grad[1:]
        try:
            read = bound.pull(ctx.needed).read
        except GradwrightError:  # no derivative is known: backward says so, if it is ever run
            read = [False] * (len(xs) + len(outs))
        _save(ctx, [x if r else Absent(x) for x, r in zip((*xs, *outs), read, strict=True)])
        ctx.mark_non_differentiable(*(outs[k] for k in bound.discrete))
        return outs

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple[Any, ...]:
        return (None, *ctx.bound.cotangents(ctx.needed, _saved(ctx), cts))


class _Transformed(torch.autograd.Function):
    """For torch.func and forward mode, which need a rule for every transform."""

    generate_vmap_rule = True

    @staticmethod
    def forward(bound: Bound, *xs: Any) -> tuple[Tensor, ...]:
        return bound.run(xs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.bound = inputs[0]
        _save(ctx, [*inputs[1:], *output])
        ctx.save_for_forward(*(x for x in (*inputs[1:], *output) if isinstance(x, Tensor)))
        ctx.mark_non_differentiable(*(output[k] for k in ctx.bound.discrete))

    @staticmethod
    def backward(ctx: Any, *cts: Any) -> tuple[Any, ...]:
        needed = (True,) * len(ctx.bound.function.ins)
        return (None, *ctx.bound.cotangents(needed, _saved(ctx), cts))

    @staticmethod
    def jvp(ctx: Any, _bound: None, *ts: Any) -> tuple[Any, ...]:
        return tuple(ctx.bound.tangents(_saved(ctx), ts))


def _save(ctx: Any, values: Sequence[Value]) -> None:
    ctx.save_for_backward(*(x for x in values if isinstance(x, Tensor)))
    ctx.absent = [x if isinstance(x, Absent) else None for x in values]


def _saved(ctx: Any) -> list[Value]:
    tensors = iter(ctx.saved_tensors)
    return [next(tensors) if x is None else x for x in ctx.absent]


def apply(bound: Bound, xs: Sequence[Any]) -> tuple[Tensor, ...]:
    """The value of a Function, with its own derivative in whatever is being differentiated."""
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return _Transformed.apply(bound, *xs)  # type: ignore[no-any-return]
    if torch.is_grad_enabled() and bound.smooth and any([x.requires_grad for x in xs]):
        return _Eager.apply(bound, *xs)  # type: ignore[no-any-return]
    return bound.run(xs)


# --- arguments ---------------------------------------------------------------------------------
def call(op: Op[Any], leaves: Sequence[Any], layout: Layout) -> Any:
    """Run an op on tensors, with numbers and NumPy arrays among them."""
    _refuse_recording(op)
    device = next(leaf.device for leaf in leaves if isinstance(leaf, Tensor))
    metas, xs = zip(*[_argument(leaf, op.name, device) for leaf in leaves], strict=True)
    made = op.traced(metas, layout)
    outs = apply(bound(made.function), xs)
    narrow = _is_narrow(leaves)
    return tree.unflatten(
        made.out,
        [_left(x, n.dtype, narrow) for x, n in zip(outs, made.function.outs, strict=True)],
    )


def _argument(leaf: Any, name: str, device: torch.device) -> tuple[Meta, Tensor]:
    """What is known of an argument, and the tensor that enters the program."""
    if isinstance(leaf, Tensor):
        return _tensor(leaf, name)
    if is_number(leaf):
        meta = number_meta(leaf)
        dtype = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}[meta.dtype]
        return meta, torch.full((), leaf, dtype=dtype, device=device)
    if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "biuf":
        # a copy: autograd cannot see that somebody writes into a NumPy array
        return _tensor(torch.tensor(leaf, device=device), name)
    what = getattr(leaf, "dtype", type(leaf).__name__)
    raise SignatureError(f"{name} was called with {what}", "tensors of real numbers")


def _tensor(x: Tensor, name: str) -> tuple[Meta, Tensor]:
    if x.layout is not torch.strided or x.is_quantized:
        what = "a quantized tensor" if x.is_quantized else f"a tensor of layout {x.layout}"
        raise SignatureError(f"{name} was called with {what}", "x.to_dense() or x.dequantize()")
    if x.dtype is _NARROW:
        return Meta(tuple(x.shape), "float32"), x.to(torch.float32)
    dtype = _NAMES.get(x.dtype)
    if dtype is None:
        raise SignatureError(
            f"{name} was called with a tensor of {x.dtype}", "real numbers: float32, int64, …"
        )
    wide = held(dtype)
    return Meta(tuple(x.shape), dtype), x if wide is None else x.to(wide)


def _is_narrow(leaves: Sequence[Any]) -> bool:
    """Whether bfloat16 is the widest float among the arrays."""
    dtypes = {x.dtype for x in leaves if isinstance(x, Tensor) and x.is_floating_point()}
    return dtypes == {_NARROW}


def _left(x: Tensor, dtype: str, narrow: bool) -> Tensor:
    """A result in the dtype that its node says, or rounded to bfloat16."""
    if narrow and dtype == "float32":
        return x.to(_NARROW)
    return x if held(dtype) is None else x.to(getattr(torch, dtype))


def _refuse_recording(op: Op[Any]) -> None:
    """Raise where torch would record the op's equations and lose its derivative."""
    if torch.jit.is_tracing():  # type: ignore[no-untyped-call]
        raise GradwrightError(
            f"{op.name} inside torch.jit.trace, which would lose its derivative",
            "the op in eager mode",
        )


# --- gw.eager() --------------------------------------------------------------------------------
def eager(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the plain NumPy function on the tensors' memory, without a gradient."""
    leaves, spec = tree.flatten((args, kwargs))
    device = next(leaf.device for leaf in leaves if isinstance(leaf, Tensor))
    args, kwargs = tree.unflatten(spec, [_as_array(leaf) for leaf in leaves])
    outs, out = tree.flatten(function(*args, **kwargs))
    return tree.unflatten(out, [torch.tensor(np.asarray(x), device=device) for x in outs])


def _as_array(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    if leaf.requires_grad and torch.is_grad_enabled():
        raise SignatureError(
            "a tensor that requires a gradient inside gw.eager(), which runs NumPy and records none",
            "x.detach(), or torch.no_grad() around the call",
        )
    array = leaf.detach().cpu().numpy()
    array.flags.writeable = False
    return array
