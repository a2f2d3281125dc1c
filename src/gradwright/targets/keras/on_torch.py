"""What an optimizer of Keras does in another way on PyTorch."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from ...optimizer import Runner
from ...schedules import Schedule
from ..torch.runner import RUNNER as RUNNER
from ..torch.runner import runner_of_a_step, view
from ..torch.sparse import dense, is_there

COUNT, NUMBER = "int64", "float64"  # the dtypes of counts and of hyperparameters


def name(v: Any) -> str:
    """The path of a variable in its model."""
    return str(v.path)


def read(v: Any) -> Any:
    """The value of a variable."""
    return v.value.detach()


def gradient(g: Any, v: Any) -> Any:
    """A gradient as it is computed with."""
    return dense(g.detach())


def rows(g: Any, v: Any) -> Any:
    """Which rows a sparse gradient has; ``True`` where it has all."""
    return is_there(g) if g.layout is torch.sparse_coo else True


def runner() -> Runner:
    """How tensors run the parts of a rule."""
    return runner_of_a_step()


def number(x: Any) -> Any:
    """The number in a tensor without dimensions."""
    return x.item() if isinstance(x, torch.Tensor) else x


def hyperparameter(v: Any, declared: float) -> Any:
    """The number in a variable, with all the digits that it was declared with."""
    x = read(v)
    return declared if x == torch.tensor(declared, dtype=x.dtype) else x.item()


def tensor(x: Any) -> Any:
    """A number as a variable takes it."""
    return torch.as_tensor(x)


def scheduled(schedule: Schedule, count: Any) -> float:
    """A schedule's value at a count."""
    return float(schedule(int(count)))


def seed(v: Any) -> int:
    """The seed in a variable, which holds it in two halves of 28 bits."""
    low, high = read(v).tolist()
    return int(low + high * 2**28)


def counts(v: Any) -> Any:
    """The counts in a variable, one by one."""
    return read(v).tolist()


def decide(condition: Any) -> Any:
    """A truth value of Python's."""
    return bool(condition)


def is_concrete(entries: Any) -> bool:
    """Whether tensors have values that mean something after the step."""
    return True


def array(x: Any) -> np.ndarray[Any, Any]:
    """The values of a variable where slots are made."""
    return view(x.value)


def making() -> AbstractContextManager[Any]:
    """Where variables are made."""
    return nullcontext()


def update(strategy: Any, step: Callable[..., None], gradients: Sequence[Any], first: Any) -> None:
    """Run a step, of which autograd sees nothing."""
    with torch.no_grad(), np.errstate(all="ignore"):
        step(gradients)
