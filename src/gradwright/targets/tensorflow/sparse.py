"""Sparse gradients: made dense, or with the rows of a variable that they have.

Indices that repeat are summed. Under ``sparse="lazy"`` only those rows are read and written where
elements do not depend on each other; otherwise all are computed, and those taken.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ...optimizer import Entry

v1 = tf.compat.v1


def dense(g: Any, v: Any) -> Any:
    """A gradient as a tensor as large as its variable."""
    if not isinstance(g, tf.IndexedSlices):
        return tf.convert_to_tensor(g)
    return tf.math.unsorted_segment_sum(g.values, g.indices, v.shape[0])


def summed(g: Any) -> Any:
    """A sparse gradient in which every row is there once."""
    rows, places = tf.unique(g.indices)
    sums = tf.math.unsorted_segment_sum(g.values, places, tf.size(rows))
    return tf.IndexedSlices(tf.ensure_shape(sums, [None, *g.values.shape[1:]]), rows, g.dense_shape)


def values(g: Any) -> Any:
    """What a gradient has beside zeros."""
    return g.values if isinstance(g, tf.IndexedSlices) else g


def rows_of(e: Entry, g: Any, variables: Sequence[Any]) -> Entry:
    """The rows of a parameter and its slots that a gradient has."""
    w, *slots = (tf.gather(v, g.indices) for v in variables)
    return e._replace(w=w, g=g.values, slots=slots)


def write_rows(v: Any, new: Any, rows: Any) -> Any:
    """The operation that writes rows of a variable."""
    if bool(v.dtype == v.dtype.base_dtype):
        return tf.raw_ops.ResourceScatterUpdate(resource=v.handle, indices=rows, updates=new)
    return v1.scatter_update(v, rows, new).op


def is_there(rows: Any, shape: Any) -> Any:
    """Which rows of a variable are among these, to be broadcast over it."""
    found = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, shape[0]) > 0
    return tf.reshape(found, [shape[0], *[1] * (len(shape) - 1)])
