"""The backend that Keras runs on in this process, and the target that computes on its arrays."""

from importlib import import_module
from typing import Any

import keras

from ... import targets
from ...errors import GradwrightError

NAME = keras.config.backend()


def target() -> Any:
    """How the backend's arrays are used by ops."""
    if NAME not in targets.BOUND:
        raise GradwrightError(
            f"Keras on {NAME}: {NAME} is not in this version",
            "KERAS_BACKEND=tensorflow, torch or jax in the environment",
        )
    return import_module(f"{targets.__name__}.{NAME}.op")


def result_dtype(dtype: str) -> str:
    """The dtype of a result that has this one by NumPy's rules: JAX may have no 64-bit numbers."""
    if NAME != "jax":
        return dtype
    from ..jax.functions import held

    return str(held(dtype))


def optimizers() -> Any:
    """What optimizers of Keras do in another way on this backend."""
    target()
    return import_module(f"{__package__}.on_{NAME}")
