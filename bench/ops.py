"""Ops with their gradients by machine code, on NumPy arrays, against torch's built-in ones."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

import gradwright as gw
from gradwright.targets.fused.program import Program, Work, work_of

from .runner import OURS, Contest

Array: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[], Any]

LARGE, SMALL, ROWS, REPEATED = 4_000_000, 10_000, (4096, 1024), 20
ROOT = float(np.sqrt(2 / np.pi))


@gw.op
def gelu(x: Array) -> Any:
    return 0.5 * x * (1 + np.tanh(ROOT * (x + 0.044715 * x**3)))


@gw.op
def mish(x: Array) -> Any:
    return x * np.tanh(np.log1p(np.exp(x)))


@gw.op
def layer_norm(x: Array, w: Array, b: Array) -> Any:
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * w + b


def cross_entropy(x: Array, t: Array) -> Any:
    s = x - np.max(x, axis=-1, keepdims=True)
    return -np.mean(np.sum(t * (s - np.log(np.sum(np.exp(s), axis=-1, keepdims=True))), axis=-1))


@gw.op
def chain(x: Array) -> Any:
    """Twenty of NumPy's functions, one after the other."""
    y = x * 0.5 + 0.25
    y = np.sqrt(np.abs(y) + 1) - 0.5
    y = np.maximum(y, 0.1) * np.minimum(y, 0.9)
    y = np.exp(-y) + np.square(y)
    y = np.log(y + 1) / (y + 2)
    return np.tanh(y) * np.where(y > 0, y, -y)


def contests(data: str | None = None) -> Iterator[Contest]:
    """Values and gradients of a sum, which is what torch's backward gives."""
    del data  # nothing is read
    for size, limit in ((LARGE, 0.30), (SMALL, 0.8)):
        for op in (gelu, mish):
            yield _activation(op, size, limit)
    yield _classifier()
    yield _normalized()
    yield _chain()


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _repeated(run: Run, times: int) -> Run:
    def repeated() -> None:
        for _ in range(times):
            run()

    return repeated


def _with_torch(name: str, ours: Run, theirs: Callable[[Any], Run], limit: float) -> Contest:
    runs = {OURS: ours}
    if find_spec("torch"):
        import torch

        runs["torch"] = theirs(torch)
    return Contest(name, runs, {"torch": limit})


def _activation(op: Any, size: int, limit: float) -> Contest:
    x = _normal(size)
    both = gw.value_and_grad(lambda x: np.sum(op(x)))
    times = REPEATED if size == SMALL else 1

    def theirs(torch: Any) -> Run:
        functions = {"gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
                     "mish": torch.nn.functional.mish}  # fmt: skip
        return _repeated(_backward(torch, functions[op.name], x), times)

    name = f"{op.name} and its gradient, {size:,}" + (f", {times} times" if times > 1 else "")
    return _with_torch(name, _repeated(lambda: both(x), times), theirs, limit)


def _backward(torch: Any, function: Callable[..., Any], *arrays: Array) -> Run:
    """A sum of what torch's function gives, and the gradients of it."""
    xs = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]

    def run() -> Any:
        for x in xs:
            x.grad = None
        out = function(*xs).sum()
        out.backward()
        return out, [x.grad for x in xs]

    return run


def _classifier() -> Contest:
    x = _normal(*ROWS)
    t = np.eye(ROWS[1], dtype=np.float32)[np.arange(ROWS[0]) % ROWS[1]]
    both = gw.value_and_grad(cross_entropy)

    def theirs(torch: Any) -> Run:
        labels = torch.arange(ROWS[0]) % ROWS[1]
        return _backward(torch, lambda x: torch.nn.functional.cross_entropy(x, labels), x)

    return _with_torch("softmax cross-entropy, 4096 x 1024", lambda: both(x, t), theirs, 0.8)


def _normalized() -> Contest:
    arrays = _normal(*ROWS), _normal(ROWS[1], seed=1), _normal(ROWS[1], seed=2)
    both = gw.value_and_grad(lambda *xs: np.sum(layer_norm(*xs)), argnums=(0, 1, 2))

    def theirs(torch: Any) -> Run:
        norm = torch.nn.functional.layer_norm
        return _backward(torch, lambda x, w, b: norm(x, (ROWS[1],), w, b), *arrays)

    return _with_torch("layer norm, 4096 x 1024", lambda: both(*arrays), theirs, 0.8)


def _chain() -> Contest:
    """The memory's bound is a copy, the arithmetic's as much work on elements that lie near.

    Both are kernels that share their work among as many threads.
    """
    x = _normal(LARGE)
    numpys = chain.options(engine="numpy")
    runs: dict[str, Run] = {
        OURS: lambda: chain(x),
        _MEMORY: _passes(same, LARGE, LARGE),
        _ARITHMETIC: _passes(chain, LARGE, NEAR),
        "NumPy, one function after the other": lambda: numpys(x),
    }
    bounds = _MEMORY, _ARITHMETIC
    return Contest("a chain of 20 functions, 4M", runs, bounds=bounds, of_bounds=1.3)


_MEMORY, _ARITHMETIC = "the memory's bound", "the arithmetic's bound"
NEAR, ROWS_NEAR = 2048, 64  # elements that lie in the nearest memory; parts that threads take


@gw.op
def same(x: Array) -> Any:
    return x + 0


def _passes(op: Any, total: int, near: int) -> Run:
    """The kernel of an op over so many elements: of one array, or again and again of short ones."""
    graph = op.example().function.primal
    program = Program(graph, "bound", {graph.inputs[0]: "each"}, ["each"])
    if near == total:
        work, rows = work_of((total,)), 1
    else:
        rows = ROWS_NEAR
        row = np.sort(np.arange(total // near) % rows)
        columns = row, np.zeros_like(row), np.full_like(row, near)
        work = Work(np.stack(columns, axis=1).astype(np.int64))
    arrays = _normal(rows, near), np.empty((rows, near), np.float32)
    starts = [a.ctypes.data + a.strides[0] * np.arange(rows) for a in arrays]
    table = np.stack([*starts, np.zeros(rows, np.int64)], axis=1).astype(np.uint64)

    def run() -> Any:
        program.over(table, work)
        return arrays  # which must live as long

    return run
