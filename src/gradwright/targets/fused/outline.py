"""Functions that a module defines once and calls: on vectors, with a way out for rare arguments."""

from collections.abc import Callable
from typing import Any

from .ir import LANES, Builder, Lanes, vector

_ALL = f"llvm.vector.reduce.and.v{LANES}i1"


def outlined(name: str, function: Callable[..., Lanes], *xs: Lanes) -> Lanes:
    """Call ``name``, which is `function`, on vectors."""

    def body(b: Builder, inside: list[Lanes]) -> list[str]:
        value = function(*inside)
        return [*b.lines, f"  ret {value.type} {value.text}"]

    return _called(name, body, xs)


def guarded(
    name: str,
    fast: Callable[..., tuple[Lanes, Lanes]],
    rest: Callable[..., Lanes],
    *xs: Lanes,
) -> Lanes:
    """Call ``name``: the fast way if every lane allows it, else lane by lane too.

    `fast` gives (the condition, the value), `rest` the value that is right everywhere.
    """

    def body(b: Builder, inside: list[Lanes]) -> list[str]:
        condition, value = fast(*inside)
        before = list(b.lines)
        either = b.select(condition, value, rest(*inside))
        flags = f"{condition.type} {condition.text}"
        b.declared.add(f"declare i1 @{_ALL}({condition.type})")
        return [
            *before,
            f"  %all = call i1 @{_ALL}({flags})",
            "  br i1 %all, label %fast, label %slow",
            f"fast:\n  ret {value.type} {value.text}",
            "slow:",
            *b.lines[len(before) :],
            f"  ret {either.type} {either.text}",
        ]

    return _called(name, body, xs)


def _called(name: str, body: Callable[[Builder, list[Lanes]], list[str]], xs: Any) -> Lanes:
    outer, dtype = xs[0].builder, xs[0].dtype
    full = f"gw_{name}_{dtype}"
    if full not in outer.defined:
        outer.defined[full] = ""  # so that it is not defined again inside
        b = Builder("r", declared=outer.declared, defined=outer.defined)
        inside = [Lanes(b, f"%x{k}", x.dtype) for k, x in enumerate(xs)]
        parameters = ", ".join(f"{x.type} {x.text}" for x in inside)
        kind = vector(dtype)
        head = f"define internal {kind} @{full}({parameters}) #0 {{"
        outer.defined[full] = "\n".join([head, *body(b, inside), "}"])
    arguments = ", ".join(f"{x.type} {x.text}" for x in xs)
    found: Lanes = outer.emit(f"call {vector(dtype)} @{full}({arguments})", dtype)
    return found
