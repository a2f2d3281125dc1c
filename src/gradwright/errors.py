"""Errors that say what happened, where in the user's file, and what to write instead."""

import contextlib
import functools
import linecache
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

_PACKAGE = Path(__file__).parent
_NOT_THE_USERS = (
    str(_PACKAGE),
    str(Path(np.__file__).parent),
    functools.__file__,
    contextlib.__file__,
    "<frozen",
    "<__array_function__",
    "<gradwright",
)
# The library of rules is written as a user writes rules: its lines are worth showing.
_LIKE_A_USERS = str(_PACKAGE / "rules")


# Frameworks call us back; their folders are known without importing them.
_FRAMEWORKS = re.compile(r"-packages[/\\](torch|tensorflow|keras|jax|optax)[/\\]")


def is_library_rule(filename: str) -> bool:
    return filename.startswith(_LIKE_A_USERS)


def _is_users(filename: str) -> bool:
    if _FRAMEWORKS.search(filename):
        return False
    return is_library_rule(filename) or not filename.startswith(_NOT_THE_USERS)


def user_line() -> str:
    """Return ``file:line`` of the innermost frame that is the user's own, or ``""``."""
    frame = sys._getframe(1)
    while not _is_users(frame.f_code.co_filename):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def place(function: Any) -> str:
    """``file:line`` of a function's definition, or ``""``."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _shown(where: str) -> str:
    filename, _, line = where.rpartition(":")
    text = linecache.getline(filename, int(line)).strip()
    return f"\n  at {where}" + (f"\n     {text}" if text else "")


class GradwrightError(Exception):
    """What happened, where, and what to write instead."""

    _keras_call_info_injected = True  # Keras reads this, and raises the error as it is

    def __init__(self, what: str, instead: str = "", where: str | None = None) -> None:
        self.where = user_line() if where is None else where  # file:line, or ""
        self.what, self.instead = what, instead
        super().__init__(self.text(self.where))

    def text(self, where: str) -> str:
        """What happened, said of another place, or of none."""
        cure = f"\n  instead: {self.instead}" if self.instead else ""
        return self.what + (_shown(where) if where else "") + cure


class TraceError(GradwrightError, TypeError):
    """The function does something that cannot be traced."""


class MissingAttribute(TraceError, AttributeError):
    """What a traced function is given has no such attribute; `hasattr` says so too."""


class SignatureError(GradwrightError, TypeError):
    """Arguments, options or results do not fit the declared signature."""


class StateError(GradwrightError, ValueError):
    """Arrays or saved state do not belong to this optimizer."""


class CheckFailure(GradwrightError, AssertionError):
    """A gradient or an update rule is wrong; the text is the diagnosis, `report` the whole."""

    report: Any = None  # a gradwright.check.Report
