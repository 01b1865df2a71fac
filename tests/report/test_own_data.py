"""Clients' own data, held out or trained on: the right words, and both measures side by side."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from cadis.algorithm.methods import CADIS, FedAvg
from cadis.analysis import Comparison, answer, details, read_results
from cadis.report import draw_figures, summary_text
from cadis.report.exports import results_csv, runs_csv
from cadis.report.formats import fits_a_terminal, to_latex, to_markdown
from cadis.report.page.content import page_data
from cadis.report.tables import notes
from cadis.server import RoundRecord
from fabricated import compare, read_csv, read_run, sheet_of, write_run
from legibility import saved_figures, texts

LEVELS = {"fedavg": 0.6, "cadis": 0.9, "singleset": 0.99}
OWN = "Last accuracy on the test"
WORDS = {0: "own training data", 2: "own test data"}


@pytest.mark.parametrize("held_out", [0, 2])
def test_both_measures_are_side_by_side(held_out: int, tmp_path: Path) -> None:
    comparison = compare(tmp_path, LEVELS, 2, held_out=held_out)
    sheet, runs = sheet_of(comparison, OWN), comparison.groups[1].runs
    own, titles = WORDS[held_out], ["test set", "clients' mean", "deviation", "worst client"]
    caption = f"Last accuracy on the test set and on clients' {own}, and clusters"
    assert sheet.caption == caption
    assert sheet.columns == ["method", *titles, "clusters found (ARI)"]
    clients = [list(run_data.client_accuracy[10].values()) for run_data in runs]
    cadis = [cell.partition("±")[0] for cell in sheet.rows[0]]
    last = fmean(run_data.history[-1].accuracy or 0.0 for run_data in runs)
    worst = fmean(map(min, clients))
    assert cadis[:3] == ["CADIS", f"{last:.3f}", f"{fmean(map(fmean, clients)):.3f}"]
    assert cadis[4] == f"{worst:.3f}"
    assert fits_a_terminal(sheet)
    assert f"clients' {own}" in to_markdown(sheet)
    assert f"clients' {own}" in to_latex(sheet)


@pytest.mark.parametrize("held_out", [0, 2])
def test_words_and_files_say_which_data_they_are(held_out: int, tmp_path: Path) -> None:
    comparison = compare(tmp_path, LEVELS, 2, held_out=held_out)
    own, other = WORDS[held_out], WORDS[2 - held_out]
    everything = " ".join([*details(comparison), *notes(comparison)])
    assert own in everything.lower()
    assert other not in everything.lower()
    assert page_data(comparison.results)["fairness"]["own"] == own
    assert {row["clients_tested_on"] for row in read_csv(runs_csv(comparison))} == {own}
    rows = {row["measure"]: row["clients_tested_on"] for row in read_csv(results_csv(comparison))}
    assert (rows["client_mean"], rows["client_worst"], rows["best"]) == (own, own, "")


def test_the_answer_tells_what_is_best_for_clients(tmp_path: Path) -> None:
    """Not necessarily what is best on the test set."""

    def swapped(record: RoundRecord) -> RoundRecord:
        told = record.client_accuracy
        return replace(record, client_accuracy=told and [1 - (a or 0.0) for a in told])

    ahead = compare(tmp_path / "same", LEVELS, 2, held_out=2)
    best, baseline = ahead.groups[1].scores, ahead.groups[0].scores
    means = [fmean(s.client_mean or 0.0 for s in scores) for scores in (best, baseline)]
    assert details(ahead)[-1] == (
        "On clients' own test data, mean over the clients, CADIS has an accuracy of "
        f"{means[0]:.3f} in the last round, FedAvg {means[1]:.3f}."
    )
    behind = compare(tmp_path / "other", LEVELS, 2, held_out=2, further=swapped)
    assert answer(behind).startswith("CADIS ")
    own = fmean(s.client_mean or 0.0 for s in behind.groups[0].scores)
    assert details(behind)[-1].endswith(f"; the highest there is FedAvg with {own:.3f}.")
    trained_on = compare(tmp_path / "trained on", LEVELS, 2)
    assert not any("clients'" in sentence for sentence in details(trained_on))


def test_runs_of_both_kinds_are_not_compared_in_silence(tmp_path: Path) -> None:
    write_run(tmp_path / "a", FedAvg(), held_out=2)
    write_run(tmp_path / "b", CADIS())
    mixed = Comparison(read_results([tmp_path / "a", tmp_path / "b"]))
    assert "on clients' own data, and" in sheet_of(mixed, OWN).caption
    assert any("do not compare these" in sentence for sentence in notes(mixed))
    assert page_data(mixed.results)["fairness"]["own"] == "own data"


def test_clients_without_test_data_are_not_said_to_be_left_out_by_lot(tmp_path: Path) -> None:
    def some(record: RoundRecord) -> RoundRecord:
        told = record.client_accuracy
        return replace(record, client_accuracy=told and [None, *told[1:]])

    run_data = read_run(tmp_path / "run", CADIS(), held_out=2, further=some)
    results = read_results([tmp_path / "run"])
    assert any("that of 11 of 12 clients, drawn evenly" in s for s in notes(Comparison(results)))
    run_data.federation["clients"][0]["test_samples"] = [0] * 5
    group = replace(results.groups[0], runs=[run_data])
    told = notes(Comparison(replace(results, groups=[group])))
    assert any("11 of 12 clients, the others have too few samples" in s for s in told)


def test_pictures_and_the_page_tell_how_much_is_held_out(tmp_path: Path) -> None:
    results = read_results([write_run(tmp_path / "run", CADIS(), held_out=2).path])
    with saved_figures() as found:
        draw_figures(results, tmp_path / "figures", pdf=False)
    text = "\n".join(words for drawing in found.values() for words in texts(drawing))
    assert "accuracy of the last global model on a client's own test data" in text
    assert "Accuracy of the global model on clients' own test data" in text
    held = 2 * (6 * 2 + 4 + 2 * 2)  # two of each of the classes that the clusters have
    assert f"samples to train on, and {held} held out" in text
    (seed,) = page_data(results)["federation"]["seeds"]
    assert seed["held"] == held


def test_a_run_ends_with_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), held_out=2)
    clients = [a or 0.0 for a in folder.read_history()[9].client_accuracy or []]
    text = summary_text(folder)
    assert f"{fmean(clients):.3f}" in text.partition("own test data")[2].partition("\n")[0]
    assert f"{min(clients):.3f}" in text.partition("of the worst client")[2].partition("\n")[0]
    assert "own test data" not in summary_text(write_run(tmp_path / "plain", CADIS()))
