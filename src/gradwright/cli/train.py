"""Train the demo's model with a rule, and keep what is worth showing."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..domain import Domain
from ..rule import Rule
from . import model
from .choose import Chosen
from .data import Array, Data
from .stop import FailedRun

LOOKS = 50  # how often the test accuracy is measured
Told = Callable[[int, float, float], None]  # step, loss, last test accuracy


@dataclass(frozen=True)
class Plan:
    """What every compared rule has in common."""

    framework: str
    steps: int
    batch: int
    seed: int

    def looks_after(self, step: int) -> bool:
        return step % max(1, self.steps // LOOKS) == 0 or step == self.steps


@dataclass
class Run:
    """One rule's training."""

    chosen: Chosen
    name: str  # in tables and pictures
    losses: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)  # at which the accuracy was measured
    accuracies: list[float] = field(default_factory=list)
    looks: list[Array] = field(default_factory=list)  # the weights then
    durations: list[float] = field(default_factory=list)  # of each step
    seconds: float = 0.0

    @property
    def accuracy(self) -> float:
        return self.accuracies[-1]

    @property
    def weights(self) -> Array:
        return self.looks[-1]

    @property
    def last_loss(self) -> float:
        """The mean over the last twentieth of the steps: one batch says little."""
        last = self.losses[-max(1, len(self.losses) // 20) :]
        return sum(last) / len(last)

    @property
    def domain(self) -> tuple[float, float] | None:
        return domain_of(self.chosen.found)

    @property
    def around(self) -> float | None:
        """The length of the circle, where the domain is one: it has one of its ends only."""
        found = _last_domain(self.chosen.found)
        if self.domain is None or found is None or found.has_low == found.has_high:
            return None
        low, high = self.domain
        return high - low


def apart(run: Run, reference: Run) -> list[float]:
    """max |Δw| of two runs, whenever they were looked at; on a circle, along it."""
    return [_distance(*both, run.around) for both in zip(run.looks, reference.looks, strict=True)]


def _distance(w: Array, v: Array, around: float | None) -> float:
    d = np.abs(w.astype(np.float64) - v)
    return float(np.max(d if around is None else np.minimum(d, around - d)))


def domain_of(rule: Rule[object]) -> tuple[float, float] | None:
    """The interval that the rule keeps the weights in, if it has one."""
    if (found := _last_domain(rule)) is None:
        return None
    low, high = (_number(rule, bound) for bound in (found.low, found.high))
    return (low, high) if low is not None and high is not None else None


def _last_domain(rule: Rule[object]) -> Domain | None:
    found = [e.domain for e in rule.equations if e.domain is not None]
    return found[-1] if found else None


def _number(rule: Rule[object], bound: str | float) -> float | None:
    value = rule.hyperparams.get(bound) if isinstance(bound, str) else bound
    return float(value) if isinstance(value, (int, float)) else None


def train(data: Data, chosen: Chosen, plan: Plan, told: Told, name: str = "") -> Run:
    """The weights start at zero; the batches are the same for every rule and framework."""
    run = Run(chosen, name or chosen.label)
    training = model.start(plan.framework, chosen.found, data.x.shape[1], data.classes)
    onehot = np.eye(data.classes, dtype=np.float32)[data.y]
    rng = np.random.default_rng(plan.seed)
    begun = time.perf_counter()
    for step in range(1, plan.steps + 1):
        k = rng.integers(len(data.x), size=plan.batch)
        loss = _timed(run, training, data.x[k], onehot[k])
        run.losses.append(_finite(loss, chosen, step))
        if plan.looks_after(step):
            run.steps.append(step)
            run.looks.append(np.array(training.weights()))
            run.accuracies.append(_accuracy(run.weights, data))
            told(step, loss, run.accuracy)
    run.seconds = time.perf_counter() - begun
    return run


def _timed(run: Run, training: model.Training, x: Array, onehot: Array) -> float:
    begun = time.perf_counter()
    loss = training.step(x, onehot)
    run.durations.append(time.perf_counter() - begun)
    return loss


def _finite(loss: float, chosen: Chosen, step: int) -> float:
    if not math.isfinite(loss):
        raise FailedRun(
            f"{chosen.label}: the loss is {loss} at step {step}; "
            "smaller steps may help: --set lr=0.01"
        )
    return loss


def _accuracy(W: Array, data: Data) -> float:
    with np.errstate(all="ignore"):  # a loss that is not finite is told in the next step
        return float(np.mean(np.argmax(data.x_test @ W, axis=1) == data.y_test))
