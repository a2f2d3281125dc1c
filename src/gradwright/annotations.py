"""What the arguments of ops and rules are annotated with."""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any] | Any
"""An array of any framework; inside the function it behaves as NumPy's."""

if TYPE_CHECKING:
    Rng: TypeAlias = np.random.Generator | Any
else:  # np.random is loaded when it is named, and an import of gradwright needs none of it
    Rng = Any
"""What draws random numbers in a rule: `normal`, `uniform`, `integers`, `bits`."""
