"""Testing the global models after a round: on the server, on clients, or both."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TypeAlias

import torch
from flwr.app import ArrayRecord, MetricRecord
from torch import nn

from cadis.algorithm.tasks import Classification, Task
from cadis.errors import CadisError
from cadis.flower.client import Data, checked_examples
from cadis.flower.messages import finite_scalars
from cadis.flower.replies import mean_scalars
from cadis.models import FlatModel
from cadis.server import Tested
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
    """Return what is known of the global models; the server's tests count more than clients'.

    Args:
        central: by model, its test on the server.
        federated: the mean of the clients' tests.
        users: by client, the name of the model that it uses; empty if there is only one.
        seconds: that the tests took.
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
