"""What an optimizer of Keras does in another way on JAX."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...op import is_eager
from ...optimizer import Runner
from ...schedules import Schedule
from ..jax.functions import held
from ..jax.hyperparameters import scheduled as as_operations
from ..jax.runner import RUNNER as RUNNER
from ..jax.runner import Count, Number, changed, narrow
from ..jax.runner import number as number_of
from ..jax.sparse import dense, is_there

COUNT, NUMBER = held("int64").name, held("float64").name  # of counts and of hyperparameters


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
    return jnp.asarray(dense(g))


def rows(g: Any, v: Any) -> Any:
    """Which rows a sparse gradient has; ``True`` where it has all."""
    return is_there(g)


def number(x: Any) -> Any:
    """An array without dimensions as a number; its value inside `gw.eager`."""
    return x.item() if is_eager() else number_of(x)


def hyperparameter(v: Any, declared: float) -> Any:
    """The number in a variable, with all the digits that it was declared with."""
    return read(v).item() if is_eager() else changed(read(v), declared)


def tensor(x: Any) -> Any:
    """A number as a variable takes it."""
    return narrow(x.value) if isinstance(x, Number) else jnp.asarray(x)


def scheduled(schedule: Schedule, count: Any) -> Any:
    """A schedule's value at a count: by NumPy where there is a number, else as operations."""
    if not isinstance(count, jax.core.Tracer):
        return float(schedule(int(count)))
    return as_operations(schedule, _count(count))


def seed(v: Any) -> Any:
    """The seed in a variable, which holds it in two halves of 28 bits."""
    low, high = (x.astype(jnp.uint32) for x in read(v))
    found = Count(low + (high << 28), high >> 4)
    return int(found) if is_eager() else found


def _count(x: Any) -> Count:
    return Count(x.astype(jnp.uint32), jnp.uint32(0))


def counts(v: Any) -> Any:
    """The counts in a variable, one by one."""
    return read(v).tolist() if is_eager() else list(map(_count, read(v)))


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
