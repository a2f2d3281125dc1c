"""What must hold before the first test module imports a framework."""

import os

import pytest
from hypothesis import settings

# Defaults only, so that a run on a GPU can ask for one.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("MPLBACKEND", "Agg")

# No deadlines: the first call of a compiled op is slow, and rightly so.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("nightly", max_examples=1000, deadline=None)
settings.load_profile("ci")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not os.environ["CUDA_VISIBLE_DEVICES"]:
        pytest.skip("CUDA_VISIBLE_DEVICES names no GPU")
