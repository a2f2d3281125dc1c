"""What the arguments of ops and rules are annotated with."""

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any] | Any
"""An array of any framework; inside the function it behaves as NumPy's."""

Rng: TypeAlias = np.random.Generator | Any
"""What draws random numbers in a rule: `normal`, `uniform`, `integers`, `bits`."""
