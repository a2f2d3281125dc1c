"""Optimizers of each framework as one thing: arrays in, steps, what is saved."""

import copy
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from .differences import Array

Make: TypeAlias = Callable[..., Any]  # (params, **keywords) -> an optimizer
Gradients: TypeAlias = Sequence[Array | None]


class Machine(Protocol):
    """An optimizer and its parameters."""

    framework: str
    params: Any
    optimizer: Any

    def step(self, gradients: Any) -> None: ...
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

    def step(self, gradients: Any) -> None:
        self.optimizer.step(_copied(gradients))

    def weights(self) -> list[Array]:
        return [p.copy() for p in self.params]

    def slots(self) -> list[dict[str, Array]]:
        states = self.optimizer.state_dict()["parameters"]
        return [{k: np.array(v) for k, v in state["slots"].items()} for state in states]

    def save(self) -> Any:
        return copy.deepcopy(self.optimizer.state_dict())

    def load(self, saved: Any) -> None:
        self.optimizer.load_state_dict(saved)


def _copied(gradients: Any) -> Any:
    """Copies of gradients; a list for each group stays one."""
    if isinstance(gradients, list):
        return [_copied(g) for g in gradients]
    return None if gradients is None else gradients.copy()


class OfTorch:
    """A `torch.optim.Optimizer`; what it saves goes through a file, as plain data."""

    framework = "torch"

    def __init__(self, make: Make, arrays: Sequence[Array], keywords: Mapping[str, Any]) -> None:
        import torch

        self.torch = torch
        self.params = [torch.nn.Parameter(torch.from_numpy(np.array(a))) for a in arrays]
        self.optimizer = make(self.params, **keywords)

    def step(self, gradients: Any) -> None:
        self.put(gradients)
        self.optimizer.step()

    def put(self, gradients: Gradients) -> None:
        for p, g in zip(self.params, gradients, strict=True):
            p.grad = None if g is None else self.torch.from_numpy(g.copy())

    def step_sparse(self, gradients: Gradients) -> None:
        """A step whose first gradient is sparse: its first row, there twice."""
        self.put(gradients)
        g: Any = self.params[0].grad
        rows, index = self.torch.stack([g[0] / 2, g[0] / 2]), self.torch.tensor([[0, 0]])
        self.params[0].grad = self.torch.sparse_coo_tensor(
            index, rows, g.shape, check_invariants=False
        )
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

    def step(self, gradients: Any) -> None:
        tensors = [None if g is None else self.tf.constant(g) for g in gradients]
        self.optimizer.apply_gradients(zip(tensors, self.params, strict=True))

    def step_sparse(self, gradients: Gradients) -> None:
        """A step whose first gradient is sparse: its first row, there twice."""
        first, *rest = [self.tf.constant(g) for g in gradients]
        rows = self.tf.stack([first[0] / 2, first[0] / 2])
        sparse = self.tf.IndexedSlices(rows, [0, 0], first.shape)
        self.optimizer.apply_gradients(zip([sparse, *rest], self.params, strict=True))

    def weights(self) -> list[Array]:
        return [p.numpy() for p in self.params]

    def slots(self) -> list[dict[str, Array]]:
        names = self.optimizer.get_slot_names()
        found = [{n: self.optimizer.get_slot(p, n) for n in names} for p in self.params]
        return [{n: v.numpy() for n, v in each.items() if v is not None} for each in found]

    def save(self) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = self.tf.train.Checkpoint(w=self.params, optimizer=self.optimizer).write(
                f"{folder}/state"
            )
            return {p.name: p.read_bytes() for p in Path(path).parent.iterdir()}

    def load(self, saved: Any) -> None:
        self.folder = tempfile.TemporaryDirectory()  # read again when a variable is made later
        for name, data in saved.items():
            Path(self.folder.name, name).write_bytes(data)
        both = self.tf.train.Checkpoint(w=self.params, optimizer=self.optimizer)
        both.read(f"{self.folder.name}/state")


class OfOptax:
    """A gradient transformation, by its exact `step`; its state goes through NumPy's arrays."""

    framework = "jax"

    def __init__(self, make: Make, arrays: Sequence[Array], keywords: Mapping[str, Any]) -> None:
        import jax

        self.jax = jax
        self.params = [jax.numpy.asarray(a) for a in arrays]
        self.optimizer = make(self.params, **keywords)
        self.state = self.optimizer.init(self.params)

    def step(self, gradients: Any) -> None:
        arrays = [None if g is None else self.jax.numpy.asarray(g) for g in gradients]
        self.params, self.state = self.optimizer.step(arrays, self.state, self.params)

    def weights(self) -> list[Array]:
        return [np.array(p) for p in self.params]

    def slots(self) -> list[dict[str, Array]]:
        return [{str(k): np.array(x) for k, x in enumerate(self.jax.tree.leaves(self.state))}]

    def save(self) -> Any:
        leaves, tree = self.jax.tree.flatten(self.state)
        return [np.array(x) for x in leaves], tree

    def load(self, saved: Any) -> None:
        leaves, tree = saved
        self.state = tree.unflatten([self.jax.numpy.asarray(x) for x in leaves])


class OfKeras:
    """A `keras.optimizers.Optimizer` of variables, on the backend that is in use."""

    framework = "keras"

    def __init__(self, make: Make, arrays: Sequence[Array], keywords: Mapping[str, Any]) -> None:
        import keras

        self.keras = keras
        self.params = [keras.Variable(a, name=f"w{k}") for k, a in enumerate(arrays)]
        self.optimizer = make(self.params, **keywords)
        self.optimizer.build(self.params)

    def step(self, gradients: Any) -> None:
        convert = self.keras.ops.convert_to_tensor
        tensors = [None if g is None else convert(g) for g in gradients]
        self.optimizer.apply(tensors, self.params)

    def weights(self) -> list[Array]:
        return [np.array(self.keras.ops.convert_to_numpy(p)) for p in self.params]

    def slots(self) -> list[dict[str, Array]]:
        return [{str(k): a for k, a in enumerate(self.save())}]

    def save(self) -> Any:
        return [np.array(self.keras.ops.convert_to_numpy(v)) for v in self.optimizer.variables]

    def load(self, saved: Any) -> None:
        for v, x in zip(self.optimizer.variables, saved, strict=True):
            v.assign(x)


MACHINES: dict[str, Callable[[Make, Sequence[Array], Mapping[str, Any]], Machine]] = {
    "numpy": OfNumpy,
    "torch": OfTorch,
    "tensorflow": OfTensorFlow,
    "jax": OfOptax,
    "keras": OfKeras,
}


def make_of(rule: Any, framework: str) -> Make:
    """What makes a rule's own optimizer in a framework."""
    if framework == "numpy":
        return lambda params, **keywords: rule.numpy(params, **keywords)
    if framework == "torch":
        return lambda params, **keywords: rule.torch(params, **keywords)
    names = {"tensorflow": "tf1", "jax": "optax", "keras": "keras"}
    return lambda params, **keywords: getattr(rule, names[framework])(**keywords)
