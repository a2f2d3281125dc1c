"""`gw.check_gradient`: a framework's own function, whose gradient somebody wrote by hand."""

import inspect
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from .. import tree
from ..errors import SignatureError
from . import frameworks, ops
from .differences import Array
from .frameworks import Mode
from .progress import watching
from .report import Report
from .subject import Arrays, Flat, Subject

KNOWN = ("torch", "tensorflow", "jax")


def report(
    function: Callable[..., Any],
    examples: Sequence[Any],
    framework: str | None,
    effort: str,
    seed: int,
) -> Report:
    """Check a function of a framework's arrays against differences of itself."""
    name = getattr(function, "__name__", type(function).__name__)
    framework = _chosen(framework, examples, name)
    start = time.perf_counter()
    arrays = [_as_array(x, name) for x in examples]
    module = import_module(f"{frameworks.__name__}.{framework}_")
    subject = _subject(function, name, arrays, module)
    kinds = module.MODES["quick" if effort == "quick" else "gradient"]
    modes: list[Mode] = [kind(subject.call, subject.wrt) for kind in kinds]
    base = modes[0]
    own = replace(subject, value=_values(base), slope=_values(base))
    by_name = _by_keyword(function, arrays, module, type(base))
    with watching(f"checking {name}", 7 * len(modes) * len(ops.POINTS[effort])) as told:
        cells = tuple(ops.run(own, [*modes, *by_name], effort, seed, told))
    seconds = time.perf_counter() - start
    return Report(name, "gradient", "gradient", subject.where, seed, effort, cells, seconds)


def _chosen(framework: str | None, examples: Sequence[Any], name: str) -> str:
    """The framework that is asked for, or the one of the examples."""
    found = framework or next(
        (p for x in examples if (p := type(x).__module__.partition(".")[0]) in KNOWN), None
    )
    found = {"jaxlib": "jax"}.get(str(found), found)
    if found not in KNOWN or (framework is None and found not in sys.modules):
        raise SignatureError(
            f"gw.check_gradient({name}, …, framework={framework!r})",
            f"framework= one of {', '.join(KNOWN)}; gw.check for an op",
        )
    return found


def _as_array(x: Any, name: str) -> Array:
    """An example as a NumPy array; a complex one as pairs of real numbers stays complex here."""
    array = np.asarray(x.detach() if hasattr(x, "detach") else x)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind not in "biufc":
        raise SignatureError(
            f"gw.check_gradient({name}, …): an example is {type(x).__name__}", "arrays of numbers"
        )
    return array


def _subject(function: Callable[..., Any], name: str, arrays: Arrays, module: Any) -> Subject:
    are_complex = [x.dtype.kind == "c" for x in arrays]
    call = _call(lambda *xs: function(*xs), are_complex, module)
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
    names = _names(function, len(arrays))
    real = tuple(_parted(x) for x in arrays)
    return Subject(
        name, where, real, names, call, call, rule="gradient",
        complex_names=tuple(n for n, c in zip(names, are_complex, strict=True) if c),
    )  # fmt: skip


def _call(function: Callable[..., Any], are_complex: Sequence[bool], module: Any) -> Flat:
    """The function on real arrays: complex ones are pairs along the last axis."""

    def call(xs: Sequence[Any]) -> list[Any]:
        full = [module.joined(x) if c else x for x, c in zip(xs, are_complex, strict=True)]
        outs = tree.flatten(function(*full))[0]
        return [module.parted(y) if "complex" in str(y.dtype) else y for y in outs]

    return call


def _parted(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x


def _values(base: Mode) -> Flat:
    return lambda xs: [seen.array for seen in base.value(xs)]


def _parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters that may be given by position and by keyword."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    found = _parameters(function)
    return tuple(found[:count] if len(found) >= count else [f"x{k}" for k in range(count)])


def _by_keyword(
    function: Callable[..., Any], arrays: Arrays, module: Any, kind: Callable[..., Mode]
) -> list[Mode]:
    """The same called by keyword: a decorator may lose the rule then."""
    names = _parameters(function)[: len(arrays)]
    if len(names) < len(arrays):
        return []

    def named(*xs: Any) -> Any:
        return function(**dict(zip(names, xs, strict=True)))

    are_complex = [x.dtype.kind == "c" for x in arrays]
    wrt = [k for k, x in enumerate(arrays) if x.dtype.kind in "fc"]
    mode = kind(_call(named, are_complex, module), wrt)
    mode.name = f"{mode.name} by keyword"
    return [mode]
