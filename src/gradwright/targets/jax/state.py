"""What an optax transformation keeps: a tree of arrays, to be saved as any other."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ... import emit
from ...errors import SignatureError, StateError
from ...graph import Graph
from ...trace import Tracer, lift, strong, trace
from . import SPELLING


class State(NamedTuple):
    """Slots are trees like the parameters; counts and the seed are pairs of words, the lower first.

    A number in `hyperparams` may be replaced; a schedule writes its value of the last step there.
    """

    updates: Array  # of all, which schedules follow
    steps: Array  # updates that each parameter has had
    seed: Array | None
    hyperparams: dict[str, Any]
    slots: dict[str, Any]
    shared: dict[str, Array]
    recorded: dict[str, Any]
    summed: Any = None  # gradients so far, under accumulate
    micro: Array | None = None  # how many


class Leaf(NamedTuple):
    """One parameter of a tree."""

    name: str
    w: Any

    @property
    def shown(self) -> str:
        return self.name or "the parameter"


def leaves_of(params: Any) -> tuple[list[Leaf], Any]:
    """The parameters of a tree, named by the keys that lead to them, and its structure."""
    found, spec = jax.tree_util.tree_flatten_with_path(params)
    leaves = [Leaf(".".join(map(_key, path)), w) for path, w in found]
    for leaf in leaves:
        dtype = getattr(leaf.w, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            raise StateError(
                f"{leaf.shown} is {dtype or type(leaf.w).__name__}",
                "arrays of floats, None for what is not trained",
            )
    return leaves, spec


def _key(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def matched(values: Any, spec: Any, what: str, leaves: Sequence[Leaf]) -> list[Any]:
    """One value for each parameter, from a tree of their structure."""
    try:
        found: list[Any] = spec.flatten_up_to(values)
    except ValueError as error:
        raise StateError(
            f"{what} have another structure than the parameters: {error}",
            "one leaf for each parameter, None for no gradient",
        ) from None
    for leaf, value in zip(leaves, found, strict=True):
        shape = value.shape if hasattr(value, "shape") else np.shape(value)
        if value is not None and shape != leaf.w.shape:
            raise StateError(
                f"{what} have shape {shape} for {leaf.shown}, which is {leaf.w.shape}",
                "arrays like the parameters",
            )
    return found


def check(state: Any, rule: str, count: int, slots: Collection[str]) -> None:
    """Raise unless a state belongs to a rule and to as many parameters."""
    if not isinstance(state, State):
        raise StateError(
            f"the state of {rule} is a {type(state).__name__}", "what its init or update returned"
        )
    if set(state.slots) != set(slots) or len(state.steps) != count:
        raise StateError(
            f"the state has the slots {sorted(state.slots)} for {len(state.steps)} parameters, "
            f"{rule} has {sorted(slots)} for {count}",
            "the state of the same rule and parameters",
        )


def first_value(slot: str, value: Any, leaf: Leaf) -> Array:
    """The first value of a slot: a number, in float32 at least, or what a function gives."""
    if not callable(value):
        return jnp.full_like(leaf.w, value, dtype=jnp.promote_types(leaf.w.dtype, jnp.float32))

    def build(graph: Graph) -> list[Tracer]:
        x = Tracer(graph, graph.input("w", leaf.w.shape, leaf.w.dtype.name))
        return [strong(lift(graph, value(x)))]

    graph = trace(build, slot)
    if isinstance(leaf.w, jax.ShapeDtypeStruct) and graph.reads(graph.inputs[0]):
        raise SignatureError(
            f"the slot {slot} starts from the values of {leaf.shown}, of which the shape is known",
            "arrays, or jax.eval_shape(transformation.init, params)",
        )
    run: Callable[..., Any] = emit.program(graph, slot, SPELLING)
    return jnp.array(run(leaf.w)[0], copy=True)  # so that both may be donated
