"""Outcome of one round, and the :class:`RoundRecord` that is computed from it.

The server calls :func:`make_record` at the end of each round. The Flower strategy also logs the
outcomes of failed attempts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

from cadis.algorithm import Aggregation
from cadis.algorithm.tasks import Task
from cadis.errors import CadisError
from cadis.server.part_calls import catch_part_errors
from cadis.server.records import (
    ModelRecord,
    Rejection,
    RoundRecord,
    RunState,
    Seconds,
    to_json_array,
)
from cadis.server.transport import TestResult
from cadis.server.validation import MAX_SCALAR
from cadis.training import Evaluation
from cadis.types import ClientId, ClientUpdate


@dataclass(frozen=True)
class UpdateSummary:
    """The facts about an update that are kept after aggregation; it has no tensors."""

    client_id: ClientId
    num_samples: int
    models: tuple[str, ...]
    scalars: Mapping[str, float]

    @classmethod
    def from_update(cls, update: ClientUpdate) -> "UpdateSummary":
        """Return the summary of an update."""
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
        excessive_counts: number of samples that a client reported, for each client that reported
            too many. Its update has the maximum number instead.
        aggregation: result of the method; None if there were too few valid updates.
        state: state after the round; None if there were too few valid updates.
        seconds: time of validation, aggregation and server optimizer.
        has_diverged: whether there is no state because training diverged for most participants.
    """

    updates: Sequence[UpdateSummary]
    rejected: Sequence[Rejection]
    excessive_counts: Mapping[ClientId, int] = field(default_factory=dict)
    aggregation: Aggregation | None = None
    state: RunState | None = None
    seconds: float = 0.0
    has_diverged: bool = False


def make_record(
    round_number: int,
    outcome: RoundOutcome,
    test_result: TestResult,
    seconds: Seconds,
    client_models: Sequence[str],
    task: Task,
) -> tuple[RoundRecord, Evaluation | None]:
    """Return the record of a round, and the evaluation on the server's test set.

    Args:
        round_number: number of the round, from 1.
        outcome: updates and aggregation of the round.
        test_result: test results of the global models.
        seconds: time of each part of the round.
        client_models: name of the model that each client uses; empty if there is one model.
        task: computes the metrics.

    Returns:
        The record; and the evaluation, None if there was no such test. If there are several
        models, it is the sum over clients, each with the model that it uses.
    """
    updates, aggregation = outcome.updates, outcome.aggregation
    assert aggregation is not None
    assert outcome.state is not None
    evaluation = combine_evaluations(test_result.evaluations, client_models)
    clients_per_model = Counter(client_models)
    class_accuracy = [] if evaluation is None else evaluation.class_accuracy.tolist()
    record = RoundRecord(
        round=round_number,
        accuracy=evaluation.accuracy if evaluation else test_result.accuracy,
        loss=_finite_or_none(evaluation.loss if evaluation else test_result.loss),
        class_accuracy=[_finite_or_none(accuracy) for accuracy in class_accuracy],
        participants=[update.client_id for update in updates],
        weights=aggregation.weights.tolist(),
        rejected=list(outcome.rejected),
        seconds=seconds,
        client_accuracy=test_result.client_accuracy,
        capped=list(outcome.excessive_counts),
        report={name: to_json_array(array) for name, array in aggregation.report.items()},
        metrics=_compute_metrics(test_result, clients_per_model, task),
        client_loss=[_finite_or_none(update.scalars.get("train_loss")) for update in updates],
        models=[
            _make_model_record(name, clients_per_model[name], test_result.evaluations.get(name))
            for name in (outcome.state.server.models if client_models else ())
        ],
        client_models=[update.model_name for update in updates] if client_models else [],
    )
    return record, evaluation


def _make_model_record(name: str, clients: int, evaluation: Evaluation | None) -> ModelRecord:
    if evaluation is None:
        return ModelRecord(name, clients, None, None)
    return ModelRecord(name, clients, evaluation.accuracy, _finite_or_none(evaluation.loss))


def combine_evaluations(
    evaluations: Mapping[str, Evaluation], client_models: Sequence[str]
) -> Evaluation | None:
    """Return the sum over clients of the evaluation of the model that each client uses.

    Args:
        evaluations: evaluation of each model; a single evaluation is returned unchanged.
        client_models: name of the model that each client of the federation uses.

    Returns:
        The sum; None if there are no evaluations.
    """
    if len(evaluations) < 2:
        return next(iter(evaluations.values()), None)
    clients_per_model = Counter(client_models)
    used = (name for name in evaluations if clients_per_model[name])
    return reduce(add, (evaluations[name].repeat(clients_per_model[name]) for name in used))


def _compute_metrics(
    test_result: TestResult, clients_per_model: Mapping[str, int], task: Task
) -> dict[str, float | None]:
    """Return the mean over models of each metric, weighted by the number of clients per model.

    Metrics that clients sent replace metrics that are computed from the evaluations.

    Args:
        test_result: test results of the global models.
        clients_per_model: number of clients that use each model; empty if there is one model.
        task: computes the metrics.
    """
    evaluations = test_result.evaluations
    with catch_part_errors(task, "compute_metrics"):
        by_model = {name: e.compute_metrics(task) for name, e in evaluations.items()}
        weights = {
            name: clients_per_model.get(name, 0) if clients_per_model else 1 for name in by_model
        }
        means = {
            metric: sum(by_model[name][metric] * weights[name] for name in by_model)
            / sum(weights.values())
            for metric in next(iter(by_model.values()), {})
        }
        values = {**means, **test_result.metrics}
        metrics = {name: _finite_or_none(value) for name, value in values.items()}
    has_metrics = test_result.metrics or any(len(e.outputs) for e in evaluations.values())
    if has_metrics and task.main_metric not in ("accuracy", *metrics):
        raise CadisError(
            f"The main metric of the task {task.name} is {task.main_metric}, but the task computes "
            f"only: {', '.join(metrics)}; choose one of them."
        )
    return metrics


def _finite_or_none(value: float | None) -> float | None:
    """Return None for NaN, infinite and absurd values, which a mean in a report cannot have."""
    return value if value is not None and abs(value) <= MAX_SCALAR else None
