"""TensorFlow: eager mode, `tf.function`, XLA, and graphs of TensorFlow 1."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from ..subject import Arrays, Flat
from . import NotOffered, Seeds, Seen

v1 = tf.compat.v1
Program = Callable[..., Any]  # of lists of tensors, to a list of tensors


class Eager:
    """`tf.GradientTape`, and `tf.autodiff.ForwardAccumulator`."""

    framework, name, has_strides = "tensorflow", "tf", False
    dtypes = ("float32", "bfloat16")

    def __init__(self, function: Flat, wrt: Sequence[int]) -> None:
        self.function, self.wrt = function, wrt

    def value(self, xs: Arrays) -> list[Seen]:
        return self.run(self._value, xs)

    def pull(self, xs: Arrays, cts: Seeds) -> list[Seen]:
        return self.run(self._pull, xs, _smooth(cts))

    def pull_twice(self, xs: Arrays, cts: Seeds, ws: Arrays) -> list[Seen]:
        return self.run(self._pull_twice, xs, _smooth(cts), ws)

    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]:
        tensors, tangents = _tensors(xs), _tensors(ts)
        smooth = [tensors[k] for k in self.wrt]
        with tf.autodiff.ForwardAccumulator(smooth, tangents) as forward:
            outs = [out for out in self.function(tensors) if out.dtype.is_floating]
        zero = tf.UnconnectedGradients.ZERO
        return _seen([forward.jvp(out, unconnected_gradients=zero) for out in outs])

    def impurity(self, xs: Arrays, cts: Seeds) -> tuple[str, str] | None:
        """Tensors cannot be written, but by Python on the host: inside of a graph it is no copy."""
        used = tf.function(self._used, autograph=False)
        seeds = _smooth(cts) if self.wrt else []
        kept, kept_seeds = used(_tensors(xs), _tensors(seeds))
        if not all(map(_is_same, xs, kept)):
            return "mutation", "a call changes its argument"
        if not all(map(_is_same, seeds, kept_seeds)):
            return "mutation", "the gradient's rule changes the cotangent that it is given"
        return None

    def _used(self, xs: Any, cts: Any) -> Any:
        """Arguments and cotangents as they are after the calls."""
        with tf.control_dependencies(self.function(xs)):
            xs_after = [tf.identity(x) for x in xs]
        if not cts:
            return xs_after, []
        with tf.control_dependencies([g for g in self._pull(xs, cts) if g is not None]):
            return xs_after, [tf.identity(ct) for ct in cts]

    def run(self, program: Program, *groups: Arrays) -> list[Seen]:
        """Call a program on arrays."""
        return _seen(program(*map(_tensors, groups)))

    # --- programs on tensors ---
    @cached_property
    def _value(self) -> Program:
        return self.function

    @cached_property
    def _pull(self) -> Program:
        def pull(xs: Any, cts: Any) -> Any:
            leaves = [xs[k] for k in self.wrt]
            with tf.GradientTape() as tape:
                tape.watch(leaves)
                outs = [out for out in self.function(xs) if out.dtype.is_floating]
            return tape.gradient(outs, leaves, cts, unconnected_gradients="zero")

        return pull

    @cached_property
    def _pull_twice(self) -> Program:
        def pull_twice(xs: Any, cts: Any, ws: Any) -> Any:
            leaves = [xs[k] for k in self.wrt]
            with tf.GradientTape() as tape:
                tape.watch(leaves)
                first = self._pull(xs, cts)
            return tape.gradient(first, leaves, ws, unconnected_gradients="zero")

        return pull_twice


class Graph(Eager):
    """The same in `tf.function`."""

    name = "tf.function"
    is_jit = False

    def push(self, xs: Arrays, ts: Arrays) -> list[Seen]:
        raise NotOffered(
            "TensorFlow's forward mode in a graph does not use an op's own derivative, and the op "
            "raises there",
            "gw.jvp, or reverse mode",
        )

    def run(self, program: Program, *groups: Arrays) -> list[Seen]:
        if program not in self._compiled:
            self._compiled[program] = tf.function(program, autograph=False, jit_compile=self.is_jit)
        return super().run(self._compiled[program], *groups)

    @cached_property
    def _compiled(self) -> dict[Program, Program]:
        return {}


class Mapped(Graph):
    """The same, with batches, which TensorFlow takes a second for."""

    def batched(self, xs: Arrays) -> list[Seen]:
        """`tf.vectorized_map` over the first axis of all arrays."""
        mapped = tf.vectorized_map(lambda xs: tuple(self.function(list(xs))), tuple(_tensors(xs)))
        return _seen(mapped)


class Xla(Graph):
    """Compiled by XLA."""

    name = "tf jit_compile"
    is_jit = True


class V1(Graph):
    """`tf.gradients` in a graph of TensorFlow 1, with placeholders of unknown sizes."""

    name = "tf1"

    def run(self, program: Program, *groups: Arrays) -> list[Seen]:
        with tf.Graph().as_default(), v1.Session() as session:
            ins = [[_placeholder(x) for x in group] for group in groups]
            pairs = [zip(g, xs, strict=True) for g, xs in zip(ins, groups, strict=True)]
            fed = [pair for each in pairs for pair in each]
            outs = session.run(list(program(*ins)), {i: np.asarray(x) for i, x in fed})
            return [_narrow(x) for x in outs]

    @cached_property
    def _pull(self) -> Program:
        def pull(xs: Any, cts: Any) -> Any:
            leaves = [xs[k] for k in self.wrt]
            outs = [out for out in self.function(xs) if out.dtype.is_floating]
            return v1.gradients(outs, leaves, cts, unconnected_gradients="zero")

        return pull

    @cached_property
    def _pull_twice(self) -> Program:
        def pull_twice(xs: Any, cts: Any, ws: Any) -> Any:
            leaves = [xs[k] for k in self.wrt]
            return v1.gradients(self._pull(xs, cts), leaves, ws, unconnected_gradients="zero")

        return pull_twice


def _placeholder(x: Any) -> Any:
    array = np.asarray(x)
    return v1.placeholder(array.dtype, [None] * array.ndim)


def _smooth(cts: Sequence[Any]) -> list[Any]:
    return [ct for ct in cts if ct is not None]


def _tensors(arrays: Arrays) -> list[Any]:
    return [tf.constant(np.asarray(x)) for x in arrays]


def _seen(tensors: Sequence[Any]) -> list[Seen]:
    return [_one(x) for x in tensors]


def _is_same(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), b.numpy(), equal_nan=np.asarray(a).dtype.kind == "f")


def _narrow(x: Any) -> Seen:
    array = np.asarray(x)
    wide = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    return Seen(wide, array.dtype.name)


def _one(x: Any) -> Seen:
    wide = tf.cast(x, tf.float32) if x.dtype == tf.bfloat16 else x
    return Seen(wide.numpy(), x.dtype.name)


# --- complex numbers as pairs of real ones -----------------------------------------------------
def joined(x: Any) -> Any:
    """Pairs along the last axis as complex numbers."""
    return tf.complex(x[..., 0], x[..., 1])


def parted(x: Any) -> Any:
    return tf.stack([tf.math.real(x), tf.math.imag(x)], -1)


MODES: dict[str, list[type[Eager]]] = {
    "quick": [Eager],
    "normal": [Eager, Graph, V1],
    "thorough": [Eager, Mapped, Xla, V1],
    "gradient": [Eager, Graph],
}
