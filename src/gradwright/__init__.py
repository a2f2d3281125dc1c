"""Write a differentiable op or an update rule once, as a NumPy equation; use it natively."""

from . import rules, schedules, tf1
from .annotations import Array, Rng
from .body import global_sum, record
from .check import Report, check, check_gradient
from .compose import Optimizer, Precision, Rule, chain, partition, rule
from .equation import given, per_param, shared
from .errors import CheckFailure, GradwrightError, SignatureError, StateError, TraceError
from .host import host_op
from .op import Op, eager, op
from .transforms import grad, jvp, stop_gradient, value_and_grad, vjp

__all__ = [
    "Array", "CheckFailure", "GradwrightError", "Op", "Optimizer", "Precision", "Report", "Rng",
    "Rule", "SignatureError", "StateError", "TraceError", "chain", "check", "check_gradient",
    "eager", "given", "global_sum", "grad", "host_op", "jvp", "op", "partition", "per_param",
    "record", "rule", "rules", "schedules", "shared", "stop_gradient", "tf1", "value_and_grad",
    "vjp",
]  # fmt: skip
