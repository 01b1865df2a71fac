"""A round in numbers and lists."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import isfinite
from operator import add

from cadis.algorithm import Aggregation
from cadis.algorithm.tasks import Task
from cadis.errors import CadisError
from cadis.server.records import ModelRecord, Rejection, RoundRecord, RunState, Seconds, numbers
from cadis.server.transport import Tested
from cadis.server.user_errors import calling
from cadis.training import Evaluation
from cadis.types import ClientId, ClientUpdate


@dataclass(frozen=True)
class UpdateSummary:
    """What is kept of an update when it has been aggregated: names of its models, no tensors."""

    client_id: ClientId
    num_examples: int
    models: tuple[str, ...]
    scalars: Mapping[str, float]

    @classmethod
    def by(cls, update: ClientUpdate) -> "UpdateSummary":
        """Summarise an update."""
        message = update.message
        return cls(update.client_id, update.num_examples, tuple(message.models), message.scalars)

    @property
    def model_name(self) -> str:
        """The name of the only model."""
        if len(self.models) != 1:
            raise CadisError(f"The update of {self.client_id} holds {len(self.models)} models.")
        return self.models[0]


@dataclass(frozen=True)
class RoundOutcome:
    """What came of a round's answers.

    Attributes:
        updates: those that could be used, in the order of the plan.
        rejected: who was left out, and why.
        capped: what those said of their number of samples that count for fewer.
        aggregation: the aggregated models, and why; None if there are too few good updates.
        state: what the next round depends on, likewise.
        seconds: that aggregating took.
    """

    updates: Sequence[UpdateSummary]
    rejected: Sequence[Rejection]
    capped: Mapping[ClientId, int] = field(default_factory=dict)
    aggregation: Aggregation | None = None
    state: RunState | None = None
    seconds: float = 0.0


def record_of(
    number: int,
    outcome: RoundOutcome,
    tested: Tested,
    seconds: Seconds,
    users: Sequence[str],
    task: Task,
) -> tuple[RoundRecord, Evaluation | None]:
    """A round's record, and the test of what clients get, if there was any by class.

    Users are the models that each client of the federation uses, where there are several.
    """
    updates, aggregation = outcome.updates, outcome.aggregation
    assert aggregation is not None
    assert outcome.state is not None
    evaluation, clients = together(tested.evaluations, users), Counter(users)
    measures = _checked_measures(tested, clients, task)
    by_class = [] if evaluation is None else evaluation.class_accuracy.tolist()
    record = RoundRecord(
        round=number,
        accuracy=evaluation.accuracy if evaluation else tested.accuracy,
        loss=_finite(evaluation.loss if evaluation else tested.loss),
        class_accuracy=[_finite(accuracy) for accuracy in by_class],
        participants=[update.client_id for update in updates],
        weights=aggregation.weights.tolist(),
        rejected=list(outcome.rejected),
        seconds=seconds,
        client_accuracy=tested.client_accuracy,
        capped=list(outcome.capped),
        report={name: numbers(array) for name, array in aggregation.report.items()},
        measures=measures,
        client_loss=[_finite(update.scalars.get("train_loss")) for update in updates],
        models=[
            _model_record(name, clients[name], tested.evaluations.get(name))
            for name in (outcome.state.server.models if users else ())
        ],
        client_models=[update.model_name for update in updates] if users else [],
    )
    return record, evaluation


def _model_record(name: str, clients: int, evaluation: Evaluation | None) -> ModelRecord:
    found = (evaluation.accuracy, _finite(evaluation.loss)) if evaluation else (None, None)
    return ModelRecord(name, clients, *found)


def together(evaluations: Mapping[str, Evaluation], users: Sequence[str]) -> Evaluation | None:
    """What clients get: each model counts for all who use it; a single one as it is.

    Users are the models that each client of the federation uses, where there are several.
    """
    if len(evaluations) < 2:
        return next(iter(evaluations.values()), None)
    clients = Counter(users)
    used = [e.times(clients[name]) for name, e in evaluations.items() if clients[name]]
    return reduce(add, used)


def _checked_measures(
    tested: Tested, clients: Mapping[str, int], task: Task
) -> dict[str, float | None]:
    """Further measures, averaged over the clients by the model that each uses.

    What whoever has tested tells of them goes before what the confusion matrices say. A headline
    that is none of them is refused.
    """
    evaluations = tested.evaluations
    with calling(task, "measures"):
        found = {name: evaluation.measures(task) for name, evaluation in evaluations.items()}
        shares = {name: clients.get(name, 0) if clients else 1 for name in found}
        means = {
            measure: sum(each[measure] * shares[name] for name, each in found.items())
            / sum(shares.values())
            for measure in next(iter(found.values()), {})
        }
        measures = {name: _finite(value) for name, value in {**means, **tested.measures}.items()}
    told_all = tested.measures or any(len(e.outputs) for e in evaluations.values())
    if told_all and task.headline not in ("accuracy", *measures):
        told = ", ".join(measures)
        raise CadisError(f"The headline of {task.name} is {task.headline}, none of: {told}.")
    return measures


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
