"""In a process of its own: load what `keras_op.py` saved."""

import os
from pathlib import Path

import keras
import keras_parts
import numpy as np

import gradwright.targets.keras

FOLDER = Path(os.environ["KERAS_FOLDER"])
assert gradwright.targets.keras and keras_parts

model = keras.models.load_model(FOLDER / "op.keras")
with np.load(FOLDER / "op.npz") as saved:
    x, y = saved["x"], saved["y"]
np.testing.assert_allclose(model.predict(x, verbose=0), y, rtol=1e-6)
start = model.get_weights()[0]
model.compile(keras.optimizers.SGD(1e-3), lambda true, pred: keras.ops.sum(pred))
model.fit(x, y, verbose=0)
# y = sum of 2 h² x: three times the derivative in each of two calls
h = x @ start
wanted = start - 1e-3 * x.T @ (9 * 4 * h * x)
np.testing.assert_allclose(model.get_weights()[0], wanted, rtol=1e-4)
print("loaded")
