"""Tests of the global models: on the server, on clients, or both; the means of metrics."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TypeAlias

import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from torch import nn

from cadis.algorithm.tasks import Classification, Task
from cadis.errors import CadisError
from cadis.flower.client import Data, checked_examples
from cadis.flower.messages import count_in, finite_scalars, scalars_in
from cadis.flower.strategy_settings import MetricsFunction, StrategySettings
from cadis.models import FlatModel
from cadis.server import Tested, limited_counts
from cadis.training import Evaluation, evaluate

EvaluateFunction: TypeAlias = Callable[[int, ArrayRecord], MetricRecord | None]

_ALIASES = {"eval_acc": "accuracy", "eval_loss": "loss"}
"""What Flower's examples call the results of tests, and what we do."""


def server_test(model: nn.Module, data: Data, task: Task | None = None) -> EvaluateFunction:
    """Return an ``evaluate_fn`` that tests a global model on data that the server has.

    It tells ``accuracy``, ``loss``, the task's measures, and the ``confusion`` matrix row by row,
    of which the run folder's records and figures are made.

    Args:
        model: the architecture; it is not changed.
        data: examples that no client has.
        task: says what to measure, by default classification.
    """
    examples, asked = checked_examples(data, "The test set"), task or Classification()

    def test(_number: int, arrays: ArrayRecord) -> MetricRecord:
        copy = deepcopy(model)
        try:
            copy.load_state_dict(arrays.to_torch_state_dict())
        except RuntimeError as error:
            raise CadisError(f"The global model does not fit this client's: {error}") from None
        flat = FlatModel(copy)
        tested = evaluate(flat, examples.to(flat.vector.device), asked)
        confusion: list[int] = tested.confusion.flatten().tolist()
        metrics = {"accuracy": tested.accuracy, "loss": tested.loss, **tested.measures(asked)}
        return MetricRecord({**metrics, "confusion": confusion})

    return test


def combine_tests(
    central: Mapping[str, MetricRecord],
    federated: MetricRecord | None,
    users: Sequence[str],
    seconds: float,
) -> Tested:
    """Combine the server's test of each model, which counts more, with the mean of the clients'.

    ``users`` names the model that each client uses; it is empty if there is only one.
    """
    weights = [users.count(name) or 1 for name in central]
    scalars = mean_scalars([_rename(record) for record in central.values()], weights)
    if federated is not None and "accuracy" not in scalars:
        scalars = mean_scalars([_rename(federated)], [1])
    scalars.pop("num-examples", None)
    return Tested(
        evaluations=evaluations_in(central),
        accuracy=scalars.pop("accuracy", None),
        loss=scalars.pop("loss", None),
        measures=scalars,
        seconds=seconds,
    )


def join_metrics(
    contents: Sequence[RecordDict], settings: StrategySettings, own: MetricsFunction | None
) -> MetricRecord | None:
    """Make one record of the clients' metrics: by the user's own function, else their means.

    Numbers of samples in ``contents`` have been found good before.
    """
    if not contents:
        return None
    key = settings.weighted_by_key
    if own is not None:
        return own(list(contents), key)
    counts = limited_counts([count_in(content, key) for content in contents], settings.count_limit)
    means = mean_scalars([scalars_in(content) for content in contents], counts)
    return MetricRecord({name: mean for name, mean in means.items() if name != key})


def mean_scalars(
    records: Sequence[Mapping[str, float]], weights: Sequence[float]
) -> dict[str, float]:
    """Return the weighted means of the scalars that all records have."""
    names = [name for name in (records[0] if records else ()) if all(name in r for r in records)]
    return {
        name: sum(r[name] * w for r, w in zip(records, weights, strict=True)) / sum(weights)
        for name in names
    }


def evaluations_in(records: Mapping[str, MetricRecord]) -> dict[str, Evaluation]:
    """Return the tests by class of all models, if there is one of each."""
    found = {}
    for name, metrics in records.items():
        confusion = metrics.get("confusion")
        if not isinstance(confusion, list):
            return {}
        classes = round(len(confusion) ** 0.5)
        matrix = torch.tensor(confusion, dtype=torch.int64).view(classes, classes)
        found[name] = Evaluation(matrix, _rename(metrics).get("loss", 0.0) * int(matrix.sum()))
    return found


def join_models(records: Mapping[str, MetricRecord]) -> MetricRecord:
    """Return one record; of several models, with the model's name before each entry."""
    if len(records) == 1:
        return next(iter(records.values()))
    return MetricRecord({f"{m}.{k}": v for m, record in records.items() for k, v in record.items()})


def _rename(metrics: MetricRecord) -> dict[str, float]:
    """Return the finite scalars of a record, under our names."""
    scalars = finite_scalars(metrics)
    aliases = {ours: scalars.pop(theirs) for theirs, ours in _ALIASES.items() if theirs in scalars}
    return aliases | scalars
