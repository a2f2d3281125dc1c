"""What a function declares: arrays before ``*``, options after it."""

import enum
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import tree
from .errors import SignatureError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def is_static(value: Any) -> bool:
    """Whether a value is part of the program: strings, None, enums; numbers and arrays are not."""
    return (
        value is None or isinstance(value, (str, bytes, enum.Enum, type, slice)) or callable(value)
    )


@dataclass(frozen=True)
class Layout:
    """How leaves make up the arguments of a call: hashable, the same for every call of a kind."""

    names: tuple[str, ...]
    specs: tuple[tree.Spec, ...]
    static: tuple[tuple[str, Hashable], ...]

    def arguments(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The arguments by name, rebuilt from their leaves."""
        values: dict[str, Any] = dict(self.static)
        start = 0
        for name, spec in zip(self.names, self.specs, strict=True):
            stop = start + tree.leaves_of(spec)
            values[name] = tree.unflatten(spec, leaves[start:stop])
            start = stop
        return values

    def options(self, signature: "Signature") -> dict[int, str]:
        """The leaves that belong to options, and of which."""
        pairs = zip(self.names, self.specs, strict=True)
        owners = [name for name, spec in pairs for _ in range(tree.leaves_of(spec))]
        return {k: name for k, name in enumerate(owners) if name in signature.options}

    def leaf_names(self) -> list[str]:
        """An identifier for each leaf, made of the argument and the keys that lead to it."""
        count = sum(map(tree.leaves_of, self.specs))
        values = self.arguments(range(count))
        found = {
            leaf: path
            for name in self.names
            for path, leaf in zip(
                tree.paths(values[name], name), tree.flatten(values[name])[0], strict=True
            )
        }
        return [_identifier(found[k]) for k in range(count)]


def _identifier(path: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in path)


def plain(function: Any) -> Callable[..., Any]:
    """A function whose parameters are its arrays: those of NumPy's are out, where, dtype, …"""
    if not callable(function):
        raise SignatureError(f"{function!r} is no function", "a function of arrays, in NumPy")
    is_ufunc = isinstance(function, np.ufunc)
    if not is_ufunc and not (getattr(function, "__module__", "") or "").startswith("numpy"):
        return function  # type: ignore[no-any-return]  # kept in a dict of Any

    def applied(*args: Any) -> Any:
        return function(*args)

    applied.__name__ = applied.__qualname__ = function.__name__
    applied.__doc__ = function.__doc__
    if is_ufunc:
        names = ["x"] if function.nin == 1 else [f"x{k + 1}" for k in range(function.nin)]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        # inspect reads the attribute; a function's type does not have it.
        applied.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return applied


class Signature:
    """A function's parameters: `arrays` before ``*``, `options` after it."""

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self.what, self.name = what, getattr(function, "__name__", "f")
        self.python = inspect.signature(function)
        parameters = self.python.parameters.values()
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self._are_named = all(p.kind in _NAMED for p in parameters)
        kinds = inspect.Parameter
        self.arrays: list[str] = []
        self.options: list[str] = []
        for name, p in self.python.parameters.items():
            if p.kind is kinds.VAR_KEYWORD:
                raise SignatureError(
                    f"{what} {self.name} takes **{name}", "every option by its name, after *"
                )
            (self.options if p.kind is kinds.KEYWORD_ONLY else self.arrays).append(name)
        if self.arrays and self.arrays[0] == "self":
            raise SignatureError(
                f"{what} {self.name} is a method: its first argument is self, no array",
                "a function outside the class, called by the method",
            )

    def call(
        self, function: Callable[..., Any], values: Mapping[str, Any], options: Sequence[str]
    ) -> Any:
        """Call a function of these arrays, and of some of the options, with arguments by name."""
        positional = []
        for name in self.arrays:
            if self.python.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
                positional += values[name]
            else:
                positional.append(values[name])
        return function(*positional, **{name: values[name] for name in options})

    def _check_kind(self, option: str, value: Any) -> None:
        """Raise where an option that is declared with a number is given a text."""
        default = self.python.parameters[option].default
        if isinstance(value, (str, bytes)) and is_number(default):
            raise SignatureError(
                f"{self.name}: {option} is {value!r}, where a number is expected",
                f"a number, as the default {option}={default!r} is",
            )

    def layout(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], Layout]:
        """The leaves of a call and how they make it up; the same however arguments are passed."""
        leaves: list[Any] = []
        names, specs, static = [], [], []
        for name, value in self.arguments(args, kwargs).items():
            if name in self.options and is_static(value):
                self._check_kind(name, value)
                static.append((name, value))
                continue
            found, spec = tree.flatten(value)
            leaves += found
            names.append(name)
            specs.append(spec)
        return leaves, Layout(tuple(names), tuple(specs), tuple(static))

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call by name, in the order of the declaration, defaults included."""
        if self._are_named and len(args) <= len(self.arrays):  # inspect takes ten times as long
            given = dict(zip(self.arrays, args, strict=False))
            found = {**self._defaults, **given, **kwargs}
            if found.keys() == self.python.parameters.keys() and given.keys().isdisjoint(kwargs):
                return {name: found[name] for name in self.python.parameters}
        try:
            bound = self.python.bind(*args, **kwargs)
        except TypeError as error:
            hint = ", ".join(self.options)
            raise SignatureError(
                f"{self.name}{self.python}: {error}",
                f"arrays first, options by name{f': {hint}' if hint else ''}",
            ) from None
        bound.apply_defaults()
        return bound.arguments
