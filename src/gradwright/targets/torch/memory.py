"""Tensors in this process's memory as a kernel sees them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..fused import pool
from . import SPELLING, dtype

_TYPES = (Tensor, torch.nn.Parameter)
_DTYPES = {
    name: getattr(torch, dtype(name).removeprefix("torch."))
    for name in "bool int float uint8 int8 int16 int32 int64 float32 float64".split()
}


class _Memory:
    """Dense tensors on the CPU, outside of whatever records or transforms what is done to them."""

    spelling = SPELLING
    call = 10_000

    def threads(self) -> int | None:
        return torch.get_num_threads()

    def shapes(self, xs: Sequence[Any]) -> tuple[tuple[int, ...], ...] | None:
        for x in xs:  # those that torch.compile looks at are of classes of their own
            if type(x) not in _TYPES and isinstance(x, Tensor):
                return None
        return tuple([x.shape for x in xs])

    def misfit(self, xs: Sequence[Any], dtypes: Sequence[str]) -> str | None:
        if torch._C._len_torch_dispatch_stack() or torch._C._are_functorch_transforms_active():
            return "what torch records or transforms"
        for x, name in zip(xs, dtypes, strict=True):
            if not x.is_cpu or x.layout is not torch.strided or x.is_neg():
                return f"a tensor on {x.device}, of layout {x.layout}"
            if x.dtype is not _DTYPES.get(name):
                return f"a tensor of {x.dtype}"
        return None

    def array(self, x: Tensor, dtype: str) -> Tensor:
        return x

    def distances(self, x: Tensor) -> tuple[int, ...] | None:
        if x.is_contiguous():
            return None
        size = x.element_size()
        return tuple([d * size for d in x.stride()])

    def address(self, x: Tensor) -> int:
        return x.data_ptr()

    def empty(self, shape: Sequence[int], dtype: str) -> Tensor:
        return torch.from_numpy(pool.empty(shape, dtype))

    def number(self, value: float, dtype: str, rank: int) -> Tensor:
        return torch.full((1,) * rank, value, dtype=_DTYPES[dtype])

    def copy(self, x: Tensor) -> Tensor:
        return x.clone()


MEMORY = _Memory()
