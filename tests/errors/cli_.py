"""Commands that were not called rightly, and runs that fail: what is printed has no user's line."""

import sys
import urllib.request
from unittest import mock

import numpy as np
import typer
from errors.case import Case

from gradwright.cli import app, check, choose, data, demo, look, mnist, model, train

TWO = """
import numpy as np
import gradwright as gw
@gw.rule
def wants(w, g, *, lr): return w - lr * g
@gw.rule
def each(w, g, *, value=gw.given): return w - value * g
"""
OP = "import gradwright as gw\nf = gw.op(lambda x: x)\n"


def case(run, *texts):
    return Case(run, texts, where=False)


def command(run=app.demo, *arguments, **options):
    """What a command says before it exits."""
    try:
        run(*arguments, **options)
    except typer.Exit as exit_:
        assert exit_.exit_code == 2
        raise exit_.__context__ from None


def file(folder, text):
    path = folder / "mine.py"
    path.write_text(text)
    return str(path)


def chosen(folder, text, name=""):
    return choose.choose_rules([file(folder, text) + name], [], 0)


def loaded(folder, **changes):
    """A file of pictures after some changes."""
    arrays = {
        "x_train": np.ones((4, 2)), "y_train": np.arange(4),
        "x_test": np.ones((2, 2)), "y_test": np.arange(2),
    } | changes  # fmt: skip
    np.savez(folder / "x.npz", **{k: v for k, v in arrays.items() if v is not None})
    data.load(str(folder / "x.npz"), None)


def text_as_data(folder):
    (folder / "x.npz").write_text("1, 2, 3")
    data.load(str(folder / "x.npz"), None)


def without(package, run):
    with mock.patch.dict(sys.modules, {package: None}):
        run()


def not_installed():
    with mock.patch.object(look, "_is_installed", lambda target: False):
        look.show("sgd", "torch")


def offline(folder):
    broken = mock.patch.object(urllib.request, "urlopen", side_effect=OSError("no network"))
    with broken, mock.patch.object(mnist, "cached", lambda: folder / "mnist.npz"):
        mnist.fetch(None)


def checking(folder, text, *more, **options):
    return check.check(file(folder, text), ["numpy"], more, "quick", 0, True, **options)


CASES = [
    case(lambda: command(app.check, "a.py", quick=True, thorough=True), "--quick or --thorough"),
    case(lambda folder: checking(folder, "x = 1"), "mine.py has no rule and no op"),
    case(lambda folder: checking(folder, OP, "3,b"), "--shape 3,b: sizes with commas, as in 3,4"),
    case(lambda folder: checking(folder, OP, "3", "3"), "too many positional arguments"),
    case(lambda: command(rules=["sgd"]), "sgd: --rule for one rule, --compare for several"),
    case(lambda: command(rule="sgd", compare=True), "--rule for one rule, or --compare for"),
    case(lambda: choose.choose("sdg"), "no rule 'sdg'; did you mean sgd?"),
    case(lambda: choose.choose("sgd(0.5)"), "sgd(0.5): a rule is written sgd, or sgd(lr=0.5)"),
    case(lambda: choose.choose("sgd(lr=f(1))"), "sgd(lr=f(1)): a rule is written sgd, or sgd(lr"),
    case(lambda: choose.choose("sgd(lrr=1)"), "sgd(lrr=1): sgd has no keyword lrr"),
    case(lambda: choose.settings(["lr=cosine(0.5)"]), "cosine(0.5): missing a required argument",
         "cosine(start, steps, *, end=0.0, warmup=0)"),
    case(lambda: choose.settings(["lr=cosine('a', 3)"]), "schedules.cosine: start is 'a', where a"),
    case(lambda: choose.choose("none.py:x"), "no file none.py"),
    case(lambda: choose.settings(["lr"]), "--set lr: what is set is written name=value"),
    case(lambda: choose.choose_rules(["sgd"], ["mu=1"], 0), "--set mu=…: sgd has lr"),
    case(lambda folder: chosen(folder, TWO), "mine.py has wants, each; say which: mine.py:NAME"),
    case(lambda folder: chosen(folder, OP), "is an op; the demo trains with a rule"),
    case(lambda folder: chosen(folder, TWO, ":wants"), "has no value for lr: --set lr=0.1"),
    case(lambda folder: chosen(folder, TWO, ":each"), "needs value at every step; the demo has"),
    case(lambda folder: chosen(folder, "1 / 0"), "mine.py:1", "ZeroDivisionError"),
    case(lambda folder: chosen(folder, "import gradwright as gw\ngw.chain()"), "mine.py:2",
         "gw.chain: no rules"),
    case(lambda: data.load("none.npz", None), "--data none.npz: no such file; digits, mnist, or"),
    case(text_as_data, "x.npz is no .npz file of plain arrays"),
    case(lambda folder: loaded(folder, y_test=None), "x.npz has no y_test; it needs x_train"),
    case(lambda folder: loaded(folder, x_test=np.ones((2, 3))), "x_train has 2 pixels, x_test 3"),
    case(lambda folder: loaded(folder, y_test=np.arange(3)), "2 pictures and 3 labels"),
    case(lambda folder: loaded(folder, y_test=np.ones(2)), "the labels are float64, not the int"),
    case(lambda folder: loaded(folder, x_test=np.full((2, 2), np.nan)), "values that are not fin"),
    case(lambda: demo.demo("digits", ["sgd"], [], train.Plan("numpy", 1, 1, 0), "a.txt", True),
         "--out a.txt: a picture is a .png, .svg or .pdf file"),
    case(lambda: demo.demo("digits", ["sgd", "adam"], [], train.Plan("all", 1, 1, 0), "", True),
         "--framework all is for one rule, --compare for one framework"),
    case(lambda: look.show("sgd", "cobol"), "no target 'cobol'; one of numpy, torch, tensorflow"),
    case(not_installed, "torch is not installed; pip install 'gradwright[torch]'"),
    case(lambda: without("torch", lambda: model.check_installed("torch")),
         "--framework torch: torch is not installed; pip install 'gradwright[torch]'"),
    case(offline, "MNIST could not be downloaded:", "no network", "--data mnist.npz, with arrays"),
    case(lambda: train._finite(float("nan"), choose.choose("sgd"), 3),
         "sgd: the loss is nan at step 3; smaller steps may help: --set lr=0.01"),
]  # fmt: skip
