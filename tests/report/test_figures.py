from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from cadis.algorithm.methods import CADIS, METHODS, FedAvg
from cadis.analysis import read_results
from cadis.report import draw_figures
from cadis.report.figures.cluster_weights import cluster_weights
from cadis.report.figures.curves import client_loss, plot_spread, spread_of, trailing
from cadis.report.figures.models import model_accuracy, model_names, model_participants
from cadis.report.figures.studies import draw_sweep
from cadis.report.style import Look, looks, method_look
from cadis.server import ModelRecord, RoundRecord
from cadis.store.observations import told_scalars
from fabricated import (
    with_clock,
    with_few_tests,
    with_measures,
    with_models,
    write_run,
    write_study,
    write_sweep,
)

EVERYTHING = {
    "accuracy", "accuracy-10-rounds", "accuracy-rare", "clients", "clients-rounds", "clusters",
    "confusion", "convergence", "federation", "flow", "similarity", "time", "voice",
}  # fmt: skip


def test_a_comparison_has_all_figures_as_png_and_pdf(tmp_path: Path) -> None:
    levels = {"fedavg": 0.6, "fedprox": 0.6, "cadis": 0.9, "singleset": 0.99}
    folder = write_study(tmp_path / "study", levels, 2, rounds=21)
    drawn = draw_figures(read_results([folder.path]), tmp_path / "figures")
    assert {path.stem for path in drawn} == EVERYTHING
    for path in drawn:
        pixels = matplotlib.image.imread(path)
        assert pixels.std() > 0.02  # not blank
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("speeds", ["", "10:1000"])
def test_accuracy_over_simulated_time_is_drawn_where_speeds_are_given(
    speeds: str, tmp_path: Path
) -> None:
    levels = {"fedavg": 0.6, "cadis": 0.9}
    folder = write_study(tmp_path / "study", levels, 2, further=with_clock, speeds=speeds)
    results = read_results([folder.path])
    drawn = {path.stem: path for path in draw_figures(results, tmp_path / "figures", pdf=False)}
    assert ("accuracy-time" in drawn) is bool(speeds)
    if speeds:
        assert matplotlib.image.imread(drawn["accuracy-time"]).std() > 0.02


def test_what_tasks_and_methods_tell_besides_is_drawn(tmp_path: Path) -> None:
    def further(record: RoundRecord) -> RoundRecord:
        record = with_models(with_measures(record))
        own: dict[str, Any] = {"step_size": 1 / record.round, "drift": [0.5] * 6, "flat": None}
        return replace(record, report=record.report | own)

    folder = write_study(tmp_path / "study", {"fedavg": 0.6, "cadis": 0.9}, 2, further=further)
    results = read_results([folder.path])
    drawn = {path.stem: path for path in draw_figures(results, tmp_path / "figures", pdf=False)}
    more = {"measures", "loss", "models", "method-report"}
    assert more <= drawn.keys()
    assert "voice" not in drawn  # nobody has a say in all models
    for name in more:
        assert matplotlib.image.imread(drawn[name]).std() > 0.02
    record = results.runs[0].history[0]
    assert told_scalars(record) == ["step_size", "flat"]


def test_a_record_that_tells_nothing_besides_has_no_further_figures(tmp_path: Path) -> None:
    results = read_results([write_run(tmp_path / "run", CADIS()).path])
    drawn = {path.stem for path in draw_figures(results, tmp_path / "figures", pdf=False)}
    assert not drawn & {"measures", "loss", "models", "method-report"}


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


@pytest.mark.parametrize(
    "grid",
    [
        ["threshold=0.6,0.7"],
        ["threshold=0.6,0.7", "distillation=0,1,2"],
        ["threshold=0.6,0.7", "distillation=0,1", "epochs=1,2"],
    ],
)
def test_a_sweep_has_a_figure_over_its_parameters(grid: list[str], tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep", *grid)
    drawn = draw_sweep(read_results([folder.path]), tmp_path.joinpath)
    assert drawn == tmp_path / "sweep.png"
    assert matplotlib.image.imread(drawn).std() > 0.02


def test_a_run_that_has_not_ended_is_drawn_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=2, finished=False)
    drawn = draw_figures(read_results([folder.path]), tmp_path / "figures")
    assert {path.stem for path in drawn} == {
        "accuracy", "clusters", "convergence", "federation", "flow", "similarity", "voice",
    }  # fmt: skip


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


def test_trailing_mean_by_hand() -> None:
    values = np.array([1.0, 2.0, 4.0, 8.0])
    assert trailing(values, 2).tolist() == [1, 1.5, 3, 6]


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


def test_a_mean_of_ten_rounds_is_of_those_that_were_tested() -> None:
    gap = np.nan
    found = trailing(np.array([gap, 0.2, gap, 0.4, gap, gap, 0.9]), width=4)
    expected = [gap, 0.2, gap, (0.2 + 0.4) / 2, gap, gap, (0.4 + 0.9) / 2]
    np.testing.assert_allclose(found, expected)


def test_pictures_of_few_tests_are_drawn(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=24, further=with_few_tests)
    drawn = draw_figures(read_results([folder.path]), tmp_path / "figures", pdf=False)
    names = {"accuracy", "accuracy-10-rounds", "clients", "clients-rounds"}
    assert names <= {path.stem for path in drawn}
