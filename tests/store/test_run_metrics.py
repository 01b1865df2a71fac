"""Metrics and models in ``summary.json``, with values computed by hand."""

from dataclasses import replace
from typing import Any

import pytest

from cadis.server import ModelRecord, RoundRecord, Seconds
from cadis.store import adjusted_rand_index, compute_mean_accuracy, summarize
from cadis.store.metrics import find_best_round, find_last_tested

FEDERATION: dict[str, Any] = {
    "classes": ["x", "y"],
    "clients": [{"id": 0, "cluster": None, "samples": None}],
}


def make_record(number: int, accuracy: float | None, **metrics: float | None) -> RoundRecord:
    seconds = Seconds(1, 1, 1, 1)
    return RoundRecord(number, accuracy, None, [], [0], [1.0], [], seconds, metrics=metrics)


HISTORY = [
    make_record(1, 0.5, auc=0.6, mse=-9.0),
    make_record(2, 0.9, auc=None, mse=-4.0),
    make_record(3, 0.7, auc=0.8, mse=-5.0),
    make_record(4, 0.9, auc=0.8, mse=-6.0),
]


def test_main_metric_decides_which_round_is_best() -> None:
    assert find_best_round(HISTORY).round == 2  # the first of two equal rounds
    assert find_best_round(HISTORY, "auc").round == 3
    assert find_best_round(HISTORY, "mse").round == 2  # the largest value, also below zero
    assert find_best_round([make_record(1, None), make_record(2, 0.0)]).round == 2


def test_summary_has_the_last_metrics_and_the_accuracy_of_the_best_round() -> None:
    summary = summarize("mine", HISTORY, FEDERATION, None, main_metric="auc")
    assert (summary["best_round"], summary["best_accuracy"]) == (3, 0.7)
    assert summary["headline"] == "auc"
    assert summary["measures"] == {"auc": 0.8, "mse": -6.0}


def test_summary_of_plain_classification_has_no_main_metric_and_no_models() -> None:
    summary = summarize("mine", [make_record(1, 0.5)], FEDERATION, None)
    assert summary["measures"] == {}
    assert not summary.keys() & {"headline", "models"}


def test_summary_has_the_models_of_the_last_round_if_there_are_several() -> None:
    models = [ModelRecord("a", 3, 0.5, 1.0), ModelRecord("b", 1, None, None)]
    last = replace(make_record(1, 0.5), models=models, client_models=["b"])
    assert summarize("mine", [last], FEDERATION, None)["models"] == [
        {"name": "a", "clients": 3, "accuracy": 0.5, "loss": 1.0},
        {"name": "b", "clients": 1, "accuracy": None, "loss": None},
    ]


def test_summary_has_the_metrics_of_the_last_tested_round() -> None:
    history = [*HISTORY, make_record(5, None)]
    summary = summarize("fedavg", history, FEDERATION, None, main_metric="auc")
    assert summary["rounds"] == 5
    assert (summary["accuracy"], summary["measures"]) == (0.9, {"auc": 0.8, "mse": -6.0})
    assert (summary["best_accuracy"], summary["best_round"]) == (0.7, 3)
    assert find_last_tested(history).round == 4
    assert find_last_tested(history[4:]).round == 5
    assert compute_mean_accuracy(history[4], [0, 1]) is None


def test_adjusted_rand_index_by_hand() -> None:
    """Of 6 pairs, 2 are in a true cluster and 1 in a found cluster; 1 is in both."""
    assert adjusted_rand_index([0, 0, 1, 1], [5, 5, 6, 7]) == pytest.approx(
        (1 - 2 / 6) / (1.5 - 2 / 6)
    )
    assert adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 0]) == 1
    assert adjusted_rand_index([3], [4]) == 1
