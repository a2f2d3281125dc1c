"""Whether a function is what it should be for all kinds of arrays, and leaves them alone."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from .case import OK, Case, Check, Verdict, fault, plain_fault, renamed
from .derivatives import reverse
from .diagnose import Compared, cure, diagnose
from .differences import Array
from .frameworks import Mode, Seen
from .guard import guarded
from .measure import HALF, drawn, measure
from .report import Diagnosis
from .subject import Arrays, Subject
from .values import compare_values, values


# --- leaving arrays alone ----------------------------------------------------------------------
def purity(case: Case) -> Verdict:
    """Arguments and cotangents are left as they are; the same call gives the same bits."""
    xs = [np.array(x) for x in case.subject.arrays]
    cts = [None if ct is None else np.array(ct) for ct in case.point.cotangents(case.rng)]
    found = case.mode.impurity(xs, cts)
    if found is not None:
        return plain_fault(*found)
    calls: list[Callable[[], list[Seen]]] = [lambda: case.mode.value(xs)]
    if case.subject.wrt:
        calls.append(lambda: case.mode.pull(xs, cts))
    for call in calls:
        first, second = call(), call()
        if not all(map(_has_equal_bits, first, second)):
            return plain_fault("not deterministic", "two equal calls give two results")
    return OK


def _has_equal_bits(a: Seen, b: Seen) -> bool:
    return a.array.tobytes() == b.array.tobytes()


# --- strides -----------------------------------------------------------------------------------
def strides(case: Case) -> Verdict:
    """The memory layout of arguments and cotangents changes nothing."""
    if not case.mode.has_strides:
        return Verdict("skipped")
    xs, cts = case.subject.arrays, case.point.cotangents(case.rng)
    for layout, how in LAYOUTS.items():
        turned = [how(x) for x in xs]
        c = _differing(case, case.mode.value(xs), case.mode.value(turned))
        if c is not None:
            return _by_strides(c, f"the result is another for {layout} arguments")
        if not case.subject.wrt:
            continue
        wanted = case.mode.pull(xs, cts)
        for seeds, whose in ((cts, "arguments"), ([_turned(ct, how) for ct in cts], "cotangents")):
            arrays = turned if whose == "arguments" else xs
            c = _differing(case, wanted, case.mode.pull(arrays, seeds))
            if c is not None:
                return _by_strides(c, f"the gradient is another for {layout} {whose}")
    return _repeated(case) if case.subject.wrt else OK


def _repeated(case: Case) -> Verdict:
    """A cotangent that is one number repeated, as of a sum: all its strides are 0."""
    ones = [None if ct is None else np.ones_like(ct) for ct in case.point.cotangents(case.rng)]
    thin = [None if ct is None else np.broadcast_to(np.float64(1), ct.shape) for ct in ones]
    xs = case.subject.arrays
    c = _differing(case, case.mode.pull(xs, ones), case.mode.pull(xs, thin))
    if c is not None:
        return _by_strides(c, "the gradient is another for a cotangent whose strides are 0")
    return OK


def _turned(ct: Any, how: Callable[[Array], Array]) -> Any:
    return None if ct is None else how(ct)


def _every_second(x: Array) -> Array:
    return np.stack([x, x + 1], axis=-1)[..., 0]


def _in_columns(x: Array) -> Array:
    return np.asarray(x, order="F") if x.ndim > 1 else _every_second(x)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "strided": _every_second,
    "transposed": _in_columns,
}


def _differing(case: Case, wanted: Sequence[Seen], got: Sequence[Seen]) -> Compared | None:
    names = [case.subject.names[k] for k in case.subject.wrt]
    for k, (want, seen) in enumerate(zip(wanted, got, strict=True)):
        name = names[k] if k < len(names) else "the result"
        w, g = np.asarray(want.array, np.float64), np.asarray(seen.array, np.float64)
        with np.errstate(invalid="ignore"):
            largest = float(np.max(np.abs(w[np.isfinite(w)]), initial=0))
            mask = np.isfinite(w)
        c = Compared(name, g, w, np.full(w.shape, HALF * largest), mask)
        if w.shape != g.shape or c.is_off():
            return c
    return None


def _by_strides(c: Compared, text: str) -> Verdict:
    if c.got.shape != c.want.shape:
        return plain_fault("strides", text)
    return fault(renamed(diagnose(c), "strides", text))


# --- shapes ------------------------------------------------------------------------------------
def shapes(case: Case) -> Verdict:
    """Numbers, empty arrays, and every way in which one argument may be broadcast."""
    refused = []
    for label, arrays in _variants(case.subject):
        outs = _accepted(case.subject, arrays)
        if outs is None:
            continue
        at = case.subject.at(arrays)
        verdict = _at_shape(case, at)
        if verdict.status == "fault":
            return replace(verdict, text=f"{label}: {verdict.text}")
        if verdict.status == "refused":
            refused.append(f"{label}: {verdict.text}")
    return Verdict("refused", refused[0]) if refused else OK


def _at_shape(case: Case, subject: Subject) -> Verdict:
    there = Case(case.mode, case.base, measure(subject, case.seed), case.seed)
    there.mode = _once(there)
    verdict = guarded(values, there)
    if verdict.status != "ok" or not subject.wrt:
        return verdict
    if there.point.value.size and subject.slope is not None:
        return guarded(reverse, there)
    got = there.mode.pull(subject.arrays, there.point.cotangents(there.rng))
    for k, seen in zip(subject.wrt, got, strict=True):
        if seen.array.shape != subject.arrays[k].shape:
            name, want = subject.names[k], subject.arrays[k].shape
            text = f"the gradient by {name} has the shape {seen.array.shape}, {name} has {want}"
            return plain_fault("shape", text)
    return OK


def _once(case: Case) -> Mode:
    """The mode, with all that a shape needs in one program, where each is compiled."""
    if not hasattr(case.mode, "once") or not case.subject.wrt or case.mode is case.base:
        return case.mode
    try:
        mode: Mode = case.mode.once(case.subject.arrays, case.point.cotangents(case.rng))
    except Exception:  # what it is, is said where values are compared
        return case.mode
    return mode


def _variants(subject: Subject) -> Iterator[tuple[str, list[Array]]]:
    arrays = subject.arrays
    yield "numbers", [np.asarray(x.reshape(-1)[0]) if x.size else x for x in arrays]
    yield "empty arrays", [x[:0] if x.ndim else x for x in arrays]
    yield "arrays of one element", [x.reshape(-1)[:1].reshape((1,) * x.ndim) for x in arrays]
    if len(arrays) > 1:
        for k, x in enumerate(arrays):
            if x.ndim and x.size > 1:
                one = x[..., :1] if x.shape[-1] > 1 else x[:1]
                yield f"{subject.names[k]} broadcast", [*arrays[:k], one, *arrays[k + 1 :]]
                number = np.asarray(x.reshape(-1)[0])
                label = f"{subject.names[k]} a number"
                yield label, [*arrays[:k], number, *arrays[k + 1 :]]


def _accepted(subject: Subject, arrays: Arrays) -> list[Array] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mean of an empty array, say
            return subject.value(arrays)
    except Exception:  # it was not written for such arrays, and says so as it likes
        return None


# --- dtypes ------------------------------------------------------------------------------------
def dtypes(case: Case) -> Verdict:
    """In lower precision: NumPy's dtypes, and half of their digits."""
    for name in case.mode.dtypes:
        dtype = _dtype(name)
        if dtype is None or not case.subject.wrt:
            continue
        arrays = [x.astype(dtype) if x.dtype.kind == "f" else x for x in case.subject.arrays]
        verdict = _in_dtype(case, name, arrays)
        if verdict.status == "fault":
            return replace(verdict, text=f"{name}: {verdict.text}")
    return OK


def _dtype(name: str) -> Any:
    """NumPy's dtype of a name; bfloat16 is there where its package is."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        return np.dtype(import_module("ml_dtypes").bfloat16)
    except ImportError:
        return None


def _in_dtype(case: Case, name: str, arrays: Arrays) -> Verdict:
    wide = case.subject.at([x if x.dtype.kind in "biu" else x.astype(np.float64) for x in arrays])
    got = case.mode.value(arrays)
    if name == "float32":
        wanted = _accepted(case.subject, arrays) or ()
        for want, seen in zip(wanted, got, strict=False):
            if want.dtype.name != seen.dtype:
                text = f"the result is {seen.dtype}, NumPy's is {want.dtype.name}"
                return plain_fault("dtype", text)
    cts = _cotangents(case, got)
    seeds = [
        None if ct is None else ct.astype(_dtype(s.dtype)) for ct, s in zip(cts, got, strict=True)
    ]
    back = case.mode.pull(arrays, seeds)
    for k, seen in zip(case.subject.wrt, back, strict=True):
        if seen.dtype != name:
            text = f"the gradient by {case.subject.names[k]} is {seen.dtype}"
            return plain_fault("dtype", f"{text}, {case.subject.names[k]} is {name}")
    half = 2.0 ** -(4 if name == "bfloat16" else 11.5)  # of its digits
    hull = _hull(lambda s: [np.asarray(o) for o in s.value(s.arrays)], wide, half**2)
    for k, (low, high) in enumerate(hull):
        c = _outside("the result", got[k].array, low, high, half)
        if c is not None:
            text = "the result is not what NumPy gives in float64"
            return fault(renamed(diagnose(c), "value", text))
    pulled = _hull(lambda s: [b.array for b in case.base.pull(s.arrays, cts)], wide, half**2)
    for k, seen, (low, high) in zip(case.subject.wrt, back, pulled, strict=True):
        c = _outside(case.subject.names[k], seen.array, low, high, half)
        if c is not None:
            return fault(diagnose(c))
    return OK


def _cotangents(case: Case, outs: Sequence[Seen]) -> list[Any]:
    floats = ("float16", "bfloat16", "float32", "float64")
    return [drawn(case.rng, s.array.shape) if s.dtype in floats else None for s in outs]


def _hull(
    f: Callable[[Subject], list[Array]], subject: Subject, eps: float
) -> list[tuple[Array, Array]]:
    """The range of results where the arguments are what they are but for some roundings."""
    rng, found = np.random.default_rng(0), [f(subject)]
    for _ in range(8):
        v = subject.vector
        found.append(f(subject.at(subject.moved(v * (1 + 8 * eps * rng.uniform(-1, 1, v.shape))))))
    with np.errstate(invalid="ignore"):
        return [(np.min(rows, axis=0), np.max(rows, axis=0)) for rows in zip(*found, strict=True)]


def _outside(name: str, got: Array, low: Array, high: Array, half: float) -> Compared | None:
    low, high, got = (np.asarray(a, np.float64) for a in (low, high, got))
    mask = np.isfinite(low) & np.isfinite(high) & (np.maximum(np.abs(low), np.abs(high)) < 1e4)
    if got.shape != low.shape or not np.any(mask):
        return None
    size = np.maximum(np.abs(low), np.abs(high))
    tolerance = half * (size + float(np.max(size[mask])))
    middle = np.clip(got, low, high)
    c = Compared(name, got, np.where(np.isfinite(middle), middle, low), tolerance, mask)
    return c if c.is_off() else None


# --- special values, integers ------------------------------------------------------------------
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 2.5]


def special(case: Case) -> Verdict:
    """NaN, infinities and zeros: the values that NumPy gives; elementwise functions only."""
    if not (case.subject.is_elementwise and case.subject.wrt):
        return Verdict("skipped")
    rng = np.random.default_rng([case.seed, 4])
    for _ in range(4):
        arrays = [
            np.asarray(rng.choice(SPECIAL, x.shape)) if x.dtype.kind == "f" else x
            for x in case.subject.arrays
        ]
        wanted = case.subject.value(arrays)
        verdict = compare_values(case.subject.at(arrays), wanted, case.mode.value(arrays))
        if verdict.status == "fault":
            return verdict
    return OK


def integers(case: Case) -> Verdict:
    """Integers in place of floats, if NumPy takes them: its values and its dtypes."""
    rng = np.random.default_rng([case.seed, 5])
    arrays = [
        np.asarray(rng.integers(1, 9, x.shape)) if x.dtype.kind == "f" else x
        for x in case.subject.arrays
    ]
    wanted = _accepted(case.subject, arrays)
    if wanted is None or not case.subject.is_elementwise:
        return Verdict("skipped")
    got = case.mode.value(arrays)
    for want, seen in zip(wanted, got, strict=True):
        if seen.dtype != want.dtype.name:
            text = f"the result for integers is {seen.dtype}, NumPy's is {want.dtype.name}"
            return plain_fault("dtype", text)
    return compare_values(case.subject.at(arrays), wanted, got)


def batching(case: Case) -> Verdict:
    """Several examples at once, mapped by the framework, are each of them alone."""
    if not hasattr(case.mode, "batched"):
        return Verdict("skipped")
    xs = case.subject.arrays
    others = [x * (1 + 2.0**-6) if x.dtype.kind == "f" else x for x in xs]
    got = case.mode.batched([np.stack(pair) for pair in zip(xs, others, strict=True)])
    for k, each in enumerate((xs, others)):
        alone = case.mode.value(each)
        parts = [Seen(s.array[k], s.dtype) for s in got]
        c = _differing(case, alone, parts)
        if c is not None:
            d = Diagnosis("batching", "a batch is not what each of it is alone", cure("batching"))
            return fault(d)
    return OK


ROBUST: dict[str, Check] = {
    "purity": purity,
    "strides": strides,
    "shapes": shapes,
    "dtypes": dtypes,
    "special values": special,
    "integers": integers,
    "batching": batching,
}
