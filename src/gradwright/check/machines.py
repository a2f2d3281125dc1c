"""Optimizers of each framework as one thing: arrays in, steps, what is saved."""

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from .differences import Array

Make: TypeAlias = Callable[..., Any]  # (params, **keywords) -> an optimizer
Gradients: TypeAlias = Sequence[Array | None]


class Machine(Protocol):
    """An optimizer and its parameters."""

    framework: str

    def step(self, gradients: Gradients) -> None: ...
    def weights(self) -> list[Array]: ...
    def slots(self) -> list[dict[str, Array]]: ...
    def save(self) -> Any: ...
    def load(self, saved: Any) -> None: ...


class OfNumpy:
    """An optimizer of NumPy arrays."""

    framework = "numpy"

    def __init__(self, make: Make, arrays: Sequence[Array], keywords: Mapping[str, Any]) -> None:
        self.params = [np.array(a, order="K") for a in arrays]
        self.optimizer = make(self.params, **keywords)

    def step(self, gradients: Gradients) -> None:
        self.optimizer.step([None if g is None else g.copy() for g in gradients])

    def weights(self) -> list[Array]:
        return [p.copy() for p in self.params]

    def slots(self) -> list[dict[str, Array]]:
        states = self.optimizer.state_dict()["parameters"]
        return [{k: np.array(v) for k, v in state["slots"].items()} for state in states]

    def save(self) -> Any:
        return copy.deepcopy(self.optimizer.state_dict())

    def load(self, saved: Any) -> None:
        self.optimizer.load_state_dict(saved)


class OfTorch:
    """A `torch.optim.Optimizer`; what it saves goes through a file, as plain data."""

    framework = "torch"

    def __init__(self, make: Make, arrays: Sequence[Array], keywords: Mapping[str, Any]) -> None:
        import torch

        self.torch = torch
        self.params = [torch.nn.Parameter(torch.from_numpy(np.array(a))) for a in arrays]
        self.optimizer = make(self.params, **keywords)

    def step(self, gradients: Gradients) -> None:
        for p, g in zip(self.params, gradients, strict=True):
            p.grad = None if g is None else self.torch.from_numpy(g.copy())
        self.optimizer.step()

    def weights(self) -> list[Array]:
        return [p.detach().numpy().copy() for p in self.params]

    def slots(self) -> list[dict[str, Array]]:
        states = [self.optimizer.state.get(p, {}) for p in self.params]
        return [{k: v.numpy() for k, v in s.items() if hasattr(v, "numpy")} for s in states]

    def save(self) -> Any:
        file = io.BytesIO()
        self.torch.save(self.optimizer.state_dict(), file)
        return file.getvalue()

    def load(self, saved: Any) -> None:
        self.optimizer.load_state_dict(self.torch.load(io.BytesIO(saved), weights_only=True))


class OfTensorFlow:
    """A `tf.compat.v1.train.Optimizer` of variables, in eager mode."""

    framework = "tensorflow"

    def __init__(self, make: Make, arrays: Sequence[Array], keywords: Mapping[str, Any]) -> None:
        import tensorflow as tf

        self.tf = tf
        self.params = [tf.Variable(a, name=f"w{k}") for k, a in enumerate(arrays)]
        self.optimizer = make(self.params, **keywords)

    def step(self, gradients: Gradients) -> None:
        tensors = [None if g is None else self.tf.constant(g) for g in gradients]
        self.optimizer.apply_gradients(zip(tensors, self.params, strict=True))

    def weights(self) -> list[Array]:
        return [p.numpy() for p in self.params]

    def slots(self) -> list[dict[str, Array]]:
        names = self.optimizer.get_slot_names()
        found = [{n: self.optimizer.get_slot(p, n) for n in names} for p in self.params]
        return [{n: v.numpy() for n, v in each.items() if v is not None} for each in found]

    def save(self) -> Any:
        return None  # tf.train.Checkpoint does, through files

    def load(self, saved: Any) -> None:
        pass


MACHINES: dict[str, Callable[[Make, Sequence[Array], Mapping[str, Any]], Machine]] = {
    "numpy": OfNumpy,
    "torch": OfTorch,
    "tensorflow": OfTensorFlow,
}


def make_of(rule: Any, framework: str) -> Make:
    """What makes a rule's own optimizer in a framework."""
    if framework == "numpy":
        return lambda params, **keywords: rule.numpy(params, **keywords)
    if framework == "torch":
        return lambda params, **keywords: rule.torch(params, **keywords)
    return lambda params, **keywords: rule.tf1(**keywords)
