"""Testing the global models after a round: on the server, on clients, or both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result
from torch import nn

from cadis.algorithm.tasks import Classification, Task
from cadis.data import as_examples
from cadis.flower.client import Data, load_arrays
from cadis.flower.replies import mean_metrics
from cadis.flower.strategy_settings import StrategySettings
from cadis.server import RunState, Tested
from cadis.training import Evaluation, evaluate
from cadis.types import ClientId

if TYPE_CHECKING:
    from cadis.flower.transport import FlowerTransport

EvaluateFunction: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]

_ACCURACY = ("accuracy", "eval_acc")
_LOSS = ("loss", "eval_loss")
"""What tests are called, in Flower's examples too."""


def server_test(model: nn.Module, data: Data, task: Task | None = None) -> EvaluateFunction:
    """An ``evaluate_fn`` that tests a global model on data that the server has.

    It tells ``accuracy``, ``loss``, the task's measures, and the ``confusion`` matrix row by row,
    of which the run folder's records and figures are made.

    Args:
        model: the architecture; it is not changed.
        data: examples that no client has.
        task: says what to measure, by default classification.
    """
    examples, asked = as_examples(data, "The test set"), task or Classification()
    examples.check("The test set")

    def test(_number: int, arrays: ArrayRecord) -> MetricRecord:
        flat = load_arrays(model, arrays)
        tested = evaluate(flat, examples.to(flat.vector.device), asked)
        confusion: list[int] = tested.confusion.flatten().tolist()
        return MetricRecord(
            {
                "accuracy": tested.accuracy,
                "loss": tested.loss,
                **tested.measures(asked),
                "confusion": confusion,
            }
        )

    return test


@dataclass(frozen=True)
class Testing:
    """How the global models are tested after a round.

    Attributes:
        evaluate_fn: tests a model on the server.
        config: what clients are to know when they test.
        result: where Flower's users look for what was found.
    """

    evaluate_fn: EvaluateFunction | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    result: Result = field(default_factory=Result)

    def test(
        self,
        transport: "FlowerTransport",
        state: RunState,
        model_name_for: Callable[[ClientId], str],
    ) -> Tested:
        """Test on clients, and on the server."""
        started = perf_counter()
        federated = self._federated(transport, state, model_name_for)
        central = self.central(transport, state)
        evaluations = evaluations_in(central)
        users = (
            [model_name_for(client) for client in transport.everyone()] if len(central) > 1 else []
        )
        records = [(metrics, users.count(name) or 1) for name, metrics in central.items()]
        if federated is not None:
            records = records if _mean(records, _ACCURACY) is not None else [(federated, 1)]
        return Tested(
            evaluations=evaluations,
            accuracy=_mean(records, _ACCURACY),
            loss=_mean(records, _LOSS),
            measures=_measures(records),
            seconds=perf_counter() - started,
        )

    def central(self, transport: "FlowerTransport", state: RunState) -> dict[str, MetricRecord]:
        """Test every model on the server."""
        if self.evaluate_fn is None:
            return {}
        found = {}
        for name, model in state.server.models.items():
            arrays = ArrayRecord(transport.layout.unpack(model))
            metrics = self.evaluate_fn(state.round, arrays)
            if metrics is not None:
                found[name] = metrics
        if found:
            self.result.evaluate_metrics_serverapp[state.round] = _joined(found)
        return found

    def _federated(
        self,
        transport: "FlowerTransport",
        state: RunState,
        model_name_for: Callable[[ClientId], str],
    ) -> MetricRecord | None:
        """Test on clients, each by the model that it uses."""
        messages = transport.ask_to_test(state, model_name_for, self.config)
        if not messages:
            return None
        replies = transport.grid.send_and_receive(messages, timeout=transport.timeout)
        metrics = tests_together(transport.take_tests(replies), transport.settings)
        if metrics is not None:
            self.result.evaluate_metrics_clientapp[state.round] = metrics
        return metrics


def tests_together(replies: list[RecordDict], settings: StrategySettings) -> MetricRecord | None:
    """One record of what clients have found."""
    given = settings.evaluate_metrics_aggr_fn
    if given is not None and replies:
        return given(replies, settings.weighted_by_key)
    return mean_metrics(replies, settings.weighted_by_key, settings.count_limit)


def evaluations_in(records: Mapping[str, MetricRecord]) -> dict[str, Evaluation]:
    """The tests by class of all models, if there is one of each."""
    found = {
        name: evaluation
        for name, metrics in records.items()
        if (evaluation := _evaluation_in(metrics)) is not None
    }
    return found if len(found) == len(records) else {}


def _evaluation_in(metrics: MetricRecord) -> Evaluation | None:
    """The confusion matrix and loss in a record, if it has them."""
    confusion = metrics.get("confusion")
    if not isinstance(confusion, list):
        return None
    classes = round(len(confusion) ** 0.5)
    matrix = torch.tensor(confusion, dtype=torch.int64).view(classes, classes)
    return Evaluation(matrix, (_first(metrics, _LOSS) or 0.0) * int(matrix.sum()))


def _measures(records: list[tuple[MetricRecord, int]]) -> dict[str, float]:
    """All scalars besides accuracy and loss that every record has."""
    known = {*_ACCURACY, *_LOSS, "confusion", "num-examples"}
    names = [
        name
        for name in (records[0][0] if records else ())
        if name not in known and all(_first(record, (name,)) is not None for record, _ in records)
    ]
    return {name: value for name in names if (value := _mean(records, (name,))) is not None}


def _mean(records: list[tuple[MetricRecord, int]], names: tuple[str, ...]) -> float | None:
    """The mean of a scalar over the clients that each record counts for."""
    found = [(value, n) for record, n in records if (value := _first(record, names)) is not None]
    if not found or len(found) < len(records):
        return None
    if len(found) == 1:
        return found[0][0]
    return sum(value * n for value, n in found) / sum(n for _, n in found)


def _joined(found: Mapping[str, MetricRecord]) -> MetricRecord:
    """One record; of several models, with the model's name before each entry."""
    if len(found) == 1:
        return next(iter(found.values()))
    return MetricRecord({f"{m}.{k}": v for m, record in found.items() for k, v in record.items()})


def _first(metrics: MetricRecord, names: tuple[str, ...]) -> float | None:
    """The first of these scalars that there is; None if it is infinite or no number."""
    found = [metrics[name] for name in names if name in metrics]
    if not found or not isinstance(found[0], int | float):
        return None
    return float(found[0]) if isfinite(found[0]) else None
