"""Ops on NumPy arrays: the traced function as one compiled NumPy program."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import emit, tree
from ...errors import SignatureError
from ...op import Meta, Op, number_meta
from ...signature import Layout, is_number
from . import SPELLING


def meta(value: Any, name: str) -> Meta:
    """What is known of an argument before its values."""
    if is_number(value):
        return number_meta(value)
    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind not in "biuf":
        what = getattr(value, "dtype", type(value).__name__)
        raise SignatureError(f"{name} was called with {what}", "arrays of real numbers")
    return Meta(value.shape, value.dtype.name)


def call(op: Op[Any], leaves: Sequence[Any], layout: Layout) -> Any:
    """Run an op on NumPy arrays."""
    made = op.traced([meta(leaf, op.name) for leaf in leaves], layout)
    run = emit.program(made.function.primal, op.name, SPELLING)
    with np.errstate(all="ignore"):  # both branches of np.where are computed
        return tree.unflatten(made.out, run(*leaves))


def eager(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)
