"""What is remembered of a round."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cadis._io import short_repr
from cadis.algorithm import ServerState
from cadis.server.arrays import STRICT, PackedMatrix, Stored
from cadis.training import Evaluation
from cadis.types import ClientId, TensorState


@dataclass(frozen=True)
class StoredFile:
    """A file, and what it must hold.

    Attributes:
        name: its name within the folder that it is kept in.
        sha256: the digest of its content.
    """

    name: str
    sha256: str


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
    """A finished round: what to remember, and what to go on from.

    Attributes:
        record: what to remember of it.
        evaluation: the test on the test set, None if there was none by class.
        state: what to go on from.
    """

    record: RoundRecord
    evaluation: Evaluation | None
    state: RunState

    __repr__ = short_repr


OnRound: TypeAlias = Callable[[RoundResult], None]
"""Called with the result of each round."""
