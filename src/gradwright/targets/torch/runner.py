"""How torch runs the parts of a rule: arrays as tensors, numbers in float64 on the host."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import emit
from ...errors import SignatureError
from ...graph import Graph
from ...op import Meta, number_meta
from ...optimizer import Runner, number
from ...signature import is_number
from ..numpy.optimizer import RUNNER as HOST
from . import SPELLING, dtype

_NAMES = {
    getattr(torch, name): name
    for name in "bool uint8 int8 int16 int32 int64 float16 float32 float64".split()
}


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


def run(graph: Graph) -> Callable[..., Any]:
    """A part of a plan as a torch function; its first argument is w."""
    made = graph.programs
    if "torch rule" not in made:
        made["torch rule"] = _compiled(graph)
    return made["torch rule"]  # type: ignore[no-any-return]


def _compiled(graph: Graph) -> Callable[..., Any]:
    program = emit.program(graph, "update", SPELLING)
    held = [
        getattr(torch, dtype(graph.nodes[i].dtype).removeprefix("torch.")) for i in graph.inputs
    ]

    def call(w: Tensor, *rest: Any) -> Any:
        xs = [
            x if isinstance(x, Tensor) else torch.full((), x, dtype=d, device=w.device)
            for x, d in zip(rest, held[1:], strict=True)
        ]
        if not torch.is_autocast_enabled(w.device.type):
            return program(w, *xs)
        with torch.autocast(w.device.type, enabled=False):  # the dtypes of a graph are explicit
            return program(w, *xs)

    return call


def numbers(graph: Graph) -> Callable[..., Any]:
    """A part of a plan that is numbers only, computed by NumPy; sums arrive as tensors."""
    host = HOST.numbers(graph)
    return lambda *xs: host(*map(number, xs))


def view(x: Any) -> np.ndarray[Any, Any]:
    """A tensor as a NumPy array."""
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)


def like(array: np.ndarray[Any, Any], w: Tensor) -> Tensor:
    """A NumPy array as a tensor beside w, with memory of its own."""
    return torch.tensor(array, device=w.device)


RUNNER = Runner(
    meta=meta, run=run, numbers=numbers, add=lambda a, b: a + b.to(a.device), view=view, like=like
)
