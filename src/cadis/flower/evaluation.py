"""Evaluation of the global models on the server and on clients, and aggregation of metrics."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from math import inf
from typing import TypeAlias

import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from torch import nn

from cadis.algorithm.tasks import Classification, Task
from cadis.errors import CadisError
from cadis.flower.client import Data, prepare_samples
from cadis.flower.messages import read_num_samples, read_scalars, select_finite
from cadis.flower.strategy_settings import MetricsFunction, StrategySettings
from cadis.models import FlatModel
from cadis.server import MAX_SCALAR, TestResult, limit_counts
from cadis.training import Evaluation, evaluate

EvaluateFunction: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]

_ALIASES = {"eval_acc": "accuracy", "eval_loss": "loss"}
"""Names of metrics in Flower's example apps, and the names that cadis uses for them."""


def server_test(model: nn.Module, data: Data, task: Task | None = None) -> EvaluateFunction:
    """Return an ``evaluate_fn`` that evaluates a global model on data of the server.

    Args:
        model: a model with the architecture of the global model; it is not changed.
        data: the test set of the server.
        task: defines the metrics, by default classification.

    Returns:
        A function for ``strategy.start(evaluate_fn=...)``. Its record has ``accuracy``, ``loss``,
        the metrics of the task, and the ``confusion`` matrix row by row, which the records and
        figures of the run folder need.

    Example:
        >>> from flwr.app import ArrayRecord
        >>> model = torch.nn.Linear(2, 3)
        >>> evaluate_fn = server_test(model, (torch.randn(9, 2), torch.arange(9) % 3))
        >>> metrics = evaluate_fn(1, ArrayRecord(model.state_dict()))
        >>> len(metrics["confusion"])
        9
    """
    samples = prepare_samples(data, "The test set")
    used_task = task or Classification()

    def test(_number: int, arrays: ArrayRecord) -> MetricRecord:
        copy = deepcopy(model)
        try:
            copy.load_state_dict(arrays.to_torch_state_dict())
        except RuntimeError as error:
            raise CadisError(
                f"The global model does not fit the model for the test: {error}"
            ) from None
        flat = FlatModel(copy)
        evaluation = evaluate(flat, samples.to(flat.vector.device), used_task)
        confusion: list[int] = evaluation.confusion.flatten().tolist()
        metrics = {
            "accuracy": evaluation.accuracy,
            "loss": evaluation.loss,
            **evaluation.compute_metrics(used_task),
        }
        return MetricRecord({**metrics, "confusion": confusion})

    return test


def make_test_result(
    central: Mapping[str, MetricRecord],
    federated: MetricRecord | None,
    client_models: Sequence[str],
    seconds: float,
) -> TestResult:
    """Combine the evaluation on the server with the mean evaluation on clients.

    Accuracy and loss come from the server if it evaluates, else from the clients.

    Args:
        central: metrics on the server, by name of the model.
        federated: mean metrics on clients, if any.
        client_models: name of the model that each client uses; empty if there is one model only.
        seconds: duration of the evaluation.
    """
    weights = [client_models.count(name) or 1 for name in central]
    scalars = average_scalars([_apply_aliases(record) for record in central.values()], weights)
    if federated is not None and "accuracy" not in scalars:
        scalars = average_scalars([_apply_aliases(federated)], [1])
    scalars.pop("num-examples", None)
    return TestResult(
        evaluations=read_evaluations(central),
        accuracy=scalars.pop("accuracy", None),
        loss=scalars.pop("loss", None),
        metrics=scalars,
        seconds=seconds,
    )


def aggregate_metrics(
    contents: Sequence[RecordDict],
    settings: StrategySettings,
    aggregate_fn: MetricsFunction | None,
) -> MetricRecord | None:
    """Aggregate the metrics of replies with the user's function, or average them.

    The caller has checked the numbers of samples in ``contents``.
    """
    if not contents:
        return None
    key = settings.weighted_by_key
    if aggregate_fn is not None:
        return aggregate_fn(list(contents), key)
    num_samples = [read_num_samples(content, key) for content in contents]
    counts = limit_counts(num_samples, settings.count_limit)
    means = average_scalars([read_scalars(content) for content in contents], counts)
    return MetricRecord({name: mean for name, mean in means.items() if name != key})


def average_scalars(
    records: Sequence[Mapping[str, float]], weights: Sequence[float]
) -> dict[str, float]:
    """Return the weighted mean of each scalar that all records contain, and that is not absurd."""
    names = [
        name
        for name in (records[0] if records else ())
        if all(abs(record.get(name, inf)) <= MAX_SCALAR for record in records)
    ]
    return {
        name: sum(r[name] * w for r, w in zip(records, weights, strict=True)) / sum(weights)
        for name in names
    }


def read_evaluations(records: Mapping[str, MetricRecord]) -> dict[str, Evaluation]:
    """Return the evaluation of each model; empty if a confusion matrix is missing."""
    evaluations = {}
    for name, metrics in records.items():
        confusion = metrics.get("confusion")
        if not isinstance(confusion, list):
            return {}
        classes = round(len(confusion) ** 0.5)
        matrix = torch.tensor(confusion, dtype=torch.int64).view(classes, classes)
        evaluations[name] = Evaluation(
            matrix, _apply_aliases(metrics).get("loss", 0.0) * int(matrix.sum())
        )
    return evaluations


def merge_model_metrics(records: Mapping[str, MetricRecord]) -> MetricRecord:
    """Return one record; for several models, prefix each metric with the name of the model."""
    if len(records) == 1:
        return next(iter(records.values()))
    return MetricRecord({f"{m}.{k}": v for m, record in records.items() for k, v in record.items()})


def _apply_aliases(metrics: MetricRecord) -> dict[str, float]:
    """Return the finite scalars of a record under the names that cadis uses."""
    scalars = select_finite(metrics)
    aliases = {ours: scalars.pop(theirs) for theirs, ours in _ALIASES.items() if theirs in scalars}
    return aliases | scalars
