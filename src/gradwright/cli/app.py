"""The commands, their options and their help."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Literal

import typer

from .stop import Stop

# Boxes and colours are for a terminal; what is piped is plain.
_MARKUP: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None

app = typer.Typer(
    help="Write an op with its gradient, or an update rule, once in NumPy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
)


class Framework(StrEnum):
    """Where the demo trains."""

    numpy = "numpy"
    tf1 = "tf1"
    keras = "keras"
    torch = "torch"
    optax = "optax"
    all = "all"


class Target(StrEnum):
    """Whose source is shown."""

    numpy = "numpy"
    torch = "torch"
    tensorflow = "tensorflow"
    jax = "jax"
    fused = "fused"


@contextmanager
def _ending() -> Iterator[None]:
    """Turn what stops a command into its text and its exit code: 1 failed run, 2 wrong usage."""
    try:
        yield
    except Stop as stop:
        typer.echo(f"error: {stop}", err=True)
        raise typer.Exit(stop.code) from None


@app.command()
def demo(
    rules: Annotated[
        list[str] | None,
        typer.Argument(metavar="RULE", help="After --compare: the rules.", show_default=False),
    ] = None,
    data: Annotated[str, typer.Option(help="digits, mnist, or FILE.npz.")] = "digits",
    rule: Annotated[
        str | None,
        typer.Option(
            help="NAME, FILE.py:NAME, either with keywords: 'sgd(lr=0.5)'.",
            show_default="compact_sgd",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A keyword or an option of the rule."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Several rules side by side.", show_default=False)
    ] = False,
    steps: Annotated[int, typer.Option(min=1, help="How many updates.")] = 1000,
    batch: Annotated[int, typer.Option(min=1, help="Pictures in a batch.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of batches and noise.")] = 0,
    framework: Annotated[Framework, typer.Option(help="Where it trains.")] = Framework.numpy,
    out: Annotated[str, typer.Option(help="The picture: .png, .svg or .pdf.")] = "curves.png",
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Train softmax regression on handwritten digits with an update rule, and draw it.

    \b
    Examples:
      gradwright demo
      gradwright demo --rule sgd --set lr=0.5
      gradwright demo --rule my_rule.py:my_rule --set "lr=cosine(0.5, 1000)"
      gradwright demo --compare
      gradwright demo --compare adam "momentum(lr=0.1)" my_rule.py:my_rule
      gradwright demo --data mnist --framework torch --json
      gradwright demo --framework all --rule "adam(lr=0.01)"

    \b
    --compare without rules compares the compact rule on a centred domain, on [0, 20), and sgd.
    --framework all trains the same in each that is installed, and measures how far its weights
    are from NumPy's; on a circular domain, along the circle.
    An .npz file has the arrays x_train, y_train, x_test, y_test.
    Exit codes: 0 trained, 1 the run failed (a loss that is not finite, an error in the
    rule), 2 wrong usage.
    """
    from . import demo as command
    from .stop import WrongUsage
    from .train import Plan

    with _ending():
        if rules and not compare:
            raise WrongUsage(f"{' '.join(rules)}: --rule for one rule, --compare for several")
        if compare and rule:
            raise WrongUsage("--rule for one rule, or --compare for several")
        names = (rules or command.COMPARED) if compare else (rule or command.ONE,)
        plan = Plan(framework.value, steps, batch, seed)
        command.demo(data, names, set_ or (), plan, out, json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="NAME of a rule, or FILE.py:NAME of a rule or op.")],
    target: Annotated[Target, typer.Option(help="Whose source is shown.")] = Target.numpy,
) -> None:
    """Show a rule or an op: equation, bytes, graph, source.

    \b
    Examples:
      gradwright show adam
      gradwright show "compact_sgd(low=0, high=20)"
      gradwright show my_rule.py:my_rule --target torch
    """
    from . import look

    with _ending():
        look.show(name, target.value)


@app.command()
def check(
    name: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="An op or a rule, or all in the file.")
    ],
    framework: Annotated[
        list[str] | None,
        typer.Option(help="Where; may be repeated.", show_default="all that are installed"),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="N,M", help="Of an argument, in order; may be repeated."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and modes.")] = False,
    thorough: Annotated[bool, typer.Option("--thorough", help="More, for minutes.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Check an op's values and derivatives, or a rule's optimizers, in every framework.

    \b
    Examples:
      gradwright check my_ops.py
      gradwright check my_ops.py:huber --shape 3,4
      gradwright check my_ops.py:huber --framework numpy --framework torch --thorough
      gradwright check my_ops.py --json

    \b
    Exit codes: 0 right (kinks are shown), 1 wrong, 2 wrong usage.
    """
    from . import check as command
    from .stop import WrongUsage

    with _ending():
        if quick and thorough:
            raise WrongUsage("--quick or --thorough, not both")
        effort = "quick" if quick else "thorough" if thorough else "normal"
        if not command.check(name, framework, shape or (), effort, seed, json):
            raise typer.Exit(1)


@app.command()
def primitives(
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Show what a traced function may be made of, and which targets compute it.

    \b
    Examples:
      gradwright primitives
      gradwright primitives --json
    """
    from . import look

    with _ending():
        look.primitives(json)
