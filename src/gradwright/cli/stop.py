"""How a command ends when it cannot go on: a text for its user, and an exit code."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from ..errors import GradwrightError, is_library_rule


class Stop(Exception):
    """The command cannot go on."""

    code = 1


class FailedRun(Stop):
    """The run itself went wrong."""


class WrongUsage(Stop):
    """The command was not called rightly."""

    code = 2


@contextmanager
def showing_lines_of(file: str) -> Iterator[None]:
    """Turn an error that a user's file raises into its own line; other errors are ours."""
    try:
        yield
    except Stop:
        raise
    except GradwrightError as error:
        raise FailedRun(text_of(error, file)) from error
    except Exception as error:
        if (text := users_line(error, file)) is None:
            raise
        raise FailedRun(text) from error


def text_of(error: GradwrightError, file: str) -> str:
    """An error's text; a line that is neither the user's nor a rule's says nothing to them."""
    known = is_library_rule(error.where) or (file and error.where.startswith(file))
    return error.text(error.where if known else "")


def users_line(error: Exception, file: str) -> str | None:
    """The innermost line of `file` in an error's traceback, and what happened there."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return _at(file, error.lineno or 0, error.text or "", error)
    frames = [f for f in _frames(error.__traceback__) if f.filename == file]
    return _at(file, frames[-1].lineno or 0, frames[-1].line or "", error) if frames else None


def _frames(trace: TracebackType | None) -> traceback.StackSummary:
    return traceback.extract_tb(trace)


def _at(file: str, line: int, code: str, error: Exception) -> str:
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{file}:{line}\n    {code.strip()}\n{type(error).__name__}: {what}"
