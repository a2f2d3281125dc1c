"""torch: eager mode, `torch.func`, and `torch.compile`."""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..subject import Arrays, Flat
from . import NotOffered, Seeds, Seen

_NARROW = torch.bfloat16
_numbers = count()


class Eager:
    """`torch.autograd.grad`, and `torch.autograd.forward_ad`."""

    framework, name, has_strides = "torch", "torch", True
    dtypes = ("float32", "bfloat16")

    def __init__(self, function: Flat, wrt: Sequence[int]) -> None:
        self.function, self.wrt = function, wrt

    @cached_property
    def _run(self) -> Callable[..., Any]:
        return lambda *xs: tuple(self.function(xs))

    def value(self, xs: Arrays) -> list[Seen]:
        return _seen(self._run(*map(_tensor, xs)))

    def pull(self, xs: Arrays, cts: Seeds) -> list[Seen]:
        tensors = self._leaves(xs)
        return _seen(_pulled(self._run, tensors, self.wrt, _tensors(cts)))

    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]:
        # torch leaves these functions untyped
        make_dual: Any = forward_ad.make_dual
        unpack_dual: Any = forward_ad.unpack_dual
        with forward_ad.dual_level():
            tensors = [_tensor(x) for x in xs]
            for k, t in zip(self.wrt, ts, strict=True):
                tensors[k] = make_dual(tensors[k], _tensor(t))
            outs = [out for out in self._run(*tensors) if out.dtype.is_floating_point]
            pairs = [unpack_dual(out) for out in outs]
            return _seen([_or_zeros(t, out) for out, t in pairs])

    def pull_twice(self, xs: Arrays, cts: Seeds, ws: Arrays) -> list[Seen]:
        tensors = self._leaves(xs)
        first = _pulled(self._run, tensors, self.wrt, _tensors(cts), create_graph=True)
        pairs = [(g, _tensor(w)) for g, w in zip(first, ws, strict=True) if g.requires_grad]
        leaves = [tensors[k] for k in self.wrt]
        if not pairs:
            return _seen([torch.zeros_like(x) for x in leaves])
        outs, seeds = zip(*pairs, strict=True)
        found = torch.autograd.grad(outs, leaves, seeds, allow_unused=True)
        return _seen([_or_zeros(g, x) for g, x in zip(found, leaves, strict=True)])

    def impurity(self, xs: Arrays, cts: Seeds) -> tuple[str, str] | None:
        """Views are torch's to share; memory that is shared behind its back is a fault."""
        tensors, seeds = [_tensor(x) for x in xs], _tensors(cts)
        kept = [_tensor(x) for x in xs]
        with torch.no_grad():
            outs = self.function(tensors)
        if not all(map(_is_same, tensors, kept)):
            return "mutation", "a call changes its argument"
        pairs = [(out, x) for out in outs for x in tensors if out is not x and not out._is_view()]
        if any(_start(out) == _start(x) for out, x in pairs if x.numel()):
            return "alias", "the result shares memory with an argument, and torch does not know it"
        if self.wrt:
            before = _tensors(cts)
            _pulled(self._run, self._leaves(xs), self.wrt, seeds)
            if not all(b is None or _is_same(a, b) for a, b in zip(seeds, before, strict=True)):
                return "mutation", "the gradient's rule changes the cotangent that it is given"
        return None

    def _leaves(self, xs: Arrays) -> list[Tensor]:
        tensors = [_tensor(x) for x in xs]
        for k in self.wrt:
            tensors[k].requires_grad_()
        return tensors


class Functional(Eager):
    """`torch.func.vjp` and `torch.func.jvp`."""

    name = "torch.func"

    def batched(self, xs: Arrays) -> list[Seen]:
        """`torch.func.vmap` over the first axis of all arrays."""
        return _seen(torch.func.vmap(self._run)(*map(_tensor, xs)))

    def pull(self, xs: Arrays, cts: Seeds) -> list[Seen]:
        back = torch.func.vjp(*self._smooth(xs))[1]
        return _seen(back(_smooth_seeds(cts)))

    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]:
        function, *some = self._smooth(xs)
        return _seen(torch.func.jvp(function, tuple(some), tuple(map(_tensor, ts)))[1])

    def pull_twice(self, xs: Arrays, cts: Seeds, ws: Arrays) -> list[Seen]:
        function, *some = self._smooth(xs)
        seeds = _smooth_seeds(cts)
        back = torch.func.vjp(lambda *some: torch.func.vjp(function, *some)[1](seeds), *some)[1]
        return _seen(back(tuple(map(_tensor, ws))))

    def _smooth(self, xs: Arrays) -> list[Any]:
        """The function from its float arrays to its float results, and these arrays."""
        tensors = [_tensor(x) for x in xs]

        def function(*some: Tensor) -> tuple[Tensor, ...]:
            full = list(tensors)
            for k, x in zip(self.wrt, some, strict=True):
                full[k] = x
            return tuple(out for out in self._run(*full) if out.dtype.is_floating_point)

        return [function, *(tensors[k] for k in self.wrt)]


class Compiled(Eager):
    """`torch.compile`, whose backward pass is compiled too."""

    name = "torch.compile"
    backend = "aot_eager"

    def value(self, xs: Arrays) -> list[Seen]:
        return _seen(self._run(*self._leaves(xs)))  # as `pull` calls it: compiled once

    @cached_property
    def _run(self) -> Callable[..., Any]:
        function = self.function
        return _compiled(lambda *xs: tuple(function(xs)), self.backend)

    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]:
        raise NotOffered(
            "torch.compile has no forward mode outside of torch.func", "torch.func.jvp"
        )

    def pull_twice(self, xs: Arrays, cts: Seeds, ws: Arrays) -> list[Seen]:
        raise NotOffered("torch.compile has no second derivative", "torch.func.hessian inside")


class CompiledFunctional(Functional):
    """`torch.compile` of `torch.func.vjp`."""

    name = "compile(func)"
    backend = "aot_eager"

    def value(self, xs: Arrays) -> list[Seen]:
        raise NotOffered("the values are those of torch.compile", "torch.compile")

    def pull(self, xs: Arrays, cts: Seeds) -> list[Seen]:
        run, wrt = self.function, tuple(self.wrt)  # names that Dynamo can follow

        def pull(tensors: Any, cts: Any) -> Any:
            def function(*some: Tensor) -> tuple[Tensor, ...]:
                full = list(tensors)
                for k, x in zip(wrt, some):  # noqa: B905 - Dynamo knows no strict
                    full[k] = x
                return tuple([out for out in run(full) if out.dtype.is_floating_point])

            return torch.func.vjp(function, *[tensors[k] for k in wrt])[1](cts)

        tensors = tuple(_tensor(x) for x in xs)
        return _seen(_compiled(pull, self.backend)(tensors, _smooth_seeds(cts)))

    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]:
        raise NotOffered("the forward mode is that of torch.func", "torch.func.jvp")

    def pull_twice(self, xs: Arrays, cts: Seeds, ws: Arrays) -> list[Seen]:
        raise NotOffered("the second derivative is that of torch.func", "torch.func.hessian")


def _compiled(function: Any, backend: str) -> Callable[..., Any]:
    """Compiled code is kept by code object, and only so much: each function gets its own."""
    fresh = function.__code__.replace(co_name=f"checked_{next(_numbers)}")
    own = FunctionType(fresh, globals(), fresh.co_name, None, function.__closure__)
    compiled = torch.compile(own, backend=backend, dynamic=False, fullgraph=True)

    def call(*args: Any) -> Any:
        try:
            return compiled(*args)
        except torch._dynamo.exc.Unsupported as error:
            reason = str(error).strip().splitlines()[0]
            raise NotOffered(f"torch.compile cannot read the whole of it: {reason}") from None

    return call


def _pulled(
    run: Callable[..., Any],
    tensors: Sequence[Tensor],
    wrt: Sequence[int],
    cts: Sequence[Tensor | None],
    create_graph: bool = False,
) -> list[Tensor]:
    pairs = [(o, ct) for o, ct in zip(run(*tensors), cts, strict=True) if o.requires_grad]
    leaves = [tensors[k] for k in wrt]
    if not pairs:
        return [torch.zeros_like(x) for x in leaves]
    outs, seeds = zip(*pairs, strict=True)
    found = torch.autograd.grad(outs, leaves, seeds, create_graph=create_graph, allow_unused=True)
    return [_or_zeros(g, x) for g, x in zip(found, leaves, strict=True)]


def _is_same(a: Any, b: Any) -> bool:
    return bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))


def _start(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _or_zeros(g: Tensor | None, x: Tensor) -> Tensor:
    return torch.zeros_like(x) if g is None else g


def _tensor(x: Any) -> Tensor:
    """An array as a tensor with its own strides; nobody else's memory."""
    array = np.asarray(x)
    if array.size > 1 and not any(array.strides):
        return _plain(array.reshape(-1)[:1]).reshape(()).expand(array.shape)
    if array.flags.c_contiguous:
        return _plain(array)
    if array.flags.f_contiguous:
        return _plain(array.T).permute(*reversed(range(array.ndim)))
    return torch.stack([_plain(array)] * 2, dim=-1)[..., 0]


def _plain(array: Any) -> Tensor:
    if array.dtype.name == "bfloat16":  # which torch does not know as NumPy's
        return torch.from_numpy(array.astype(np.float32)).to(_NARROW)
    return torch.from_numpy(np.array(array, order="C"))


def _tensors(cts: Sequence[Any]) -> list[Tensor | None]:
    return [None if ct is None else _tensor(ct) for ct in cts]


def _smooth_seeds(cts: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(_tensor(ct) for ct in cts if ct is not None)


def _seen(tensors: Sequence[Tensor]) -> list[Seen]:
    return [_one(x.detach()) for x in tensors]


def _one(x: Tensor) -> Seen:
    wide = x.to(torch.float32) if x.dtype is _NARROW else x
    return Seen(wide.numpy(), str(x.dtype).removeprefix("torch."))


# --- complex numbers as pairs of real ones -----------------------------------------------------
def joined(x: Tensor) -> Tensor:
    """Pairs along the last axis as complex numbers."""
    return torch.complex(x[..., 0], x[..., 1])


def parted(x: Tensor) -> Tensor:
    return torch.stack([x.real, x.imag], dim=-1)


MODES: dict[str, list[type[Eager]]] = {
    "quick": [Eager],
    "normal": [Eager, Functional, Compiled],
    "thorough": [Eager, Functional, Compiled, CompiledFunctional],
    "gradient": [Eager, Functional, Compiled, CompiledFunctional],
}
