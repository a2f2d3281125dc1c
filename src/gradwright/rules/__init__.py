"""Published update rules, each its equation and nothing else.

Every rule is an ordinary `gw.rule`: read it, change it, chain it.
"""

from .transforms import clamp, clip, clip_by_global_norm, decay, ema, l2, wrap
from .updates import (
    adagrad,
    adam,
    adamw,
    compact_sgd,
    lion,
    momentum,
    muon,
    nesterov,
    rmsprop,
    sgd,
    sgld,
)

__all__ = [
    "adagrad", "adam", "adamw", "clamp", "clip", "clip_by_global_norm", "compact_sgd", "decay",
    "ema", "l2", "lion", "momentum", "muon", "nesterov", "rmsprop", "sgd", "sgld", "wrap",
]  # fmt: skip
