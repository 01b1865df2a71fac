"""The arrays of Flower's records, read where they lie."""

from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.lib.format import read_array_header_1_0, read_magic
from numpy.typing import NDArray

_NUMPY = "numpy.ndarray"
"""What Flower calls the format of numpy's own files."""


def array_in(array: Array) -> NDArray[Any]:
    """An array's numbers, if possible as a view of its bytes; they may be anybody's.

    Whatever is not plain numbers in the usual version of the format is left to Flower, which
    copies it or refuses it. Nothing is ever unpickled.
    """
    stream = BytesIO(array.data)
    if array.stype != _NUMPY or read_magic(stream) != (1, 0):
        return array.numpy()
    shape, by_columns, dtype = read_array_header_1_0(stream)
    if dtype.hasobject or min(shape, default=0) < 0:
        return array.numpy()
    view = np.ndarray(shape, dtype, array.data, stream.tell(), order="F" if by_columns else "C")
    return view if view.flags.aligned else view.copy()


class _Memory:
    """The memory of an array, as numpy asks for it, of which nothing is said to be read-only."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array  # it must not go before the memory is let go
        self.__array_interface__ = {
            **array.__array_interface__,
            "data": (array.__array_interface__["data"][0], False),
        }


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory without the note that it is read-only, which no tensor can bear.

    Nobody may write to it, as to anything that was received.
    """
    return array if array.flags.writeable else np.asarray(_Memory(array))
