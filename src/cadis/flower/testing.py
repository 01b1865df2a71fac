"""Testing the global model after a round: on the server, on clients, or both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from cadis.data import as_examples
from cadis.flower.client import Data, load_arrays
from cadis.training import evaluate

EvaluateFunction: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]


def server_test(model: nn.Module, data: Data) -> EvaluateFunction:
    """An ``evaluate_fn`` that tests the global model on data that the server has.

    It tells ``accuracy``, ``loss``, and the ``confusion`` matrix row by row, of which the run
    folder's records and figures are made.

    Args:
        model: the architecture; it is not changed.
        data: examples that no client has.
    """
    examples = as_examples(data, "The test set")
    examples.check("The test set")

    def test(_number: int, arrays: ArrayRecord) -> MetricRecord:
        flat = load_arrays(model, arrays)
        tested = evaluate(flat, examples.to(flat.vector.device))
        confusion: list[int] = tested.confusion.flatten().tolist()
        return MetricRecord(
            {"accuracy": tested.accuracy, "loss": tested.loss, "confusion": confusion}
        )

    return test


@dataclass(frozen=True)
class Tests:
    """How the global model is tested after a round.

    Attributes:
        strategy: chooses clients.
        grid: Flower's connection to them.
        config: what they are to know.
        evaluate_fn: tests on the server.
        timeout: seconds to wait for clients.
    """

    strategy: Strategy
    grid: Grid
    config: ConfigRecord
    evaluate_fn: EvaluateFunction | None
    timeout: float

    def federated(self, number: int, result: Result) -> MetricRecord | None:
        """Test on clients."""
        messages = list(
            self.strategy.configure_evaluate(number, result.arrays, self.config, self.grid)
        )
        if not messages:
            return None
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        metrics = self.strategy.aggregate_evaluate(number, replies)
        if metrics is not None:
            result.evaluate_metrics_clientapp[number] = metrics
        return metrics

    def central(self, number: int, result: Result) -> MetricRecord | None:
        """Test on the server."""
        metrics = self.evaluate_fn(number, result.arrays) if self.evaluate_fn else None
        if metrics is not None:
            result.evaluate_metrics_serverapp[number] = metrics
        return metrics
