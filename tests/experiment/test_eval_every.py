"""A run whose model is tested now and then: what is kept, resumed and shown of it."""

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
from cadis.data import Examples, Subsets
from cadis.report import draw_figures
from cadis.report.page.content import page_data
from cadis.report.tables import notes, sheets
from cadis.report.terminal import run_progress
from cadis.server import RoundRecord, RoundResult
from cadis.store import RunFolder
from support import blobs, run_small


def run(out: Path | None = None, **changes: Any) -> cadis.RunResult:
    given: dict[str, Any] = {"rounds": 7, "per_round": 3, "workers": 1, "seed": 3, "epochs": 2}
    given |= {"lr": 0.1, "true_clusters": [0, 0, 0, 0, 1], "out": out, "method": "cadis"}
    return run_small(**given | changes)


def accuracies(history: list[RoundRecord]) -> list[float | None]:
    return [record.accuracy for record in history]


def test_the_best_model_is_the_best_that_was_tested(tmp_path: Path) -> None:
    often = run(tmp_path / "often")
    seldom = run(tmp_path / "seldom", eval_every=3)
    every, some = accuracies(often.history), accuracies(seldom.history)
    assert some == [None, None, every[2], None, None, every[5], every[6]]
    tested = {n: value for n, value in enumerate(some, start=1) if value is not None}
    assert seldom.summary["best_round"] == max(tested, key=lambda n: tested[n])
    assert seldom.summary["best_accuracy"] == max(tested.values())
    assert seldom.summary["accuracy"] == seldom.accuracy == every[6]
    assert seldom.summary["confusion"] == often.summary["confusion"]
    best = run(rounds=seldom.summary["best_round"]).model.state_dict()
    kept = load_file(tmp_path / "seldom" / "best.safetensors")
    assert all(torch.equal(kept[name], best[name]) for name in best)


def test_a_run_goes_on_exactly_with_another_number(tmp_path: Path) -> None:
    whole = run(eval_every=2)
    run(tmp_path / "run", rounds=3, eval_every=3)
    rest = run(tmp_path / "run", eval_every=2, resume=True)
    pairs = zip(whole.model.parameters(), rest.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert accuracies(rest.history)[3:] == accuracies(whole.history)[3:]
    assert [a is not None for a in accuracies(rest.history)[:3]] == [False, False, True]


def test_reports_show_what_was_tested_and_invent_nothing(tmp_path: Path) -> None:
    run(tmp_path / "run", eval_every=3, rounds=21)
    results = read_results([tmp_path / "run"])
    (run_data,) = results.runs
    tested = {r.round: r.accuracy for r in run_data.history if r.accuracy is not None}
    scores, comparison = Scores.of(run_data), Comparison(results)
    last = [tested[number] for number in (12, 15, 18, 21)]
    assert scores.ten_rounds == pytest.approx(sum(last) / 4)
    page = page_data(results)["accuracy"]["runs"][0]
    assert [n for n, value in enumerate(page["all"], start=1) if value is not None] == [*tested]
    assert any("Not every round was tested" in sentence for sentence in notes(comparison))
    assert not any("drawn evenly" in sentence for sentence in notes(comparison))
    names = {path.stem for path in draw_figures(results, tmp_path / "figures", pdf=False)}
    assert {"accuracy", "accuracy-10-rounds", "loss", "clients"} <= names


def test_a_run_that_has_not_ended_tells_its_last_test(tmp_path: Path) -> None:
    def stop(result: RoundResult) -> None:
        if result.record.round == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", eval_every=2, rounds=6, on_round=stop)
    folder = RunFolder(tmp_path / "run")
    run_data = RunData.read(folder)
    assert not run_data.finished
    assert run_data.history[-1].accuracy is None
    assert run_data.last_tested.round == 4
    assert run_data.summary["accuracy"] == run_data.history[3].accuracy
    assert Scores.of(run_data).rare == run_data.summary["rare_accuracy"] is not None
    page = page_data(read_results([folder.path]))
    assert page["accuracy"]["runs"][0]["all"][4] is None
    captions = [sheet.caption for sheet in sheets(Comparison(read_results([folder.path])))]
    assert any(caption.startswith("Last accuracy on each class") for caption in captions)
    nothing = replace(run_data, history=run_data.history[:1])
    assert Scores.of(nothing).ten_rounds is None


def test_the_terminal_tells_the_last_test() -> None:
    paper = Console(file=StringIO(), width=80)
    with run_progress(paper, 5) as (on_round, _):
        run(rounds=5, eval_every=2, on_round=on_round)
    lines = [line for line in paper.file.getvalue().splitlines() if line.startswith("round")]  # type: ignore[attr-defined]
    assert lines[0].startswith("round 1/5: not tested, ")
    shown = lines[1].partition(": ")[2].partition(",")[0]
    assert shown.startswith("accuracy 0.")
    assert lines[2].startswith(f"round 3/5: {shown} in round 2, ")


def test_clients_that_share_a_dataset_are_not_copied() -> None:
    everything = blobs(40, [0, 1, 2], seed=4)
    indices = tuple(torch.arange(40).split(8))
    apart = [everything.take(own) for own in indices]
    shared = run_small(clients=Subsets(everything, indices), rounds=1, workers=1)
    copied = run_small(clients=apart, rounds=1, workers=1)
    pairs = zip(shared.model.parameters(), copied.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_shared_dataset_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a client trains or is tested on is gathered, when it is."""
    taken, take = list[int](), Examples.take

    def counted(self: Examples, which: torch.Tensor | slice) -> Examples:
        taken.append(len(self))
        return take(self, which)

    monkeypatch.setattr(Examples, "take", counted)
    everything = blobs(400, [0, 1, 2], seed=4)
    clients = Subsets(everything, tuple(torch.arange(400).split(4)))
    run_small(clients=clients, rounds=1, per_round=2, epochs=1, workers=1, test_clients=0)
    assert taken.count(400) == 2
