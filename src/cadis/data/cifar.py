"""CIFAR files: the binary version, and the Python version read without trusting it."""

import io
import pickle
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cadis.core import CadisError
from cadis.data.files import shown

_PIXELS = 3 * 32 * 32

_RECONSTRUCT = np.zeros(0).__reduce__()[0]
"""The function that numpy's own pickles name to make an array."""

Rows: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Pictures (n, 3, 32, 32) and their labels (n,)."""


def parse_binary(content: bytes, label_bytes: int, path: Path) -> Rows:
    """Rows of labels and pixels; of several labels (coarse, fine) the last is meant."""
    width = label_bytes + _PIXELS
    if not content or len(content) % width:
        raise CadisError(
            f"{path} has {len(content):,} bytes, which is no multiple of {width:,}; it is not a "
            "CIFAR binary file, or damaged: put the published file in its place."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1]


def parse_python(content: bytes, key: str, path: Path) -> Rows:
    """The pickled dictionary of a batch; labels are under ``key``."""
    try:
        batch = _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
        pixels, labels = batch["data"], np.asarray(batch[key])
        if pixels.dtype != np.uint8 or labels.min() < 0 or labels.max() > 255:
            raise ValueError("its numbers are no bytes")
        return pixels.reshape(len(labels), 3, 32, 32), labels.astype(np.uint8)
    except CadisError as error:
        raise CadisError(f"{path} {error}") from None
    except Exception as error:  # whatever foreign bytes may raise
        why = " ".join(shown(error).split())
        raise CadisError(
            f"{path} is not a batch of CIFAR's Python version ({why}); "
            "put the published file in its place."
        ) from error


class _PlainUnpickler(pickle.Unpickler):
    """Builds numpy arrays and plain containers, nothing else: a pickle could run any command.

    It stays as many have only the Python version of CIFAR, and no library reads it without trust.
    """

    _ALLOWED: ClassVar = {
        ("numpy", "dtype"): np.dtype,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,  # until numpy 1
        ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,  # since numpy 2
    }

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle may name."""
        if (module, name) not in self._ALLOWED:
            raise CadisError(
                f"wants to use {module}.{name}, which no CIFAR file does: it may be hostile and "
                "was not loaded; put the published file in its place."
            )
        return self._ALLOWED[module, name]
