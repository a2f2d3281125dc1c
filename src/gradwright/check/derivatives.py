"""First and second derivatives of a mode beside those measured."""

import numpy as np

from .case import OK, Case, Check, Verdict, fault, renamed
from .diagnose import Compared, cure, diagnose
from .differences import Array, Vector, noise, scales, slopes
from .matrix import of_wrong_shape, probes, shown, whole
from .measure import ALL, HALF, floats
from .report import Diagnosis
from .subject import flat, split


def reverse(case: Case) -> Verdict:
    """The gradient, by every element, against the one measured."""
    point = case.point
    if case.mode is case.base and point.value.shape[0] <= ALL:
        return whole(case)
    cts = point.cotangents(case.rng)
    got = case.mode.pull(case.subject.arrays, cts)
    if (wrong_shape := of_wrong_shape(case, got, cts)) is not None:
        return wrong_shape
    u, g = floats([ct for ct in cts if ct is not None]), flat([s.array for s in got])
    case.seen["pull"] = u, g
    verdict = _columns(case, u, g)
    if verdict.status == "fault" and point.is_whole and point.value.shape[0] <= ALL:
        closer = whole(case)
        return closer if closer.status == "fault" else verdict
    return verdict if verdict.status == "fault" else probes(case, u, g) or verdict


def _columns(case: Case, u: Vector, g: Vector) -> Verdict:
    """The gradient of the inner product with u, at the elements that were measured."""
    p = case.point
    want, mask = u @ p.value, np.all(p.known, axis=0)
    tolerance = np.abs(u) @ p.tolerance
    full = [np.full(g.shape, np.nan), np.zeros(g.shape), np.zeros(g.shape, bool)]
    for row, column in zip(full, (want, tolerance, mask), strict=True):
        row[list(p.elements)] = column
    pieces = [dict(case.by_argument(v)) for v in (g, *full)]
    wanted = pieces[1]
    found = [Compared(name, *(piece[name] for piece in pieces)) for name in pieces[0]]
    wrong = [diagnose(c, wanted) for c in found if c.is_off()]
    if wrong:
        return fault(wrong[0], *(d.text for d in wrong[1:]))
    return shown(case, bool(np.any(mask)))


# --- forward mode, and both --------------------------------------------------------------------
def forward(case: Case) -> Verdict:
    """The derivative in a random direction against the one measured."""
    p = case.point
    if p.probes:
        probe = p.probes[0]
        v, want, mask, tolerance = probe.direction, probe.value, probe.known, probe.tolerance
    else:
        v = flat(case.tangents())
        want, mask = p.value @ v, np.all(p.known, axis=1)
        tolerance = p.tolerance @ np.abs(v)
    got = floats([s.array for s in case.mode.push(case.subject.arrays, _split(case, v))])
    case.seen["push"] = v, got
    c = Compared("the arguments", got, want, tolerance, mask)
    if c.is_off():
        d = diagnose(c)
        text = d.text.replace("the gradient by the arguments", "the forward derivative")
        return fault(renamed(d, d.kind if d.kind != "wrong" else "forward", text))
    return OK


def _split(case: Case, v: Vector) -> list[Array]:
    return split(v, [case.subject.arrays[k] for k in case.subject.wrt])


def adjoint(case: Case) -> Verdict:
    """Forward and reverse mode are one linear map and its transpose; true at a kink, too."""
    if not {"pull", "push"} <= set(case.seen):
        return Verdict("skipped")
    (u, g), (v, t) = case.seen["pull"], case.seen["push"]
    got, want = float(g @ v), float(u @ t)
    tolerance = HALF * float(np.abs(g) @ np.abs(v) + np.abs(u) @ np.abs(t))
    if not np.isfinite(got) or not np.isfinite(want) or abs(got - want) <= tolerance:
        return OK
    text = "reverse and forward mode are not of one derivative: ⟨Jᵀu, v⟩ is not ⟨u, Jv⟩"
    return fault(Diagnosis("adjoint", text, cure("adjoint"), "", (), None, want, got, 1, 1))


# --- second order ------------------------------------------------------------------------------
def second(case: Case) -> Verdict:
    """The gradient of the gradient, against differences of the gradient, in a random direction."""
    if case.subject.slope is None:
        return Verdict("skipped")
    p, base = case.point, case.base
    cts, ws = p.cotangents(case.rng), case.tangents()
    w = flat(ws)
    scale = p.fine * scales([case.subject.arrays[k] for k in case.subject.wrt])

    def gradient(x: Vector) -> Vector:
        with np.errstate(all="ignore"):
            return flat([s.array for s in base.pull(case.subject.moved(x), cts)])

    x = case.subject.vector
    step = float(np.min(scale / np.abs(w))) if w.size else 1.0
    s = slopes(gradient, x, w[None] * step, noise(gradient, x, scale, case.seed))
    want, mask = s.value[0] / step, s.is_known[0]
    largest = float(np.max(np.abs(want[mask]), initial=0))
    tolerance = s.error[0] / step + HALF * (np.abs(want) + largest)
    got = flat([s.array for s in case.mode.pull_twice(case.subject.arrays, cts, ws)])
    wrong = []
    pieces = [dict(case.by_argument(v)) for v in (got, want, tolerance, mask)]
    for name in pieces[0]:
        c = Compared(name, *(piece[name] for piece in pieces))
        if c.is_off():
            d = diagnose(c)
            text = d.text.replace("the gradient by", "the second derivative by")
            wrong.append(renamed(d, "second order", text))
    if wrong:
        return fault(wrong[0], *(d.text for d in wrong[1:]))
    return OK


DERIVATIVES: dict[str, Check] = {
    "reverse": reverse,
    "forward": forward,
    "adjoint": adjoint,
    "second order": second,
}
