"""How each framework runs and differentiates a function: one class for each of its modes."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple, Protocol, TypeAlias

from ...errors import GradwrightError, SignatureError
from ...targets import BOUND
from ..differences import Array
from ..subject import Arrays, Subject

Seeds: TypeAlias = Sequence[Array | None]  # cotangents of all results, `None` of integers


class Seen(NamedTuple):
    """A result as NumPy has it (bfloat16 as float32), and the name of its own dtype."""

    array: Array
    dtype: str


class Mode(Protocol):
    """A function in one mode of a framework: made of (function, which arrays are differentiated).

    Cotangents and results are NumPy's; `pull` is reverse mode, `push` forward mode, `pull_twice`
    the gradient of the inner product of `pull` and `ws`.
    """

    framework: str
    name: str
    has_strides: bool
    dtypes: Sequence[str]

    def value(self, xs: Arrays) -> list[Seen]: ...
    def pull(self, xs: Arrays, cts: Seeds) -> list[Seen]: ...
    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]: ...
    def pull_twice(self, xs: Arrays, cts: Seeds, ws: Arrays) -> list[Seen]: ...

    def impurity(self, xs: Arrays, cts: Seeds) -> tuple[str, str] | None:
        """The kind of fault and its text, if a call writes where it should not, or shares."""


class NotOffered(GradwrightError):
    """The mode has no such derivative."""


def installed() -> list[str]:
    """The frameworks that are there to be imported."""
    return [name for name in BOUND if find_spec(name) is not None]


def imported() -> list[str]:
    """NumPy, and the frameworks that the program uses already."""
    return [name for name in BOUND if name == "numpy" or name in sys.modules]


def chosen(names: Sequence[str] | None) -> list[str]:
    """The frameworks that are asked for by name, else those that are imported."""
    if names is None:
        return imported()
    for name in names:
        if name not in BOUND:
            raise SignatureError(f"no framework {name!r}", f"one of {', '.join(BOUND)}")
        if find_spec(name) is None:
            raise SignatureError(f"{name} is not installed", f"pip install 'gradwright[{name}]'")
    return list(dict.fromkeys(names))


def modes(framework: str, subject: Subject, effort: str) -> list[Mode]:
    """A function in the modes of a framework: a few, most, or all of them."""
    module = import_module(f"{__name__}.{framework}_")
    return [kind(subject.call, subject.wrt) for kind in module.MODES[effort]]
