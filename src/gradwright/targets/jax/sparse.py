"""Sparse gradients of JAX: made dense, and which rows they have."""

from typing import Any

import jax.numpy as jnp
from jax.experimental.sparse import BCOO


def dense(g: Any) -> Any:
    """A gradient as an array; what repeats is summed."""
    return g.todense() if isinstance(g, BCOO) else g


def is_there(g: Any) -> Any:
    """Which rows a sparse gradient has, to be broadcast over it; ``True`` where it is dense."""
    if not isinstance(g, BCOO):
        return True
    found = jnp.zeros(g.shape[: g.n_sparse], bool)
    found = found.at[tuple(g.indices.T)].set(True, mode="drop")  # what is padded lies outside
    return found.reshape(*found.shape, *[1] * g.n_dense)
