"""Trees of arrays: dicts (in sorted order of keys, as JAX has them), lists, tuples, ``None``."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

Spec: TypeAlias = Hashable  # "*" for a leaf, "-" for None, (type, keys, specs) for a container


def is_container(tree: Any) -> bool:
    return tree is None or isinstance(tree, (dict, list, tuple))


def children(tree: Any) -> tuple[Any, Sequence[Any]]:
    """Return the keys and the values of one container."""
    if isinstance(tree, dict):
        keys = tuple(sorted(tree))
        return keys, [tree[key] for key in keys]
    return tuple(range(len(tree))), tree


def flatten(tree: Any) -> tuple[list[Any], Spec]:
    """Return the leaves of a tree in order, and its shape as a hashable value."""
    leaves: list[Any] = []
    return leaves, _taken_apart(tree, leaves)


# These two are no closures: one that calls itself lives, with all arrays that it has seen, until
# Python collects cycles, and large memory is not used again so long.
def _taken_apart(tree: Any, leaves: list[Any]) -> Spec:
    if tree is None:
        return "-"
    if not is_container(tree):
        leaves.append(tree)
        return "*"
    keys, values = children(tree)
    return type(tree), keys, tuple([_taken_apart(value, leaves) for value in values])


def _put_together(spec: Any, leaves: Iterator[Any]) -> Any:
    if spec == "*":
        return next(leaves)
    if spec == "-":
        return None
    kind, keys, specs = spec
    values = [_put_together(s, leaves) for s in specs]
    if issubclass(kind, dict):
        return dict(zip(keys, values, strict=True))
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def unflatten(spec: Spec, leaves: Sequence[Any]) -> Any:
    """Rebuild the tree that `flatten` took apart."""
    return leaves[0] if spec == "*" else _put_together(spec, iter(leaves))


def leaves_of(spec: Any) -> int:
    """Count the leaves below a spec."""
    if isinstance(spec, str):
        return int(spec == "*")
    return sum(leaves_of(s) for s in spec[2])


def paths(tree: Any, prefix: str = "") -> Iterator[str]:
    """Name every leaf by the keys that lead to it, joined with dots."""
    if not is_container(tree):
        yield prefix
    elif tree is not None:
        for key, value in zip(*children(tree), strict=True):
            yield from paths(value, f"{prefix}.{key}" if prefix else str(key))


def flatten_like(spec: Any, tree: Any, mismatch: Callable[[str], Exception]) -> list[Any]:
    """Flatten a tree that must have the shape `spec`; a ``None`` stands for all it replaces."""
    if spec == "*":
        if isinstance(tree, (dict, tuple)):
            raise mismatch(f"a {type(tree).__name__} where one array is expected")
        return [tree]
    if tree is None:
        return [None] * leaves_of(spec)
    if spec == "-":
        raise mismatch("an array where there is nothing (None)")
    kind, keys, specs = spec
    same_kind = isinstance(tree, dict) == issubclass(kind, dict) and isinstance(
        tree, (dict, list, tuple)
    )
    if not same_kind or set(children(tree)[0]) != set(keys):
        raise mismatch(f"{_outline(tree)} where {_wanted(kind, keys)} is expected")
    return [
        leaf
        for s, value in zip(specs, children(tree)[1], strict=True)
        for leaf in flatten_like(s, value, mismatch)
    ]


def flat_reader(spec: Any) -> Callable[[Any], list[Any] | None]:
    """How to flatten one leaf, or one container of leaves, at once; `None` if it does not fit."""
    if spec == "*":
        return lambda tree: None if isinstance(tree, (dict, tuple)) else [tree]
    kind, keys, specs = (None, (), ("-",)) if isinstance(spec, str) else spec
    if set(specs) != {"*"} or kind not in (list, dict):
        return lambda tree: None

    def items(tree: Any) -> list[Any] | None:
        if type(tree) is not kind or len(tree) != len(keys):
            return None
        if kind is list:
            return list(tree)
        return [tree[key] for key in keys] if tree.keys() == wanted else None

    wanted = dict.fromkeys(keys).keys()
    return items


def _wanted(kind: Any, keys: Sequence[Any]) -> str:
    if issubclass(kind, dict):
        return f"a dict with keys {list(keys)}"
    return f"a {kind.__name__} of {len(keys)}"


def _outline(tree: Any) -> str:
    if isinstance(tree, dict):
        return f"a dict with keys {sorted(tree)}"
    if isinstance(tree, (list, tuple)):
        return f"a {type(tree).__name__} of {len(tree)}"
    return "one array"
