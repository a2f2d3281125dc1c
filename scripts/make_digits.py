"""Regenerate src/gradwright/data/digits.npz. Needs scikit-learn, which ships the original."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TARGET = Path(__file__).parents[1] / "src" / "gradwright" / "data" / "digits.npz"


def main() -> None:
    digits = load_digits()
    x, y = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    rng = np.random.default_rng(0)

    # Shuffle, line the digits up by class, hold out every fifth: each class gives its share.
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    held_out = np.arange(len(y)) % 5 == 0
    train, test = rng.permutation(order[~held_out]), rng.permutation(order[held_out])

    np.savez_compressed(TARGET, x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test])


if __name__ == "__main__":
    main()
