"""The whole matrix of derivatives beside the one measured: the shape of a fault shows in it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .case import OK, Case, Verdict, fault, plain_fault, renamed
from .diagnose import Compared, cure, diagnose, where_wrong
from .differences import Array, Vector
from .frameworks import Mode, Seen
from .measure import HALF, Point, floats
from .report import Diagnosis
from .subject import flat

NOT_MEASURED = "not measured: gw.stop_gradient or a surrogate inside asks for another derivative"


def whole(case: Case) -> Verdict:
    """Every derivative of every output element by every element, each beside the one measured."""
    p = case.point
    first = case.mode.pull(case.subject.arrays, p.unit(0))
    if (misshapen := of_wrong_shape(case, first, p.unit(0))) is not None:
        return misshapen
    g = matrix(case.mode, p)
    found = list(_blocks(case, g[:, list(p.elements)]))
    wrong = [_diagnosed(case, c, found) for c in found if c.is_off()]
    if wrong:
        return fault(wrong[0], *(d.text for d in wrong[1:]))
    u = floats([ct for ct in p.cotangents(case.rng) if ct is not None])
    case.seen["pull"] = u, u @ g
    return probes(case, u, u @ g) or shown(case, bool(np.any(p.known)))


def matrix(mode: Mode, point: Point) -> Array:
    """Every derivative as a mode has it: a row for each output element."""
    xs, count = point.subject.arrays, point.value.shape[0]
    rows = [flat([s.array for s in mode.pull(xs, point.unit(o))]) for o in range(count)]
    return np.array(rows).reshape(count, point.subject.vector.size)


def _blocks(case: Case, g: Array) -> Iterator[Compared]:
    """The matrix cut into one block for each argument."""
    p, start = case.point, 0
    for k in case.subject.wrt:
        size = case.subject.arrays[k].size
        inside = [c for c, i in enumerate(p.elements) if start <= i < start + size]
        start += size
        yield Compared(
            case.subject.names[k], g[:, inside], p.value[:, inside], p.tolerance[:, inside],
            p.known[:, inside],
        )  # fmt: skip


def _diagnosed(case: Case, c: Compared, blocks: Sequence[Compared]) -> Diagnosis:
    """The fault of one block, said of the argument's element."""
    others = {b.argument: b.want for b in blocks}
    d = diagnose(c, others)
    if c.argument in case.subject.complex_names and _is_conjugate(c):
        d = renamed(d, "conjugate", f"the gradient by {c.argument} is conjugated")
    if d.kind in ("wrong", "element", "branch"):
        d = _structural(case, c, d)
    return _said_of_the_argument(case, c, d)


def _said_of_the_argument(case: Case, c: Compared, d: Diagnosis) -> Diagnosis:
    """A diagnosis of a block of the matrix as one of the argument's elements."""
    if not d.index:
        return d
    p, k = case.point, case.subject.names.index(c.argument)
    x = case.subject.arrays[k]
    start = sum(case.subject.arrays[j].size for j in case.subject.wrt if j < k)
    inside = [i - start for i in p.elements if start <= i < start + x.size]
    i = inside[d.index[1]]
    wrong, known = np.any(c.wrong, axis=0), np.any(c.mask, axis=0)
    if d.kind in ("element", "branch"):
        here = {n: np.ravel(case.subject.arrays[j])[inside] for j, n in _same_size(case, x.size, k)}
        if (bound := where_wrong(wrong, known, here)) is not None:
            d = renamed(d, "branch", f"the gradient by {c.argument} is wrong {bound}")
    return replace(
        d,
        index=tuple(map(int, np.unravel_index(i, x.shape))),
        at=float(x.flat[i]),
        wrong=int(np.count_nonzero(wrong)),
        of=int(np.count_nonzero(known)),
    )


def _same_size(case: Case, size: int, first: int) -> list[tuple[int, str]]:
    """The arguments with as many elements, the given one before the others."""
    order = [first, *(j for j in case.subject.wrt if j != first)]
    return [(j, case.subject.names[j]) for j in order if case.subject.arrays[j].size == size]


def _structural(case: Case, c: Compared, d: Diagnosis) -> Diagnosis:
    """What only the matrix shows: a transposed factor, a sum that is missing."""
    if not case.point.is_whole:
        return d
    k = case.subject.names.index(c.argument)
    shape = case.subject.arrays[k].shape
    if _is_transposed(c, shape):
        return renamed(d, "transposed", f"the gradient by {c.argument} is transposed")
    for out in case.point.outs:
        for axis, n in enumerate(out.shape):
            if out.size == c.got.shape[0] and n > 1 and _is_one_slice(c, out.shape, axis):
                text = f"the gradient by {c.argument} is not summed over axis {axis} of the result"
                return renamed(d, "not summed", text)
    return d


def _is_conjugate(c: Compared) -> bool:
    """Whether imaginary parts have the other sign: of the result's, or of the cotangent's."""
    m, n = c.want.shape
    columns, rows = np.resize([1.0, -1.0], n), np.resize([1.0, -1.0], m)[:, None]
    signs = (columns, rows, rows * columns)
    return any(c.equals(c.want * sign) for sign in signs)


def _is_transposed(c: Compared, shape: tuple[int, ...]) -> bool:
    m, n = c.got.shape
    if m == n and c.equals(c.want.T):
        return True
    if len(shape) != 2 or shape[0] != shape[1]:
        return False
    turned = c.want.reshape(m, *shape).transpose(0, 2, 1).reshape(m, n)
    return c.equals(turned)


def _is_one_slice(c: Compared, shape: tuple[int, ...], axis: int) -> bool:
    """Whether only one slice of the outputs' cotangents reaches the argument."""
    got = c.got.reshape(*shape, -1)
    empty = ~np.any(got, axis=tuple(k for k in range(got.ndim) if k != axis))
    if not 0 < np.count_nonzero(empty) < empty.size:
        return False
    rows = np.zeros(shape, bool)
    index: list[Any] = [slice(None)] * len(shape)
    index[axis] = ~empty
    rows[tuple(index)] = True
    return c._replace(mask=c.mask & rows.reshape(-1, 1)).equals(c.want)


# --- what reverse mode has to say in every form -------------------------------------------------
def of_wrong_shape(case: Case, got: Sequence[Seen], cts: Sequence[Any]) -> Verdict | None:
    """A gradient that has not the shape of its argument, which some frameworks let through."""
    for k, seen in zip(case.subject.wrt, got, strict=True):
        name, want = case.subject.names[k], case.subject.arrays[k].shape
        if seen.array.shape == want:
            continue
        text = f"the gradient by {name} has the shape {seen.array.shape}, {name} has {want}"
        if seen.array.ndim >= len(want) and seen.array.shape == _broadcast(want, seen):
            return plain_fault("not summed", f"{text}: it was not summed over {_axes(want, seen)}")
        if seen.array.shape == want[::-1]:
            return plain_fault("transposed", f"{text}: it is transposed")
        return plain_fault("shape", text)
    return None


def _broadcast(shape: tuple[int, ...], seen: Seen) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(shape, seen.array.shape)
    except ValueError:
        return ()


def _axes(shape: tuple[int, ...], seen: Seen) -> str:
    lead = seen.array.ndim - len(shape)
    axes = [*range(lead)]
    axes += [k + lead for k, n in enumerate(shape) if n != seen.array.shape[k + lead]]
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes))}"


def shown(case: Case, any_known: bool) -> Verdict:
    """Right, with the kinks that were met, if something was compared at all."""
    kinks = case.point.kinks()
    if kinks:
        more = f"; and {len(kinks) - 1} more" if len(kinks) > 1 else ""
        return Verdict("kink", f"a kink at {kinks[0]}{more}")
    if case.subject.slope is None:
        return Verdict("ok", NOT_MEASURED)
    if not any_known and case.point.value.size:
        return Verdict("kink", "no derivative could be measured: a jump, or not finite")
    return OK


def probes(case: Case, u: Vector, g: Vector) -> Verdict | None:
    """Large arrays: the derivative of the inner product in random directions."""
    for probe in case.point.probes:
        if not np.all(probe.known):
            continue
        v, w = probe.direction, np.abs(u)
        want, got = float(u @ probe.value), float(g @ v)
        size = w @ np.abs(probe.value) + np.abs(g) @ np.abs(v)
        if not abs(got - want) <= w @ probe.error + HALF * size:
            text = "the gradient is wrong in a random direction"
            return fault(Diagnosis("wrong", text, cure("wrong"), "", (), None, want, got, 1, 1))
    return None
