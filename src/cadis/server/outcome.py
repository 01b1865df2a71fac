"""Outcome of one round, and the :class:`RoundRecord` that is computed from it.

The server calls :func:`make_record` at the end of each round; the Flower strategy reads the outcome
of failed attempts as well.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import isfinite
from operator import add

from cadis.algorithm import Aggregation
from cadis.algorithm.tasks import Task
from cadis.errors import CadisError
from cadis.server.records import (
    ModelRecord,
    Rejection,
    RoundRecord,
    RunState,
    Seconds,
    to_json_array,
)
from cadis.server.transport import TestResult
from cadis.server.user_errors import catch_part_errors
from cadis.training import Evaluation
from cadis.types import ClientId, ClientUpdate


@dataclass(frozen=True)
class UpdateSummary:
    """An update without its tensors, kept after aggregation."""

    client_id: ClientId
    num_samples: int
    models: tuple[str, ...]
    scalars: Mapping[str, float]

    @classmethod
    def from_update(cls, update: ClientUpdate) -> "UpdateSummary":
        """Copy the fields that are not tensors."""
        message = update.message
        return cls(update.client_id, update.num_samples, tuple(message.models), message.scalars)

    @property
    def model_name(self) -> str:
        """Name of the only model in the update."""
        if len(self.models) != 1:
            raise CadisError(
                f"The update of client {self.client_id} has {len(self.models)} models; a client "
                "must send exactly one."
            )
        return self.models[0]


@dataclass(frozen=True)
class RoundOutcome:
    """Result of an attempt to do a round, before the global models are tested.

    Attributes:
        updates: the valid updates, in the order of the plan.
        rejected: clients without a valid update, and the reasons.
        capped: number of samples that a client reported, for clients whose number was reduced.
        aggregation: what the method returned; None if there were too few valid updates.
        state: state after the round; None if there were too few valid updates.
        seconds: time of the aggregation.
    """

    updates: Sequence[UpdateSummary]
    rejected: Sequence[Rejection]
    capped: Mapping[ClientId, int] = field(default_factory=dict)
    aggregation: Aggregation | None = None
    state: RunState | None = None
    seconds: float = 0.0


def make_record(
    number: int,
    outcome: RoundOutcome,
    result: TestResult,
    seconds: Seconds,
    client_models: Sequence[str],
    task: Task,
) -> tuple[RoundRecord, Evaluation | None]:
    """Return the record of a round and the evaluation over all clients.

    Args:
        number: number of the round, from 1.
        outcome: updates and aggregation of the round.
        result: test results of the global models.
        seconds: time of each part of the round.
        client_models: name of the model that each client uses; empty if there is one model.
        task: computes the metrics.

    Returns:
        The record, and the evaluation on the server's test set, None if there is no test set.
    """
    updates, aggregation = outcome.updates, outcome.aggregation
    assert aggregation is not None
    assert outcome.state is not None
    evaluation = combine_evaluations(result.evaluations, client_models)
    num_users = Counter(client_models)
    by_class = [] if evaluation is None else evaluation.class_accuracy.tolist()
    record = RoundRecord(
        round=number,
        accuracy=evaluation.accuracy if evaluation else result.accuracy,
        loss=_finite(evaluation.loss if evaluation else result.loss),
        class_accuracy=[_finite(accuracy) for accuracy in by_class],
        participants=[update.client_id for update in updates],
        weights=aggregation.weights.tolist(),
        rejected=list(outcome.rejected),
        seconds=seconds,
        client_accuracy=result.client_accuracy,
        capped=list(outcome.capped),
        report={name: to_json_array(array) for name, array in aggregation.report.items()},
        measures=_compute_metrics(result, num_users, task),
        client_loss=[_finite(update.scalars.get("train_loss")) for update in updates],
        models=[
            _make_model_record(name, num_users[name], result.evaluations.get(name))
            for name in (outcome.state.server.models if client_models else ())
        ],
        client_models=[update.model_name for update in updates] if client_models else [],
    )
    return record, evaluation


def _make_model_record(name: str, clients: int, evaluation: Evaluation | None) -> ModelRecord:
    if evaluation is None:
        return ModelRecord(name, clients, None, None)
    return ModelRecord(name, clients, evaluation.accuracy, _finite(evaluation.loss))


def combine_evaluations(
    evaluations: Mapping[str, Evaluation], client_models: Sequence[str]
) -> Evaluation | None:
    """Return the sum of evaluations, each multiplied by the number of clients that use the model.

    Args:
        evaluations: evaluation of each model; a single one is returned unchanged.
        client_models: name of the model that each client of the federation uses.
    """
    if len(evaluations) < 2:
        return next(iter(evaluations.values()), None)
    num_users = Counter(client_models)
    return reduce(add, (e.repeat(num_users[n]) for n, e in evaluations.items() if num_users[n]))


def _compute_metrics(
    result: TestResult, num_users: Mapping[str, int], task: Task
) -> dict[str, float | None]:
    """Return the mean over clients of each metric besides accuracy.

    Metrics that clients sent replace those that are computed from the confusion matrices.
    """
    evaluations = result.evaluations
    with catch_part_errors(task, "compute_metrics"):
        by_model = {name: e.compute_metrics(task) for name, e in evaluations.items()}
        weights = {name: num_users.get(name, 0) if num_users else 1 for name in by_model}
        means = {
            metric: sum(values[metric] * weights[name] for name, values in by_model.items())
            / sum(weights.values())
            for metric in next(iter(by_model.values()), {})
        }
        metrics = {name: _finite(value) for name, value in {**means, **result.metrics}.items()}
    is_complete = result.metrics or any(len(e.outputs) for e in evaluations.values())
    if is_complete and task.main_metric not in ("accuracy", *metrics):
        raise CadisError(
            f"The main metric of the task {task.name} is {task.main_metric}, but the task computes "
            f"only: {', '.join(metrics)}; choose one of them."
        )
    return metrics


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
