"""What traced functions read from outside of themselves, to see when it was bound anew.

A trace keeps what a function captured: a global mini-batch, a helper, a learning rate. Such a name
may be bound to another object later, and then what was traced is dropped.
"""

import dis
import functools
from collections.abc import Callable, Iterable, Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

_UNBOUND = object()  # stands for a name or a closure variable that has no value
_LIBRARIES = {"gradwright", "numpy", "scipy"}  # nobody binds the names of their modules anew
_READS = {"LOAD_GLOBAL", "LOAD_NAME"}


class Capturing:
    """What is traced from functions: an op, a rule."""

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        self._functions = [*functions]
        self._captures = Captures()


class Captures:
    """The names and closure variables that functions read, and the objects they were bound to."""

    def __init__(self, functions: Iterable[Any] = ()) -> None:
        names: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        cells: dict[int, tuple[CellType, Any]] = {}
        for function in _functions_in(functions):
            if _is_library(function):
                continue
            scope = function.__globals__
            for name in _global_names(function.__code__):
                names[id(scope), name] = scope, name, scope.get(name, _UNBOUND)
            for cell in function.__closure__ or ():
                cells[id(cell)] = cell, _contents(cell)
        self._names, self._cells = tuple(names.values()), tuple(cells.values())

    def are_rebound(self) -> bool:
        """Whether one of them is another object now; every call of an op asks."""
        for scope, name, value in self._names:
            if scope.get(name, _UNBOUND) is not value:
                return True
        for cell, value in self._cells:  # noqa: SIM110 - a generator would cost more
            if _contents(cell) is not value:
                return True
        return False


def _functions_in(values: Iterable[Any]) -> Iterator[FunctionType]:
    """The Python functions among these values, and all that they may call."""
    todo, seen = [*values], set()
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            yield value
            todo += _read_by(value)
        elif isinstance(value, Capturing):
            todo += value._functions
        elif isinstance(value, MethodType):
            todo.append(value.__func__)
        elif isinstance(value, functools.partial):
            todo += [value.func, *value.args, *value.keywords.values()]


def _read_by(function: FunctionType) -> Iterator[Any]:
    """What a function may call: the values of its closure, its defaults, and its globals."""
    yield from map(_contents, function.__closure__ or ())
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    if not _is_library(function):
        scope = function.__globals__
        yield from (scope.get(name) for name in _global_names(function.__code__))


def _is_library(function: FunctionType) -> bool:
    # not by __module__, which functools.wraps copies from the user's function to ours
    return str(function.__globals__.get("__name__")).partition(".")[0] in _LIBRARIES


@functools.lru_cache(maxsize=1024)
def _global_names(code: CodeType) -> frozenset[str]:
    """The globals that are named in code, and in the functions and classes inside it."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in _READS}
    inner = [_global_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(found).union(*inner)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNBOUND
