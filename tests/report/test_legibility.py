"""Every figure is there, and has nothing cut, on anything else, or that cannot be."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cadis.algorithm.methods import CADIS, METHODS
from cadis.analysis import read_results
from cadis.report import draw_figures
from cadis.report.figures.clusters import compute_flow
from cadis.report.style import (
    UNKNOWN,
    add_legend,
    figure_style,
    get_cluster_color,
    new_axes,
    save_figure,
)
from cadis.server import RoundRecord
from cadis.store import RunFolder, StudyFolder
from cadis.store.observations import list_other_scalars
from fabricated import (
    add_clock,
    add_metrics,
    add_models,
    change_clusters,
    drop_most_tests,
    write_run,
    write_study,
    write_sweep,
)
from legibility import collect_figures, find_flaws, list_texts

SITES = [
    "Universitätsklinikum Heidelberg, Radiologie",
    "St. Bartholomew's Hospital, London",
    "Centre hospitalier universitaire Grenoble Alpes",
    "ward 2",
    "ward 10",
    "Policlinico $Gemelli$ Roma",
]
LONG_CLASSES = [
    "adenocarcinoma of the colon",
    "healthy tissue",
    "lymphocytic infiltration",
    "dog",
    "?",
]


def with_names(described: dict[str, Any]) -> dict[str, Any]:
    """Return a federation of six sites and five classes with long names, without true clusters."""
    clients = [
        client | {"id": name, "cluster": None}
        for client, name in zip(described["clients"], SITES, strict=True)
    ]
    return {"classes": LONG_CLASSES, "clients": clients}


def at_sites(record: RoundRecord) -> RoundRecord:
    """Replace client numbers by names of sites."""
    return replace(record, participants=[SITES[int(number)] for number in record.participants])


def with_everything(record: RoundRecord) -> RoundRecord:
    """Add everything that tasks and methods may report."""
    record = add_clock(add_models(add_metrics(record)))
    numbers: dict[str, Any] = {"step_size": 1 / record.round, "temperature": 40.0 + record.round}
    report = numbers | {"drift": [0.5] * len(record.participants), "flat": None}
    return replace(record, report=record.report | report)


def sweep(*grid: str) -> Callable[[Path], StudyFolder]:
    return lambda path: write_sweep(path, *grid, rounds=3, levels=(0.95, 0.01))


FEW = {"fedavg": 0.2, "cadis": 1.0, "singleset": 1.0}
MANY = dict.fromkeys(list(METHODS)[:14], 0.3)

RUN = {"accuracy", "clusters", "federation", "similarity", "cluster-weights"}
ROUNDS = RUN | {"convergence", "flow"}
"""Figures that need several rounds."""
ENDED = ROUNDS | {"clients", "confusion"}
LONG = {"accuracy-10-rounds", "clients-rounds"}
"""Figures that need 20 rounds; clients are tested every five rounds."""
STUDY = ENDED | {"accuracy-rare", "time"}
REPORTED = {"loss", "metrics", "method-report", "models"}

SWEEP = ROUNDS | {"accuracy-rare", "confusion", "sweep"}

run, study = partial(write_run, method=CADIS()), partial(write_study, levels=FEW)
CASES: dict[str, tuple[Callable[[Path], RunFolder | StudyFolder], set[str]]] = {
    "run": (run, ENDED),
    "one-round": (partial(run, rounds=1), RUN | {"confusion"}),
    "two-rounds": (partial(run, rounds=2, finished=False), ROUNDS),
    "few-tests": (
        partial(run, rounds=24, change_record=drop_most_tests),
        ENDED | LONG,
    ),
    "compare": (partial(study, seeds=3, rounds=21), STUDY | LONG),
    "one-seed": (partial(study, seeds=1, rounds=1), RUN | {"accuracy-rare", "confusion", "time"}),
    "clock": (
        partial(study, seeds=2, change_record=add_clock, speeds="10:1000"),
        STUDY | {"accuracy-time"},
    ),
    "everything": (  # without speeds; several models have no common weights
        partial(study, seeds=2, change_record=with_everything),
        (STUDY | REPORTED) - {"cluster-weights"},
    ),
    "many-methods": (
        partial(study, levels=MANY, seeds=1, rounds=2),
        ROUNDS | {"accuracy-rare", "confusion", "time"},
    ),
    "changing": (
        partial(run, rounds=40, change_record=change_clusters),
        (ENDED | LONG) - {"similarity", "convergence"},
    ),
    "100-clients": (partial(run, clients=100, per_round=40), ENDED),
    "sites": (
        partial(run, clients=6, change_federation=with_names, change_record=at_sites, held_out=2),
        ENDED - {"cluster-weights"},
    ),
    "sweep-1": (sweep("threshold=0.5,0.6,0.7,0.8,0.9"), SWEEP),
    "sweep-2": (sweep("threshold=auto,0.7", "distillation=0,0.01,0.1,1"), SWEEP),
    "sweep-3": (sweep("threshold=0.6,0.7", "distillation=0,1", "epochs=1,2"), SWEEP),
}
"""How to write the runs of a case, and the figures it has."""
Draw = Callable[[str], tuple[Path, dict[str, Figure]]]


@pytest.fixture(scope="module")
def draw(tmp_path_factory: pytest.TempPathFactory) -> Draw:
    """Return a function that draws all figures of a case, once."""

    @cache
    def draw_case(case: str) -> tuple[Path, dict[str, Figure]]:
        folder = tmp_path_factory.mktemp(case)
        path = CASES[case][0](folder / "results").path
        return path, draw_all(path, folder / "figures", pdf=case == "compare")

    return draw_case


def draw_all(path: Path, folder: Path, pdf: bool = False) -> dict[str, Figure]:
    """Draw all figures of a folder, check that none is blank, and return them by name."""
    with collect_figures() as found:
        drawn = draw_figures(read_results([path]), folder, pdf)
    assert {picture.stem for picture in drawn} == found.keys()
    for picture in drawn:
        assert matplotlib.image.imread(picture).std() > 0.02
        assert not pdf or picture.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_drawn_and_legible(case: str, draw: Draw) -> None:
    _, found = draw(case)
    assert found.keys() == CASES[case][1]
    wrong = {name: flaw for name, drawing in found.items() if (flaw := find_flaws(drawing))}
    assert wrong == {}


def test_flaws_are_detected(tmp_path: Path) -> None:
    """The test above can fail."""
    with collect_figures() as found, figure_style():
        drawing, axes = new_axes(3.0, 2.0)
        axes.plot([1, 1.5, 2], [0, 1, 0], label="a line")
        axes.fill_between([0, 2], [-0.1, 0], [1.1, 1])
        axes.legend()
        axes.set(xlabel="round", ylabel="accuracy", title="a title that is much too long " * 3)
        axes.set_xticks([1, 1.5, 2])
        axes.text(1.5, 0.5, "this")
        axes.text(1.5, 0.5, "that")
        save_figure(drawing, tmp_path / "bad.png")
    said = " ".join(find_flaws(found["bad"]))
    seen = ("is cut", "a legend is within", "round 1.5", "below 0", "above 1", "before the first")
    assert all(flaw in said for flaw in seen)
    assert "'this' and 'that' lie on each other" in said


def test_named_sites_have_their_accuracy_in_the_figure(draw: Draw) -> None:
    path, found = draw("sites")
    clients = found["clients"]
    said = " ".join(list_texts(clients)).replace("\n", " ")
    for name in SITES[:5]:
        assert name in said
    assert "own test data" in said
    assert "4 samples" in said  # two of each of two classes
    (run_data,) = read_results([path]).runs
    for accuracy in run_data.last_client_accuracy.values():
        assert f"{accuracy:.2f}" in list_texts(clients)


def test_figures_of_one_run_name_its_seed(draw: Draw) -> None:
    _, found = draw("compare")
    for name in ("similarity", "clusters", "flow", "confusion", "federation"):
        assert "seed 0" in " ".join(list_texts(found[name])), name


def test_each_reported_scalar_has_a_panel(draw: Draw) -> None:
    path, found = draw("everything")
    assert list_other_scalars(read_results([path]).runs[0].history[0]) == [
        "step_size", "temperature", "flat",
    ]  # fmt: skip
    panels = [axes.get_title(loc="left") for axes in found["method-report"].axes if axes.axison]
    assert panels == ["step size", "temperature"]  # the last has no values


def test_the_axis_of_a_single_round_has_one_tick(draw: Draw) -> None:
    _, found = draw("one-round")
    (axes,) = found["accuracy"].axes
    assert [tick for tick in axes.get_xticks() if 0.5 <= tick <= 1.5] == [1]


def test_a_legend_has_as_many_columns_as_fit() -> None:
    drawing, axes = new_axes(6.0, 3.0)
    lines = {f"a name of some letters, {n}": axes.plot([0, n])[0] for n in range(7)}
    add_legend(drawing, lines)
    (legend,) = drawing.legends
    assert legend._ncols == 2  # type: ignore[attr-defined]
    assert drawing.get_figheight() > 3.0  # the plot stays as high as it was


def split_late(record: RoundRecord) -> RoundRecord:
    """Report clusters only: one in the first rounds, then two."""
    report: dict[str, Any] = {
        "clusters": [int(number) % 2 * (record.round > 5) for number in record.participants]
    }
    return replace(record, report=report)


@pytest.mark.parametrize("case", ["similarities", "labels"])
def test_the_last_round_of_the_flow_has_the_clusters_of_the_summary(
    case: str, tmp_path: Path
) -> None:
    further = split_late if case == "labels" else lambda record: record
    folder = write_run(tmp_path / "run", CADIS(), rounds=9, change_record=further)
    (run_data,) = read_results([folder.path]).runs
    records, found = compute_flow(run_data)
    assert records[-1].round == 9
    number = run_data.summary["clusters_found"]
    assert len(set(found[-1].values())) == number
    drawing = draw_all(folder.path, tmp_path / "figures")["flow"]
    (axes,) = drawing.axes
    pixels = np.asarray(axes.images[0].get_array())
    assert len(np.unique(pixels[:, -1], axis=0)) == number  # all clients have taken part
    assert f"9\n{number}" in list_texts(drawing)


def test_flow_shows_the_confidence_and_clients_that_join_and_leave(draw: Draw) -> None:
    _, found = draw("changing")
    drawing = found["flow"]
    clients, confidence = drawing.axes
    assert clients.get_xlim() == confidence.get_xlim()
    records, _ = compute_flow(read_results([draw("changing")[0]]).runs[0])
    rounds = np.array([record.round for record in records])
    bars = [patch for patch in confidence.patches if isinstance(patch, Rectangle)]
    assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == pytest.approx(range(len(bars)))
    assert [bar.get_height() for bar in bars] == [0.9 if number > 3 else 0.2 for number in rounds]
    is_white = np.array([to_rgb(bar.get_facecolor()) == (1, 1, 1) for bar in bars])
    assert (is_white == (rounds <= 3)).all()

    pixels = np.asarray(clients.images[0].get_array())
    gray, full = np.array(to_rgb(UNKNOWN)), np.array(to_rgb(get_cluster_color(1)))
    assert (pixels[6:10, (rounds > 3) & (rounds <= 12)] == full).all()
    assert pixels[6:10, rounds > 12] == pytest.approx(
        np.broadcast_to(1 - 0.35 * (1 - full), (4, (rounds > 12).sum(), 3))
    )
    assert (pixels[10:, rounds < 8] == gray).all()
    assert not (pixels[:, rounds >= 8] == gray).all(axis=2).any()
    said = " ".join(list_texts(drawing)).replace("\n", " ")
    assert "pale: absent for long; white bar: no clusters found" in said


def test_flow_without_confidence_has_one_panel(draw: Draw) -> None:
    _, found = draw("run")
    assert len(found["flow"].axes) == 1
    assert not any("pale" in text or "white bar" in text for text in list_texts(found["flow"]))
