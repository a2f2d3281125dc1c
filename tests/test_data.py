from importlib.resources import files

import numpy as np


def test_digits_are_all_there_and_each_class_gave_its_share():
    with (files("gradwright") / "data" / "digits.npz").open("rb") as file:
        digits = dict(np.load(file))
    assert {name: (a.shape, a.dtype) for name, a in digits.items()} == {
        "x_train": ((1437, 8, 8), np.uint8),
        "y_train": ((1437,), np.uint8),
        "x_test": ((360, 8, 8), np.uint8),
        "y_test": ((360,), np.uint8),
    }
    for part in "train", "test":
        x, y = digits[f"x_{part}"], digits[f"y_{part}"]
        assert (x.min(), x.max()) == (0, 16)
        share = np.bincount(y, minlength=10) / len(y)
        np.testing.assert_allclose(share, 0.1, atol=0.005)
    every = np.concatenate([digits["x_train"], digits["x_test"]]).reshape(1797, 64)
    assert len(np.unique(every, axis=0)) == 1797
