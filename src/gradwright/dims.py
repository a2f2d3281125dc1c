"""The sizes of arrays: a dim is an int, or an expression over the sizes of the inputs.

``("in", k, axis)``            the size of input k along axis
``("bc", d, e, …)``            what d, e, … broadcast to
``(op, d, e)``                 arithmetic, op one of + - * //
``("slice", d, a, b, step)``   how many elements ``[a:b:step]`` takes of d
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

Dim: TypeAlias = Any  # int | tuple: a recursive alias says no more to a reader
Shape: TypeAlias = tuple[Dim, ...]

_INTS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda d, e: d + e,
    "-": lambda d, e: d - e,
    "*": lambda d, e: d * e,
    "//": lambda d, e: d // e if e else 0,
}


def arith(op: str, d: Dim, e: Dim) -> Dim:
    """Return ``d op e``, simplified where that is plain."""
    if isinstance(d, int) and isinstance(e, int):
        return _INTS[op](d, e)
    if op in "+*" and str(e) < str(d):  # one spelling for n + m and m + n
        d, e = e, d
    if (op, d) in (("+", 0), ("*", 1)):
        return e
    if (op, e) in (("+", 0), ("-", 0), ("*", 1), ("//", 1)):
        return d
    if op == "-" and d == e:
        return 0
    if op == "//":
        return _quotient(d, e)
    return (op, d, e)


def _factors(d: Dim) -> list[Dim]:
    return _factors(d[1]) + _factors(d[2]) if isinstance(d, tuple) and d[0] == "*" else [d]


def _quotient(d: Dim, e: Dim) -> Dim:
    """Divide, cancelling common factors: ``(n * 3) // 3`` is n."""
    above = _factors(d)
    below = []
    for factor in _factors(e):
        if factor in above:
            above.remove(factor)
        else:
            below.append(factor)
    if not below:
        return product(above)
    return ("//", product(above), product(below))


def product(dims: Sequence[Dim]) -> Dim:
    return reduce(lambda d, e: arith("*", d, e), dims, 1)


def taken(d: Dim, start: int | None, stop: int | None, step: int | None) -> Dim:
    """How many elements ``[start:stop:step]`` takes of d."""
    if isinstance(d, int):
        return len(range(*slice(start, stop, step).indices(d)))
    if (start or 0, stop, step or 1) == (0, None, 1):
        return d
    return ("slice", d, start, stop, step)


def broadcast(*shapes: Shape) -> Shape:
    """NumPy's rule; where sizes are not known the result is ``("bc", …)``, a set union."""
    rank = max(map(len, shapes), default=0)
    return tuple(
        _broadcast([s[axis] for s in shapes if len(s) >= -axis]) for axis in range(-rank, 0)
    )


def _broadcast(dims: Sequence[Dim]) -> Dim:
    parts = {p for d in dims for p in (d[1:] if isinstance(d, tuple) and d[0] == "bc" else [d])} - {
        1
    }
    ints = {p for p in parts if isinstance(p, int)}
    if len(ints) > 1:
        raise ValueError(f"sizes {sorted(ints)} do not broadcast")
    if ints:  # the unknown ones can only be that size, or 1
        return ints.pop()
    return ("bc", *sorted(parts, key=str)) if len(parts) > 1 else parts.pop() if parts else 1


def substitute(d: Dim, sizes: Mapping[tuple[int, int], Dim]) -> Dim:
    """Replace ``("in", k, axis)`` by ``sizes[k, axis]`` where that is given."""
    if not isinstance(d, tuple):
        return d
    if d[0] == "in":
        return sizes.get((d[1], d[2]), d)
    if d[0] == "slice":
        return taken(substitute(d[1], sizes), *d[2:])
    parts = [substitute(e, sizes) for e in d[1:]]
    return _broadcast(parts) if d[0] == "bc" else arith(d[0], *parts)


def inputs_of(d: Dim) -> Iterator[tuple[int, int]]:
    """The sizes an expression reads, as pairs (input, axis)."""
    if isinstance(d, tuple):
        if d[0] == "in":
            yield (d[1], d[2])
        else:
            for e in d[1:2] if d[0] == "slice" else d[1:]:
                yield from inputs_of(e)


def text(d: Dim, size: Callable[[int, int], str]) -> str:
    """Spell a dim in Python, given the spelling of one size of one input."""
    if not isinstance(d, tuple):
        return str(d)
    if d[0] == "in":
        return size(d[1], d[2])
    if d[0] == "bc":
        return f"broadcast_size({', '.join(text(e, size) for e in d[1:])})"
    if d[0] == "slice":
        return f"slice_size({text(d[1], size)}, {d[2]}, {d[3]}, {d[4]})"
    return f"({text(d[1], size)} {d[0]} {text(d[2], size)})"
