import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cadis.algorithm.methods import CADIS, FedAvg
from cadis.analysis import ACCURACY, MEASURES, Comparison, answer, details
from cadis.report import summary_text
from cadis.report.exports import results_csv, runs_csv, write_results
from cadis.report.formats import Sheet, fits_a_terminal, shown_p, to_latex, to_markdown, to_rich
from cadis.report.tables import notes, sheets
from cadis.server import RoundRecord
from cadis.store import PaperReport
from fabricated import (
    compare,
    read_csv,
    sheet_of,
    together,
    with_clock,
    with_measures,
    with_models,
    write_run,
    write_study,
)

LEVELS = {"fedavg": 0.6, "cadis": 0.9, "singleset": 0.99}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(tmp_path_factory.mktemp("study"), LEVELS, 3)


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


def test_cells_are_means_and_the_best_federation_is_stressed(comparison: Comparison) -> None:
    accuracy = sheets(comparison)[0]
    assert accuracy.columns == ["method", "best", "last", "10-round mean", "amplitude", "rare"]
    assert [row[0] for row in accuracy.rows] == ["CADIS", "FedAvg", "SingleSet"]
    assert {row for row, _ in accuracy.best} == {0}
    assert {column for _, column in accuracy.best} == {1, 2, 3, 5}  # amplitude is no merit
    best = [scores.best or 0 for scores in comparison.groups[1].scores]
    mean = sum(best) / 3
    deviation = (sum((value - mean) ** 2 for value in best) / 2) ** 0.5
    assert accuracy.rows[0][1] == f"{mean:.3f}±{deviation:.3f}"


def test_measures_of_the_task_have_a_table_and_columns(tmp_path: Path) -> None:
    told = compare(tmp_path, {"fedavg": 0.6, "cadis": 0.9}, 2, further=with_measures)
    sheet = sheets(told)[1]
    assert sheet.caption == "Further measures in the last round"
    assert sheet.columns == ["method", "AUC", "balanced accuracy"]
    one, other = (s.history[-1].measures["auc"] or 0.0 for s in told.groups[1].runs)
    deviation = abs(one - other) / 2**0.5
    assert sheet.rows[0][:2] == ["CADIS", f"{(one + other) / 2:.3f}±{deviation:.3f}"]
    assert sheet.best == [(1, 1), (0, 2)]
    runs = read_csv(runs_csv(told))
    assert float(runs[2]["auc"]) == one
    rows = read_csv(results_csv(told))
    mean = {r["method"]: float(r["mean"]) for r in rows if r["measure"] == "auc"}
    assert mean["CADIS"] == pytest.approx((one + other) / 2)


def test_simulated_time_has_a_table_and_columns_where_speeds_are_given(
    comparison: Comparison, tmp_path: Path
) -> None:
    timed = compare(tmp_path, LEVELS, 2, further=with_clock, speeds="1:9")
    rounds, seconds = (
        sheet_of(timed, f"{unit} to reach") for unit in ("Rounds", "Simulated seconds")
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
    sheet = sheet_of(together(folder), "Models")
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
    rounds = sheets(compare(tmp_path, {"fedavg": 0.3, "cadis": 0.9}, 2))[2]
    assert rounds.rows[1][-1] == "N/A"
    assert re.fullmatch(r"\d+(\.5)?", rounds.rows[0][-1])  # no speed-up over who never got there


def test_notes_tell_what_a_reader_must_know(comparison: Comparison, tmp_path: Path) -> None:
    text = " ".join(notes(comparison))
    reference = "SingleSet has all data in one place"
    assert all(n in text for n in ("3 seeds", "Holm", reference, "9 updates were left out"))
    unfinished = together(write_run(tmp_path / "run", CADIS(), finished=False))
    assert "1 of 1 runs have not ended" in " ".join(notes(unfinished))


def test_files_for_programs_and_for_people(comparison: Comparison, tmp_path: Path) -> None:
    written = {path.name for path in write_results(comparison, tmp_path)}
    assert written == {"results.csv", "runs.csv", "results.md", "results.tex"}
    assert "**CADIS" not in (tmp_path / "results.md").read_text()
    assert "% Mean ± sample standard deviation" in (tmp_path / "results.tex").read_text()
    assert (tmp_path / "results.tex").read_text().count("\\begin{tabular}") == 6


def test_csv_can_be_read_back(comparison: Comparison) -> None:
    runs = read_csv(runs_csv(comparison))
    assert [(run["method"], run["seed"]) for run in runs[:4]] == [
        ("FedAvg", "0"), ("FedAvg", "1"), ("FedAvg", "2"), ("CADIS", "0"),
    ]  # fmt: skip
    for run, scores in zip(runs[3:6], comparison.groups[1].scores, strict=True):
        for measure in MEASURES:
            value = measure.of(scores)
            assert run[measure.key] == ("" if value is None else str(value))
    results = read_csv(results_csv(comparison))
    row = next(r for r in results if (r["method"], r["measure"]) == ("CADIS", "ten_rounds"))
    test = comparison.test(comparison.groups[1], MEASURES[2])
    assert test is not None
    assert float(row["p"]) == test.p_value
    assert float(row["p_corrected"]) == comparison.corrected(MEASURES[2])["CADIS"]
    assert row["runs"] == "3"


HOSTILE = Sheet("50% & more_", ["a|b", "<c>"], [["[red]x", "1"], ["$y$ \\", "0.5±0.1"]], [(1, 1)])


def test_names_mean_nothing_but_themselves() -> None:
    assert (shown_p(0.04321), shown_p(0.0002)) == ("0.043", "< 0.001")
    console = Console(width=60, record=True)
    console.print(to_rich(HOSTILE))
    assert "[red]x" in console.export_text()
    markdown = to_markdown(HOSTILE)
    assert "| a\\|b | \\<c\\> |" in markdown
    assert "**0.5±0.1**" in markdown
    latex = to_latex(HOSTILE)
    assert "50\\% \\& more\\_" in latex
    assert "\\$y\\$ \\textbackslash{} & \\textbf{0.5$\\pm$0.1} \\\\" in latex
    minus = Sheet("x", ["a", "b"], [["cadis-oracle", "-0.1 to +0.2"]], [])
    assert "cadis-oracle & $-$0.1 to +0.2" in to_latex(minus)


def test_nobody_is_stressed_if_all_are_alike(tmp_path: Path) -> None:
    methods = {"a": CADIS(), "b": CADIS(threshold=0.8)}
    alike = together(*(write_run(tmp_path / name, method) for name, method in methods.items()))
    assert sheets(alike)[0].best == []
    assert answer(alike).startswith("One seed: all have accuracy 0.")


def test_there_is_no_winner_while_rounds_differ(tmp_path: Path) -> None:
    early = together(
        write_run(tmp_path / "a", CADIS(), rounds=12),
        write_run(tmp_path / "b", FedAvg(), rounds=3, finished=False),
    )
    assert answer(early).startswith("There is no answer yet")
    assert details(early) == ["Rounds of the runs that are shown: CADIS: 12; FedAvg: 3."]
    assert sheets(early)[0].best == []
    so_far = together(write_run(tmp_path / "c", CADIS(), finished=False))
    assert answer(so_far).startswith("So far: CADIS reaches")


def test_the_papers_figures_stand_beside_ours(tmp_path: Path) -> None:
    folder = write_study(tmp_path, {"fedavg": 0.6, "cadis": 0.9, "scaffold": 0.7}, 2)
    changed = ("rounds 12 instead of 500",)
    report = PaperReport("Table I", {"fedavg": 93.04, "cadis": 93.45}, changed)
    folder.write(replace(folder.read(), paper=report))
    comparison = together(folder)
    sheet = sheets(comparison)[0]
    assert sheet.columns[:3] == ["method", "best", "paper (Table I)"]
    figures = {"CADIS": "0.934", "SCAFFOLD": "", "FedAvg": "0.930"}
    assert {row[0]: row[2] for row in sheet.rows} == figures
    assert {column for _, column in sheet.best} == {1, 3, 4, 6}  # not the paper's, nor amplitude
    assert any("in Table I; here: rounds 12 instead of 500." in note for note in notes(comparison))
    assert "CADIS,best_in_paper,0.9345" in results_csv(comparison)
    assert fits_a_terminal(sheet)


def test_where_another_measure_decides_accuracy_is_told_as_such(tmp_path: Path) -> None:
    levels = {"fedavg": 0.6, "cadis": 0.9}
    told = compare(tmp_path, levels, 2, further=with_measures, headline="auc")
    comparison = Comparison(told.results.judged_by("auc"))
    groups = {group.label: group for group in comparison.groups}
    for label, shown, *_ in sheet_of(comparison, "Last accuracy on the test").rows:
        own = comparison.spread(groups[label], ACCURACY)
        assert own is not None
        assert shown.startswith(f"{own.mean:.3f}")
    lines = [line for line in read_csv(runs_csv(comparison)) if line["seed"] == "0"]
    for line in lines:
        assert float(line["accuracy"]) == groups[line["method"]].scores[0].accuracy
    assert {line["method"] for line in lines} == groups.keys()
    measures = {line["measure"] for line in read_csv(results_csv(comparison))}
    assert measures >= {"accuracy", "last"}
