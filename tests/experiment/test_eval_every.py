"""Runs whose model is not tested in every round."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import cadis
from cadis.analysis import Comparison, RunData, Scores, read_results
from cadis.data import Samples, Subsets
from cadis.report import draw_figures
from cadis.report.notes import write_notes
from cadis.report.page.content import make_page_data
from cadis.report.tables import make_tables
from cadis.report.terminal import show_run_progress
from cadis.server import RoundRecord, RoundResult
from cadis.store import RunFolder
from support import blobs, run_small


def run(out: Path | None = None, **changes: Any) -> cadis.RunResult:
    arguments: dict[str, Any] = {"rounds": 7, "per_round": 3, "workers": 1, "seed": 3, "epochs": 2}
    arguments |= {"lr": 0.1, "true_clusters": [0, 0, 0, 0, 1], "out": out, "method": "cadis"}
    return run_small(**arguments | changes)


def get_accuracies(history: list[RoundRecord]) -> list[float | None]:
    return [record.accuracy for record in history]


def test_best_model_is_from_a_tested_round(tmp_path: Path) -> None:
    often = run(tmp_path / "often")
    seldom = run(tmp_path / "seldom", eval_every=3)
    every, some = get_accuracies(often.history), get_accuracies(seldom.history)
    assert some == [None, None, every[2], None, None, every[5], every[6]]
    tested = {n: value for n, value in enumerate(some, start=1) if value is not None}
    assert seldom.summary["best_round"] == max(tested, key=lambda n: tested[n])
    assert seldom.summary["best_accuracy"] == max(tested.values())
    assert seldom.summary["accuracy"] == seldom.accuracy == every[6]
    assert seldom.summary["confusion"] == often.summary["confusion"]
    best = run(rounds=seldom.summary["best_round"]).model.state_dict()
    stored = load_file(tmp_path / "seldom" / "best.safetensors")
    assert all(torch.equal(stored[name], best[name]) for name in best)


def test_resumed_run_with_another_eval_every_gives_the_same_models(tmp_path: Path) -> None:
    whole = run(eval_every=2)
    run(tmp_path / "run", rounds=3, eval_every=3)
    rest = run(tmp_path / "run", eval_every=2, resume=True)
    pairs = zip(whole.model.parameters(), rest.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert get_accuracies(rest.history)[3:] == get_accuracies(whole.history)[3:]
    assert [a is not None for a in get_accuracies(rest.history)[:3]] == [False, False, True]


def test_reports_show_only_tested_rounds(tmp_path: Path) -> None:
    run(tmp_path / "run", eval_every=3, rounds=21)
    results = read_results([tmp_path / "run"])
    (run_data,) = results.runs
    tested = {r.round: r.accuracy for r in run_data.history if r.accuracy is not None}
    scores, comparison = Scores.from_run(run_data), Comparison(results)
    last = [tested[number] for number in (12, 15, 18, 21)]
    assert scores.ten_rounds == pytest.approx(sum(last) / 4)
    page = make_page_data(results)["accuracy"]["runs"][0]
    assert [n for n, value in enumerate(page["all"], start=1) if value is not None] == [*tested]
    assert any("Not every round was tested" in sentence for sentence in write_notes(comparison))
    assert not any("a random sample" in sentence for sentence in write_notes(comparison))
    names = {path.stem for path in draw_figures(results, tmp_path / "figures", pdf=False)}
    assert {"accuracy", "accuracy-10-rounds", "loss", "clients"} <= names


def test_unfinished_run_shows_its_last_test(tmp_path: Path) -> None:
    def stop(result: RoundResult) -> None:
        if result.record.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", eval_every=2, rounds=6, on_round=stop)
    folder = RunFolder(tmp_path / "run")
    run_data = RunData.read(folder)
    assert not run_data.is_finished
    assert run_data.history[-1].accuracy is None
    assert run_data.last_tested.round == 4
    assert run_data.summary["accuracy"] == run_data.history[3].accuracy
    assert Scores.from_run(run_data).rare == run_data.summary["rare_accuracy"] is not None
    page = make_page_data(read_results([folder.path]))
    assert page["accuracy"]["runs"][0]["all"][4] is None
    captions = [sheet.caption for sheet in make_tables(Comparison(read_results([folder.path])))]
    assert any(caption.startswith("Accuracy on each class") for caption in captions)
    untested = replace(run_data, history=run_data.history[:1])
    assert Scores.from_run(untested).ten_rounds is None


def test_terminal_shows_the_last_test() -> None:
    console = Console(file=StringIO(), width=80)
    with show_run_progress(console, 5) as (on_round, _):
        run(rounds=5, eval_every=2, on_round=on_round)
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("round")]  # type: ignore[attr-defined]
    assert lines[0].startswith("round 1/5: not tested, ")
    accuracy = lines[1].partition(": ")[2].partition(",")[0]
    assert accuracy.startswith("accuracy 0.")
    assert lines[2].startswith(f"round 3/5: {accuracy} in round 2, ")


def test_subsets_are_not_copied() -> None:
    dataset = blobs(40, [0, 1, 2], seed=4)
    indices = tuple(torch.arange(40).split(8))
    copies = [dataset.take(part) for part in indices]
    from_subsets = run_small(clients=Subsets(dataset, indices), rounds=1, workers=1)
    from_copies = run_small(clients=copies, rounds=1, workers=1)
    pairs = zip(from_subsets.model.parameters(), from_copies.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_subsets_are_passed_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, take = list[int](), Samples.take

    def count_take(self: Samples, which: torch.Tensor | slice) -> Samples:
        sizes.append(len(self))
        return take(self, which)

    monkeypatch.setattr(Samples, "take", count_take)
    dataset = blobs(400, [0, 1, 2], seed=4)
    clients = Subsets(dataset, tuple(torch.arange(400).split(4)))
    run_small(clients=clients, rounds=1, per_round=2, epochs=1, workers=1, test_clients=0)
    assert sizes.count(400) == 2
