"""A round on Flower as a line of ``history.jsonl``."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite

import torch
from flwr.app import MetricRecord

from cadis.flower.gathering import LOGGER
from cadis.flower.replies import Outcome
from cadis.runs import RoundRecord, Seconds, record_of
from cadis.training import Evaluation

_ACCURACY = ("accuracy", "eval_acc")
_LOSS = ("loss", "eval_loss")
"""What tests are called, in Flower's examples too."""


def record_round(
    number: int,
    outcome: Outcome,
    tests: Sequence[MetricRecord | None],
    testing: float,
    total: float,
) -> RoundRecord:
    """A successful round in numbers and lists.

    Args:
        number: the round.
        outcome: what came of it.
        tests: of the new global model; the first that tells an accuracy counts.
        testing: seconds that they took.
        total: seconds that the round took.
    """
    assert outcome.aggregation is not None
    told = [update.metrics.get("train-seconds") for update in outcome.updates]
    seconds = Seconds(
        train=outcome.waited if None in told else sum(s for s in told if s is not None),
        aggregate=outcome.aggregated,
        evaluate=testing,
        total=total,
    )
    found = [evaluation for test in tests if (evaluation := evaluation_in(test)) is not None]
    record = record_of(
        number,
        outcome.updates,
        outcome.aggregation,
        found[0] if found else None,
        outcome.rejected,
        seconds,
    )
    record = replace(record, capped=list(outcome.capped))
    for test in tests:
        if record.accuracy is None and test is not None:
            record = replace(record, accuracy=_first(test, _ACCURACY), loss=_first(test, _LOSS))
    return record


def evaluation_in(metrics: MetricRecord | None) -> Evaluation | None:
    """The confusion matrix and loss in a record, if it has them."""
    confusion = metrics.get("confusion") if metrics is not None else None
    if metrics is None or not isinstance(confusion, list):
        return None
    classes = round(len(confusion) ** 0.5)
    matrix = torch.tensor(confusion, dtype=torch.int64).view(classes, classes)
    return Evaluation(matrix, (_first(metrics, _LOSS) or 0.0) * int(matrix.sum()))


def tell(record: RoundRecord, rounds: int) -> None:
    """Log a round in one line."""
    found = "" if record.clusters is None else f", clusters: {len(set(record.clusters))}"
    quality = "" if record.accuracy is None else f", accuracy: {record.accuracy:.3f}"
    LOGGER.info(
        "[ROUND %d/%d] updates: %d%s%s", record.round, rounds, len(record.weights), found, quality
    )


def _first(metrics: MetricRecord, names: tuple[str, ...]) -> float | None:
    """The first of these scalars that there is; None if it is infinite or no number."""
    found = [metrics[name] for name in names if name in metrics]
    if not found or not isinstance(found[0], int | float):
        return None
    return float(found[0]) if isfinite(found[0]) else None
