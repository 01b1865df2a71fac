import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cadis.algorithm.methods import CADIS, FedAvg
from cadis.analysis import ACCURACY, METRICS, Comparison, explain_verdict, write_verdict
from cadis.report import format_summary
from cadis.report.exports import make_results_csv, make_runs_csv, write_results
from cadis.report.formats import (
    TextTable,
    fits_terminal,
    format_p_value,
    to_latex,
    to_markdown,
    to_rich,
)
from cadis.report.notes import write_notes
from cadis.report.tables import make_tables
from cadis.server import RoundRecord
from cadis.store import PaperResults
from fabricated import (
    add_clock,
    add_metrics,
    add_models,
    compare,
    compare_folders,
    find_table,
    read_csv,
    write_run,
    write_study,
)

LEVELS = {"fedavg": 0.6, "cadis": 0.9, "singleset": 0.99}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(tmp_path_factory.mktemp("study"), LEVELS, 3)


def test_tables_have_these_captions_and_full_rows(comparison: Comparison) -> None:
    captions = [table.caption for table in make_tables(comparison)]
    assert captions == [
        "Accuracy on the test set",
        "Difference from FedAvg: accuracy, mean of the last 10 rounds",
        "Rounds to reach a given accuracy, and speed-up over FedAvg",
        "Accuracy in the last round on the test set and on clients' own training data, "
        "and agreement with the true clusters",
        "Accuracy on each class in the last round (*: rare class)",
        "Computing time",
    ]
    for table in make_tables(comparison):
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_cells_are_means_and_the_best_method_is_bold(comparison: Comparison) -> None:
    accuracy = make_tables(comparison)[0]
    assert accuracy.columns == [
        "method", "best round", "last round", "last 10 rounds", "amplitude", "rare classes",
    ]  # fmt: skip
    assert [row[0] for row in accuracy.rows] == ["CADIS", "FedAvg", "SingleSet"]
    assert {row for row, _ in accuracy.best} == {0}
    assert {column for _, column in accuracy.best} == {1, 2, 3, 5}  # no amplitude is better
    best = [scores.best or 0 for scores in comparison.groups[1].scores]
    mean = sum(best) / 3
    deviation = (sum((value - mean) ** 2 for value in best) / 2) ** 0.5
    assert accuracy.rows[0][1] == f"{mean:.3f}±{deviation:.3f}"


def test_task_metrics_have_a_table_and_csv_columns(tmp_path: Path) -> None:
    comparison = compare(tmp_path, {"fedavg": 0.6, "cadis": 0.9}, 2, change_record=add_metrics)
    table = make_tables(comparison)[1]
    assert table.caption == "Further metrics in the last round"
    assert table.columns == ["method", "AUC", "balanced accuracy"]
    one, other = (s.history[-1].metrics["auc"] or 0.0 for s in comparison.groups[1].runs)
    deviation = abs(one - other) / 2**0.5
    assert table.rows[0][:2] == ["CADIS", f"{(one + other) / 2:.3f}±{deviation:.3f}"]
    assert table.best == [(1, 1), (0, 2)]
    runs = read_csv(make_runs_csv(comparison))
    assert float(runs[2]["auc"]) == one
    rows = read_csv(make_results_csv(comparison))
    mean = {r["method"]: float(r["mean"]) for r in rows if r["measure"] == "auc"}
    assert mean["CADIS"] == pytest.approx((one + other) / 2)


def test_simulated_time_has_a_table_and_csv_columns_if_speeds_are_given(
    comparison: Comparison, tmp_path: Path
) -> None:
    timed = compare(tmp_path, LEVELS, 2, change_record=add_clock, speeds="1:9")
    rounds, seconds = (
        find_table(timed, f"{unit} to reach") for unit in ("Rounds", "Simulated seconds")
    )
    assert seconds.columns == rounds.columns
    target = timed.targets[0]
    spread = timed.measure_time_to(timed.groups[0], target).rounds
    assert spread is not None
    assert float(seconds.rows[1][1].partition(" ")[0]) == pytest.approx(spread.mean, abs=0.05)
    assert f"FedAvg,time_to_{target:g},{spread.mean}" in make_results_csv(timed)
    assert f"time_to_{target:g}" in make_runs_csv(timed).splitlines()[0]
    assert "time_to" not in make_runs_csv(comparison) + make_results_csv(comparison)


def test_several_models_have_a_table(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), change_record=add_models)
    table = find_table(compare_folders(folder), "Models")
    accuracy = folder.read_history()[-1].accuracy or 0.0
    assert table.columns == ["model", "clients", "accuracy", "loss"]
    assert table.rows == [
        ["CADIS: left", "8", f"{accuracy / 2:.3f}", f"{1 - accuracy / 2:.3f}"],
        ["CADIS: right [b]", "4", f"{accuracy:.3f}", ""],
    ]


def test_summary_has_task_metrics_and_models(tmp_path: Path) -> None:
    def change_record(record: RoundRecord) -> RoundRecord:
        return add_models(add_metrics(record))

    folder = write_run(tmp_path / "run", CADIS(), change_record=change_record, main_metric="auc")
    accuracy = folder.read_history()[-1].accuracy or 0.0
    text = format_summary(folder)
    assert re.search(rf"│ balanced accuracy +│ {accuracy**2:.3f} │", text)
    assert "accuracy in the round with the best AUC" in text
    assert "best accuracy" not in text
    assert re.search(rf"│ right \[b\] │ +4 │ +{accuracy:.3f} │ +│", text)
    plain = format_summary(write_run(tmp_path / "plain", CADIS()))
    assert "best accuracy" in plain
    assert "Models" not in plain


def test_targets_that_are_not_reached_are_named_as_such(tmp_path: Path) -> None:
    rounds = make_tables(compare(tmp_path, {"fedavg": 0.3, "cadis": 0.9}, 2))[2]
    assert rounds.columns == ["method", "30%", "speed-up to 30%", "90%"]
    assert rounds.rows[1][-1] == "not reached"
    assert re.fullmatch(r"(\(1 of 2 seeds\) )?\d+(\.[05])?", rounds.rows[0][-1])


def test_notes_explain_seeds_tests_references_and_rejected_updates(
    comparison: Comparison, tmp_path: Path
) -> None:
    text = " ".join(write_notes(comparison))
    reference = "SingleSet trains on the pooled data of all clients"
    assert all(n in text for n in ("3 seeds", reference, "9 client updates were rejected"))
    assert "corrected for the number of methods" in find_table(comparison, "Difference").note
    unfinished = compare_folders(write_run(tmp_path / "run", CADIS(), finished=False))
    assert "1 of 1 runs are not finished" in " ".join(write_notes(unfinished))


def test_results_are_written_as_csv_markdown_and_latex(
    comparison: Comparison, tmp_path: Path
) -> None:
    written = {path.name for path in write_results(comparison, tmp_path)}
    assert written == {"results.csv", "runs.csv", "results.md", "results.tex"}
    assert "**CADIS" not in (tmp_path / "results.md").read_text()
    assert (
        "% Numbers are mean ± sample standard deviation" in (tmp_path / "results.tex").read_text()
    )
    assert (tmp_path / "results.tex").read_text().count("\\begin{tabular}") == 6


def test_csv_can_be_read_back(comparison: Comparison) -> None:
    runs = read_csv(make_runs_csv(comparison))
    assert [(run["method"], run["seed"]) for run in runs[:4]] == [
        ("FedAvg", "0"), ("FedAvg", "1"), ("FedAvg", "2"), ("CADIS", "0"),
    ]  # fmt: skip
    for run, scores in zip(runs[3:6], comparison.groups[1].scores, strict=True):
        for metric in METRICS.values():
            value = metric.compute(scores)
            assert run[metric.key] == ("" if value is None else str(value))
    results = read_csv(make_results_csv(comparison))
    row = next(r for r in results if (r["method"], r["measure"]) == ("CADIS", "ten_rounds"))
    metric = METRICS["ten_rounds"]
    test = comparison.test_against_baseline(comparison.groups[1], metric)
    assert test is not None
    assert float(row["p"]) == test.p_value
    assert float(row["p_corrected"]) == comparison.correct_p_values(metric)["CADIS"]
    assert row["runs"] == "3"


HOSTILE = TextTable(
    "50% & more_", ["a|b", "<c>"], [["[red]x", "1"], ["$y$ \\", "0.5±0.1"]], [(1, 1)]
)


def test_special_characters_are_escaped() -> None:
    assert (format_p_value(0.04321), format_p_value(0.0002)) == ("0.043", "< 0.001")
    console = Console(width=60, record=True)
    console.print(to_rich(HOSTILE))
    assert "[red]x" in console.export_text()
    markdown = to_markdown(HOSTILE)
    assert "| a\\|b | \\<c\\> |" in markdown
    assert "**0.5±0.1**" in markdown
    latex = to_latex(HOSTILE)
    assert "50\\% \\& more\\_" in latex
    assert "\\$y\\$ \\textbackslash{} & \\textbf{0.5$\\pm$0.1} \\\\" in latex
    minus = TextTable("x", ["a", "b"], [["cadis-oracle", "-0.1 to +0.2"]], [])
    assert "cadis-oracle & $-$0.1 to +0.2" in to_latex(minus)


def test_no_cell_is_bold_if_all_methods_are_equal(tmp_path: Path) -> None:
    methods = {"a": CADIS(), "b": CADIS(threshold=0.8)}
    equal = compare_folders(
        *(write_run(tmp_path / name, method) for name, method in methods.items())
    )
    assert make_tables(equal)[0].best == []
    assert " with all methods. One seed is " in write_verdict(equal)


def test_no_method_is_better_while_rounds_differ(tmp_path: Path) -> None:
    early = compare_folders(
        write_run(tmp_path / "a", CADIS(), rounds=12),
        write_run(tmp_path / "b", FedAvg(), rounds=3, finished=False),
    )
    assert write_verdict(early).startswith("There is no verdict yet")
    assert explain_verdict(early) == ["Rounds finished so far: CADIS 12, FedAvg 3."]
    assert make_tables(early)[0].best == []
    so_far = compare_folders(write_run(tmp_path / "c", CADIS(), finished=False))
    assert write_verdict(so_far).startswith("So far: CADIS reaches")


def test_results_of_the_paper_have_a_column(tmp_path: Path) -> None:
    folder = write_study(tmp_path, {"fedavg": 0.6, "cadis": 0.9, "scaffold": 0.7}, 2)
    changed = ("rounds 12 instead of 500",)
    results = PaperResults("Table I", {"fedavg": 93.04, "cadis": 93.45}, changed)
    folder.write(replace(folder.read(), paper=results))
    comparison = compare_folders(folder)
    table = make_tables(comparison)[0]
    assert table.columns[:3] == ["method", "best round", "paper (Table I)"]
    paper = {"CADIS": "0.934", "SCAFFOLD": "", "FedAvg": "0.930"}
    assert {row[0]: row[2] for row in table.rows} == paper
    assert {column for _, column in table.best} == {1, 3, 4, 6}  # neither paper nor amplitude
    assert any(
        "in Table I; different here: rounds 12 instead of 500." in note
        for note in write_notes(comparison)
    )
    assert "CADIS,best_in_paper,0.9345" in make_results_csv(comparison)
    assert fits_terminal(table)


def test_accuracy_is_a_column_of_its_own_if_another_metric_is_the_main_one(tmp_path: Path) -> None:
    levels = {"fedavg": 0.6, "cadis": 0.9}
    results = compare(tmp_path, levels, 2, change_record=add_metrics, main_metric="auc").results
    comparison = Comparison(results.with_metric("auc"))
    groups = {group.label: group for group in comparison.groups}
    for label, cell, *_ in find_table(comparison, "Accuracy in the last round on the").rows:
        spread = comparison.compute_spread(groups[label], ACCURACY)
        assert spread is not None
        assert cell.startswith(f"{spread.mean:.3f}")
    lines = [line for line in read_csv(make_runs_csv(comparison)) if line["seed"] == "0"]
    for line in lines:
        assert float(line["accuracy"]) == groups[line["method"]].scores[0].accuracy
    assert {line["method"] for line in lines} == groups.keys()
    keys = {line["measure"] for line in read_csv(make_results_csv(comparison))}
    assert keys >= {"accuracy", "last"}
