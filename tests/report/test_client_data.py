"""Accuracy on clients' own data, which are held-out or training data."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from cadis.algorithm.methods import CADIS, FedAvg
from cadis.analysis import Comparison, explain_verdict, read_results, write_verdict
from cadis.report import draw_figures, format_summary
from cadis.report.exports import make_results_csv, make_runs_csv
from cadis.report.formats import fits_terminal, to_latex, to_markdown
from cadis.report.notes import write_notes
from cadis.report.page.content import make_page_data
from cadis.server import RoundRecord
from fabricated import compare, find_table, read_csv, read_run, write_run
from legibility import collect_figures, list_texts

LEVELS = {"fedavg": 0.6, "cadis": 0.9, "singleset": 0.99}
CAPTION = "Accuracy in the last round on the test set"
DATA_NAMES = {0: "own training data", 2: "own test data"}


@pytest.mark.parametrize("held_out", [0, 2])
def test_accuracy_on_the_test_set_and_on_client_data_are_in_one_table(
    held_out: int, tmp_path: Path
) -> None:
    comparison = compare(tmp_path, LEVELS, 2, held_out=held_out)
    table, runs = find_table(comparison, CAPTION), comparison.groups[1].runs
    own = DATA_NAMES[held_out]
    caption = f"{CAPTION} and on clients' {own}, and agreement with the true clusters"
    assert table.caption == caption
    titles = ["test set", "mean of clients", "std. dev. of clients", "worst client"]
    assert table.columns == ["method", *titles, "clusters (ARI)"]
    clients = [list(run_data.client_accuracy[10].values()) for run_data in runs]
    cadis = [cell.partition("±")[0] for cell in table.rows[0]]
    last = fmean(run_data.history[-1].accuracy or 0.0 for run_data in runs)
    worst = fmean(map(min, clients))
    assert cadis[:3] == ["CADIS", f"{last:.3f}", f"{fmean(map(fmean, clients)):.3f}"]
    assert cadis[4] == f"{worst:.3f}"
    assert fits_terminal(table)
    assert f"clients' {own}" in to_markdown(table)
    assert f"clients' {own}" in to_latex(table)


@pytest.mark.parametrize("held_out", [0, 2])
def test_texts_and_files_name_the_client_data(held_out: int, tmp_path: Path) -> None:
    comparison = compare(tmp_path, LEVELS, 2, held_out=held_out)
    own, other = DATA_NAMES[held_out], DATA_NAMES[2 - held_out]
    everything = " ".join([*explain_verdict(comparison), *write_notes(comparison)])
    assert own in everything.lower()
    assert other not in everything.lower()
    assert make_page_data(comparison.results)["fairness"]["own_data"] == own
    assert {row["clients_tested_on"] for row in read_csv(make_runs_csv(comparison))} == {own}
    rows = {
        row["measure"]: row["clients_tested_on"] for row in read_csv(make_results_csv(comparison))
    }
    assert (rows["client_mean"], rows["client_worst"], rows["best"]) == (own, own, "")


def test_the_verdict_names_the_method_that_is_best_on_client_data(tmp_path: Path) -> None:
    """It may differ from the best method on the test set."""

    def invert_client_accuracy(record: RoundRecord) -> RoundRecord:
        values = record.client_accuracy
        return replace(record, client_accuracy=values and [1 - (a or 0.0) for a in values])

    ahead = compare(tmp_path / "same", LEVELS, 2, held_out=2)
    best, baseline = ahead.groups[1].scores, ahead.groups[0].scores
    means = [fmean(s.client_mean or 0.0 for s in scores) for scores in (best, baseline)]
    assert explain_verdict(ahead)[-1] == (
        "On clients' own test data, the mean accuracy of the clients in the last round is "
        f"{means[0]:.3f} with CADIS and {means[1]:.3f} with FedAvg."
    )
    behind = compare(
        tmp_path / "other", LEVELS, 2, held_out=2, change_record=invert_client_accuracy
    )
    assert write_verdict(behind).startswith("CADIS ")
    own = fmean(s.client_mean or 0.0 for s in behind.groups[0].scores)
    assert explain_verdict(behind)[-1].endswith(f"; the highest is {own:.3f} with FedAvg.")
    trained_on = compare(tmp_path / "trained on", LEVELS, 2)
    assert not any("clients'" in sentence for sentence in explain_verdict(trained_on))


def test_a_note_warns_if_runs_test_clients_on_different_data(tmp_path: Path) -> None:
    write_run(tmp_path / "a", FedAvg(), held_out=2)
    write_run(tmp_path / "b", CADIS())
    mixed = Comparison(read_results([tmp_path / "a", tmp_path / "b"]))
    assert "on clients' own data, and" in find_table(mixed, CAPTION).caption
    assert any("do not compare these numbers" in sentence for sentence in write_notes(mixed))
    assert make_page_data(mixed.results)["fairness"]["own_data"] == "own data"


def test_notes_say_why_clients_are_not_tested(tmp_path: Path) -> None:
    def drop_first(record: RoundRecord) -> RoundRecord:
        values = record.client_accuracy
        return replace(record, client_accuracy=values and [None, *values[1:]])

    run_data = read_run(tmp_path / "run", CADIS(), held_out=2, change_record=drop_first)
    results = read_results([tmp_path / "run"])
    notes = write_notes(Comparison(results))
    assert any("measured for 11 of 12 clients (a random sample)" in note for note in notes)
    run_data.federation["clients"][0]["test_samples"] = [0] * 5
    group = replace(results.groups[0], runs=[run_data])
    notes = write_notes(Comparison(replace(results, groups=[group])))
    assert any("11 of 12 clients (the others have too few samples)" in note for note in notes)


def test_figures_and_the_page_show_the_number_of_held_out_samples(tmp_path: Path) -> None:
    results = read_results([write_run(tmp_path / "run", CADIS(), rounds=15, held_out=2).path])
    with collect_figures() as found:
        draw_figures(results, tmp_path / "figures", pdf=False)
    text = "\n".join(words for drawing in found.values() for words in list_texts(drawing))
    assert "accuracy of the last global model on a client's own test data" in text
    assert "Accuracy of the global model on clients' own test data" in text
    held = 2 * (6 * 2 + 4 + 2 * 2)  # two of each of the classes that the clusters have
    assert f"training samples and {held} held-out test samples" in text
    (seed,) = make_page_data(results)["federation"]["seeds"]
    assert seed["num_test_samples"] == held


def test_the_summary_has_the_accuracy_on_own_test_data(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), held_out=2)
    clients = [a or 0.0 for a in folder.read_history()[9].client_accuracy or []]
    text = format_summary(folder)
    assert f"{fmean(clients):.3f}" in text.partition("own test data")[2].partition("\n")[0]
    assert f"{min(clients):.3f}" in text.partition("worst client")[2].partition("\n")[0]
    assert "own test data" not in format_summary(write_run(tmp_path / "plain", CADIS()))
