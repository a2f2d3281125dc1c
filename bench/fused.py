"""Update rules by machine code, on NumPy arrays and on tensors: AdamW and the compact rule."""

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

import gradwright as gw
from gradwright import rules
from gradwright.rule import Rule
from gradwright.targets.fused.program import Program
from gradwright.targets.fused.table import Table

from .runner import OURS, Contest

Array: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[], Any]

LISTS = {
    "one array of 25M": [25_000_000],
    "314 arrays of 25M in all": [25_000_000 // 314] * 314,  # as many as a ResNet-50 has
    "2000 arrays of 64": [64] * 2000,
    "one array of 64": [64],
}
NOISY = 16_000_000
# our time over the peer's at most
OF_LIMIT = {"one array of 25M": 1 / 0.92, "314 arrays of 25M in all": 1 / 0.88}
OF_FUSED = {"314 arrays of 25M in all": 0.80, "2000 arrays of 64": 0.40, "one array of 64": 1.0}
OF_FOREACH = {"314 arrays of 25M in all": 0.25}
OF_OPTAX = {"314 arrays of 25M in all": 0.80}
SIZES = [10**k for k in range(3, 8)] + [3 * 10**k for k in range(3, 7)]
TRAFFIC = 7 * 4  # bytes an element: w, g and two slots are read, all but g are written


def contests(data: str | None = None) -> Iterator[Contest]:
    """AdamW on lists of arrays and of tensors, and the rule with noise on one."""
    del data  # nothing is read
    with_torch = find_spec("torch") is not None
    for name, sizes in LISTS.items():
        limits = {"limit": OF_LIMIT[name]} if name in OF_LIMIT else {}
        limits |= {"torch, fused": OF_FUSED[name]} if name in OF_FUSED else {}
        limits |= {"torch, foreach": OF_FOREACH[name]} if name in OF_FOREACH else {}
        limits |= {"optax, jit": OF_OPTAX[name]} if name in OF_OPTAX else {}
        peers = {"limit": limit(same_traffic, sizes)} | (_torchs(sizes) if with_torch else {})
        peers |= _optax(sizes) if find_spec("optax") and sum(sizes) > NOISY else {}
        yield Contest(f"AdamW, {name}", {OURS: _on_arrays(rules.adamw, sizes), **peers}, limits)
        if with_torch:
            ours = {OURS: _on_tensors(rules.adamw, sizes)}
            yield Contest(f"AdamW of torch, {name}", ours | peers, limits)
    yield from noisy(with_torch)
    yield from by_size(with_torch)


def by_size(with_torch: bool) -> Iterator[Contest]:
    """AdamW on one array of many sizes, for a plot."""
    for n in sorted(SIZES):
        runs = {OURS: _on_arrays(rules.adamw, [n]), "limit": limit(same_traffic, [n])}
        if with_torch:
            runs |= {"gradwright, torch": _on_tensors(rules.adamw, [n])} | _torchs([n])
        yield Contest(f"AdamW, one array of {n:,}", runs, size=n, traffic=TRAFFIC * n)


def _arrays(sizes: Sequence[int]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(n, dtype=np.float32) for n in sizes]


def _on_arrays(rule: Rule[Any], sizes: Sequence[int], **keywords: Any) -> Run:
    w, g = _arrays(sizes), _arrays(sizes)
    optimizer: Any = rule.numpy(w, **keywords)
    optimizer.step(g)  # the second step finds what stays the same
    return lambda: optimizer.step(g)


def _tensors(sizes: Sequence[int]) -> list[Any]:
    import torch

    tensors = [torch.nn.Parameter(torch.from_numpy(a)) for a in _arrays(sizes)]
    for p, g in zip(tensors, _arrays(sizes), strict=True):
        p.grad = torch.from_numpy(g)
    return tensors


def _on_tensors(rule: Rule[Any], sizes: Sequence[int], **keywords: Any) -> Run:
    optimizer = rule.torch(_tensors(sizes), **keywords)
    optimizer.step()
    step: Run = optimizer.step
    return step


# --- the limit: kernels that read and write the same bytes, and compute next to nothing -----------
@gw.rule
def same_traffic(w: Array, g: Array, m: Array = 0.0, v: Array = 0.0) -> Any:
    return w + g, m + g, v + g


@gw.rule
def same_traffic_without_slots(w: Array, g: Array) -> Any:
    return w + g


def limit(rule: Rule[Any], sizes: Sequence[int]) -> Run:
    """The kernel alone, all addresses known, on arrays without gaps that are one in memory."""
    program = Program(rule.example_plan().final, "limit")
    slots = len(rule.own_slots)
    memory = np.ones((2 + slots, sum(sizes)), np.float32)
    table = Table(program, tuple(sizes))
    starts = np.cumsum([0, *sizes[:-1]])
    w, g, *rest = [row.ctypes.data + 4 * starts for row in memory]
    table.addresses[:] = np.stack([w, g, *rest, w, *rest], 1)

    def run() -> Array:
        table.run()
        return memory  # which must live as long

    return run


# --- peers ---------------------------------------------------------------------------------------
def _torchs(sizes: Sequence[int]) -> dict[str, Run]:
    import torch

    runs = {
        f"torch, {kind}": torch.optim.AdamW(_tensors(sizes), **{kind: True}).step
        for kind in ("fused", "foreach")
    }
    return runs | {"torch, in place": _by_hand(_tensors(sizes))}


def _optax(sizes: Sequence[int]) -> dict[str, Run]:
    """optax under jit, on memory that it may write over."""
    import jax
    import optax

    theirs = optax.adamw(1e-3, weight_decay=1e-2)

    def step(w: Any, state: Any, g: Any) -> Any:
        moved, state = theirs.update(g, state, w)
        return optax.apply_updates(w, moved), state

    w, g = (list(map(jax.numpy.array, _arrays(sizes))) for _ in range(2))
    return {"optax, jit": _donated(jax, step, w, theirs.init(w), g)}


def _donated(jax: Any, step: Callable[..., Any], w: Any, state: Any, *rest: Any) -> Run:
    compiled, now = jax.jit(step, donate_argnums=(0, 1)), [w, state]

    def run() -> None:
        now[:] = compiled(*now, *rest)
        jax.block_until_ready(now[0])

    return run


def _by_hand(tensors: Sequence[Any]) -> Run:
    """AdamW as a user writes it, with torch's operations in place."""
    import torch

    means = [(torch.zeros_like(w), torch.zeros_like(w)) for w in tensors]
    count = 0

    @torch.no_grad()
    def step(lr: float = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> None:
        nonlocal count
        count += 1
        for w, (m, v) in zip(tensors, means, strict=True):
            m.mul_(b1).add_(w.grad, alpha=1 - b1)
            v.mul_(b2).addcmul_(w.grad, w.grad, value=1 - b2)
            size = (v / (1 - b2**count)).sqrt_().add_(eps)
            w.mul_(1 - lr * 0.01).addcdiv_(m, size, value=-lr / (1 - b1**count))

    return step


def noisy(with_torch: bool) -> Iterator[Contest]:
    """``low + (w − lr·g + noise·ε − low) mod (high − low)``."""
    sizes, name = [NOISY], f"the compact rule with noise, {NOISY / 1e6:g}M"
    peers = {"limit": limit(same_traffic_without_slots, sizes)}
    limits = {"limit": 1.6, "torch, in place": 0.20, "jax, jit": 0.12}
    if find_spec("jax"):
        peers["jax, jit"] = _noise_of_jax()
    if with_torch:
        peers["torch, in place"] = _noise_by_hand()
    yield Contest(name, {OURS: _on_arrays(rules.compact_sgd, sizes, rng=0), **peers}, limits)
    if with_torch:
        ours = {OURS: _on_tensors(rules.compact_sgd, sizes, rng=0)}
        yield Contest(f"{name}, of torch", ours | peers, limits)


def _noise_by_hand() -> Run:
    import torch

    w, g, noise = (torch.from_numpy(a) for a in _arrays([NOISY] * 3))

    def step() -> None:
        noise.normal_(0, 0.01)
        w.sub_(g, alpha=0.1).add_(noise).add_(10).remainder_(20).sub_(10)

    return step


def _noise_of_jax() -> Run:
    import jax

    def step(w: Any, key: Any, g: Any) -> Any:
        key, now = jax.random.split(key)
        moved = w - 0.1 * g + 0.01 * jax.random.normal(now, w.shape)
        return (moved + 10) % 20 - 10, key

    w, g = (jax.numpy.array(_arrays([NOISY])[0]) for _ in range(2))
    return _donated(jax, step, w, jax.random.PRNGKey(0), g)
