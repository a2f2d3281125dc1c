"""The Keras target: a binding over the target of its backend, which does all the computing.

Importing it registers what saved models hold, so that Keras finds it when it loads one.
"""

from . import op as op
from . import optimizer as optimizer
