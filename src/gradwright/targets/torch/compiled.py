"""torch.compile: the call of an op is recorded whole, as one function of flat arguments.

Dynamo, which reads Python, cannot run a tracer. It runs what is marked constant at compile time
and keeps the result if that is a constant: so a call of an op goes by a name.
"""

import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch.compiler import allow_in_graph

from ... import tree
from ...errors import SignatureError
from ...op import Op


class Calls:
    """Its attributes are the functions: one for each op and each form of its arguments."""


_names: weakref.WeakKeyDictionary[Op[Any], dict[tree.Spec, str]] = weakref.WeakKeyDictionary()
_results: dict[str, tree.Spec] = {}  # the form of the latest result of each
_numbers = itertools.count()


def record(op: Op[Any], args: Any, kwargs: Any) -> Any:
    """Call an op in code that is being compiled; Dynamo reads these lines."""
    leaves, spec = tree.flatten((args, kwargs))
    name = op.call_name(op.identity, spec)
    outs = getattr(Calls, name)(*leaves)
    return _built(op.call_result(name), iter(outs))


def _built(form: Any, outs: Iterator[Any]) -> Any:
    """`tree.unflatten` in words that Dynamo knows: kinds of containers by their names."""
    if form == "*":
        return next(outs)
    if form == "-":
        return None
    kind, keys, forms = form
    values = [_built(f, outs) for f in forms]
    if kind == "dict":
        return dict(zip(keys, values, strict=True))
    return values if kind == "list" else tuple(values)


def _named(spec: Any) -> tree.Spec:
    """A spec with the names of its types."""
    if isinstance(spec, str):
        return spec
    kind, keys, specs = spec
    if hasattr(kind, "_fields"):
        raise SignatureError(f"a {kind.__name__} as a result in torch.compile", "a tuple or a dict")
    name = "dict" if issubclass(kind, dict) else kind.__name__
    return name, keys, tuple(_named(s) for s in specs)


def call_name(op: Op[Any], spec: tree.Spec) -> str:
    """The name of the function that calls an op on the leaves of its arguments."""
    names = _names.setdefault(op, {})
    if spec not in names:
        name = names[spec] = f"call{next(_numbers)}"
        function = _flat_call(weakref.ref(op), name, spec)
        allow_in_graph(function)  # type: ignore[no-untyped-call]  # torch's own is untyped
        setattr(Calls, name, staticmethod(function))
        weakref.finalize(op, _forget, name)
    return names[spec]


def _flat_call(
    op: weakref.ref[Op[Any]], name: str, spec: tree.Spec
) -> Callable[..., tuple[Any, ...]]:
    def call(*leaves: Any) -> tuple[Any, ...]:
        args, kwargs = tree.unflatten(spec, leaves)
        alive = op()
        assert alive is not None, "compiled code keeps the ops that it calls"
        outs, _results[name] = tree.flatten(alive.run(args, kwargs))
        return tuple(outs)

    return call


def call_result(name: str) -> tree.Spec:
    return _named(_results[name])


def _forget(name: str) -> None:
    delattr(Calls, name)
    _results.pop(name, None)
