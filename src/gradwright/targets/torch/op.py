"""Ops on torch tensors: arguments in, results out."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import tree
from ...errors import GradwrightError, SignatureError
from ...function import Function
from ...op import ARRAYS, Meta, Op, Traced, array_kind, number_meta
from ...precision import check_widened, is_narrow
from ...signature import Layout, is_number
from ..numpy.op import are_all_arguments
from . import HELD, held
from .autograd import Bound, apply, bound

_PLAIN = {
    getattr(torch, name): name
    for name in "bool uint8 int8 int16 int32 int64 float16 float32 float64".split()
}
_WEAK = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}
_NARROW = torch.bfloat16  # NumPy has no such dtype: computed in float32, rounded once
_TYPES = {Tensor, torch.nn.Parameter}
ARRAYS |= _TYPES
_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # from 2.6 on


class Sizes(tuple[Any, ...]):
    """The sizes of a tensor; under torch.compile one is an int only once it is asked for."""

    def __getitem__(self, axis: Any) -> Any:
        return int(super().__getitem__(axis))


# --- calling -----------------------------------------------------------------------------------
def call(op: Op[Any], leaves: Sequence[Any], layout: Layout) -> Any:
    """Run an op on tensors, with numbers and NumPy arrays among them."""
    device = next(leaf.device for leaf in leaves if isinstance(leaf, Tensor))
    metas, xs = zip(*[_argument(leaf, op.name, device) for leaf in leaves], strict=True)
    made = op.traced(metas, layout)
    if made.for_any_size and are_all_arguments(op, layout) and _are_plain(leaves, made):
        op.ready[array_kind(leaves)] = functools.partial(
            _run, bound(made.function, op.engine), made.out
        )
    if torch._C._is_tracing() or _is_exporting():
        _refuse_recording(made.function)
    outs = _results(apply(bound(made.function, op.engine), xs), made.function, leaves)
    return outs[0] if made.out == "*" else tree.unflatten(made.out, outs)


def _are_plain(leaves: Sequence[Any], made: Traced) -> bool:
    """Whether nothing is converted on the way in or out."""
    plain = all(type(x) in _TYPES and x.dtype in _PLAIN for x in leaves)
    return plain and not any(n.dtype in HELD for n in made.function.outs)


def _run(bound: Bound, out: tree.Spec, *xs: Tensor) -> Any:
    """What `call` comes to for plain tensors of a kind that was seen before."""
    for x in xs:
        if x.layout is not torch.strided:
            _converted(x, bound.function.name)
    if torch._C._is_tracing() or _is_exporting():
        _refuse_recording(bound.function)
    outs = apply(bound, xs)
    return outs[0] if out == "*" else tree.unflatten(out, outs)


def _argument(leaf: Any, name: str, device: torch.device) -> tuple[Meta, Tensor]:
    """What is known of an argument, and the tensor that enters the program."""
    if isinstance(leaf, Tensor):
        dtype = _PLAIN.get(leaf.dtype)
        if dtype is None or leaf.layout is not torch.strided:
            return _converted(leaf, name)
        return Meta(Sizes(leaf.shape), dtype), leaf
    if is_number(leaf) or isinstance(leaf, (torch.SymInt, torch.SymFloat)):
        meta = _number(leaf)
        return meta, torch.full((), leaf, dtype=_WEAK[meta.dtype], device=device)
    if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "biuf":
        # a copy: autograd cannot see that somebody writes into a NumPy array
        return _argument(torch.tensor(leaf, device=device), name, device)
    what = getattr(leaf, "dtype", type(leaf).__name__)
    raise SignatureError(f"{name} was called with {what}", "tensors of real numbers")


def _number(value: Any) -> Meta:
    if isinstance(value, torch.SymInt):
        return Meta((), "int", value)
    return Meta((), "float") if isinstance(value, torch.SymFloat) else number_meta(value)


def _converted(x: Tensor, name: str) -> tuple[Meta, Tensor]:
    """An argument of a dtype that the program holds in another, or an error."""
    if x.layout is not torch.strided or x.is_quantized:
        what = "a quantized tensor" if x.is_quantized else f"a tensor of layout {x.layout}"
        raise SignatureError(f"{name} was called with {what}", "x.to_dense() or x.dequantize()")
    if x.dtype is _NARROW:
        return Meta(Sizes(x.shape), "float32"), x.to(torch.float32)
    for dtype in HELD:
        if x.dtype is getattr(torch, dtype):
            return Meta(Sizes(x.shape), dtype), x.to(held(dtype))
    raise SignatureError(
        f"{name} was called with a tensor of {x.dtype}", "real numbers: float32, int64, …"
    )


def _results(outs: Sequence[Tensor], function: Function, leaves: Sequence[Any]) -> Sequence[Tensor]:
    """The results in the dtypes that the graph says; bfloat16 where that is the widest float."""
    narrow = _is_narrow(leaves)
    if not narrow and not any(n.dtype in HELD for n in function.outs):
        return outs
    if narrow:
        check_widened(function.primal)
    dtypes = ["bfloat16" if narrow and n.dtype == "float32" else n.dtype for n in function.outs]
    return [x.to(getattr(torch, dtype)) for x, dtype in zip(outs, dtypes, strict=True)]


def _is_narrow(leaves: Sequence[Any]) -> bool:
    """Whether there are bfloat16 tensors, and no arrays of another float."""
    if all(getattr(leaf, "dtype", None) is not _NARROW for leaf in leaves):
        return False
    return is_narrow(str(x.dtype).removeprefix("torch.") for x in leaves if hasattr(x, "dtype"))


def _refuse_recording(function: Function) -> None:
    """Raise where torch would record the equations and lose a derivative that they do not have."""
    if function.is_on_host:
        raise GradwrightError(
            f"{function.name} inside torch.jit.trace or torch.export: it runs Python on the host, "
            "which is not there where the program is loaded",
            "torch.compile, or a traced op (gw.op)",
        )
    special = [n for n in function.primal.nodes if n.prim in ("call", "stop_gradient", "variable")]
    if function.own or special:
        raise GradwrightError(
            f"{function.name} inside torch.jit.trace or torch.export, which record its equations "
            "and lose its own derivative",
            "torch.compile, or an op without a rule of its own",
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
            "a tensor that requires a gradient inside gw.eager(), which runs NumPy and has none",
            "x.detach(), or torch.no_grad() around the call",
        )
    array = leaf.detach().cpu().numpy()
    array.flags.writeable = False
    return array
