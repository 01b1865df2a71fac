"""Tests of the scalars of rounds and their names, with values computed by hand."""

from dataclasses import replace
from typing import Any

import pytest

from cadis.server import ModelRecord, RoundRecord, Seconds
from cadis.trackers import collect_scalars
from cadis.trackers.scalars import collect_summary_scalars, flatten_options
from tracker_support import OPTIONS


def make_record(**changes: Any) -> RoundRecord:
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


def test_scalars_of_a_round() -> None:
    scalars = collect_scalars(make_record(), [1, 2], ["x", "y", "z"])
    assert scalars == pytest.approx(
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


def test_optional_scalars_of_a_round() -> None:
    report: Any = {"step size": 0.5, "gamma": 0.25, "clusters": [0, 1, 0], "moved": [1, 2, 3]}
    models = [ModelRecord("a", 3, 0.5, 1.0), ModelRecord("b/c", 1, None, None)]
    metrics = {"auc": 0.75, "f1": None}
    losses = [1.0, None, 2.0]
    record = make_record(report=report, models=models, client_loss=losses, metrics=metrics)
    common = collect_scalars(make_record(), [], "xyz")
    scalars = collect_scalars(record, [], "xyz")
    assert {name: value for name, value in scalars.items() if name not in common} == {
        "clients/loss": 1.5,
        "measures/auc": 0.75,
        "report/step_size": 0.5,
        "models/accuracy/a": 0.5,
        "models/clients/a": 3,
        "models/clients/b_c": 1,
    }


def test_missing_values_are_omitted() -> None:
    missing: dict[str, Any] = dict.fromkeys(("accuracy", "loss", "client_accuracy"))
    record = make_record(class_accuracy=[], report={}, **missing)
    scalars = collect_scalars(record, [1, 2], ["x", "y", "z"])
    assert {name for name in scalars if not name.startswith("seconds/")} == {"rejected"}


def test_client_scalars_use_tested_clients_only() -> None:
    scalars = collect_scalars(
        make_record(client_accuracy=[None, 0.25, None, 0.75]), [], ["x", "y", "z"]
    )
    names = ("clients/mean", "clients/deviation", "clients/worst")
    assert [scalars[name] for name in names] == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("classes", "curves"), [(20, 20), (21, 0)])
def test_more_than_20_classes_have_no_curves(classes: int, curves: int) -> None:
    record = make_record(class_accuracy=[0.5] * classes)
    scalars = collect_scalars(record, [1], [str(label) for label in range(classes)])
    assert sum(name.startswith("class_accuracy/") for name in scalars) == curves
    assert scalars["rare_accuracy"] == 0.5


def test_options_are_flattened() -> None:
    flat = {"method": "cadis", "rounds": 4, "cadis.gamma": 0.25, "cadis.list": "[3, 1]"}
    assert flatten_options(OPTIONS) == flat


def test_valid_class_names_are_not_changed() -> None:
    scalars = collect_scalars(make_record(class_accuracy=[0.1, 0.2]), [], ["Größe.v1-b_2", "a b"])
    assert scalars["class_accuracy/Größe.v1-b_2"] == 0.1
    assert scalars["class_accuracy/a_b"] == 0.2


def test_summary_scalars_are_numbers_only() -> None:
    omitted = {"method": "cadis", "loss": None, "confusion": [[1, 0]], "versions": {"torch": "2"}}
    summary = {"rounds": 4, "rare_classes": [3], "seconds": {"train": 1.5}, **omitted}
    assert collect_summary_scalars(summary) == {"summary/rounds": 4.0, "summary/seconds.train": 1.5}
