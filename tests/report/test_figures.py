"""Data and styles of figures; test_legibility.py draws every figure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from cadis.algorithm.methods import CADIS, METHODS, FedAvg
from cadis.analysis import read_results
from cadis.report.figures.clusters import compute_cluster_weights
from cadis.report.figures.curves import (
    compute_band,
    compute_trailing_mean,
    get_client_loss,
    plot_spread,
)
from cadis.report.figures.models import (
    count_model_participants,
    get_model_accuracy,
    list_models,
)
from cadis.report.style import LineStyle, assign_styles, get_method_style
from cadis.server import ModelRecord, RoundRecord
from fabricated import add_models, write_run


def test_models_and_losses_over_rounds_by_hand(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", FedAvg(), rounds=8, change_record=add_models)
    run_data = read_results([folder.path]).runs[0]
    accuracies = [record.accuracy or 0.0 for record in run_data.history]
    assert list_models(run_data) == ["left", "right [b]"]
    assert get_model_accuracy(run_data, "left").tolist() == [value / 2 for value in accuracies]
    assert count_model_participants(run_data, "left") == [1, 2, 3, 4, 5, 6, 0, 1]
    assert count_model_participants(run_data, "right [b]") == [5, 4, 3, 2, 1, 0, 6, 5]
    assert get_client_loss(run_data).tolist() == [(1 + 2 + 3 + 4 + 5) / 5] * 8


def test_a_model_has_an_accuracy_while_clients_use_it(tmp_path: Path) -> None:
    """Two rounds with one model, then two with others; no client uses the first one then."""

    def split(record: RoundRecord) -> RoundRecord:
        if record.round < 3:
            return record
        names = ["model" if record.round == 3 else "cluster-0"] * len(record.participants)
        models = [ModelRecord("model", 0, 0.9, None), ModelRecord("cluster-0", 12, 0.3, None)]
        return replace(record, models=models, client_models=names)

    folder = write_run(tmp_path / "run", FedAvg(), rounds=4, change_record=split)
    run_data = read_results([folder.path]).runs[0]
    before = [record.accuracy for record in run_data.history[:2]]
    assert get_model_accuracy(run_data, "model")[:2].tolist() == before
    assert np.isnan(get_model_accuracy(run_data, "model")[2:]).all()
    assert get_model_accuracy(run_data, "cluster-0")[2:].tolist() == [0.3, 0.3]
    size = len(run_data.history[0].participants)
    assert count_model_participants(run_data, "model") == [size, size, size, 0]
    assert count_model_participants(run_data, "cluster-0") == [0, 0, 0, size]


def test_methods_have_the_same_style_everywhere() -> None:
    assert (
        assign_styles(["fedavg", "cadis"])[1] == assign_styles(["cadis"])[0] == LineStyle("#0072B2")
    )
    many = assign_styles([f"threshold={n}" for n in range(20)])
    assert len(set(many)) == 20
    twice = assign_styles(["cadis", "cadis", "cadis-oracle"])
    assert len(set(twice)) == 3


def test_there_are_styles_for_any_number_of_methods() -> None:
    registered = [get_method_style(number) for number in range(60)]
    assert len({style.color for style in registered}) == 60  # bars have no dashes
    assert registered[: len(METHODS)] == assign_styles(list(METHODS))
    mixed = [*METHODS, *(f"mine-{n}" for n in range(40)), "cadis", "cadis-oracle"]
    assert len(set(assign_styles(mixed))) == len(mixed)
    assert assign_styles(mixed)[: len(METHODS)] == assign_styles(list(METHODS))
    assert assign_styles(["mine", "cadis"])[1] == assign_styles(["cadis"])[0]


def test_bands_show_the_sample_deviation() -> None:
    curves = [np.array([1.0, np.nan, 5.0, 7.0]), np.array([2.0, np.nan, 9.0]), np.array([6.0])]
    rounds, mean, deviation = compute_band(curves)
    assert rounds.tolist() == [1, 3, 4]
    assert mean.tolist() == [(1 + 2 + 6) / 3, (5 + 9) / 2, 7]
    expected = [((4 + 1 + 9) / (3 - 1)) ** 0.5, ((4 + 4) / (2 - 1)) ** 0.5, 0]
    assert deviation.tolist() == pytest.approx(expected)
    axes = Figure().subplots()
    plot_spread(axes, curves, LineStyle("#0072B2"), "three seeds")
    (band,) = axes.collections
    edges = band.get_paths()[0].vertices
    at_round_1 = sorted({float(y) for x, y in np.asarray(edges) if x == 1})
    assert at_round_1 == pytest.approx([3 - 7**0.5, 3 + 7**0.5])


def test_cluster_weights_by_hand(tmp_path: Path) -> None:
    group = read_results([write_run(tmp_path / "run", CADIS(), rounds=3).path]).groups[0]
    run_data = group.runs[0]
    by_hand = {0: 0.0, 1: 0.0, 2: 0.0}
    for record in run_data.history:
        for client in record.participants:
            truth = run_data.true_clusters[client]
            assert truth is not None
            by_hand[truth] += (1 / 6) / 3  # equal weights in fabricated records
    assert compute_cluster_weights(group) == pytest.approx(by_hand)


GAP = np.nan


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([1, 2, 4, 8], 2, [1, 1.5, 3, 6]),
        # Only tested rounds count.
        (
            [GAP, 0.2, GAP, 0.4, GAP, GAP, 0.9], 4,
            [GAP, 0.2, GAP, (0.2 + 0.4) / 2, GAP, GAP, (0.4 + 0.9) / 2],
        ),
    ],
)  # fmt: skip
def test_trailing_mean_by_hand(values: list[float], width: int, expected: list[float]) -> None:
    np.testing.assert_allclose(compute_trailing_mean(np.array(values, float), width), expected)
