"""Host ops in TensorFlow: directly in eager mode, by `tf.numpy_function` in a graph."""

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import GradwrightError
from ...hostcall import HostCall, line_of

_thread = threading.local()


def host(call: HostCall, *xs: Any) -> Sequence[Any]:
    """Run Python on the host: now, or when the graph that is being built runs."""
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(x) for x in call.run([x.numpy() for x in xs], _apart)]

    def run(*arrays: Any) -> list[Any]:
        return call.run_compiled([np.asarray(x) for x in arrays], _apart)

    dtypes = [tf.as_dtype(name) for name in call.outs]
    name = re.sub(r"[^A-Za-z0-9_]", "", call.name) or "host"
    outs = tf.numpy_function(run, xs, dtypes, stateful=not call.is_pure, name=name)
    shapes = [_symbolic(x, k) for k, x in enumerate(xs)]
    for k, out in enumerate(outs):
        shape, _ = call.result_type(k, shapes)
        out.set_shape([d if isinstance(d, int) else None for d in shape])
    return outs  # type: ignore[no-any-return]  # TensorFlow has no types


def _symbolic(x: Any, k: int) -> tuple[Any, ...]:
    return tuple(("in", k, axis) if d is None else d for axis, d in enumerate(x.shape))


def _apart(call: HostCall, body: Callable[[], list[Any]]) -> list[Any]:
    """Run a body that TensorFlow called beside a graph: if it calls TensorFlow, it may hang.

    What it asks for goes into that graph, which nobody runs, and is then an error.
    """
    if not hasattr(_thread, "graph"):
        _thread.graph = tf.Graph()
    try:
        with _thread.graph.as_default():
            return body()
    finally:
        asked = _thread.graph.get_operations()
        if asked:
            del _thread.graph
            raise GradwrightError(
                f"the host op {call.name} was called by TensorFlow, and calls TensorFlow itself "
                f"({asked[-1].type})",
                "NumPy in it; what TensorFlow computes as an argument",
                line_of(call.host.function),
            )
