"""A rule as an optax transformation."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ...domain import Domain
from ...errors import SignatureError
from ...rule import Rule
from .functions import nextafter
from .hyperparameters import Parameter
from .optimizer import Known, Update
from .runner import Number
from .state import State


class Transformation(optax.GradientTransformationExtraArgs):  # type: ignore[misc]  # has no types
    """The optimizer of a rule for trees of JAX arrays: ``init``, ``update`` and an exact ``step``.

    `update` gives differences, as optax wants them: what `optax.apply_updates` makes of them may be
    a unit in the last place from what `step` gives, and stays in a rule's domain if nothing follows
    the transformation in a chain. A keyword that is given at every step is an extra argument.
    """

    rule: Rule[Any]

    def __new__(cls, **keywords: Any) -> "Transformation":
        made = Update(cls.rule.preset(_as_declared(cls.rule, keywords)))

        def update(updates: Any, state: State, params: Any = None, **extra: Any) -> Any:
            if params is None:
                raise SignatureError(
                    f"{made.rule.name} updates parameters, and was not given them",
                    "transformation.update(grads, state, params)",
                )
            now = {k: v for k, v in extra.items() if k in made.rule.hyperparams}
            known = made.known(params, state, now)
            new, after = made.step(known, updates)
            pairs = zip(known.found, new, strict=True)
            moved = [_moved(known, k, p, w) for k, (p, w) in enumerate(pairs)]
            return known.spec.unflatten(moved), after

        self: Transformation = super().__new__(cls, made.init, update)
        self._made = made
        return self

    def step(self, grads: Any, state: State, params: Any, **now: Any) -> tuple[Any, State]:
        """The new parameters, to the last bit what the rule says, and the new state."""
        known = self._made.known(params, state, now)
        new, after = self._made.step(known, grads)
        return known.spec.unflatten(new), after


def _as_declared(rule: Rule[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Integers as floats, where the rule declared a float: ``lr=1``."""
    floats = {k for k, v in rule.hyperparams.items() if isinstance(v, float)}
    return {k: float(v) if k in floats and type(v) is int else v for k, v in keywords.items()}


def _moved(known: Known, k: int, p: Parameter, new: Array) -> Array:
    """The difference from a parameter to its new value, so that their sum is in the domain."""
    moved: Array = new - p.w
    found = p.rule.interval(known.keywords.of(k))
    if found is None:
        return moved
    low, high = _ends(*found, p.w.dtype)
    got = p.w + moved
    moved = jnp.where((got < low) & (new >= low), nextafter(moved, jnp.inf), moved)
    return jnp.where((got > high) & (new <= high), nextafter(moved, -jnp.inf), moved)


def _ends(domain: Domain, low: Any, high: Any, dtype: Any) -> tuple[Array, Array]:
    """The least and the largest member of an interval."""
    least, largest = (
        jax.lax.convert_element_type(x.value if isinstance(x, Number) else x, dtype)
        for x in (low, high)
    )
    least = least if domain.has_low else nextafter(least, jnp.inf)
    return least, largest if domain.has_high else nextafter(largest, -jnp.inf)
