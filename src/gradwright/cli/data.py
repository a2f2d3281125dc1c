"""Pictures with labels, from one ``.npz`` file: the shipped digits, MNIST, or the user's own."""

import zipfile
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from . import mnist
from .stop import WrongUsage

Array: TypeAlias = np.ndarray[Any, Any]
NAMES = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Data:
    """Rows of float32 in [0, 1], and the class of each."""

    name: str
    x: Array
    y: Array
    x_test: Array
    y_test: Array

    @property
    def classes(self) -> int:
        return int(max(self.y.max(), self.y_test.max())) + 1

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.x)} to train, {len(self.x_test)} to test, "
            f"{self.x.shape[1]} pixels, {self.classes} classes"
        )


def load(name: str, told: mnist.Told) -> Data:
    """``digits``, ``mnist``, or the path of an ``.npz`` file."""
    if name == "digits":
        with as_file(files("gradwright") / "data" / "digits.npz") as path:
            return _read(path, "UCI digits")
    if name == "mnist":
        return _read(mnist.fetch(told), "MNIST")
    if not Path(name).is_file():
        raise WrongUsage(f"--data {name}: no such file; digits, mnist, or the path of an .npz file")
    return _read(Path(name), Path(name).name)


def _read(path: Path, name: str) -> Data:
    arrays = _arrays(path)
    top = float(np.max(arrays["x_train"])) or 1.0
    x, x_test = (_rows(arrays[f"x_{part}"], top) for part in ("train", "test"))
    y, y_test = (arrays[f"y_{part}"].reshape(-1) for part in ("train", "test"))
    _check(path, x, y)
    _check(path, x_test, y_test)
    if x.shape[1] != x_test.shape[1]:
        raise WrongUsage(f"{path}: x_train has {x.shape[1]} pixels, x_test {x_test.shape[1]}")
    return Data(name, x, y.astype(np.int64), x_test, y_test.astype(np.int64))


def _arrays(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in NAMES if name in file.files}
    except (ValueError, OSError, AttributeError, zipfile.BadZipFile) as error:
        raise WrongUsage(f"{path} is no .npz file of plain arrays: {error}") from None
    if missing := [name for name in NAMES if name not in found]:
        raise WrongUsage(f"{path} has no {', '.join(missing)}; it needs {', '.join(NAMES)}")
    return found


def _rows(x: Array, top: float) -> Array:
    return (x.reshape(len(x), -1) / np.float32(top)).astype(np.float32)


def _check(path: Path, x: Array, y: Array) -> None:
    if not len(x) or len(x) != len(y):
        raise WrongUsage(f"{path}: {len(x)} pictures and {len(y)} labels")
    if y.dtype.kind not in "ui" or y.min() < 0:
        raise WrongUsage(f"{path}: the labels are {y.dtype}, not the integers 0, 1, 2, …")
    if not np.isfinite(x).all():
        raise WrongUsage(f"{path}: the pictures have values that are not finite")
