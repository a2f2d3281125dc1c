"""What a tensor must be to be optimized, and what its gradient must be."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...compose import Partition
from ...errors import SignatureError, StateError
from ...rule import Rule


class RulesMembers(NamedTuple):
    """A rule, and which parameters of a group it updates."""

    rule: Rule[Any]
    members: list[int]


_FLOATS = torch.float32, torch.float64, torch.float16, torch.bfloat16


def in_order(params: Any) -> list[Any]:
    """What params lists."""
    if isinstance(params, (set, frozenset)):
        raise SignatureError("params is a set, which has no order", "a list")
    return [params] if isinstance(params, Tensor) else list(params)


def named(params: Any) -> tuple[list[str] | None, list[Any]]:
    """The names, if there are any, and the tensors of a group."""
    items = in_order(params)
    pairs = [item for item in items if isinstance(item, tuple)]
    if not pairs:
        return None, items
    if len(pairs) < len(items):
        raise StateError("some of the parameters have no name", "model.named_parameters()")
    return [name for name, _ in pairs], [tensor for _, tensor in pairs]


def check(w: Any, name: str) -> None:
    """Raise unless it is a parameter that the rule can update in place."""
    if not isinstance(w, Tensor):
        raise SignatureError(f"the parameter {name} is a {type(w).__name__}", "a torch tensor")
    if w.layout is not torch.strided:
        raise StateError(
            f"the parameter {name} has the layout {w.layout}: not in this version", "w.to_dense()"
        )
    if w.dtype not in _FLOATS:
        raise StateError(f"the parameter {name} is {w.dtype}", "real floats, torch.float32 say")
    steps = zip(w.stride(), w.shape, strict=True)
    if w.numel() and any(stride == 0 and size > 1 for stride, size in steps):
        raise StateError(
            f"the parameter {name} is expanded: its elements share memory", "a copy: w.clone()"
        )


def apart(old: Iterable[tuple[str, Tensor]], new: Iterable[tuple[str, Tensor]]) -> None:
    """Raise where parameters share memory: it would be updated twice."""
    seen: dict[int, list[tuple[str, Tensor]]] = {}
    for name, w in old:
        seen.setdefault(w.untyped_storage().data_ptr(), []).append((name, w))
    for name, w in new:
        others = seen.setdefault(w.untyped_storage().data_ptr(), [])
        for other, x in others:
            if _overlap(w, x):
                raise StateError(
                    f"the parameters {other} and {name} share memory: it would be updated twice",
                    "each tensor once",
                )
        others.append((name, w))


def _overlap(w: Tensor, x: Tensor) -> bool:
    if w is x:
        return True
    (first, end), (start, stop) = _span(w), _span(x)
    return first < stop and start < end


def _span(w: Tensor) -> tuple[int, int]:
    """The bytes from the first element to the last."""
    if not w.numel():
        return 0, 0
    last = sum((n - 1) * stride for n, stride in zip(w.shape, w.stride(), strict=True))
    start = w.storage_offset()
    return int(start * w.element_size()), int((start + last + 1) * w.element_size())


def by_rule(rule: Rule[Any], names: Sequence[str] | None, count: int) -> list[RulesMembers]:
    """The rules of a group's parameters, and which parameters each has."""
    needs_names = isinstance(rule, Partition) and next(iter(rule.rules)) != "*"
    if names is None and needs_names:
        raise StateError(
            f"{rule.name} chooses a rule by the parameter's name, and params has no names",
            "model.named_parameters()",
        )
    found: dict[int, RulesMembers] = {}
    for k in range(count):
        mine = rule.assign("" if names is None else names[k])
        found.setdefault(id(mine), RulesMembers(mine, [])).members.append(k)
    return list(found.values()) or [RulesMembers(rule, [])]


def gradient(w: Tensor) -> Tensor | None:
    """The gradient of a parameter, if it has one, apart from autograd."""
    return None if w.grad is None else w.grad.detach()
