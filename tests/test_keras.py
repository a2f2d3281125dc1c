"""Ops and optimizers on each backend of Keras, of which a process has one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gradwright

pytestmark = pytest.mark.framework
HERE = Path(__file__).parent


def run(folder, backend, *command):
    """Run Python in a process of its own, with one backend; return what it printed."""
    env = {**os.environ, "KERAS_BACKEND": backend, "KERAS_FOLDER": str(folder)}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), str(Path(gradwright.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, *command], env=env, cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]
    return done.stdout


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_a_backend(backend, tmp_path):
    """All checks, and then what they saved, loaded in another process."""
    pytest.importorskip("keras")
    pytest.importorskip(backend)
    checks = ["keras_op.py", "keras_optimizer.py"]
    checks += ["keras_tensorflow.py"] if backend == "tensorflow" else []
    assert "passed" in run(tmp_path, backend, "-m", "pytest", "-p", "no:cacheprovider", *checks)
    assert "loaded" in run(tmp_path, backend, "keras_reload.py")
