"""What is remembered of a round; small arrays to be read by people, large ones packed."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cadis._io import short_repr
from cadis.algorithm import ServerState
from cadis.training import Evaluation
from cadis.types import ClientId, StoredFile, TensorState

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


@dataclass(frozen=True)
class Rejection:
    """An update that was left out, and why."""

    __pydantic_config__: ClassVar = STRICT
    client: ClientId
    reason: str


@dataclass(frozen=True)
class Seconds:
    """Where the time went.

    Attributes:
        train: training clients, summed over workers.
        aggregate: the method's server half.
        evaluate: testing the global model, summed over workers.
        total: from the beginning to the end of the round, on the clock.
    """

    __pydantic_config__: ClassVar = STRICT
    train: float
    aggregate: float
    evaluate: float
    total: float


@dataclass(frozen=True)
class ModelRecord:
    """One of several global models after a round.

    Attributes:
        name: what the method calls it.
        clients: how many clients of the federation use it.
        accuracy: top-1 accuracy on the test set, None if nobody tested.
        loss: its mean loss, None if that is infinite or unknown.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    clients: int
    accuracy: float | None
    loss: float | None


@dataclass(frozen=True, repr=False)
class RoundRecord:
    """One line of ``history.jsonl``; numbers and lists only.

    Attributes:
        round: from 1.
        accuracy: top-1 accuracy of the new global model on the test set, None if none was tested.
            Of several models: what the federation's clients get on the average, each by the model
            that it uses.
        loss: its mean loss, None if that is infinite or unknown.
        class_accuracy: accuracy on each class, None where there is no test example; empty if
            nobody tested by class.
        participants: whose updates were aggregated; the lists below are in this order.
        weights: what each of them weighed in the model that it trained.
        rejected: who was left out, and why.
        seconds: where the time went.
        client_accuracy: accuracy on each client's own data of the model that it uses, in the
            federation's order: on what it has held out, if clients hold anything out, else on
            what it trains on. None for clients that are not tested since there are so many, or
            since they have nothing to hold out; None in rounds in which it was not measured.
        capped: which participants said that they have far more samples than the others, and were
            weighed as if they had fewer.
        report: what the method told about the round, as named arrays. CADIS's are ``clusters``,
            ``similarity``, ``threshold`` and ``gamma``. Large ones are packed: :meth:`array` reads
            them all.
        measures: further measures of the task on the test set, such as ``auc``; None where one is
            infinite or unknown.
        client_loss: mean training loss of each participant, None if it did not tell.
        models: each of the global models, if there are several.
        client_models: which of these each participant trained, if there are several.
        clock: the simulated time at the end of the round; None where nothing is simulated.
    """

    __pydantic_config__: ClassVar = STRICT
    round: int
    accuracy: float | None
    loss: float | None
    class_accuracy: list[float | None]
    participants: list[ClientId]
    weights: list[float]
    rejected: list[Rejection]
    seconds: Seconds
    client_accuracy: list[float | None] | None = None
    capped: list[ClientId] = field(default_factory=list)
    report: dict[str, Stored] = field(default_factory=dict)
    measures: dict[str, float | None] = field(default_factory=dict)
    client_loss: list[float | None] = field(default_factory=list)
    models: list[ModelRecord] = field(default_factory=list)
    client_models: list[str] = field(default_factory=list)
    clock: float | None = None

    __repr__ = short_repr

    def array(self, name: str) -> NDArray[Any] | None:
        """An array that the method told, NaN for what is no number; None if it told none."""
        told = self.report.get(name)
        if isinstance(told, PackedMatrix):
            return told.unpacked()
        return None if name not in self.report else np.array(told, float)

    def to_json(self) -> dict[str, object]:
        """A JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Member:
    """A client of a deployment.

    Attributes:
        client: who it is.
        node: the node that is this client.
        last_round: the last round that its update was part of, 0 if there is none.
        registered: whether the server's operator gave it that name.
    """

    __pydantic_config__: ClassVar = STRICT
    client: ClientId
    node: int
    last_round: int = 0
    registered: bool = False


@dataclass(frozen=True, repr=False)
class RunState:
    """All that the next round depends on.

    Attributes:
        round: rounds done.
        server: the global models, and what the method remembers.
        sampler: what the sampler remembers.
        server_optimizer: what the server optimiser remembers, for each model.
        client_files: by client number, the file that holds its memory, if it is kept here.
        run: a deployment's name for the run, by which clients find their memories.
        members: who is who in a deployment.
        clock: the simulated time.
    """

    round: int
    server: ServerState
    sampler: TensorState = field(default_factory=dict)
    server_optimizer: Mapping[str, TensorState] = field(default_factory=dict)
    client_files: Mapping[int, StoredFile] = field(default_factory=dict)
    run: str = ""
    members: tuple[Member, ...] = ()
    clock: float = 0.0

    __repr__ = short_repr


@dataclass(frozen=True, repr=False)
class RoundResult:
    """A finished round: its record, its test if there was one by class, what to go on from."""

    record: RoundRecord
    evaluation: Evaluation | None
    state: RunState

    __repr__ = short_repr


OnRound: TypeAlias = Callable[[RoundResult], None]
"""Called with the result of each round."""
