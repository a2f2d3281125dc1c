"""What an optimizer of Keras does in another way on JAX."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import emit
from ...graph import Graph
from ...op import Meta, is_eager, number_meta
from ...optimizer import Runner, schedule_graph
from ...schedules import Schedule
from ...signature import is_number
from ..jax import SPELLING
from ..jax.functions import held

COUNT, NUMBER = held("int64").name, held("float64").name  # of counts and of hyperparameters


@dataclass(frozen=True, eq=False)
class Scalar:
    """A number that is known when the compiled code runs; it is as weak as a Python number."""

    array: Any

    @property
    def meta(self) -> Meta:
        kind = self.array.dtype.kind
        return Meta((), "bool" if kind == "b" else "float" if kind == "f" else "int")


def _array(x: Any) -> Any:
    """What a program takes."""
    return x.array if isinstance(x, Scalar) else x


def _meta(x: Any) -> Meta:
    if is_number(x):
        return number_meta(x)
    return x.meta if isinstance(x, Scalar) else Meta(tuple(x.shape), x.dtype.name)


def _run(graph: Graph) -> Callable[..., Any]:
    program = emit.program(graph, "update", SPELLING)
    return lambda *xs: program(*map(_array, xs))


RUNNER = Runner(
    meta=_meta,
    run=_run,
    numbers=_run,
    add=lambda a, b: a + b,
    view=np.asarray,
    like=lambda a, w: jnp.asarray(a),
)


def runner() -> Runner:
    """How arrays run the parts of a rule."""
    return RUNNER


def name(v: Any) -> str:
    """The path of a variable in its model."""
    return str(v.path)


def read(v: Any) -> Any:
    """The value of a variable."""
    return v.value


def gradient(g: Any, v: Any) -> Any:
    """A gradient as it is computed with."""
    return jnp.asarray(g)


def number(x: Any) -> Any:
    """An array without dimensions as a number; its value inside `gw.eager`."""
    return x.item() if is_eager() else Scalar(jnp.asarray(x))


def tensor(x: Any) -> Any:
    """A number as a variable takes it."""
    return jnp.asarray(_array(x))


def scheduled(schedule: Schedule, count: Any) -> Any:
    """A schedule's value at a count: by NumPy where there is a number, else as operations."""
    if not isinstance(count, jax.core.Tracer):
        return float(schedule(int(count)))
    return Scalar(emit.program(schedule_graph(schedule), "schedule", SPELLING)(count)[0])


def seed(v: Any) -> Any:
    """The seed in a variable: its lower and its upper 32 bits."""
    low, high = (x.astype(jnp.uint32) for x in read(v))
    return low + (high << 28), high >> 4


def counts(v: Any) -> Any:
    """The counts in a variable, one by one."""
    return read(v).tolist() if is_eager() else list(read(v))


def decide(condition: Any) -> Any:
    """A truth value: Python's, where it can be known."""
    return condition if isinstance(condition, jax.core.Tracer) else bool(condition)


def is_concrete(entries: Any) -> bool:
    """Whether arrays have values that mean something after the step."""
    return not any(isinstance(e.w, jax.core.Tracer) for e in entries)


def array(x: Any) -> np.ndarray[Any, Any]:
    """The values of a variable where slots are made."""
    return np.asarray(x.value)


def making() -> AbstractContextManager[Any]:
    """Where variables are made."""
    return nullcontext()


def update(strategy: Any, step: Callable[..., None], gradients: Sequence[Any], first: Any) -> None:
    """Run a step."""
    step(gradients)
