"""The JAX target: `jax.numpy` means what NumPy means nearly everywhere; here is where it does not.

With x64 off JAX has no 64-bit numbers: a float64 of a graph is then a float32, an int64 an int32.
"""

from typing import Any

import jax

from ...emit import Spelling
from ...primitives import PRIMITIVES
from . import autodiff, functions

# What jax.scipy.special has under another name, and what `functions` composes.
_SPECIAL = {name: name for name, row in PRIMITIVES.items() if row.module == "scipy.special"}
_OWN = "erfcinv exp10 cosm1 log_ndtr psi gammaln rel_entr".split()
_KEEP = "jnp.%s({0}, {axis}, keepdims={keepdims})"
_ONE_AXIS = "jnp.%s({0}, {only}, keepdims={keepdims})"


def _namespace() -> dict[str, Any]:
    from .host import host

    return {
        "jax": jax,
        "host": host,
        **{name: getattr(functions, name) for name in functions.__all__},
    }


SPELLING = Spelling(
    name="jax",
    library="jnp",
    dtype=lambda dtype: repr({"int": "int64", "float": "float64"}.get(dtype, dtype)),
    namespace=_namespace,
    constant=lambda array: array,
    frozen="array({name})",
    scalar="number({value}, {dtype})",
    call=autodiff.bound,
    unsupported={
        "global_sum": "a sum over all parameters belongs to a rule",
        "betaln": "jax.scipy.special.betaln is gammaln(a) + gammaln(b) - gammaln(a + b), of which "
        "large arguments leave few digits; that formula can be written",
        "j0": "jax.scipy.special.bessel_jn computes it by a recurrence of a fixed length",
        "j1": "jax.scipy.special.bessel_jn computes it by a recurrence of a fixed length",
    },
    integers={
        "reciprocal": "reciprocal({0})",
        "floor_divide": "floor_divide({0}, {1})",
        "power": "power({0}, {1})",
    },
    forms={
        **{prim: f"jax.scipy.special.{name}({{args}})" for prim, name in _SPECIAL.items()},
        **{name: f"{name}({{args}})" for name in (*_OWN, "nextafter")},
        **{name: _KEEP % name for name in ("sum", "prod", "max", "min", "all", "any")},
        **{name: _ONE_AXIS % name for name in ("argmax", "argmin")},
        "log_expit": "jax.nn.log_sigmoid({0})",
        "cumsum": "jnp.cumsum({0}, {axis}, held({out}))",
        "astype": "astype({0}, {out})",
        "reshape": "jnp.reshape({0}, {shape})",
        "transpose": "jnp.transpose({0}, {axes})",
        "expand_dims": "jnp.expand_dims({0}, {axis})",
        "squeeze": "jnp.squeeze({0}, {axis})",
        "broadcast_to": "jnp.broadcast_to({0}, {shape})",
        "getitem": "{0}[{index}]",
        "concatenate": "jnp.concatenate(({args}), {axis})",
        "flip": "jnp.flip({0}, {axis})",
        "roll": "jnp.roll({0}, {shift}, {axis})",
        "take": "jnp.take({0}, {1}, {axis})",
        "einsum": "jnp.einsum({subscripts}, {args})",
        "unbroadcast": "unbroadcast({0}, {shape})",
        "scatter": "scatter({0}, {shape}, jnp.index_exp[{index}])",
        "scatter_add": "scatter_add({0}, {1}, {axis}, {shape})",
        "random_bits": "random_bits({args}, draw={draw}, lane={lane}, shape={shape})",
        "host": "host({function}, {args})",
        "stop_gradient": "jax.lax.stop_gradient({0})",
        "variable": "{0}",
    },
)
