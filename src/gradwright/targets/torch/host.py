"""Host ops in torch: one operator for all of them, `gradwright::host`.

It takes the number of a call and its tensors: an operator of its own for each would never go away.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.fx.node import has_side_effect
from torch.overrides import TorchFunctionMode

from ... import hostcall
from ...errors import GradwrightError
from ...hostcall import HostCall
from ...kinds import number_dtype
from . import HELD, held

_library: Any = torch.library.Library("gradwright", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own is untyped
_SCHEMA = "{}(int call, int time, Tensor[] xs) -> Tensor[]"
_library.define(_SCHEMA.format("host"))
# The same for calls that are not pure: compilers keep what is so marked, and in order. That no
# two are equal, and made one, is for the number `time`.
_library.define(_SCHEMA.format("host_once"), tags=(torch.Tag.nondeterministic_seeded,))
has_side_effect(torch.ops.gradwright.host_once.default)
_times = itertools.count(1)


def host(call: HostCall, *xs: Tensor) -> Sequence[Tensor]:
    """Run Python on the host, on tensors of any device and in any transform."""
    operators, time = torch.ops.gradwright, 0 if call.is_pure else next(_times)
    operator = operators.host if call.is_pure else operators.host_once
    outs: Sequence[Tensor] = operator.default(call.handle, time, xs)
    return outs


def dtype(name: str) -> torch.dtype:
    plain: torch.dtype = getattr(torch, number_dtype(name).name)
    return held(name) if name in HELD else plain


class _Refusing(TorchFunctionMode):
    """Inside of a host op that torch called, torch is not to be called: compiled code may hang."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __torch_function__(self, function: Any, *_arguments: Any) -> Any:
        raise GradwrightError(
            f"the host op {self.name} was called by torch, and calls torch itself "
            f"({getattr(function, '__name__', function)})",
            "NumPy in it; what torch computes as an argument",
        )


def _apart(call: HostCall, body: Callable[[], list[Any]]) -> list[Any]:
    with _Refusing(call.name):
        return body()


def _run(handle: int, time: int, xs: Sequence[Tensor]) -> list[Tensor]:
    call = hostcall.find(handle)
    arrays = [x.detach().cpu().numpy() for x in xs]
    outs = call.run(arrays, _apart)
    rows = zip(outs, call.outs, strict=True)
    return [torch.from_numpy(out).to(xs[0].device, dtype(name)) for out, name in rows]


def _like(handle: int, time: int, xs: Sequence[Tensor]) -> list[Tensor]:
    """Tensors like the results, of which nothing but the types is known."""
    call = hostcall.find(handle)
    shapes = call.result_shapes([x.shape for x in xs])
    rows = zip(shapes, call.outs, strict=True)
    return [xs[0].new_empty(shape, dtype=dtype(name)) for shape, name in rows]


def _batched(
    info: Any, in_dims: Any, handle: int, time: int, xs: Sequence[Tensor]
) -> tuple[Any, Any]:
    """vmap: one call if the function is elementwise, else one for each example."""
    call = hostcall.find(handle)
    axes = in_dims[2]
    if call.is_elementwise:
        rank = max(x.ndim - (d is not None) for x, d in zip(xs, axes, strict=True))
        outs = host(call, *[_padded(x, d, rank) for x, d in zip(xs, axes, strict=True)])
    elif not info.batch_size:
        shapes = [_without(x.shape, d) for x, d in zip(xs, axes, strict=True)]
        rows = zip(call.result_shapes(shapes), call.outs, strict=True)
        outs = [xs[0].new_empty((0, *shape), dtype=dtype(name)) for shape, name in rows]
    else:
        each = [host(call, *_example(xs, axes, k)) for k in range(info.batch_size)]
        outs = [torch.stack(parts) for parts in zip(*each, strict=True)]
    return outs, [0] * len(outs)


def _batched_by_autograd(handle: int, time: int, xs: Sequence[Tensor]) -> list[Tensor]:
    """The older vmap, by which autograd runs a backward pass for several cotangents at once.

    It has rules by operator and no public way to write one.
    """
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    is_batched = torch._C._functorch.is_legacy_batchedtensor
    size = next(torch._remove_batch_dim(x, level, 0, 0).shape[0] for x in xs if is_batched(x))
    whole = [torch._remove_batch_dim(x, level, size, 0) for x in xs]
    outs, _ = _batched(
        SimpleNamespace(batch_size=size), (None, None, [0] * len(xs)), handle, time, whole
    )
    return [torch._add_batch_dim(out, 0, level) for out in outs]


def _padded(x: Tensor, d: int | None, rank: int) -> Tensor:
    """An argument whose batch comes first, before as many dimensions as the others have."""
    if d is None:
        return x
    x = x.movedim(d, 0)
    return x.reshape(x.shape[0], *(1,) * (rank - x.ndim + 1), *x.shape[1:])


def _without(shape: Sequence[int], d: int | None) -> Sequence[int]:
    return shape if d is None else [*shape[:d], *shape[d + 1 :]]


def _example(xs: Sequence[Tensor], axes: Sequence[int | None], k: int) -> Iterator[Tensor]:
    for x, d in zip(xs, axes, strict=True):
        yield x if d is None else x.select(d, k)


for _name in ("host", "host_once"):
    _library.impl(_name, _run, "CompositeExplicitAutograd")
    _library.impl(_name, _batched_by_autograd, "Batched")
    torch.library.register_fake(f"gradwright::{_name}", _like, lib=_library)
    torch.library.register_vmap(f"gradwright::{_name}", _batched, lib=_library)
