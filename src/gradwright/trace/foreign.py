"""What a traced array is not: what other libraries' arrays have, and their functions."""

from collections.abc import Container
from typing import Any

import numpy as np

from ..errors import MissingAttribute, TraceError
from ..primitives import PRIMITIVES

# NumPy's spelling of what is named otherwise in frameworks, as a method or as a function.
_NUMPYS = {
    "cat": "np.concatenate",
    "clamp": "np.clip",
    "detach": "gw.stop_gradient(x)",
    "dim": "x.ndim",
    "double": "x.astype(np.float64)",
    "float": "x.astype(np.float32)",
    "half": "x.astype(np.float16)",
    "int": "x.astype(np.int32)",
    "long": "x.astype(np.int64)",
    "mul": "x * y",
    "mm": "x @ y",
    "numpy": "x as it is: inside the function it behaves as a NumPy array",
    "permute": "np.transpose",
    "pow": "x ** y",
    "relu": "np.maximum(x, 0)",
    "rsqrt": "1 / np.sqrt(x)",
    "sigmoid": "1 / (1 + np.exp(-x))",
    "softmax": "e = np.exp(x - np.max(x, axis, keepdims=True)), then e / np.sum(e, axis, …)",
    "type": "x.astype(dtype)",
    "unsqueeze": "np.expand_dims",
    "view": "x.reshape(shape)",
}
_PLACES = ("cpu", "cuda", "device", "grad", "is_cuda", "requires_grad", "requires_grad_", "to")


def missing(name: str, functions: Container[Any]) -> MissingAttribute:
    """The error for an attribute that a traced array does not have; `hasattr` sees it as such."""
    return MissingAttribute(f"a traced array has no attribute {name}", _instead(name, functions))


def _instead(name: str, functions: Container[Any]) -> str:
    """What to write for a name, if it is NumPy's, one that can be traced."""
    if name in _PLACES:
        return f"{name} outside the function, which is one for arrays of every framework"
    if cure := _NUMPYS.get(name):
        return cure
    if name in PRIMITIVES or vars(np).get(name) in functions:
        return f"np.{name}"
    return "shape, ndim, size, dtype, T, astype, reshape and the like, or NumPy's functions"


def of_framework(framework: str, function: object, functions: Container[Any]) -> TraceError:
    """The error for a framework's function that was called on traced arrays."""
    name = str(getattr(function, "__name__", function))
    module = getattr(function, "__module__", None) or framework
    full = name if "._" in module else f"{module}.{name}"
    full = full if full.startswith(framework) else f"{framework}.{name.replace('_', '.', 1)}"
    return TraceError(
        f"{full} is called on a traced array, which is no array of {framework}",
        f"{_instead(name, functions)}; what is native in every framework is written in NumPy",
    )
