"""The command line, as its user meets it."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gradwright import rules, schedules
from gradwright.cli import choose, curves, look, mnist, train
from gradwright.cli.app import app
from gradwright.cli.stop import FailedRun, WrongUsage
from gradwright.primitives import PRIMITIVES

QUICK = ("--steps", "20", "--batch", "20")
EXAMPLE = Path(__file__).parents[1] / "examples" / "my_rule.py"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Pictures are written where the command runs; nothing is kept between tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*arguments, code=0):
    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def refused(*arguments, code=2):
    result = run(*arguments, code=code)
    assert result.stdout == ""
    return result.stderr


def written(name, text):
    Path(name).write_text(text)
    return name


def npz(name="mine.npz", **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(255, size=(30, 4, 4), dtype=np.uint8),
        "y_train": rng.integers(3, size=30),
        "x_test": rng.integers(255, size=(12, 4, 4), dtype=np.uint8),
        "y_test": rng.integers(3, size=12),
    }
    arrays |= changes
    np.savez(name, **{k: v for k, v in arrays.items() if v is not None})
    return name


# --- demo --------------------------------------------------------------------------------------
def test_demo_prints_the_equation_progress_and_accuracy_and_draws():
    out = run("demo").stdout
    assert "w ← low + (w − lr·g + noise·ε − low) mod (high − low)" in out
    assert "UCI digits: 1437 to train, 360 to test, 64 pixels, 10 classes" in out
    assert "step 1000/1000" in out
    assert float(re.search(r"test accuracy (0\.\d+)", out)[1]) > 0.94
    assert _is_a_picture("curves.png")


def _is_a_picture(path):
    import matplotlib.image

    pixels = matplotlib.image.imread(path)[..., :3]
    return pixels.shape[0] > 400 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50


def test_demo_in_json_is_json_and_nothing_else():
    result = run("demo", *QUICK, "--json", "--seed", "3")
    found = json.loads(result.stdout)
    assert result.stderr == ""
    assert found.keys() == {
        *("data", "framework", "steps", "batch", "seed", "runs", "reason", "picture"),
    }
    assert (found["steps"], found["batch"], found["seed"]) == (20, 20, 3)
    (trained,) = found["runs"]
    assert trained.keys() == {
        *("rule", "equation", "hyperparams", "test_accuracy", "last_loss", "seconds"),
        *("step_seconds", "weights", "domain", "history"),
    }
    assert trained["domain"] == [-10, 10]
    assert trained["hyperparams"] == {"lr": 0.5, "noise": 0.001, "low": -10.0, "high": 10.0}
    assert trained["history"].keys() == {"loss", "step", "accuracy"}
    assert len(trained["history"]["loss"]) == 20
    assert trained["history"]["step"][-1] == 20
    assert trained["history"]["accuracy"][-1] == trained["test_accuracy"]


def test_demo_is_the_same_for_the_same_seed_and_another_for_another():
    def weights(*options):
        (trained,) = json.loads(run("demo", *QUICK, "--json", *options).stdout)["runs"]
        return trained["weights"]

    assert weights("--seed", "1") == weights("--seed", "1") != weights("--seed", "2")


def test_demo_sets_keywords_schedules_and_options():
    sets = ["lr=linear(0.5, 0.1, 20)", "noise=0", "domain=[-1, 1)", "accumulate=2"]
    options = [x for pair in sets for x in ("--set", pair)]
    (found,) = json.loads(run("demo", *QUICK, "--json", *options).stdout)["runs"]
    assert found["hyperparams"]["lr"] == "linear(0.5, 0.1, 20)"
    assert found["hyperparams"]["noise"] == 0
    assert found["domain"] == [-1, 1]


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.05", 0.05), ("1e-3", 1e-3), ("-2", -2), ("True", True), ("None", None), ("fast", "fast")],
)
def test_a_value_is_a_literal_or_itself(text, value):
    assert choose.parsed(text) == value


def test_a_value_may_be_a_schedule():
    found = choose.parsed("cosine(0.5, 100, warmup=5)")
    assert isinstance(found, schedules.Schedule)
    assert repr(found) == "cosine(0.5, 100, warmup=5)"


def test_demo_with_a_users_rule():
    out = run("demo", *QUICK, "--rule", f"{EXAMPLE}:my_rule", "--set", "lr=0.2").stdout
    assert "m ← mu·m + g" in out
    assert "lr=0.2" in out


def test_demo_compares_in_one_table_and_says_why_the_literal_form_does_worse():
    result = run("demo", "--compare", "--steps", "200", "--out", "three.svg")
    lines = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    accuracies = [float(c) for line in lines for c in line.split("|")[2:3] if "0." in c]
    centred, literal, plain = accuracies
    assert literal < centred - 0.1
    assert abs(centred - plain) < 0.02
    assert "one just below 0 becomes 20" in result.stdout
    assert Path("three.svg").read_text().startswith("<?xml")


def test_demo_makes_the_folder_of_its_picture():
    run("demo", *QUICK, "--out", "some/where/c.png")
    assert _is_a_picture("some/where/c.png")


def test_demo_compares_the_rules_that_it_is_told():
    arguments = ("--compare", "sgd(lr=0.3)", "adam", f"{EXAMPLE}:my_rule", "--set", "mu=0.5")
    found = json.loads(run("demo", *QUICK, "--json", *arguments).stdout)
    assert [r["rule"] for r in found["runs"]] == ["sgd(lr=0.3)", "adam", f"{EXAMPLE}:my_rule"]
    assert found["runs"][2]["hyperparams"]["mu"] == 0.5
    assert found["reason"] is None


def test_demo_trains_on_a_file():
    found = json.loads(run("demo", *QUICK, "--json", "--data", npz()).stdout)
    assert found["data"] == {"name": "mine.npz", "train": 30, "test": 12}


@pytest.mark.framework
@pytest.mark.parametrize("framework", ["torch", "tf1", "keras", "optax"])
def test_demo_is_the_same_in_every_framework(framework):
    def weights(name):
        options = ("--rule", "compact_sgd(noise=0.01)", "--framework", name, "--json")
        found = json.loads(run("demo", *QUICK, *options).stdout)
        assert found["framework"] == name
        return found["runs"][0]

    ours, theirs = weights("numpy"), weights(framework)
    np.testing.assert_allclose(ours["history"]["loss"], theirs["history"]["loss"], rtol=1e-4)
    for end in ("min", "max"):
        assert ours["weights"][end] == pytest.approx(theirs["weights"][end], abs=1e-5)


# --- demo --framework all ----------------------------------------------------------------------
@pytest.mark.framework
def test_demo_in_every_framework_is_one_table_and_one_picture():
    # noise as strong as it needs to be for weights to cross the end of their domain
    rule = "compact_sgd(noise=0.05, low=-0.5, high=0.5)"
    found = json.loads(run("demo", *QUICK, "--framework", "all", "--rule", rule, "--json").stdout)
    assert [r["framework"] for r in found["runs"]] == ["numpy", "tf1", "keras", "torch", "optax"]
    assert (found["framework"], found["missing"]) == ("all", {})
    assert len({r["test_accuracy"] for r in found["runs"]}) == 1
    for trained in found["runs"]:
        assert trained["distance"][-1] < 1e-5
        assert trained["step_seconds"] > 0
    assert _is_a_picture("curves.png")


def test_demo_names_what_is_not_installed_in_its_table(monkeypatch):
    for package in ("tensorflow", "torch", "optax"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    out = run("demo", *QUICK, "--framework", "all").stdout
    assert re.search(r"\| numpy +\| +0\.\d{4} +\| +\d\.\d{4} +\| +0\.0e\+00 +\|", out)
    assert "numpy  step 20/20" in out
    for framework in ("tf1", "keras"):
        assert f"| {framework}: tensorflow is not installed" in out
    assert "| torch: torch is not installed" in out
    assert "| optax: optax is not installed" in out
    assert "curves in curves.png" in out


def test_weights_on_a_circle_are_compared_along_it():
    def run_of(rule, w):
        found = train.Run(choose.choose(rule), "it")
        found.looks = [np.float32(w)]
        return found

    ends = "(low=-1.0, high=1.0)"
    for rule, wanted in ((f"compact_sgd{ends}", 0.25), (f"clamp{ends}", 1.75), ("sgd", 1.75)):
        two = run_of(rule, [0.875, 0.5]), run_of(rule, [-0.875, 0.5])
        assert train.apart(*two) == [wanted]


def test_demo_without_matplotlib_trains_and_says_so(monkeypatch):
    monkeypatch.setattr(curves, "can_draw", lambda: False)
    result = run("demo", *QUICK, "--json")
    assert "no picture: matplotlib is not installed" in result.stderr
    assert json.loads(result.stdout)["picture"] is None


# --- what it refuses ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--rule", "adm"), "no rule 'adm'; did you mean adam?"),
        (("--rule", "zzz"), "no rule 'zzz'; one of adagrad, adam,"),
        (("--rule", "sgd(0.5)"), "sgd(0.5): a rule is written sgd, or sgd(lr=0.5)"),
        (("--rule", "sgd(lr="), "a rule is written sgd, or sgd(lr=0.5)"),
        (("--rule", "sgd(mu=1)"), "sgd has no keyword mu"),
        (("--rule", "clip"), "clip rewrites g, and nothing applies it to w"),
        (("--rule", "nowhere.py:f"), "no file nowhere.py"),
        (("--rule", f"{EXAMPLE}:mod"), "is an op; the demo trains with a rule"),
        (("--rule", EXAMPLE.as_posix()), "my_rule.py has my_rule, mod; say which"),
        (("--rule", f"{EXAMPLE}:my_rul"), "did you mean my_rule?"),
        (("--set", "lr"), "--set lr: what is set is written name=value"),
        (("--set", "rl=1"), "(lr=0.5, noise=0.001) has lr, noise, low, high"),
        (("--set", "domain=[0"), "domain='[0'"),
        (("--set", "rng=-1"), "rng=-1"),
        (("--set", "lr=abc"), "lr is 'abc', where a number is expected"),
        (("sgd",), "sgd: --rule for one rule, --compare for several"),
        (("--compare", "sgd", "--rule", "adam"), "--rule for one rule, or --compare for several"),
        (
            ("--compare", "--framework", "all"),
            "--framework all is for one rule, --compare for one framework",
        ),
        (("--out", "curves.gif"), "--out curves.gif: a picture is a .png, .svg or .pdf file"),
        (("--data", "nowhere.npz"), "--data nowhere.npz: no such file"),
    ],
)
def test_wrong_usage_says_what_is_wrong(arguments, text):
    assert text in refused("demo", *QUICK, *arguments)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"x_test": None, "y_test": None}, "mine.npz has no x_test, y_test; it needs x_train"),
        ({"y_train": np.zeros(7, int)}, "30 pictures and 7 labels"),
        ({"y_test": np.zeros(12)}, "the labels are float64, not the integers"),
        ({"y_train": np.full(30, -1)}, "the labels are int64, not the integers"),
        ({"x_test": np.zeros((12, 9))}, "x_train has 16 pixels, x_test 9"),
        ({"x_train": np.full((30, 16), np.nan)}, "values that are not finite"),
        ({"x_train": np.array([None])}, "is no .npz file of plain arrays"),
    ],
)
def test_a_file_of_another_form_is_refused(changes, text):
    assert text in refused("demo", *QUICK, "--data", npz(**changes))


def test_a_file_that_is_no_npz_is_refused():
    assert "is no .npz file" in refused("demo", "--data", written("a.npz", "text"))


def test_a_keyword_without_a_value_is_asked_for():
    file = written(
        "needs.py",
        "import gradwright as gw\n"
        "@gw.rule\ndef a(w, g, *, lr): return w - lr * g\n"
        "@gw.rule\ndef b(w, g, *, loss=gw.given): return w - loss * g\n",
    )
    assert "has no value for lr: --set lr=0.1" in refused("demo", "--rule", f"{file}:a")
    assert "needs loss at every step" in refused("demo", "--rule", f"{file}:b")
    run("demo", *QUICK, "--rule", f"{file}:a", "--set", "lr=0.1")


def test_a_framework_that_is_not_installed_is_named_first(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    result = run("demo", *QUICK, "--framework", "tf1", code=2)
    text = "--framework tf1: tensorflow is not installed; pip install 'gradwright[tensorflow]'"
    assert result.stderr == f"error: {text}\n"
    assert not result.stdout


def test_a_schedule_that_cannot_be_says_how_it_is_written():
    result = run("demo", *QUICK, "--rule", "sgd", "--set", "lr=cosine(0.5)", code=2)
    assert result.stderr == (
        "error: cosine(0.5): missing a required argument: 'steps'\n"
        "  instead: cosine(start, steps, *, end=0.0, warmup=0)\n"
    )


def test_a_run_that_fails_ends_with_1():
    result = run("demo", *QUICK, "--rule", "sgd", "--set", "lr=1e39", code=1)
    assert re.search(r"error: sgd: the loss is (nan|inf) at step \d+; smaller steps", result.stderr)
    assert not Path("curves.png").exists()


@pytest.mark.parametrize("arguments", [("--steps", "0"), ("--framework", "jax"), ("--nonsense",)])
def test_wrong_options_end_with_2(arguments):
    run("demo", *arguments, code=2)


# --- a user's file -----------------------------------------------------------------------------
def test_a_syntax_error_in_a_users_file_shows_its_line():
    file = written("bad.py", "import gradwright\n\ndef rule(w, g:\n    return w\n")
    text = refused("show", f"{file}:rule", code=1)
    assert f"{Path(file).resolve()}:3" in text
    assert "def rule(w, g:" in text
    assert "SyntaxError" in text
    assert "Traceback" not in text


def test_a_failing_line_of_a_users_file_is_shown():
    file = written("bad.py", "import gradwright as gw\nx = 1\nx.nothing()\n")
    text = refused("show", f"{file}:rule", code=1)
    assert f"{Path(file).resolve()}:3\n    x.nothing()\nAttributeError: 'int' object" in text


def test_a_failing_line_of_a_users_rule_is_shown():
    file = written(
        "bad.py",
        "import gradwright as gw\n@gw.rule\ndef bad(w, g, *, lr=0.1):\n    return w - lr * grad\n",
    )
    for arguments in (("demo", *QUICK, "--rule", file), ("show", file)):
        text = run(*arguments, code=1).stderr
        assert f"{Path(file).resolve()}:4\n    return w - lr * grad\nNameError: name 'grad'" in text
        assert "Traceback" not in text


def test_what_cannot_be_traced_is_shown_with_its_line_and_the_cure():
    file = written(
        "bad.py",
        "import gradwright as gw\n@gw.rule\ndef bad(w, g):\n    if w > 0: return g\n    return w\n",
    )
    text = run("demo", *QUICK, "--rule", file, code=1).stderr
    assert "bad.py:4" in text
    assert "instead:" in text
    assert "Traceback" not in text


def test_a_users_file_may_import_what_is_beside_it():
    written("constants_of_mine.py", "LR = 0.25\n")
    file = written(
        "good.py",
        "import gradwright as gw\nfrom constants_of_mine import LR\n"
        "@gw.rule\ndef good(w, g, *, lr=LR): return w - lr * g\n",
    )
    path = list(sys.path)
    assert "lr=0.25" in run("show", file).stdout
    assert sys.path == path


# --- MNIST -------------------------------------------------------------------------------------
def test_offline_mnist_says_how_to_pass_a_file(monkeypatch):
    def offline(url, timeout):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    text = run("demo", "--data", "mnist", code=1).stderr
    assert "MNIST could not be downloaded" in text
    assert all(url in text for url in mnist.MIRRORS)
    assert "no route to host" in text
    assert "--data mnist.npz, with arrays x_train, y_train, x_test, y_test" in text


class Answer:
    """What a server sends."""

    def __init__(self, content):
        self.content, self.headers = content, {"Content-Length": str(len(content))}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def read(self, size):
        chunk, self.content = self.content[:size], self.content[size:]
        return chunk


def test_mnist_is_checked_and_kept(monkeypatch):
    right, asked, told = Path(npz()).read_bytes(), [], []

    def urlopen(url, timeout):
        asked.append(url)
        return Answer(b"something else" if len(asked) == 1 else right)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(mnist, "SHA256", mnist._digest(right))
    path = mnist.fetch(lambda done, total: told.append((done, total)))
    assert path.read_bytes() == right
    assert asked == list(mnist.MIRRORS)
    assert told[-1] == (len(right), len(right))
    assert [p.name for p in path.parent.iterdir()] == ["mnist.npz"]
    mnist.fetch(lambda done, total: None)
    assert len(asked) == 2
    assert "MNIST: 30 to train" in run("demo", *QUICK, "--data", "mnist").stdout


def test_a_wrong_file_from_every_mirror_is_no_mnist(monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Answer(b"wrong"))
    with pytest.raises(FailedRun, match="its SHA-256 differs"):
        mnist.fetch(lambda done, total: None)
    assert not mnist.cached().exists()


# --- show, primitives --------------------------------------------------------------------------
def test_show_prints_equation_bytes_graph_and_source():
    out = run("show", "compact_sgd(low=0, high=20)").stdout
    assert "w ← low + (w − lr·g + noise·ε − low) mod (high − low)" in out
    assert "12 per float32 element and step: 8 read, 4 written" in out
    assert "low=0, high=20" in out
    assert "random_bits" in out
    assert "def compact_sgd_update(w, g" in out


@pytest.mark.parametrize("name", rules.__all__)
def test_show_every_rule_of_the_library(name):
    assert f"\n{name}\n" in run("show", name).stdout


def test_show_an_op_with_its_own_derivative():
    out = run("show", f"{EXAMPLE}:mod").stdout
    assert "mod(x, y) = x mod y" in out
    assert "∂y = g·(−⌊x / y⌋)" in out
    assert "def mod(x, y):" in out


def test_show_the_kernels_of_an_op_and_of_a_rule():
    out = run("show", f"{EXAMPLE}:mod", "--target", "fused").stdout
    assert "; one pass, 12 bytes an element: 8 read, 4 written" in out
    out = run("show", "adam", "--target", "fused").stdout
    assert "; one pass, 28 bytes an element: 16 read, 12 written" in out


@pytest.mark.framework
@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_show_the_source_of_another_target(target):
    assert f"source for {target}" in run("show", "sgd", "--target", target).stdout


def test_show_names_a_target_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(look, "_is_installed", lambda target: False)
    assert "torch is not installed; pip install 'gradwright[torch]'" in refused(
        "show", "sgd", "--target", "torch"
    )


def test_primitives_is_the_whole_table(monkeypatch):
    monkeypatch.setattr(look, "_is_installed", lambda target: target == "numpy")
    rows = json.loads(run("primitives", "--json").stdout)
    assert [row["name"] for row in rows] == list(PRIMITIVES)
    found = {row["name"]: row for row in rows}
    assert found["exp"] == {
        "name": "exp",
        "kind": "elementwise",
        "derivative": True,
        "targets": {"numpy": True, "torch": None, "tensorflow": None, "jax": None},
    }
    assert not found["less"]["derivative"]
    assert not found["nextafter"]["derivative"]
    out = run("primitives").stdout
    assert re.search(r"\| exp +\| elementwise +\| yes +\| yes +\| not installed", out)


@pytest.mark.framework
def test_primitives_asks_every_installed_target():
    found = {row["name"]: row["targets"] for row in json.loads(run("primitives", "--json").stdout)}
    assert found["erfcx"]["tensorflow"] is False
    assert found["erfcx"]["torch"] is True
    assert (found["j0"]["jax"], found["erfcx"]["jax"]) == (False, True)


# --- help, pipes -------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["demo", "show", "primitives"])
def test_help_has_examples(command):
    out = run(command, "--help").stdout
    assert "Examples:" in out
    assert f"\n    gradwright {command}" in out


def test_a_piped_command_is_plain_and_loads_no_framework():
    code = (
        "import sys; sys.argv[1:] = ['demo', '--steps', '5']\n"
        "from gradwright.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(sorted({'torch', 'tensorflow', 'jax', 'scipy'} & {*sys.modules}))\n"
    )
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env=environment
    )
    out = done.stdout.decode()
    assert "\x1b" not in out
    assert "test accuracy" in out
    assert out.splitlines()[-1] == "[]"


def test_importing_the_package_loads_no_command_line():
    code = (
        "import sys, gradwright\n"
        "heavy = {'gradwright.cli', 'typer', 'rich', 'matplotlib', 'scipy', 'torch', 'jax'}\n"
        "print(sorted(heavy & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_errors_of_our_own_keep_their_traceback(monkeypatch):
    monkeypatch.setattr(look, "show", lambda name, target: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("show", "sgd")


def test_exit_codes():
    assert (FailedRun.code, WrongUsage.code) == (1, 2)


# --- check -------------------------------------------------------------------------------------
OPS = """
import numpy as np
import gradwright as gw

@gw.op
def right(x, y):
    return np.sin(x) * y

@gw.op
def wrong(x, y):
    return np.sin(x) * y

@wrong.vjp
def _(g, x, y):
    return 2.1 * g * np.cos(x) * y, g * np.sin(x)

@gw.rule
def rule(w, g, *, lr=0.1):
    return w - lr * g
"""
NUMPY = ("--framework", "numpy", "--quick")


def test_check_says_what_is_wrong_and_exits_with_1():
    out = run("check", written("ops.py", OPS), *NUMPY, code=1).stdout
    assert "right: right" in out and "rule: right" in out
    assert "wrong: the gradient by x is off by a factor of 2.1, at x[" in out
    assert "ops.py:13" in out and "instead: what the rule returns for x" in out


def test_check_of_one_that_is_right_exits_with_0():
    out = run("check", written("ops.py", OPS) + ":right", *NUMPY, *2 * ("--shape", "2,3")).stdout
    assert out.startswith("right: right") and "wrong" not in out


def test_check_as_json():
    found = json.loads(run("check", written("ops.py", OPS), *NUMPY, "--json", code=1).stdout)
    assert found["schema"] == 1 and found["passed"] is False
    assert {r["name"]: r["passed"] for r in found["reports"]} == {
        "right": True,
        "wrong": False,
        "rule": True,
    }
