"""Every example that a reader sees is run: the tour, the README, the docstrings."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import gradwright

ROOT = Path(__file__).parent.parent
FRAMEWORKS = (
    "gradwright.targets.torch",
    "gradwright.targets.tensorflow",
    *(f"gradwright.check.frameworks.{name}_" for name in ("torch", "tensorflow", "jax")),
    "gradwright.cli",
    "gradwright.__main__",
)
MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(
        gradwright.__path__, "gradwright.", onerror=lambda name: None
    )
    if not name.startswith(FRAMEWORKS)
]


@pytest.mark.parametrize("page", ["docs/tour.md", "docs/ops.md", "docs/rules.md", "README.md"])
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False)
    assert tried > 0
    assert failed == 0


@pytest.mark.framework
def test_the_page_for_code_of_tensorflow_1():
    pytest.importorskip("tensorflow")
    failed, tried = doctest.testfile(str(ROOT / "docs/py_func.md"), module_relative=False)
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_public_names_have_examples():
    """The functions that a user calls show how."""
    called = ["op", "host_op", "rule", "chain", "partition", "per_param", "record", "stop_gradient"]
    called += ["grad", "value_and_grad", "vjp", "jvp", "eager"]
    without = [n for n in called if ">>>" not in (getattr(gradwright, n).__doc__ or "")]
    assert without == []


def test_a_wrong_example_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(">>> 1 + 1\n3\n")
    result = doctest.testfile(str(page), module_relative=False, report=False, verbose=False)
    assert result.failed == 1
    assert np.__name__ == "numpy"
