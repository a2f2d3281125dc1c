"""Update rules of NumPy arrays by machine code: AdamW and the compact rule, against peers."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

import gradwright as gw
from gradwright import rules

from .runner import OURS, Contest

Array: TypeAlias = np.ndarray[Any, Any]
LARGE, NOISY, MANY = 25_000_000, 4_000_000, 314


def contests(data: str | None = None) -> Iterator[Contest]:
    """One large array, as many arrays as a ResNet-50 has, and the rule with noise."""
    del data  # nothing is read
    yield adamw("AdamW, one array of 25M", [LARGE])
    yield adamw("AdamW, 314 arrays of 25M in all", [LARGE // MANY] * MANY)
    yield noisy()


def _arrays(sizes: list[int]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(n, dtype=np.float32) for n in sizes]


def adamw(name: str, sizes: list[int]) -> Contest:
    """The limit reads four arrays and writes three, and computes next to nothing."""
    w, g = _arrays(sizes), _arrays(sizes)
    optimizer = rules.adamw.numpy(w)
    runs: dict[str, Callable[[], Any]] = {OURS: lambda: optimizer.step(g), "limit": limit(sizes)}
    if find_spec("torch"):
        runs |= {f"torch, {kind}": torchs(sizes, kind) for kind in ("fused", "foreach")}
    return Contest(name, runs)


@gw.rule
def same_traffic(w: Array, g: Array, m: Array = 0.0, v: Array = 0.0) -> Any:
    return w + g, m + g, v + g


def limit(sizes: list[int]) -> Callable[[], Any]:
    """The same bytes by the same kind of kernel."""
    w, g = _arrays(sizes), _arrays(sizes)
    optimizer = same_traffic.options(engine="fused").numpy(w)
    return lambda: optimizer.step(g)


def torchs(sizes: list[int], kind: str) -> Callable[[], Any]:
    import torch

    w = [torch.nn.Parameter(torch.from_numpy(a)) for a in _arrays(sizes)]
    for p, g in zip(w, _arrays(sizes), strict=True):
        p.grad = torch.from_numpy(g)
    return torch.optim.AdamW(w, **{kind: True}).step


def noisy() -> Contest:
    """``low + (w − lr·g + noise·ε − low) mod (high − low)``."""
    (w,), (g,) = _arrays([NOISY]), _arrays([NOISY])
    optimizer = rules.compact_sgd.numpy(w, rng=0)
    runs: dict[str, Callable[[], Any]] = {OURS: lambda: optimizer.step(g)}
    if find_spec("torch"):
        runs["torch, in place"] = _torchs_noise()
    return Contest("the compact rule with noise, 4M", runs)


def _torchs_noise() -> Callable[[], Any]:
    import torch

    w, g, noise = (torch.from_numpy(a) for a in _arrays([NOISY] * 3))

    def step() -> None:
        noise.normal_(0, 0.01)
        w.sub_(g, alpha=0.1).add_(noise).add_(10).remainder_(20).sub_(10)

    return step
