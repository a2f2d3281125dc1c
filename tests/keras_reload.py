"""In a process of its own: load what `keras_op.py` and `keras_optimizer.py` saved, and go on."""

import os
from pathlib import Path

import keras
import keras_parts
import numpy as np

import gradwright.targets.keras

FOLDER = Path(os.environ["KERAS_FOLDER"])
assert gradwright.targets.keras and keras_parts


def arrays(name):
    with np.load(FOLDER / f"{name}.npz") as saved:
        return dict(saved)


# an op, with three times its derivative in each of two calls: y = sum of 2 h² x
model = keras.models.load_model(FOLDER / "op.keras")
x, y = arrays("op").values()
np.testing.assert_allclose(model.predict(x, verbose=0), y, rtol=1e-6)
start = model.get_weights()[0]
model.compile(keras.optimizers.SGD(1e-3), lambda true, pred: keras.ops.sum(pred))
model.fit(x, y, verbose=0)
wanted = start - 1e-3 * x.T @ (9 * 4 * (x @ start) * x)
np.testing.assert_allclose(model.get_weights()[0], wanted, rtol=1e-4)

# optimizers: five epochs more are the ten of the process that saved, to the bit
x, y = arrays("data").values()
for name in ("noisy", "by_name"):
    model = keras.models.load_model(FOLDER / f"{name}.keras")
    model.fit(x, y, batch_size=8, epochs=5, shuffle=False, verbose=0)
    weights = arrays(name)
    assert model.optimizer.steps == weights.pop("steps") == 40
    for a, b in zip(model.get_weights(), weights.values(), strict=True):
        np.testing.assert_array_equal(a, b)
print("loaded")
