"""The demo's picture: loss, test accuracy, and where the weights ended up."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .data import Array, Data
from .train import Run, apart

Panel = Callable[[Any, Sequence[Run]], None]

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
INK, GRID = "#333333", "#DDDDDD"


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def draw(data: Data, runs: Sequence[Run], path: str, third: Panel) -> None:
    """Write the picture, with this panel beside loss and accuracy; its format is the name's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 4.4), dpi=150, layout="constrained")
    loss, accuracy, last = figure.subplots(1, 3)
    _loss(loss, runs)
    _accuracy(accuracy, runs)
    third(last, runs)
    for axes in (loss, accuracy, last):
        _tidy(axes)
    figure.suptitle(f"softmax regression y = x W on {data.name}", color=INK, fontsize=13)
    handles, labels = loss.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(3, len(runs)), frameon=False
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _style(k: int) -> dict[str, Any]:
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)]}


def _loss(axes: Any, runs: Sequence[Run]) -> None:
    for k, run in enumerate(runs):
        steps = np.arange(1, len(run.losses) + 1)
        axes.plot(steps, run.losses, color=_style(k)["color"], alpha=0.15, linewidth=0.7)
        axes.plot(steps, smooth(run.losses), label=_label(run), linewidth=1.8, **_style(k))
    axes.set(title="loss: each batch, and running mean", xlabel="step", ylabel="cross-entropy")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def _label(run: Run) -> str:
    return f"{run.name}: {run.accuracy:.1%}"


def smooth(values: Sequence[float]) -> Array:
    """The mean of the values so far, of the last fiftieth of all at most."""
    width = max(1, len(values) // 50)
    total = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    begin = np.maximum(stop - width, 0)
    return np.asarray((total[stop] - total[begin]) / (stop - begin))


def _accuracy(axes: Any, runs: Sequence[Run]) -> None:
    for k, run in enumerate(runs):
        axes.plot(run.steps, run.accuracies, linewidth=1.8, **_style(k))
        axes.plot(run.steps[-1], run.accuracy, "o", color=_style(k)["color"], markersize=5)
    worst = min(min(run.accuracies) for run in runs)
    axes.set(title="test accuracy", xlabel="step", ylabel="share of test pictures named rightly")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_ylim(max(0.0, worst - 0.05), 1.0)


def weights(axes: Any, runs: Sequence[Run]) -> None:
    low, high = span(runs)
    edges = np.linspace(low, high, 81)
    """How many weights are where, and the ends of their domain."""
    for k, run in enumerate(runs):
        colour = _style(k)["color"]
        values = run.weights.ravel()
        axes.hist(values, edges, color=colour, alpha=0.18 if len(runs) > 1 else 0.35)
        axes.hist(values, edges, histtype="step", linewidth=1.5, **_style(k))
        for bound in run.domain or ():
            axes.axvline(bound, color=colour, linewidth=1.0, linestyle=":")
    bounded = any(run.domain for run in runs)
    title = "weights, and the ends of their domain (dotted)" if bounded else "weights"
    axes.set(title=title, xlabel="weight", ylabel="how many")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0.7)
    axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))


def distances(axes: Any, runs: Sequence[Run]) -> None:
    """How far the weights of each run are from those of the first, while they are trained."""
    reference, *others = runs
    for k, run in enumerate(others, 1):
        axes.plot(run.steps, apart(run, reference), linewidth=1.8, **_style(k))
    axes.set(title=f"max |Δw| from {reference.name}", xlabel="step", ylabel="distance")
    axes.set_yscale("symlog", linthresh=1e-8)
    axes.set_ylim(bottom=0)


def span(runs: Sequence[Run]) -> tuple[float, float]:
    """From the lowest bound or weight to the highest."""
    ends = [x for run in runs for x in (run.domain or ())]
    ends += [float(x) for run in runs for x in (run.weights.min(), run.weights.max())]
    low, high = min(ends), max(ends)
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def _tidy(axes: Any) -> None:
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.title.set(color=INK, fontsize=11)
