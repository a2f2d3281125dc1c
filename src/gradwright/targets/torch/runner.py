"""How torch runs the parts of a rule: arrays as tensors, numbers in float64 on the host."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ... import emit
from ...errors import SignatureError
from ...graph import Graph
from ...op import Meta, number_meta
from ...optimizer import Runner, number
from ...signature import is_number
from ..numpy.checkpoint import narrow_dtype
from ..numpy.optimizer import RUNNER as HOST
from . import SPELLING, dtype

_NAMES = {
    getattr(torch, name): name
    for name in "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
}

Kept: TypeAlias = dict[tuple[int, torch.dtype, torch.device], tuple[Any, Tensor]]


def meta(value: Any) -> Meta:
    """What is known of a tensor or a number before its values."""
    if is_number(value):
        return number_meta(value)
    name = _NAMES.get(value.dtype) if isinstance(value, Tensor) else None
    if name is None or value.layout is not torch.strided:
        what = getattr(value, "dtype", type(value).__name__)
        what = f"a tensor of layout {value.layout}" if name else what
        raise SignatureError(
            f"a rule was called with {what}", "dense tensors: float32, float64, float16, …"
        )
    if value.requires_grad and torch.is_grad_enabled():
        raise SignatureError(
            "a rule was called with a tensor that requires a gradient, which a step has none of",
            "w.detach(), or torch.no_grad() around the call",
        )
    return Meta(tuple(value.shape), name)


class _Program:
    """A part of a plan as a torch function, and what its numbers are held in."""

    def __init__(self, graph: Graph) -> None:
        self.function = emit.program(graph, "update", SPELLING)
        self.held = [_held(graph.nodes[i].dtype) if graph.reads(i) else None for i in graph.inputs]

    def __call__(self, kept: Kept, w: Tensor, *rest: Any) -> Any:
        xs = [
            x if d is None or isinstance(x, Tensor) else _scalar(x, d, w.device, kept)
            for x, d in zip(rest, self.held[1:], strict=True)
        ]
        if not torch.is_autocast_enabled(w.device.type):
            return self.function(w, *xs)
        with torch.autocast(w.device.type, enabled=False):  # the dtypes of a graph are explicit
            return self.function(w, *xs)


def _held(name: str) -> torch.dtype:
    found = getattr(torch, dtype(name).removeprefix("torch."))
    assert isinstance(found, torch.dtype)
    return found


def _scalar(x: Any, held: torch.dtype, device: torch.device, kept: Kept) -> Tensor:
    """A number as a tensor: one for all the parameters that read it."""
    key = id(x), held, device
    if key not in kept:
        kept[key] = x, torch.full((), x, dtype=held, device=device)  # x too, so the id stays its
    return kept[key][1]


def _program(graph: Graph) -> _Program:
    made = graph.programs
    if "torch rule" not in made:
        made["torch rule"] = _Program(graph)
    return made["torch rule"]  # type: ignore[no-any-return]  # kept in a dict of Any


def numbers(graph: Graph) -> Callable[..., Any]:
    """A part of a plan that is numbers only, computed by NumPy; sums arrive as tensors."""
    host = HOST.numbers(graph)
    return lambda *xs: host(*map(number, xs))


def view(x: Any) -> np.ndarray[Any, Any]:
    """A tensor as a NumPy array."""
    if not isinstance(x, Tensor):
        return np.asarray(x)
    is_narrow = x.dtype is torch.bfloat16
    held: np.ndarray[Any, Any] = (x.view(torch.int16) if is_narrow else x).detach().cpu().numpy()
    return held.view(narrow_dtype()) if is_narrow else held


def like(array: np.ndarray[Any, Any], w: Tensor) -> Tensor:
    """A NumPy array as a tensor beside w, with memory of its own."""
    if array.dtype.name == "bfloat16":
        return torch.tensor(array.view(np.int16), device=w.device).view(torch.bfloat16)
    return torch.tensor(array, device=w.device)


RUNNER = Runner(
    meta=meta,
    run=lambda graph: partial(_program(graph), {}),
    numbers=numbers,
    add=lambda a, b: a + b.to(a.device),
    view=view,
    like=like,
)


def runner_of_a_step() -> Runner:
    """A runner that keeps the tensors of numbers for as long as it lives."""
    kept: Kept = {}
    return replace(RUNNER, run=lambda graph: partial(_program(graph), kept))
