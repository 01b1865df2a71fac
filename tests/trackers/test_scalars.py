"""The numbers and their names, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from cadis.server import ModelRecord, RoundRecord, Seconds
from cadis.trackers import scalars
from cadis.trackers.scalars import flatten, summary_scalars
from tracker_support import OPTIONS


def a_record(**changes: Any) -> RoundRecord:
    report: Any = {"clusters": [0, 1, 0], "threshold": 0.75}
    record = RoundRecord(
        round=3,
        accuracy=0.5,
        loss=1.25,
        class_accuracy=[1.0, None, 0.5],
        participants=[0, 1, 2],
        weights=[0.25, 0.5, 0.25],
        rejected=[],
        seconds=Seconds(train=4.0, aggregate=1.0, evaluate=2.0, total=3.5),
        client_accuracy=[0.2, 0.4, 0.9, 0.5],
        report=report,
    )
    return replace(record, **changes)


def test_scalars_by_hand() -> None:
    found = scalars(a_record(), [1, 2], ["x", "y", "z"])
    assert found == pytest.approx(
        {
            "accuracy": 0.5,
            "loss": 1.25,
            "rare_accuracy": 0.5,
            "class_accuracy/x": 1.0,
            "class_accuracy/z": 0.5,
            "clusters": 2,
            "threshold": 0.75,
            "rejected": 0,
            "seconds/train": 4,
            "seconds/aggregate": 1,
            "seconds/evaluate": 2,
            "seconds/total": 3.5,
            "clients/mean": 0.5,
            "clients/deviation": 0.065**0.5,  # (0.09 + 0.01 + 0.16 + 0) / 4
            "clients/worst": 0.2,
        }
    )


def test_what_only_some_tell_by_hand() -> None:
    report: Any = {"step size": 0.5, "gamma": 0.25, "clusters": [0, 1, 0], "moved": [1, 2, 3]}
    models = [ModelRecord("a", 3, 0.5, 1.0), ModelRecord("b/c", 1, None, None)]
    measures = {"auc": 0.75, "f1": None}
    losses = [1.0, None, 2.0]
    record = a_record(report=report, models=models, client_loss=losses, measures=measures)
    usual = scalars(a_record(), [], "xyz")
    found = scalars(record, [], "xyz")
    assert {name: value for name, value in found.items() if name not in usual} == {
        "clients/loss": 1.5,
        "measures/auc": 0.75,
        "report/step_size": 0.5,
        "models/accuracy/a": 0.5,
        "models/clients/a": 3,
        "models/clients/b_c": 1,
    }


def test_what_was_not_measured_is_left_out() -> None:
    nothing: dict[str, Any] = dict.fromkeys(("accuracy", "loss", "client_accuracy"))
    found = scalars(a_record(class_accuracy=[], report={}, **nothing), [1, 2], ["x", "y", "z"])
    assert {name for name in found if not name.startswith("seconds/")} == {"rejected"}


def test_of_a_sample_of_clients_only_those_tested_count() -> None:
    found = scalars(a_record(client_accuracy=[None, 0.25, None, 0.75]), [], ["x", "y", "z"])
    names = ("clients/mean", "clients/deviation", "clients/worst")
    assert [found[name] for name in names] == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("classes", "curves"), [(20, 20), (21, 0)])
def test_many_classes_have_no_curves(classes: int, curves: int) -> None:
    record = a_record(class_accuracy=[0.5] * classes)
    found = scalars(record, [1], [str(label) for label in range(classes)])
    assert sum(name.startswith("class_accuracy/") for name in found) == curves
    assert found["rare_accuracy"] == 0.5


def test_options_are_flattened() -> None:
    flat = {"method": "cadis", "rounds": 4, "cadis.gamma": 0.25, "cadis.list": "[3, 1]"}
    assert flatten(OPTIONS) == flat


def test_class_names_stay_as_they_are_where_they_can() -> None:
    found = scalars(a_record(class_accuracy=[0.1, 0.2]), [], ["Größe.v1-b_2", "a b"])
    assert found["class_accuracy/Größe.v1-b_2"] == 0.1
    assert found["class_accuracy/a_b"] == 0.2


def test_summary_has_numbers_only() -> None:
    left_out = {"method": "cadis", "loss": None, "confusion": [[1, 0]], "versions": {"torch": "2"}}
    summary = {"rounds": 4, "rare_classes": [3], "seconds": {"train": 1.5}, **left_out}
    assert summary_scalars(summary) == {"summary/rounds": 4.0, "summary/seconds.train": 1.5}
