"""Sparse gradients: made dense, or with the rows of a parameter that they have.

Indices that repeat are summed. Under ``sparse="lazy"`` an update is computed on memory of its own,
of which rows are then written; only rows are read where elements do not depend on each other.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...optimizer import Entry

Index = tuple[Tensor, ...]


def dense(g: Tensor) -> Tensor:
    """A gradient as a dense tensor."""
    return g if g.layout is torch.strided else g.to_dense()


def values(g: Tensor) -> Tensor:
    """What a gradient has beside zeros."""
    return g.coalesce().values() if g.layout is torch.sparse_coo else dense(g)


def summed(
    sums: Sequence[Tensor | None], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Add gradients to sums, where ``None`` is nothing."""
    pairs = zip(sums, gradients, strict=True)
    return [g if s is None else s if g is None else _added(s, g) for s, g in pairs]


def _added(s: Tensor, g: Tensor) -> Tensor:
    return s + g if s.layout is g.layout else dense(s) + dense(g)


def is_there(g: Tensor) -> Tensor:
    """Which rows a sparse gradient has, to be broadcast over its parameter."""
    g = g.coalesce()
    ones = torch.ones(g.indices().shape[1], dtype=torch.int64, device=g.device)
    sizes = g.shape[: g.sparse_dim()]
    found = torch.sparse_coo_tensor(g.indices(), ones, sizes).to_dense() > 0
    return found.reshape(*sizes, *[1] * g.dense_dim())


class Lazy(NamedTuple):
    """An update of some rows."""

    at: Index
    entry: Entry  # on memory of its own
    of_all: bool  # whether it computes the other rows, too

    def write(self, w: Tensor, slots: Sequence[Tensor]) -> None:
        """Take over what was computed of the rows."""
        for old, new in zip([w, *slots], [self.entry.w, *self.entry.slots], strict=True):
            old[self.at] = new[self.at] if self.of_all else new.reshape_as(old[self.at])


def lazy(e: Entry, is_by_element: Callable[[Entry], bool]) -> Lazy:
    """The update of the rows that a sparse gradient has."""
    g = e.g.coalesce()
    index = tuple(g.indices())
    if not is_by_element(e._replace(g=e.w)):  # which is as large as the gradient
        slots = [s.clone() for s in e.slots]
        return Lazy(index, e._replace(w=e.w.clone(), g=dense(g), slots=slots), of_all=True)
    shape = (g.indices().shape[1], *[1] * (len(index) - 1), *g.shape[len(index) :])
    rows = [x[index].reshape(shape) for x in (e.w, *e.slots)]
    return Lazy(
        index, e._replace(w=rows[0], g=g.values().reshape(shape), slots=rows[1:]), of_all=False
    )
