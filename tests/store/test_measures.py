"""What ``summary.json`` holds of measures and models, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from cadis.server import ModelRecord, RoundRecord, Seconds
from cadis.store import agreement, mean_accuracy, summarise
from cadis.store.metrics import best_round, last_tested

FEDERATION: dict[str, Any] = {
    "classes": ["x", "y"],
    "clients": [{"id": 0, "cluster": None, "samples": None}],
}


def a_round(number: int, accuracy: float | None, **measures: float | None) -> RoundRecord:
    seconds = Seconds(1, 1, 1, 1)
    return RoundRecord(number, accuracy, None, [], [0], [1.0], [], seconds, measures=measures)


HISTORY = [
    a_round(1, 0.5, auc=0.6, mse=-9.0),
    a_round(2, 0.9, auc=None, mse=-4.0),
    a_round(3, 0.7, auc=0.8, mse=-5.0),
    a_round(4, 0.9, auc=0.8, mse=-6.0),
]


def test_the_best_round_is_told_by_the_headline() -> None:
    assert best_round(HISTORY).round == 2  # the first of two
    assert best_round(HISTORY, "auc").round == 3
    assert best_round(HISTORY, "mse").round == 2  # larger is better, below zero too
    assert best_round([a_round(1, None), a_round(2, 0.0)]).round == 2


def test_a_summary_has_the_last_measures_and_the_accuracy_of_the_best_round() -> None:
    summary = summarise("mine", HISTORY, FEDERATION, None, headline="auc")
    assert (summary["best_round"], summary["best_accuracy"]) == (3, 0.7)
    assert summary["headline"] == "auc"
    assert summary["measures"] == {"auc": 0.8, "mse": -6.0}


def test_a_summary_of_plain_classification_has_no_headline_and_no_models() -> None:
    summary = summarise("mine", [a_round(1, 0.5)], FEDERATION, None)
    assert summary["measures"] == {}
    assert not summary.keys() & {"headline", "models"}


def test_a_summary_has_the_last_rounds_models_if_there_are_several() -> None:
    models = [ModelRecord("a", 3, 0.5, 1.0), ModelRecord("b", 1, None, None)]
    last = replace(a_round(1, 0.5), models=models, client_models=["b"])
    assert summarise("mine", [last], FEDERATION, None)["models"] == [
        {"name": "a", "clients": 3, "accuracy": 0.5, "loss": 1.0},
        {"name": "b", "clients": 1, "accuracy": None, "loss": None},
    ]


def test_a_summary_tells_of_the_last_round_that_was_tested() -> None:
    history = [*HISTORY, a_round(5, None)]
    summary = summarise("fedavg", history, FEDERATION, None, headline="auc")
    assert summary["rounds"] == 5
    assert (summary["accuracy"], summary["measures"]) == (0.9, {"auc": 0.8, "mse": -6.0})
    assert (summary["best_accuracy"], summary["best_round"]) == (0.7, 3)
    assert last_tested(history).round == 4
    assert last_tested(history[4:]).round == 5
    assert mean_accuracy(history[4], [0, 1]) is None


def test_agreement_by_hand() -> None:
    """Of the 6 pairs, 2 are truly together and 1 is found; both say so of one."""
    assert agreement([0, 0, 1, 1], [5, 5, 6, 7]) == pytest.approx((1 - 2 / 6) / (1.5 - 2 / 6))
    assert agreement([0, 0, 1, 1], [1, 1, 0, 0]) == 1
    assert agreement([3], [4]) == 1
