"""Curves and bars by hand, and the colours of methods; test_legible.py draws every figure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from cadis.algorithm.methods import CADIS, METHODS, FedAvg
from cadis.analysis import read_results
from cadis.report.figures.clusters import cluster_weights
from cadis.report.figures.curves import (
    client_loss,
    model_accuracy,
    model_names,
    model_participants,
    plot_spread,
    spread_of,
    trailing,
)
from cadis.report.style import Look, looks, method_look
from cadis.server import ModelRecord, RoundRecord
from fabricated import with_models, write_run


def test_models_and_losses_over_rounds_by_hand(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", FedAvg(), rounds=8, further=with_models)
    run_data = read_results([folder.path]).runs[0]
    accuracies = [record.accuracy or 0.0 for record in run_data.history]
    assert model_names(run_data) == ["left", "right [b]"]
    assert model_accuracy(run_data, "left").tolist() == [value / 2 for value in accuracies]
    assert model_participants(run_data, "left") == [1, 2, 3, 4, 5, 6, 0, 1]
    assert model_participants(run_data, "right [b]") == [5, 4, 3, 2, 1, 0, 6, 5]
    assert client_loss(run_data).tolist() == [(1 + 2 + 3 + 4 + 5) / 5] * 8


def test_a_model_is_shown_while_anybody_uses_it(tmp_path: Path) -> None:
    """Two rounds of one model; then two of others, and nobody uses the first any more."""

    def split(record: RoundRecord) -> RoundRecord:
        if record.round < 3:
            return record
        names = ["model" if record.round == 3 else "cluster-0"] * len(record.participants)
        models = [ModelRecord("model", 0, 0.9, None), ModelRecord("cluster-0", 12, 0.3, None)]
        return replace(record, models=models, client_models=names)

    folder = write_run(tmp_path / "run", FedAvg(), rounds=4, further=split)
    run_data = read_results([folder.path]).runs[0]
    before = [record.accuracy for record in run_data.history[:2]]
    assert model_accuracy(run_data, "model")[:2].tolist() == before
    assert np.isnan(model_accuracy(run_data, "model")[2:]).all()
    assert model_accuracy(run_data, "cluster-0")[2:].tolist() == [0.3, 0.3]
    size = len(run_data.history[0].participants)
    assert model_participants(run_data, "model") == [size, size, size, 0]
    assert model_participants(run_data, "cluster-0") == [0, 0, 0, size]


def test_methods_have_the_same_look_everywhere() -> None:
    assert looks(["fedavg", "cadis"])[1] == looks(["cadis"])[0] == Look("#0072B2")
    many = looks([f"threshold={n}" for n in range(20)])
    assert len(set(many)) == 20
    twice = looks(["cadis", "cadis", "cadis-oracle"])
    assert len(set(twice)) == 3


def test_there_are_looks_for_any_number_of_methods() -> None:
    registered = [method_look(number) for number in range(60)]
    assert len({look.colour for look in registered}) == 60  # bars have no dashes
    assert registered[: len(METHODS)] == looks(list(METHODS))
    mixed = [*METHODS, *(f"mine-{n}" for n in range(40)), "cadis", "cadis-oracle"]
    assert len(set(looks(mixed))) == len(mixed)
    assert looks(mixed)[: len(METHODS)] == looks(list(METHODS))  # whoever stands beside them
    assert looks(["mine", "cadis"])[1] == looks(["cadis"])[0]


def test_bands_are_the_samples_deviation_by_hand() -> None:
    curves = [np.array([1.0, np.nan, 5.0, 7.0]), np.array([2.0, np.nan, 9.0]), np.array([6.0])]
    rounds, mean, deviation = spread_of(curves)
    assert rounds.tolist() == [1, 3, 4]
    assert mean.tolist() == [(1 + 2 + 6) / 3, (5 + 9) / 2, 7]
    expected = [((4 + 1 + 9) / (3 - 1)) ** 0.5, ((4 + 4) / (2 - 1)) ** 0.5, 0]
    assert deviation.tolist() == pytest.approx(expected)
    axes = Figure().subplots()
    plot_spread(axes, curves, Look("#0072B2"), "three seeds")
    (band,) = axes.collections
    edges = band.get_paths()[0].vertices
    at_round_1 = sorted({float(y) for x, y in np.asarray(edges) if x == 1})
    assert at_round_1 == pytest.approx([3 - 7**0.5, 3 + 7**0.5])


def test_the_voice_of_a_cluster_by_hand(tmp_path: Path) -> None:
    group = read_results([write_run(tmp_path / "run", CADIS(), rounds=3).path]).groups[0]
    run_data = group.runs[0]
    by_hand = {0: 0.0, 1: 0.0, 2: 0.0}
    for record in run_data.history:
        for client in record.participants:
            truth = run_data.true_clusters[client]
            assert truth is not None
            by_hand[truth] += (1 / 6) / 3  # everybody weighs the same in made-up records
    assert cluster_weights(group) == pytest.approx(by_hand)


GAP = np.nan


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([1, 2, 4, 8], 2, [1, 1.5, 3, 6]),
        # Only rounds that were tested count.
        (
            [GAP, 0.2, GAP, 0.4, GAP, GAP, 0.9], 4,
            [GAP, 0.2, GAP, (0.2 + 0.4) / 2, GAP, GAP, (0.4 + 0.9) / 2],
        ),
    ],
)  # fmt: skip
def test_trailing_mean_by_hand(values: list[float], width: int, expected: list[float]) -> None:
    np.testing.assert_allclose(trailing(np.array(values, float), width), expected)
