"""Records of rounds, and the state that the next round starts from.

The server creates records, the store writes them to ``history.jsonl``, and analyses read them.
Small arrays are stored as lists, large matrices as base64.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from cadis._io import short_repr
from cadis.algorithm import ServerState
from cadis.training import Evaluation
from cadis.types import ClientId, ModelState, StoredFile, TensorState

_MAX_REASON = 500
"""Maximum number of characters of the reason of a rejection."""
_MAX_LISTED = 32 * 32
"""Maximum number of entries of a matrix that is stored as lists; larger matrices are packed."""

_DTYPES = {"float32": "<f4", "float64": "<f8", "int64": "<i8"}
"""Little-endian NumPy type of each dtype that can be packed."""

_METRICS_KEY = "measures"
"""Key of the metrics in ``history.jsonl``; files of runs keep their keys."""

STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
"""Pydantic configuration that rejects unknown keys and NaN or infinite numbers in JSON."""


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix encoded as base64 without loss.

    Attributes:
        shape: number of rows and columns.
        dtype: type of the entries.
        symmetric: whether the matrix is symmetric; then only its upper triangle with the diagonal
            is stored.
        base64: the entries, row by row, little-endian.
    """

    __pydantic_config__: ClassVar = STRICT
    shape: tuple[int, int]
    dtype: Literal["float32", "float64", "int64"]
    symmetric: bool
    base64: str

    def __post_init__(self) -> None:
        rows, columns = self.shape
        size = rows * (rows + 1) // 2 if self.symmetric else rows * columns
        if min(rows, columns) < 0 or (self.symmetric and rows != columns):
            raise ValueError("is not a valid shape")
        if len(b64decode(self.base64, validate=True)) != size * int(_DTYPES[self.dtype][-1]):
            raise ValueError(f"does not contain {size} numbers")

    @classmethod
    def pack(cls, matrix: Tensor) -> "PackedMatrix":
        """Encode a matrix; half precision becomes float32, booleans and integers become int64."""
        min_dtype = torch.float32 if matrix.is_floating_point() else torch.int64
        dtype = torch.promote_types(matrix.dtype, min_dtype)
        values: NDArray[Any] = matrix.to(dtype).numpy(force=True)
        rows, columns = values.shape
        symmetric = rows == columns and np.array_equal(values, values.T)
        name = str(values.dtype)
        entries = values[np.triu_indices(rows)] if symmetric else values
        content = b64encode(entries.astype(_DTYPES[name]).tobytes()).decode()
        return cls((rows, columns), name, symmetric, content)  # type: ignore[arg-type]

    def unpack(self) -> NDArray[Any]:
        """Decode the matrix."""
        values = np.frombuffer(b64decode(self.base64), _DTYPES[self.dtype]).astype(self.dtype)
        if not self.symmetric:
            return values.reshape(self.shape)
        matrix = np.zeros(self.shape, self.dtype)
        upper = np.triu_indices(len(matrix))
        matrix[upper] = matrix.T[upper] = values
        return matrix


Number: TypeAlias = int | float | None
"""An entry of an array in JSON; None stands for NaN and infinity."""

JsonArray: TypeAlias = Number | list[Number] | list[list[Number]] | PackedMatrix
"""A scalar, a vector or a matrix as JSON values."""


def to_json_array(array: Tensor) -> Any:
    """Convert an array to JSON values: matrices are rounded to six digits, or packed if large."""
    if array.dim() == 2 and array.numel() > _MAX_LISTED:
        return PackedMatrix.pack(array)
    return _to_json_value(array.tolist(), digits=6 if array.dim() > 1 else None)


def _to_json_value(value: Any, digits: int | None) -> Any:
    if isinstance(value, list):
        return [_to_json_value(item, digits) for item in value]
    if isinstance(value, int):  # includes bool
        return int(value)
    if not isfinite(value):
        return None
    return value if digits is None else round(value, digits)


@dataclass(frozen=True)
class Rejection:
    """A client whose update was not used, and the reason.

    A reason may quote names that the client sent, so a long one is cut.
    """

    __pydantic_config__: ClassVar = STRICT
    client: ClientId
    reason: str

    def __post_init__(self) -> None:
        """Cut the reason."""
        if len(self.reason) > _MAX_REASON:
            object.__setattr__(self, "reason", f"{self.reason[:_MAX_REASON]}...")


@dataclass(frozen=True)
class Seconds:
    """Time of each part of a round, in seconds.

    Attributes:
        train: training of clients, summed over workers.
        aggregate: validation of updates, aggregation and server optimizer.
        evaluate: tests of the global models, summed over workers.
        total: wall-clock time of the whole round.
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
        name: the name that the method gave it.
        clients: number of clients of the federation that use it.
        accuracy: top-1 accuracy on the test set; None if it was not tested.
        loss: mean loss on the test set; None if it is NaN, infinite or unknown.
    """

    __pydantic_config__: ClassVar = STRICT
    name: str
    clients: int
    accuracy: float | None
    loss: float | None


_KEPT_ARRAYS = ("clusters",)
"""Arrays of a method's report that say nothing about the classes of a client."""


@dataclass(frozen=True, repr=False)
class RoundRecord:
    """Results of one round: one line of ``history.jsonl``.

    Attributes:
        round: number of the round, from 1.
        accuracy: top-1 accuracy of the new global model on the test set; None if it was not tested.
            If there are several models, the mean over clients, each with the model that it uses.
        loss: mean loss on the test set; None if it is NaN, infinite or unknown.
        class_accuracy: accuracy on each class, None for a class without test samples; empty if
            there was no test on the server.
        participants: clients whose updates were aggregated; ``weights``, ``client_loss`` and
            ``client_models`` have the same order.
        weights: weight of each participant in the aggregation of the model that it trained.
        rejected: clients whose updates were not used, and the reasons.
        seconds: time of each part of the round.
        client_accuracy: for each client of the federation, the accuracy of its model on its own
            data: on held-out data if there are any, else on training data. None for a client that
            was not tested. None instead of the list in rounds without this test.
        capped: participants that reported far more samples than the others, and whose number of
            samples was reduced to the maximum.
        report: named arrays that the method reported, such as ``clusters``, ``similarity``,
            ``threshold`` and ``gamma`` of CADIS. Large matrices are packed; read them with
            :meth:`array`.
        metrics: other metrics on the test set, such as ``auc``; None for a metric that is NaN,
            infinite or unknown. The key in the file is "measures".
        client_loss: mean training loss of each participant; None if it was not reported.
        models: the global models, if there are several.
        client_models: name of the model that each participant trained, if there are several.
        clock: simulated time at the end of the round; None if no time is simulated.

    Example:
        >>> record = RoundRecord(1, 0.9, 0.3, [0.9], ["a"], [1.0], [], Seconds(1, 0, 0, 1))
        >>> record.accuracy, record.array("clusters")
        (0.9, None)
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
    report: dict[str, JsonArray] = field(default_factory=dict)
    metrics: Annotated[dict[str, float | None], Field(alias=_METRICS_KEY)] = field(
        default_factory=dict
    )
    client_loss: list[float | None] = field(default_factory=list)
    models: list[ModelRecord] = field(default_factory=list)
    client_models: list[str] = field(default_factory=list)
    clock: float | None = None

    __repr__ = short_repr

    def array(self, name: str) -> NDArray[Any] | None:
        """Return an array of the method's report, with NaN where the file has no number.

        Args:
            name: key of the report, such as "similarity".

        Returns:
            The array; None if the report has no such key.
        """
        value = self.report.get(name)
        if isinstance(value, PackedMatrix):
            return value.unpack()
        return None if name not in self.report else np.array(value, float)

    def has_profiles(self) -> bool:
        """Return whether the report has arrays that say something about the classes of clients."""
        return self.without_profiles().report.keys() != self.report.keys()

    def without_profiles(self) -> "RoundRecord":
        """Return the record with labels of clusters and scalars, but no other array."""
        arrays = (list, PackedMatrix)
        report = {
            name: value
            for name, value in self.report.items()
            if name in _KEPT_ARRAYS or not isinstance(value, arrays)
        }
        return replace(self, report=report)

    def to_json(self) -> dict[str, object]:
        """Convert the record to a JSON object."""
        entries = asdict(self)
        return {_METRICS_KEY if name == "metrics" else name: entries[name] for name in entries}


@dataclass(frozen=True)
class Member:
    """A client of a Flower deployment.

    Attributes:
        client: id of the client.
        node: id of its Flower node.
        last_round: last round in which its update was aggregated; 0 before the first.
        registered: whether the operator of the server assigned the id.
    """

    __pydantic_config__: ClassVar = STRICT
    client: ClientId
    node: int
    last_round: int = 0
    registered: bool = False


@dataclass(frozen=True, repr=False)
class RunState:
    """State of a run between two rounds; the next round depends on nothing else.

    Attributes:
        round: number of finished rounds.
        server: the global models and the method's state.
        sampler: state of the sampler.
        server_optimizer: state of the server optimizer for each model.
        client_files: file that stores the state of a client, by index of the client; empty if
            clients have no state or keep it themselves.
        run: id of the run in a deployment, with which clients find the state that they keep.
        members: clients of a deployment.
        clock: simulated time.
        averages: moving average over rounds of each model, if the server optimizer asks for it.
        fallback: state to return to if this state makes the training of most clients diverge; None
            if the updates of the last round had usual sizes.
        suspects: clients whose updates of the last round are left out then.
    """

    round: int
    server: ServerState
    sampler: TensorState = field(default_factory=dict)
    server_optimizer: Mapping[str, TensorState] = field(default_factory=dict)
    client_files: Mapping[int, StoredFile] = field(default_factory=dict)
    run: str = ""
    members: tuple[Member, ...] = ()
    clock: float = 0.0
    averages: Mapping[str, ModelState] = field(default_factory=dict)
    fallback: "RunState | None" = None
    suspects: tuple[ClientId, ...] = ()

    __repr__ = short_repr

    @property
    def global_models(self) -> Mapping[str, ModelState]:
        """Models to test, store and return; clients train the models in ``server``."""
        return {**self.server.models, **self.averages}


@dataclass(frozen=True, repr=False)
class RoundResult:
    """Result of a finished round.

    Attributes:
        record: record of the round.
        evaluation: evaluation on the server's test set; None if there was no such test. If there
            are several models, the sum over clients, each with the model that it uses.
        state: state after the round.
    """

    record: RoundRecord
    evaluation: Evaluation | None
    state: RunState

    __repr__ = short_repr


OnRound: TypeAlias = Callable[[RoundResult], None]
"""A function that is called with the result of each round."""
