import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cadis.algorithm.methods import CADIS, FedAvg
from cadis.analysis import ACCURACY, MEASURES, Comparison, answer, details, read_results
from cadis.report import summary_text
from cadis.report.exports import results_csv, runs_csv, write_results
from cadis.report.formats import Sheet, fits_a_terminal, shown_p, to_latex, to_markdown, to_rich
from cadis.report.tables import notes, sheets
from cadis.server import RoundRecord
from cadis.store import PaperReport
from fabricated import with_clock, with_measures, with_models, write_run, write_study

LEVELS = {"fedavg": 0.6, "cadis": 0.9, "singleset": 0.99}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = write_study(tmp_path_factory.mktemp("study"), LEVELS, 3)
    return Comparison(read_results([folder.path]))


def test_the_tables_tell_every_measure(comparison: Comparison) -> None:
    captions = [sheet.caption for sheet in sheets(comparison)]
    assert captions == [
        "Accuracy on the test set",
        "Against FedAvg: 10-round mean",
        "Rounds to reach an accuracy (speed-up over FedAvg)",
        "Last accuracy on the test set and on clients' own training data, and clusters",
        "Last accuracy on each class (* rare)",
        "Cost",
    ]
    for sheet in sheets(comparison):
        assert all(len(row) == len(sheet.columns) for row in sheet.rows)


def test_the_best_federation_is_stressed_and_not_the_reference(comparison: Comparison) -> None:
    accuracy = sheets(comparison)[0]
    assert accuracy.columns == ["method", "best", "last", "10-round mean", "amplitude", "rare"]
    assert [row[0] for row in accuracy.rows] == ["CADIS", "FedAvg", "SingleSet"]
    assert {row for row, _ in accuracy.best} == {0}
    assert {column for _, column in accuracy.best} == {1, 2, 3, 5}  # amplitude is no merit


def test_cells_are_mean_and_deviation(comparison: Comparison) -> None:
    best = [scores.best or 0 for scores in comparison.groups[1].scores]
    mean = sum(best) / 3
    deviation = (sum((value - mean) ** 2 for value in best) / 2) ** 0.5
    assert sheets(comparison)[0].rows[0][:2] == ["CADIS", f"{mean:.3f}±{deviation:.3f}"]


def test_measures_of_the_task_have_a_table_and_columns(tmp_path: Path) -> None:
    folder = write_study(tmp_path, {"fedavg": 0.6, "cadis": 0.9}, 2, further=with_measures)
    told = Comparison(read_results([folder.path]))
    sheet = sheets(told)[1]
    assert sheet.caption == "Further measures in the last round"
    assert sheet.columns == ["method", "AUC", "balanced accuracy"]
    one, other = (s.history[-1].measures["auc"] or 0.0 for s in told.groups[1].runs)
    deviation = abs(one - other) / 2**0.5
    assert sheet.rows[0][:2] == ["CADIS", f"{(one + other) / 2:.3f}±{deviation:.3f}"]
    assert sheet.best == [(1, 1), (0, 2)]
    runs = list(csv.DictReader(io.StringIO(runs_csv(told))))
    assert float(runs[2]["auc"]) == one
    rows = csv.DictReader(io.StringIO(results_csv(told)))
    mean = {r["method"]: float(r["mean"]) for r in rows if r["measure"] == "auc"}
    assert mean["CADIS"] == pytest.approx((one + other) / 2)


def test_simulated_time_has_a_table_and_columns_where_speeds_are_given(
    comparison: Comparison, tmp_path: Path
) -> None:
    folder = write_study(tmp_path, LEVELS, 2, further=with_clock, speeds="1:9")
    timed = Comparison(read_results([folder.path]))
    (rounds,), (seconds,) = (
        [sheet for sheet in sheets(timed) if sheet.caption.startswith(name)]
        for name in ("Rounds to reach", "Simulated seconds to reach")
    )
    assert seconds.columns == rounds.columns
    target = timed.targets[0]
    found = timed.time_to(timed.groups[0], target).rounds
    assert found is not None
    assert seconds.rows[1][1] == f"{found.mean:.1f}".removesuffix(".0")
    assert f"FedAvg,time_to_{target:g},{found.mean}" in results_csv(timed)
    assert f"time_to_{target:g}" in runs_csv(timed).splitlines()[0]
    assert "time_to" not in runs_csv(comparison) + results_csv(comparison)


def test_several_models_have_a_table(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), further=with_models)
    told = Comparison(read_results([folder.path]))
    (sheet,) = [sheet for sheet in sheets(told) if sheet.caption.startswith("Models")]
    accuracy = folder.read_history()[-1].accuracy or 0.0
    assert sheet.columns == ["model", "clients", "accuracy", "loss"]
    assert sheet.rows == [
        ["CADIS: left", "8", f"{accuracy / 2:.3f}", f"{1 - accuracy / 2:.3f}"],
        ["CADIS: right [b]", "4", f"{accuracy:.3f}", ""],
    ]


def test_the_summary_tells_measures_and_models(tmp_path: Path) -> None:
    def further(record: RoundRecord) -> RoundRecord:
        return with_models(with_measures(record))

    folder = write_run(tmp_path / "run", CADIS(), further=further, headline="auc")
    accuracy = folder.read_history()[-1].accuracy or 0.0
    text = summary_text(folder)
    assert re.search(rf"│ balanced accuracy +│ {accuracy**2:.3f} │", text)
    assert "accuracy where AUC is best" in text
    assert "best accuracy" not in text
    assert re.search(rf"│ right \[b\] │ +4 │ +{accuracy:.3f} │ +│", text)
    plain = summary_text(write_run(tmp_path / "plain", CADIS()))
    assert "best accuracy" in plain
    assert "its models" not in plain


def test_never_reached_is_not_available(tmp_path: Path) -> None:
    folder = write_study(tmp_path, {"fedavg": 0.3, "cadis": 0.9}, 2)
    rounds = sheets(Comparison(read_results([folder.path])))[2]
    assert rounds.rows[1][-1] == "N/A"
    assert re.fullmatch(r"\d+(\.5)?", rounds.rows[0][-1])  # no speed-up over who never got there


def test_notes_tell_what_a_reader_must_know(comparison: Comparison, tmp_path: Path) -> None:
    text = " ".join(notes(comparison))
    assert "3 seeds" in text
    assert "Holm" in text
    assert "SingleSet has all data in one place" in text
    assert "9 updates were left out" in text
    unfinished = write_run(tmp_path / "run", CADIS(), finished=False)
    told = " ".join(notes(Comparison(read_results([unfinished.path]))))
    assert "1 of 1 runs have not ended" in told


def test_files_for_programs_and_for_people(comparison: Comparison, tmp_path: Path) -> None:
    written = {path.name for path in write_results(comparison, tmp_path)}
    assert written == {"results.csv", "runs.csv", "results.md", "results.tex"}
    assert "**CADIS" not in (tmp_path / "results.md").read_text()
    assert "% Mean ± sample standard deviation" in (tmp_path / "results.tex").read_text()
    assert (tmp_path / "results.tex").read_text().count("\\begin{tabular}") == 6


def test_csv_can_be_read_back(comparison: Comparison) -> None:
    runs = list(csv.DictReader(io.StringIO(runs_csv(comparison))))
    assert [(run["method"], run["seed"]) for run in runs[:4]] == [
        ("FedAvg", "0"), ("FedAvg", "1"), ("FedAvg", "2"), ("CADIS", "0"),
    ]  # fmt: skip
    for run, scores in zip(runs[3:6], comparison.groups[1].scores, strict=True):
        for measure in MEASURES:
            value = measure.of(scores)
            assert run[measure.key] == ("" if value is None else str(value))
    results = list(csv.DictReader(io.StringIO(results_csv(comparison))))
    row = next(r for r in results if (r["method"], r["measure"]) == ("CADIS", "ten_rounds"))
    test = comparison.test(comparison.groups[1], MEASURES[2])
    assert test is not None
    assert float(row["p"]) == test.p_value
    assert float(row["p_corrected"]) == comparison.corrected(MEASURES[2])["CADIS"]
    assert row["runs"] == "3"


HOSTILE = Sheet("50% & more_", ["a|b", "<c>"], [["[red]x", "1"], ["$y$ \\", "0.5±0.1"]], [(1, 1)])


def test_names_mean_nothing_but_themselves() -> None:
    console = Console(width=60, record=True)
    console.print(to_rich(HOSTILE))
    assert "[red]x" in console.export_text()
    markdown = to_markdown(HOSTILE)
    assert "| a\\|b | \\<c\\> |" in markdown
    assert "**0.5±0.1**" in markdown
    latex = to_latex(HOSTILE)
    assert "50\\% \\& more\\_" in latex
    assert "\\$y\\$ \\textbackslash{} & \\textbf{0.5$\\pm$0.1} \\\\" in latex


def test_tables_fit_a_terminal_of_80_columns(comparison: Comparison) -> None:
    console = Console(width=80, record=True)
    for sheet in sheets(comparison):
        if fits_a_terminal(sheet):
            console.print(to_rich(sheet))
    assert "…" not in console.export_text()


def test_a_minus_is_one_in_latex() -> None:
    sheet = Sheet("x", ["a", "b"], [["cadis-oracle", "-0.1 to +0.2"]], [])
    assert "cadis-oracle & $-$0.1 to +0.2" in to_latex(sheet)


def test_nobody_is_stressed_if_all_are_alike(tmp_path: Path) -> None:
    for name, method in (("a", CADIS()), ("b", CADIS(threshold=0.8))):
        write_run(tmp_path / name, method)
    alike = Comparison(read_results([tmp_path / "a", tmp_path / "b"]))
    assert sheets(alike)[0].best == []
    assert answer(alike).startswith("One seed: all have accuracy 0.")


def test_there_is_no_winner_while_rounds_differ(tmp_path: Path) -> None:
    write_run(tmp_path / "a", CADIS(), rounds=12)
    write_run(tmp_path / "b", FedAvg(), rounds=3, finished=False)
    early = Comparison(read_results([tmp_path / "a", tmp_path / "b"]))
    assert answer(early).startswith("There is no answer yet")
    assert details(early) == ["Rounds of the runs that are shown: CADIS: 12; FedAvg: 3."]
    assert sheets(early)[0].best == []
    so_far = write_run(tmp_path / "c", CADIS(), finished=False)
    assert answer(Comparison(read_results([so_far.path]))).startswith("So far: CADIS reaches")


def test_p_values() -> None:
    assert (shown_p(0.04321), shown_p(0.0002)) == ("0.043", "< 0.001")


def test_the_papers_figures_stand_beside_ours(tmp_path: Path) -> None:
    folder = write_study(tmp_path, {"fedavg": 0.6, "cadis": 0.9, "scaffold": 0.7}, 2)
    report = PaperReport(
        "Table I", {"fedavg": 93.04, "cadis": 93.45}, ("rounds 12 instead of 500",)
    )
    folder.write(replace(folder.read(), paper=report))
    comparison = Comparison(read_results([tmp_path]))
    sheet = sheets(comparison)[0]
    assert sheet.columns[:3] == ["method", "best", "paper (Table I)"]
    assert {row[0]: row[2] for row in sheet.rows} == {
        "CADIS": "0.934",
        "SCAFFOLD": "",
        "FedAvg": "0.930",
    }
    assert {column for _, column in sheet.best} == {1, 3, 4, 6}  # not the paper's, nor amplitude
    assert any("in Table I; here: rounds 12 instead of 500." in note for note in notes(comparison))
    assert "CADIS,best_in_paper,0.9345" in results_csv(comparison)
    assert fits_a_terminal(sheet)


def test_where_another_measure_decides_accuracy_is_told_as_such(tmp_path: Path) -> None:
    folder = write_study(
        tmp_path, {"fedavg": 0.6, "cadis": 0.9}, 2, further=with_measures, headline="auc"
    )
    comparison = Comparison(read_results([folder.path]).judged_by("auc"))
    (clients,) = [
        s for s in sheets(comparison) if s.caption.startswith("Last accuracy on the test")
    ]
    accuracies = {group.label: group.scores[0].accuracy for group in comparison.groups}
    for row in clients.rows:
        own = comparison.spread(next(g for g in comparison.groups if g.label == row[0]), ACCURACY)
        assert own is not None
        assert row[1].startswith(f"{own.mean:.3f}")
    lines = list(csv.DictReader(io.StringIO(runs_csv(comparison))))
    assert {line["method"]: float(line["accuracy"]) for line in lines if line["seed"] == "0"} == {
        label: pytest.approx(value) for label, value in accuracies.items()
    }
    told = list(csv.DictReader(io.StringIO(results_csv(comparison))))
    assert {line["measure"] for line in told} >= {"accuracy", "last"}
