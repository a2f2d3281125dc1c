"""Our rules and the optimizers of Keras, on each of its backends, one process each."""

import pytest
from test_keras import run

pytestmark = pytest.mark.framework


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
def test_the_optimizers_of_keras(backend, tmp_path, monkeypatch):
    pytest.importorskip("keras")
    pytest.importorskip(backend)
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    checks = ["-m", "pytest", "-p", "no:cacheprovider", "keras_conventions.py"]
    assert "passed" in run(tmp_path, backend, *checks)
