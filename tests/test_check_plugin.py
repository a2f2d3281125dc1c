"""The pytest plugin: one test for each framework."""

import os
import subprocess
import sys
from pathlib import Path

import gradwright

TEST = """
import numpy as np
import gradwright as gw

@gw.op
def f(x):
    return np.sin(x)

def test_f(gradwright_framework):
    assert gw.check(f, np.ones(2), frameworks=[gradwright_framework], effort="quick")

def test_plain():
    pass
"""


def run(folder, *arguments):
    (folder / "test_mine.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", str(folder)]
    env = os.environ | {"PYTHONPATH": str(Path(gradwright.__file__).parents[1])}
    more = {"capture_output": True, "text": True, "cwd": folder, "env": env}
    done = subprocess.run([*command, *arguments], check=False, **more)
    return done.stdout + done.stderr


def plugin():
    """By name where the package is not installed with its entry points."""
    from importlib.metadata import entry_points

    found = [e for e in entry_points(group="pytest11") if e.name == "gradwright"]
    return () if found else ("-p", "gradwright.check.plugin")


def test_one_test_for_each_framework(tmp_path):
    out = run(tmp_path, *plugin(), "--gradwright-frameworks", "numpy", "-vv")
    assert "test_f[numpy] PASSED" in out and "test_plain PASSED" in out, out
    out = run(tmp_path, *plugin(), "--collect-only", "--gradwright-frameworks", "numpy,cobol")
    assert "no framework 'cobol'" in out


def test_all_that_are_installed(tmp_path):
    from gradwright.check.frameworks import installed

    out = run(tmp_path, *plugin(), "--collect-only")
    assert [name for name in installed() if f"test_f[{name}]" in out] == installed()
