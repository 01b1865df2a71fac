"""What is remembered of a round."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, isnan
from typing import ClassVar

from torch import Tensor

from cadis.core import ClientId, ModelState
from cadis.methods import Aggregation, ClientUpdate, TensorState
from cadis.runs.files import StoredFile
from cadis.runs.shapes import STRICT
from cadis.training import Evaluation


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
class RoundRecord:
    """One line of ``history.jsonl``; numbers and lists only.

    Attributes:
        round: from 1.
        accuracy: top-1 accuracy of the new global model on the test set, None if none was tested.
        loss: its mean cross-entropy, None if that is infinite or unknown.
        class_accuracy: accuracy on each class, None where there is no test example; empty if
            nobody tested by class.
        participants: whose updates were aggregated; the lists below are in this order.
        clusters: their clusters, None for methods that look for none.
        weights: their weights.
        similarity: their instance similarities (rows), None for methods that measure none.
        threshold: the threshold for neighbours, None for methods that have none.
        rejected: who was left out, and why.
        seconds: where the time went.
        client_accuracy: accuracy of the new global model on every client's own data, in the
            federation's order; None in rounds in which it was not measured.
        capped: which participants said that they have far more samples than the others, and were
            weighed as if they had fewer.
    """

    __pydantic_config__: ClassVar = STRICT
    round: int
    accuracy: float | None
    loss: float | None
    class_accuracy: list[float | None]
    participants: list[ClientId]
    clusters: list[int] | None
    weights: list[float]
    similarity: list[list[float]] | None
    threshold: float | None
    rejected: list[Rejection]
    seconds: Seconds
    client_accuracy: list[float] | None = None
    capped: list[ClientId] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """A JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class ClientShape:
    """A client in ``federation.json``: its samples per class and its true cluster, if known."""

    __pydantic_config__: ClassVar = STRICT
    id: ClientId
    cluster: int | None
    samples: list[int] | None


@dataclass(frozen=True)
class FederationShape:
    """What ``federation.json`` must look like."""

    __pydantic_config__: ClassVar = STRICT
    classes: list[str]
    clients: list[ClientShape]


@dataclass(frozen=True)
class SummaryShape:
    """What ``summary.json`` must look like, as far as anybody relies on it."""

    method: str
    rounds: int
    accuracy: float | None
    loss: float | None
    best_accuracy: float | None
    best_round: int
    rare_classes: list[int]
    rare_accuracy: float | None
    rejected: int
    confusion: list[list[int]] | None
    seconds: dict[str, float]
    versions: dict[str, str]
    clusters_found: int = 0
    cluster_agreement: float | None = None
    round_agreement: float | None = None


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


@dataclass(frozen=True)
class RunState:
    """All that the next round depends on.

    Attributes:
        round: rounds done.
        model: the global model.
        method_state: the method's memory on the server.
        client_files: by client number, the file that holds its memory, if it is kept here.
        run: a deployment's name for the run, by which clients find their memories.
        members: who is who in a deployment.
    """

    round: int
    model: ModelState
    method_state: TensorState
    client_files: Mapping[int, StoredFile] = field(default_factory=dict)
    run: str = ""
    members: tuple[Member, ...] = ()


@dataclass(frozen=True)
class RoundResult:
    """A finished round: what to remember, and what to go on from."""

    record: RoundRecord
    evaluation: Evaluation
    state: RunState


def record_of(
    number: int,
    updates: Sequence[ClientUpdate],
    aggregation: Aggregation,
    evaluation: Evaluation | None,
    rejected: list[Rejection],
    seconds: Seconds,
    client_accuracy: list[float] | None = None,
) -> RoundRecord:
    """A round in numbers and lists."""
    similarity = aggregation.similarity
    accuracy = loss = None
    by_class: list[float | None] = []
    if evaluation is not None:
        accuracy = evaluation.accuracy
        loss = evaluation.loss if isfinite(evaluation.loss) else None
        by_class = [None if isnan(a) else a for a in evaluation.class_accuracy.tolist()]
    return RoundRecord(
        round=number,
        accuracy=accuracy,
        loss=loss,
        class_accuracy=by_class,
        participants=[update.client_id for update in updates],
        clusters=None if aggregation.clusters is None else aggregation.clusters.tolist(),
        weights=aggregation.weights.tolist(),
        similarity=None if similarity is None else _rounded(similarity),
        threshold=aggregation.threshold,
        rejected=rejected,
        seconds=seconds,
        client_accuracy=client_accuracy,
    )


def _rounded(matrix: Tensor) -> list[list[float]]:
    """Rows of numbers with as many digits as are worth keeping."""
    return [[round(value, 6) for value in row] for row in matrix.tolist()]
