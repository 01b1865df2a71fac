"""No figure has anything cut, anything on anything else, or anything that cannot be."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from cadis.algorithm.methods import CADIS, METHODS
from cadis.analysis import read_results
from cadis.report import draw_figures
from cadis.report.figures.clusters import flow
from cadis.report.style import figure, legend_below
from cadis.server import RoundRecord
from fabricated import (
    with_clock,
    with_few_tests,
    with_measures,
    with_models,
    write_run,
    write_study,
    write_sweep,
)
from legibility import flaws, saved_figures, texts

SITES = [
    "Universitätsklinikum Heidelberg, Radiologie",
    "St. Bartholomew's Hospital, London",
    "Centre hospitalier universitaire Grenoble Alpes",
    "ward 2",
    "ward 10",
    "Policlinico $Gemelli$ Roma",
]
LONG = ["adenocarcinoma of the colon", "healthy tissue", "lymphocytic infiltration", "dog", "?"]


def with_names(described: dict[str, Any]) -> dict[str, Any]:
    """Six sites of long names and classes of long names, of whom nobody knows the clusters."""
    clients = [
        client | {"id": name, "cluster": None}
        for client, name in zip(described["clients"], SITES, strict=True)
    ]
    return {"classes": LONG, "clients": clients}


def at_sites(record: RoundRecord) -> RoundRecord:
    """The same round of the sites of these names."""
    return replace(record, participants=[SITES[int(number)] for number in record.participants])


def with_everything(record: RoundRecord) -> RoundRecord:
    """All that tasks and methods may tell, and a client that deviates much."""
    record = with_clock(with_models(with_measures(record)))
    told: dict[str, Any] = {"step_size": 1 / record.round, "temperature": 40.0 + record.round}
    return replace(record, report=record.report | told)


def sweep(path: Path, *grid: str) -> Path:
    return write_sweep(path, *grid, rounds=3, levels=(0.95, 0.01)).path


FEW = {"fedavg": 0.2, "cadis": 1.0, "singleset": 1.0}
MANY = dict.fromkeys(list(METHODS)[:14], 0.3)

CASES: dict[str, Callable[[Path], Path]] = {
    "run": lambda path: write_run(path, CADIS()).path,
    "one-round": lambda path: write_run(path, CADIS(), rounds=1).path,
    "two-rounds": lambda path: write_run(path, CADIS(), rounds=2, finished=False).path,
    "few-tests": lambda path: write_run(path, CADIS(), rounds=24, further=with_few_tests).path,
    "compare": lambda path: write_study(path, FEW, 3, rounds=21).path,
    "one-seed": lambda path: write_study(path, FEW, 1, rounds=1).path,
    "clock": lambda path: write_study(path, FEW, 2, further=with_clock, speeds="10:1000").path,
    "everything": lambda path: write_study(path, FEW, 2, further=with_everything).path,
    "many-methods": lambda path: write_study(path, MANY, 1, rounds=2).path,
    "100-clients": lambda path: write_run(path, CADIS(), clients=100, per_round=40).path,
    "sites": lambda path: (
        write_run(path, CADIS(), clients=6, describe=with_names, further=at_sites, held_out=2).path
    ),
    "sweep-1": lambda path: sweep(path, "threshold=0.5,0.6,0.7,0.8,0.9"),
    "sweep-2": lambda path: sweep(path, "threshold=auto,0.7", "distillation=0,0.01,0.1,1"),
    "sweep-3": lambda path: sweep(path, "threshold=0.6,0.7", "distillation=0,1", "epochs=1,2"),
}


def drawn(path: Path, folder: Path) -> dict[str, Figure]:
    """All figures of what is there, by name."""
    with saved_figures() as found:
        draw_figures(read_results([path]), folder, pdf=False)
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_legible(case: str, tmp_path: Path) -> None:
    found = drawn(CASES[case](tmp_path / "results"), tmp_path / "figures")
    assert "accuracy" in found
    wrong = {name: flaw for name, drawing in found.items() if (flaw := flaws(drawing))}
    assert wrong == {}


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:
    """The tests above can fail."""
    with saved_figures() as found, figure(tmp_path / "bad.png", 3.0, 2.0) as drawing:
        axes = drawing.subplots()
        axes.plot([1, 1.5, 2], [0, 1, 0], label="a line")
        axes.fill_between([0, 2], [-0.1, 0], [1.1, 1])
        axes.legend()
        axes.set(xlabel="round", ylabel="accuracy", title="a title that is much too long " * 3)
        axes.set_xticks([1, 1.5, 2])
        axes.text(1.5, 0.5, "this")
        axes.text(1.5, 0.5, "that")
    said = " ".join(flaws(found["bad"]))
    for flaw in (
        "is cut",
        "a legend is within",
        "round 1.5",
        "below 0",
        "above 1",
        "before the first",
    ):
        assert flaw in said
    assert "'this' and 'that' lie on each other" in said


def test_sites_are_named_with_their_accuracy_on_their_own_test_data(tmp_path: Path) -> None:
    path = CASES["sites"](tmp_path / "run")
    clients = drawn(path, tmp_path / "figures")["clients"]
    said = " ".join(texts(clients)).replace("\n", " ")
    for name in SITES[:5]:
        assert name in said
    assert "own test data" in said
    assert "4 samples" in said  # two of each of two classes
    (run_data,) = read_results([path]).runs
    last = list(run_data.client_accuracy.values())[-1]
    for accuracy in last.values():
        assert f"{accuracy:.2f}" in texts(clients)


def test_the_seed_of_a_picture_of_one_run_is_named(tmp_path: Path) -> None:
    found = drawn(CASES["compare"](tmp_path / "study"), tmp_path / "figures")
    for name in ("similarity", "clusters", "flow", "confusion", "federation"):
        assert "seed 0" in " ".join(texts(found[name])), name


def test_the_axis_of_a_single_round_has_that_round_only(tmp_path: Path) -> None:
    found = drawn(CASES["one-round"](tmp_path / "run"), tmp_path / "figures")
    (axes,) = found["accuracy"].axes
    assert [tick for tick in axes.get_xticks() if 0.5 <= tick <= 1.5] == [1]


def test_a_legend_has_as_many_columns_as_there_is_room(tmp_path: Path) -> None:
    with figure(tmp_path / "one.png", 6.0, 3.0) as drawing:
        axes = drawing.subplots()
        lines = {f"a name of some letters, {n}": axes.plot([0, n])[0] for n in range(7)}
        legend_below(drawing, lines)
    (legend,) = drawing.legends
    assert legend._ncols == 2  # type: ignore[attr-defined]
    assert drawing.get_figheight() > 3.0  # the plot stays as high as it was


def split_late(record: RoundRecord) -> RoundRecord:
    """A round of a method that tells clusters only, and splits the one that there is."""
    told: dict[str, Any] = {
        "clusters": [int(number) % 2 * (record.round > 5) for number in record.participants]
    }
    return replace(record, report=told)


@pytest.mark.parametrize("case", ["similarities", "labels"])
def test_the_flow_ends_with_as_many_clusters_as_the_summary_says(case: str, tmp_path: Path) -> None:
    further = split_late if case == "labels" else lambda record: record
    folder = write_run(tmp_path / "run", CADIS(), rounds=9, further=further)
    (run_data,) = read_results([folder.path]).runs
    rounds, found = flow(run_data)
    assert rounds[-1] == 9
    number = run_data.summary["clusters_found"]
    assert len(set(found[-1].values())) == number
    drawing = drawn(folder.path, tmp_path / "figures")["flow"]
    (axes,) = drawing.axes
    pixels = np.asarray(axes.images[0].get_array())
    assert len(np.unique(pixels[:, -1], axis=0)) == number  # everybody was seen by then
    assert f"9\n{number}" in texts(drawing)
