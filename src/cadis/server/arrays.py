"""Arrays as a line of history holds them: small ones to be read by people, large ones packed."""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_READABLE = 32 * 32
"""Matrices with more numbers are packed."""

_DTYPES = {"float32": "<f4", "float64": "<f8", "int64": "<i8"}
"""As they are called, and as they lie in memory: the least byte first."""

STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
"""What a dataclass is given as ``__pydantic_config__`` if nothing but its fields may be stored."""


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix in little room, exactly as it was.

    Attributes:
        shape: rows and columns.
        dtype: of its numbers.
        symmetric: whether only the diagonal and what is above it is stored.
        base64: the numbers, row by row, the least byte first.
    """

    __pydantic_config__: ClassVar = STRICT
    shape: tuple[int, int]
    dtype: Literal["float32", "float64", "int64"]
    symmetric: bool
    base64: str

    def __post_init__(self) -> None:
        rows, columns = self.shape
        number = rows * (rows + 1) // 2 if self.symmetric else rows * columns
        if min(rows, columns) < 0 or (self.symmetric and rows != columns):
            raise ValueError("is no shape")
        if len(b64decode(self.base64, validate=True)) != number * int(_DTYPES[self.dtype][-1]):
            raise ValueError(f"does not hold {number} numbers")

    @classmethod
    def pack(cls, matrix: Tensor) -> "PackedMatrix":
        """Pack any matrix; what is of half precision, or a truth value, becomes wider."""
        wide = torch.float32 if matrix.is_floating_point() else torch.int64
        values: NDArray[Any] = matrix.to(torch.promote_types(matrix.dtype, wide)).numpy(force=True)
        rows, columns = values.shape
        symmetric = rows == columns and np.array_equal(values, values.T)
        name = str(values.dtype)
        stored = values[np.triu_indices(rows)] if symmetric else values
        content = b64encode(stored.astype(_DTYPES[name]).tobytes()).decode()
        return cls((rows, columns), name, symmetric, content)  # type: ignore[arg-type]

    def unpacked(self) -> NDArray[Any]:
        """The matrix."""
        values = np.frombuffer(b64decode(self.base64), _DTYPES[self.dtype]).astype(self.dtype)
        if not self.symmetric:
            return values.reshape(self.shape)
        matrix = np.zeros(self.shape, self.dtype)
        above = np.triu_indices(len(matrix))
        matrix[above] = matrix.T[above] = values
        return matrix


Number: TypeAlias = int | float | None
"""An entry of a stored array; None stands for what is infinite or not a number."""

Stored: TypeAlias = Number | list[Number] | list[list[Number]] | PackedMatrix
"""An array as JSON can hold it."""


def numbers(array: Tensor) -> Any:
    """An array as JSON can hold it; of a matrix, as many digits as are worth reading, or packed."""
    if array.dim() == 2 and array.numel() > _READABLE:
        return PackedMatrix.pack(array)
    return _listed(array.tolist(), digits=6 if array.dim() > 1 else None)


def _listed(value: Any, digits: int | None) -> Any:
    if isinstance(value, list):
        return [_listed(part, digits) for part in value]
    if isinstance(value, int):  # a truth value, too
        return int(value)
    if not isfinite(value):
        return None
    return value if digits is None else round(value, digits)
