"""IDX files, in which MNIST and its kin are published."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cadis.core import CadisError

_UNSIGNED_BYTE = 0x08
_MOST_DIMENSIONS = 3


def parse_idx(content: bytes, path: Path) -> NDArray[np.uint8]:
    """The array of bytes in an IDX file; ``path`` is named if there is none.

    The header: two zero bytes, the type of the numbers, how many dimensions, and the size of
    each as a big-endian number of four bytes.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise CadisError(
            f"{path} is not an IDX file of bytes; put the published file in its place."
        )
    if not 1 <= content[3] <= _MOST_DIMENSIONS:
        raise CadisError(
            f"{path} has an array of {content[3]} dimensions, neither pictures (3) nor labels (1); "
            "put the published file in its place."
        )
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4)]
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise CadisError(
            f"{path} has {len(content):,} bytes where its header promises {expected:,}; "
            "it is damaged: put the published file in its place."
        )
    try:
        return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    except ValueError:  # nothing at all, in a shape beyond all bounds
        raise CadisError(
            f"{path} has an array of shape {tuple(shape)}; it is damaged: put the published file "
            "in its place."
        ) from None
