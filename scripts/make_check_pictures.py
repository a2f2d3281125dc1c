"""Draw docs/check-*.png: what `gw.check` shows on a terminal; needs the demo extra, and frameworks.

python scripts/make_check_pictures.py
"""

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

import gradwright as gw
from gradwright.check import main

FRAMEWORKS = ["numpy", "torch", "tensorflow", "jax"]
DOCS = Path(__file__).parents[1] / "docs"
COLOURS = {"green": "#3fb950", "yellow": "#d29922", "red": "#ff7b72"}
WIDTH = 104


@gw.op
def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


@gw.op
def times(x, y):
    return np.sin(x) * y


@times.vjp
def _(g, x, y):
    return 2.1 * g * np.cos(x) * y, g * np.sin(x)


@gw.op
def relu(x):
    return np.maximum(x, 0)


def draw(name, report):
    """A report as rich prints it, in a fixed font."""
    console = Console(width=WIDTH, file=io.StringIO(), force_terminal=True)
    lines = console.render_lines(report, console.options, pad=False)
    figure = Figure(figsize=(WIDTH * 0.083, len(lines) * 0.2 + 0.3), facecolor="#0d1117")
    for row, line in enumerate(lines):
        column = 0
        for segment in line:
            style = segment.style
            colour = style.color.name if style and style.color else ""
            dim = bool(style and style.dim)
            figure.text(
                0.015 + 0.97 * column / WIDTH,
                1 - (row + 1) * 0.2 / (len(lines) * 0.2 + 0.3),
                segment.text,
                family="DejaVu Sans Mono",
                size=10,
                weight="bold" if style and style.bold else "normal",
                color=COLOURS.get(colour, "#8b949e" if dim else "#e6edf3"),
            )
            column += segment.cell_length
    figure.savefig(DOCS / f"check-{name}.png", dpi=110, facecolor=figure.get_facecolor())


R = np.random.default_rng(0)
CASES = {
    "pass": (gelu, [R.normal(size=(2, 3))]),
    "fault": (times, [R.normal(size=(2, 3)), R.normal(size=3)]),
    "kink": (relu, [np.array([-1.0, 0.0, 2.0])]),
}
main.report(gelu, [np.ones(2)], {}, FRAMEWORKS, "quick", 0)  # frameworks are slow at first
for name, (op, xs) in CASES.items():
    draw(name, main.report(op, xs, {}, FRAMEWORKS, "normal", 0))
