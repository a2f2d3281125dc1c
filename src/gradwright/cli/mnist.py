"""MNIST: downloaded once from a public mirror, checked, and kept."""

import hashlib
import http.client
import os
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .stop import FailedRun

# The same file twice: the one that Keras has shipped for years.
MIRRORS = (
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    "https://s3.amazonaws.com/img-datasets/mnist.npz",
)
SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
TIMEOUT = 20  # seconds without an answer
CHUNK = 1 << 16

Told = Callable[[int, int], None]  # bytes so far, bytes in all


def cached() -> Path:
    """Where the file is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gradwright" / "mnist.npz"


def is_kept() -> bool:
    return cached().is_file() and _digest(cached().read_bytes()) == SHA256


def fetch(told: Told) -> Path:
    """The path of the file, downloaded if it is not there yet."""
    if not is_kept():
        _keep(_downloaded(told))
    return cached()


def _downloaded(told: Told) -> bytes:
    reasons = []
    for url in MIRRORS:
        try:
            content = _read(url, told)
        except (OSError, http.client.HTTPException) as error:
            reasons.append(f"{url}: {error}")
            continue
        if _digest(content) == SHA256:
            return content
        reasons.append(f"{url}: another file than expected (its SHA-256 differs)")
    raise FailedRun(
        "\n  ".join(["MNIST could not be downloaded:", *reasons])
        + "\npass a file instead: --data mnist.npz, with arrays x_train, y_train, x_test, y_test;"
        "\nor train on the digits that are shipped: --data digits"
    )


def _read(url: str, told: Told) -> bytes:
    content = bytearray()
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        total = int(answer.headers.get("Content-Length") or 0)
        while chunk := answer.read(CHUNK):
            content += chunk
            told(len(content), total)
    return bytes(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _keep(content: bytes) -> None:
    """Write it in one piece: an interrupted run leaves no half file."""
    cached().parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=cached().parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, cached())
