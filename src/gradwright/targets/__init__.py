"""Where a graph goes: one package for each array library, each with what it alone knows."""

import functools
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar

from ..errors import GradwrightError, SignatureError
from ..graph import Graph

F = TypeVar("F")

# The framework that a type belongs to, by the package that defines it (or a base of it).
_PACKAGES = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "jaxlib": "jax",
    "keras": "keras",
}
BOUND = ("numpy", "torch", "tensorflow", "jax")
SHOWN = (*BOUND, "fused")  # what has source


@functools.lru_cache(maxsize=256)
def _framework(kind: type) -> str | None:
    for base in kind.__mro__:
        if found := _PACKAGES.get(base.__module__.partition(".")[0]):
            return found
    return None


def of(leaves: Sequence[Any], name: str) -> Any:
    """The target that the arrays of a call belong to; NumPy's where there is no framework's."""
    if not any(framework in sys.modules for framework in _PACKAGES):
        return import_module(f"{__name__}.numpy.op")
    kinds: set[type] = set(map(type, leaves))
    found = {framework for kind in kinds if (framework := _framework(kind))}
    if "keras" in found and (keras := sys.modules.get("keras")):
        found.discard(keras.config.backend())
    if len(found) > 1:
        raise SignatureError(
            f"{name} was called with arrays of {' and '.join(sorted(found))}",
            "arrays of one framework (NumPy arrays may be among them)",
        )
    framework = found.pop() if found else "numpy"
    return import_module(f"{__name__}.{framework}.op")


def part(target: str, name: str, *needed: str) -> Any:
    """A module of a target, whose framework (and what else is needed) is imported with it."""
    try:
        return import_module(f"{__name__}.{target}.{name}")
    except ModuleNotFoundError as error:
        if error.name not in (target, *needed):
            raise
        raise GradwrightError(
            f"{error.name} is not installed", f"pip install 'gradwright[{target}]'"
        ) from None


def spelling(target: str) -> Any:
    """How a target spells the primitives."""
    if target not in BOUND:
        raise SignatureError(f"no target {target!r}", f"one of {', '.join(SHOWN)}")
    return import_module(f"{__name__}.{target}").SPELLING


def printer(target: str) -> Callable[[Graph, str], str]:
    """How a graph is printed as source of a target; that of ``fused`` is LLVM's assembly."""
    if target == "fused":
        from .fused.source import source

        return source
    from .. import emit

    spelled = spelling(target)
    return lambda graph, name: emit.source(graph, name, spelled)


def runner(arrays: Sequence[Any], name: str) -> Any:
    """How the target of these arrays runs the parts of a rule."""
    package = of(arrays, name).__name__.removesuffix(".op")
    return import_module(f"{package}.optimizer").RUNNER


# --- torch.compile, which reads these lines -----------------------------------------------------
def is_compiling() -> bool:
    """Whether torch.compile is reading this call."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def at_compile_time(method: F) -> F:
    """Mark a method that torch.compile runs, to keep its result as a constant."""
    # The mark torch looks for; a function's type does not have it.
    method._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return method


def record(op: Any, args: Any, kwargs: Any) -> Any:
    from .torch import compiled

    return compiled.record(op, args, kwargs)


def call_name(op: Any, spec: Any) -> str:
    from .torch import compiled

    return compiled.call_name(op, spec)


def call_result(name: str) -> Any:
    from .torch import compiled

    return compiled.call_result(name)
