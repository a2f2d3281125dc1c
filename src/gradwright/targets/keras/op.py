"""Ops on Keras tensors that have no values yet, on Keras variables, and in Keras layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from ... import tree
from ...errors import GradwrightError, SignatureError
from ...op import Meta, Op, number_meta
from ...precision import is_narrow
from ...signature import Layout, is_number
from . import backends
from .paths import at, path_of

_OF_THE_LAYER = ("name", "dtype", "trainable")


def value(leaf: Any) -> Any:
    """The backend's array in a Keras variable."""
    return leaf.value if isinstance(leaf, keras.Variable) else leaf


# --- calling -----------------------------------------------------------------------------------
def call(op: Op[Any], leaves: Sequence[Any], layout: Layout) -> Any:
    """Run an op on Keras variables, or record its call on tensors that have no values yet."""
    if not any(isinstance(leaf, keras.KerasTensor) for leaf in leaves):
        return backends.target().call(op, [value(leaf) for leaf in leaves], layout)
    for leaf in leaves:
        if isinstance(leaf, keras.Variable):
            raise SignatureError(
                f"{op.name} was called with the variable {leaf.path} beside a KerasTensor: a "
                "model of this call would neither train nor save the variable",
                "a layer that has the variable, and calls the op in its call()",
            )
    return op.signature.call(Call(op), layout.arguments(leaves), op.signature.options)


def eager(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the plain NumPy function on the values of variables."""
    leaves, spec = tree.flatten((args, kwargs))
    if any(isinstance(leaf, keras.KerasTensor) for leaf in leaves):
        raise GradwrightError(
            f"{function.__name__} inside gw.eager() and on a KerasTensor, which has no value",
            "gw.eager() around model(x, …), in eager mode",
        )
    args, kwargs = tree.unflatten(spec, [value(leaf) for leaf in leaves])
    return backends.target().eager(function, args, kwargs)


# --- before there are values -------------------------------------------------------------------
def result_spec(op: Op[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The results of a call as KerasTensors: what is known of their shapes, and their dtypes."""
    leaves, layout = op.signature.layout(args, kwargs)
    metas = [_meta(leaf) for leaf in leaves]
    made = op.traced(metas, layout)
    narrow = is_narrow(_dtype(leaf) for leaf in leaves if hasattr(leaf, "dtype"))
    outs = [
        keras.KerasTensor(shape, backends.result_dtype(_rounded(dtype, narrow)))
        for shape, dtype in made.function.known_types([m.shape for m in metas])
    ]
    return tree.unflatten(made.out, outs)


def _rounded(dtype: str, narrow: bool) -> str:
    return "bfloat16" if narrow and dtype == "float32" else dtype


def _meta(leaf: Any) -> Meta:
    if is_number(leaf):
        return number_meta(leaf)
    # whether a tensor is sparse is seen when there is one: Keras says of 2 * x that it is
    dtype = _dtype(leaf)
    return Meta(tuple(leaf.shape), "float32" if dtype == "bfloat16" else dtype)


def _dtype(x: Any) -> str:
    return str(keras.backend.standardize_dtype(x.dtype))


def _name_for(op: Op[Any]) -> str | None:
    """A name of its own for each call and each layer of an op; Keras' choice for a lambda."""
    name = op.name.strip("_")
    return f"{name}_{keras.backend.get_uid(name)}" if name.isidentifier() else None


def _path_of(op: Op[Any]) -> str:
    return path_of(op.__wrapped__, f"the op {op.name}", lambda found: found is op)


@keras.saving.register_keras_serializable("gradwright")
class Call(keras.Operation):  # type: ignore[misc]  # Keras ships no types
    """One call of an op in a functional model."""

    def __init__(self, op: Op[Any], name: str | None = None) -> None:
        super().__init__(name or _name_for(op))
        self.op = op

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The op on the backend's tensors."""
        return self.op(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """What Keras asks before there are values."""
        return result_spec(self.op, args, kwargs)

    def get_config(self) -> dict[str, Any]:
        """The op by its import path."""
        return {"name": self.name, "op": _path_of(self.op)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Call":
        """The same call of an op that was imported."""
        return cls(at(config["op"], "op"), config["name"])


# --- layers ------------------------------------------------------------------------------------
@keras.saving.register_keras_serializable("gradwright")
class Layer(keras.layers.Layer):  # type: ignore[misc]  # Keras ships no types
    """An op with its options as a layer."""

    def __init__(self, op: Op[Any], options: Mapping[str, Any], **settings: Any) -> None:
        super().__init__(**{"name": _name_for(op), **settings})
        self.op, self.options = op, dict(options)

    def call(self, *arrays: Any, **named: Any) -> Any:
        """The op on the backend's tensors."""
        return self.op(*arrays, **named, **self.options)

    def compute_output_spec(self, *arrays: Any, **named: Any) -> Any:
        """What Keras asks before there are values."""
        return result_spec(self.op, arrays, {**named, **self.options})

    def get_config(self) -> dict[str, Any]:
        """The layer's settings, the op by its import path, the options."""
        config = super().get_config()
        return {**config, "op": _path_of(self.op), "options": dict(self.options)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Layer":
        """The same layer of an op that was imported."""
        settings = keras.saving.deserialize_keras_object(dict(config))
        return cls(at(settings.pop("op"), "op"), settings.pop("options"), **settings)


def layer(op: Op[Any], keywords: Mapping[str, Any]) -> Layer:
    """A layer of an op; what is no option of the op is a setting of the layer."""
    known = op.signature.options
    settings = {k: v for k, v in keywords.items() if k in _OF_THE_LAYER and k not in known}
    options = {k: v for k, v in keywords.items() if k not in settings}
    for name in options:
        if name not in known:
            raise SignatureError(
                f"{op.name}.layer has no option {name}",
                f"one of {', '.join([*known, *_OF_THE_LAYER])}",
            )
    return Layer(op, options, **settings)
