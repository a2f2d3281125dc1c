"""Write a differentiable op or an update rule once, as a NumPy equation; use it natively."""

from .errors import CheckFailure, GradwrightError, SignatureError, StateError, TraceError
from .op import Op, eager, op
from .transforms import grad, jvp, stop_gradient, value_and_grad, vjp
