"""Import paths: how a saved model names what it does not hold."""

import sys
from collections.abc import Callable
from typing import Any

from ...errors import StateError


def path_of(function: Any, what: str, is_there: Callable[[Any], bool] | None = None) -> str:
    """``module:name`` of a function, where what a loading program needs must be found."""
    path = f"{function.__module__}:{function.__qualname__}"
    if not (is_there or (lambda found: found is function))(_found(path)):
        raise StateError(
            f"{what} cannot be saved: it is not what {path} is",
            "a name of its own at the top of a module, which the loading program imports",
        )
    return path


def at(path: str, what: str) -> Any:
    """What is at a path, in a module that was imported before: a file imports nothing itself."""
    found = _found(path)
    if found is None:
        module, _, name = path.partition(":")
        raise StateError(
            f"the saved {what} {name} is not there: {module} "
            + ("has no such name" if module in sys.modules else "is not imported"),
            f"import {module} before loading",
        )
    return found


def _found(path: str) -> Any:
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
