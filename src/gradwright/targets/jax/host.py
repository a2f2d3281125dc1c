"""Host ops in JAX: directly on arrays that are there, by a callback in what JAX compiles."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import io_callback

from ...errors import GradwrightError
from ...hostcall import HostCall, line_of

# What JAX raises where a value is asked for that it has not computed.
_NO_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.UnexpectedTracerError,
)


def host(call: HostCall, *xs: Any) -> Sequence[Array]:
    """Run Python on the host: now, or when the program that is being traced runs."""
    types = _types(call, xs)
    if not any(isinstance(x, jax.core.Tracer) for x in xs):
        outs = call.run([np.asarray(x) for x in xs], _apart)
        return [jnp.asarray(out, t.dtype) for out, t in zip(outs, types, strict=True)]
    run = _callback(call, [jnp.ndim(x) for x in xs])
    if call.is_pure:
        method = "expand_dims" if call.is_elementwise else "sequential"
        return jax.pure_callback(run, types, *xs, vmap_method=method)  # type: ignore[no-any-return]  # a tree of Any
    return io_callback(run, types, *xs, ordered=True)  # type: ignore[no-any-return]  # a tree of Any


def _types(call: HostCall, xs: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    """The results as JAX holds them: with x64 off there are no 64-bit numbers."""
    shapes = call.result_shapes([jnp.shape(x) for x in xs])
    dtypes = [jax.dtypes.canonicalize_dtype(name) for name in call.outs]
    of: Any = jax.ShapeDtypeStruct  # which JAX leaves untyped
    return [of(s, d) for s, d in zip(shapes, dtypes, strict=True)]


def _callback(call: HostCall, ranks: Sequence[int]) -> Callable[..., list[Any]]:
    """What compiled code calls: one object for each call, or JAX would compile anew."""
    if "jax" not in call.programs:
        rank = max(ranks)

        def run(*arrays: Any) -> list[Any]:
            given = [np.asarray(x) for x in arrays]
            if call.is_elementwise:  # what vmap adds is in front
                given = [_aligned(x, n, rank) for x, n in zip(given, ranks, strict=True)]
            outs = call.run_compiled(given, _apart)
            dtypes = [jax.dtypes.canonicalize_dtype(name) for name in call.outs]
            return [out.astype(d, copy=False) for out, d in zip(outs, dtypes, strict=True)]

        call.programs["jax"] = run
    return call.programs["jax"]  # type: ignore[no-any-return]  # kept in a dict of Any


def _aligned(x: Any, own: int, rank: int) -> Any:
    """An array whose batch comes before as many dimensions as the others have."""
    batch = x.ndim - own
    return x.reshape(*x.shape[:batch], *(1,) * (rank - own), *x.shape[batch:])


def _apart(call: HostCall, body: Callable[[], list[Any]]) -> list[Any]:
    """Run a body that JAX called in a trace of its own: if it calls JAX, it may hang.

    What it asks JAX for there is recorded and not computed, and is then an error.
    """
    values: list[Any] = []

    def traced() -> tuple[()]:
        values.extend(body())
        return ()

    try:
        asked = jax.make_jaxpr(traced)().jaxpr.eqns
    except _NO_VALUE:
        raise _reentrant(call) from None
    if asked or any(isinstance(value, jax.core.Tracer) for value in values):
        raise _reentrant(call)
    return values


def _reentrant(call: HostCall) -> GradwrightError:
    return GradwrightError(
        f"the host op {call.name} was called by JAX, and calls JAX itself",
        "NumPy in it; what JAX computes as an argument",
        line_of(call.host.function),
    )
