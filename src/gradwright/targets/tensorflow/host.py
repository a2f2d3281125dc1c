"""Host ops in TensorFlow: directly in eager mode, by `tf.numpy_function` in a graph."""

import re
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import GradwrightError
from ...hostcall import HostCall, line_of

_thread = threading.local()


def host(call: HostCall, *xs: Any) -> Sequence[Any]:
    """Run Python on the host: now, or when the graph that is being built runs."""
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(x) for x in call.run([x.numpy() for x in xs], _Apart(call))]
    dtypes = [tf.as_dtype(name) for name in call.outs]
    name = re.sub(r"[^A-Za-z0-9_]", "", call.name) or "host"
    outs = tf.numpy_function(_in_graph(call), xs, dtypes, stateful=not call.is_pure, name=name)
    shapes = [_symbolic(x, k) for k, x in enumerate(xs)]
    for k, out in enumerate(outs):
        shape, _ = call.result_type(k, shapes)
        out.set_shape([d if isinstance(d, int) else None for d in shape])
    return outs  # type: ignore[no-any-return]  # TensorFlow has no types


def _symbolic(x: Any, k: int) -> tuple[Any, ...]:
    return tuple(("in", k, axis) if d is None else d for axis, d in enumerate(x.shape))


def _in_graph(call: HostCall) -> Callable[..., Any]:
    """The call as a graph runs it, where an exception becomes an error of TensorFlow's."""

    def run(*arrays: Any) -> list[Any]:
        try:
            return call.run([np.asarray(x) for x in arrays], _Apart(call))
        except Exception as error:
            # TensorFlow chooses its error by the type: a StopIteration would end a dataset
            raise RuntimeError(
                f"the host op {call.name} raised {type(error).__name__}: {error}"
            ) from error

    return run


class _Apart:
    """Inside of a host op that TensorFlow called, TensorFlow is not to be called: it may hang.

    What it is asked to do there goes into a graph that nobody runs, and is then an error.
    """

    def __init__(self, call: HostCall) -> None:
        self.call = call

    def __enter__(self) -> None:
        if not hasattr(_thread, "graph"):
            _thread.graph = tf.Graph()
        self.scope = _thread.graph.as_default()
        self.scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        self.scope.__exit__(kind, error, place)
        asked = _thread.graph.get_operations()
        if asked:
            del _thread.graph
            raise GradwrightError(
                f"the host op {self.call.name} was called by TensorFlow, and calls TensorFlow "
                f"itself ({asked[-1].type})",
                "NumPy in it; what TensorFlow computes as an argument",
                line_of(self.call.host.function),
            ) from error
