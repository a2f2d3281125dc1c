"""Every place that raises has a case: what happened, where in the user's file, what to write."""

import ast
import importlib
import inspect
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import gradwright

PACKAGE = Path(gradwright.__file__).parent

# Which cases are for which part of the package; what is in no other area is core's.
FRAMEWORKS = {
    "torch": ("targets/torch/", "emit.py"),  # only frameworks refuse to compute a primitive
    "tensorflow": ("targets/tensorflow/", "tf1.py"),
    "jax": "targets/jax/",
    "keras": "targets/keras/",
    "cli": "cli/",
}
AREAS = {"core": ["trace", "host", "rules", "check_"], "torch": ["torch_"],
         "tensorflow": ["tensorflow_"], "jax": ["jax_"], "keras": ["keras_"],
         "cli": ["cli_"]}  # fmt: skip
# Raised and caught inside: not errors, and never seen.
CONTROL_FLOW = {"Specialise", "TotalNeeded", "Exit", "NotOffered"}


def area_of(path):
    return next((a for a, start in FRAMEWORKS.items() if path.startswith(start)), "core")


def raises_in(source):
    """The lines of the statements that raise an error; to raise again what was caught is none."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if getattr(name, "attr", getattr(name, "id", None)) not in CONTROL_FLOW:
                found.add(node.lineno)
    return found


def sites(area):
    """Where an area of the package raises: file and line."""
    return {
        (path, line)
        for file in sorted(PACKAGE.rglob("*.py"))
        if area_of(path := file.relative_to(PACKAGE).as_posix()) == area
        for line in raises_in(file.read_text())
    }


def frames(error):
    """The innermost frame in the package of an error, and of those it was raised in place of."""
    while error is not None:
        inside = [
            (Path(f.filename).relative_to(PACKAGE).as_posix(), f.lineno)
            for f in traceback.extract_tb(error.__traceback__)
            if Path(f.filename).is_relative_to(PACKAGE)
        ]
        yield from inside[-1:]
        error = error.__context__


@dataclass
class Seen:
    """An error that a case raised, and the places that it came from."""

    text: str
    type: type
    at: set = field(default_factory=set)


def run(case, folder):
    """What a case raises."""
    try:
        case.run(folder) if inspect.signature(case.run).parameters else case.run()
    except Exception as error:
        return Seen(str(error), type(error), set(frames(error)))
    return Seen("", type(None))


def cases(area):
    return [
        (name, case)
        for name in AREAS[area]
        for case in importlib.import_module(f"errors.{name}").CASES
    ]


def assert_said(case, seen, file):
    assert seen.type is not type(None), "nothing was raised"
    for text in case.texts:
        assert text in seen.text, seen.text
    if case.where:
        assert f"{file}.py:" in seen.text, f"no line of the user's: {seen.text}"


def missing(area, folder):
    """The places of an area that no case comes to."""
    hit = set().union(*(run(case, folder).at for _, case in cases(area)))
    return sorted(sites(area) - hit)


def ident(value):
    return getattr(value, "name", value)[:60]


@pytest.mark.parametrize("name, case", [*cases("core"), *cases("cli")], ids=ident)
def test_what_an_error_says(name, case, tmp_path):
    assert_said(case, run(case, tmp_path), name)


@pytest.mark.parametrize("case", [c for _, c in cases("core")], ids=ident)
def test_errors_are_gradwrights(case, tmp_path):
    seen = run(case, tmp_path)
    # muon is written as a user's rule, and raises as one
    assert issubclass(seen.type, gradwright.GradwrightError) or "muon" in seen.text


@pytest.mark.parametrize("area", ["core", "cli"])
def test_every_place_that_raises_has_a_case(area, tmp_path):
    assert not missing(area, tmp_path)


@pytest.mark.framework
@pytest.mark.parametrize("area", ["torch", "tensorflow", "jax", "keras"])
def test_every_place_in_a_framework_has_a_case_that_says_it(area, tmp_path):
    pytest.importorskip(area)
    for name, case in cases(area):
        assert_said(case, run(case, tmp_path), name)
    assert not missing(area, tmp_path)


def test_a_place_without_a_case_is_found():
    """The mapping test can fail: a new raise statement is a new place."""
    source = "def f(x):\n    if x:\n        raise ValueError(\n            'new')\n    raise\n"
    assert raises_in(source) == {3}
    assert raises_in(source + "def g():\n    raise unsupported('x') from None\n") == {3, 7}
    assert raises_in("try:\n    f()\nexcept E:\n    raise Specialise([])\n") == set()


def test_a_case_that_says_something_else_is_found(tmp_path):
    name, case = cases("core")[0]
    seen = run(case, tmp_path)
    with pytest.raises(AssertionError):
        assert_said(type(case)(case.run, ("something else",)), seen, name)
    with pytest.raises(AssertionError):
        assert_said(case, seen, "another_file")
    with pytest.raises(AssertionError):
        assert_said(case, run(type(case)(lambda: None, ()), tmp_path), name)
