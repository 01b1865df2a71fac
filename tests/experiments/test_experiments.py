"""The experiments behind docs/results.md: tiny ones are run, and their tables made.

The queue of long ones resumes, never repeats a run, and reports its status.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from cadis.errors import CadisError
from cadis.experiment.variants import ALL
from cadis.store import replace_text
from experiments import queue, running, signatures, tables
from experiments.plans import PLANS, QUEUE, Plan

TINY = Plan(
    "A tiny one",
    {"clients": 8, "per_round": 4, "rounds": 6, "epochs": 1, "test_clients": 0},
    {"mc": {"partition": "mc"}, "iid": {"partition": "iid"}},
    ("fedavg", "cadis"),
    1,
    0.2,
    {"half": ("cadis", {"newcomers": 0.25})},
)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(running, "RESULTS", tmp_path)
    monkeypatch.setitem(PLANS, "tiny", TINY)
    return tmp_path


def test_a_plan_is_run_once_and_its_tables_are_made(results: Path) -> None:
    found = [running.run_task(task, "") for task in running.tasks_of("tiny")]
    assert len(found) == 6
    text = "".join(json.dumps(result) + "\n" for result in found)
    (results / "tiny.jsonl").write_text(text)
    running.run_plan("tiny")  # nothing is missing
    assert (results / "tiny.jsonl").read_text() == text
    for kind in ("full", "last", "rounds", "clusters"):
        lines = tables.table(kind, "tiny")
        assert "FedAvg" in "".join(lines)
        assert lines[-2:] == ["", "Seeds: 1."]
        assert len({line.count("|") for line in lines[:-2]}) == 1
    fedavg = found[0]
    assert fedavg["last_ten"] == pytest.approx(sum(fedavg["accuracy"]) / 6, abs=1e-4)
    assert fedavg["agreement"] is None
    assert found[1]["agreement"] is not None


def test_the_first_round_that_reaches_a_target() -> None:
    run: dict[str, Any] = {"accuracy": [0.1, 0.5, 0.4, 0.7]}
    assert [running.rounds_to(run, target) for target in (0.1, 0.45, 0.6, 0.9)] == [1, 2, 4, None]


def test_every_plan_can_be_put_together() -> None:
    for name, plan in PLANS.items():
        methods = {task.method for task in running.tasks_of(name, seeds=1)}
        assert methods == {*plan.methods, *plan.variants}
        assert all(plan.target_of(federation) for federation in plan.federations)


def test_the_page_has_the_tables_of_what_is_kept() -> None:
    """Numbers on the page are those of the results in the repository."""
    for path in tables.PAGES:
        page = path.read_text(encoding="utf-8")
        assert tables.filled(page) == page


def test_signatures_find_what_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "FILE", tmp_path / "signatures.jsonl")
    options = {"clients": 20, "per_round": 8, "rounds": 6, "epochs": 1, "workers": 1, "lr": 0.1}
    monkeypatch.setattr(signatures, "federations", lambda: iter([("digits, mc", options)]))
    signatures.run()
    signatures.run()  # it is there
    (line,) = signatures.FILE.read_text().splitlines()
    found = json.loads(line)
    assert found["contrast"]["class profile"][0] > 0.9
    assert len(signatures.table()) == 3


def kept(federation: str, method: str, seed: int, last_ten: float, own: float) -> str:
    run = {"federation": federation, "method": method, "seed": seed, "diverged": not last_ten}
    run |= {"accuracy": [0.2, last_ten], "last_ten": last_ten, "own": own, "rare": None}
    return json.dumps(run) + "\n"


def test_a_tuned_plan_goes_on_with_what_was_best(results: Path) -> None:
    """By the test set; of several models, by what each client gets."""
    lines = [
        kept("lr 0.03", "fedavg", 0, 0.5, 0.9),
        kept("lr 0.1", "fedavg", 0, 0.8, 0.7),
        kept("lr 0.3", "fedavg", 0, 0.0, 0.0),
        kept("lr 0.03", "ifca", 0, 0.1, 0.9),
        kept("lr 0.1", "ifca", 0, 0.2, 0.7),
    ]
    (results / "methods.jsonl").write_text("".join(lines))
    later = {task.method: task.federation for task in running.tasks_of("methods") if task.seed}
    assert later == {"fedavg": "lr 0.1", "ifca": "lr 0.03"}
    more = [kept("lr 0.1", "fedavg", 1, 0.9, 0.9), kept("lr 0.03", "ifca", 1, 0.1, 1.0)]
    (results / "methods.jsonl").write_text("".join(lines + more))
    table = "\n".join(tables.table("best", "methods"))
    assert "| `fedavg` | 0.1 | 0.850±0.071 | 0.800±0.141 |  | 1 of 2 | 1 of 1 at 0.3 |" in table
    assert "| `ifca` | 0.03 | 0.100±0.000 | 0.950±0.071 |" in table
    assert "Seeds: 2 at the best learning rate, 1 at the others." in table


def test_the_table_of_costs_has_everything() -> None:
    costs = "\n".join(tables.table("costs", "catalogue"))
    assert all(f"`{name}`" in costs or f"`--sampler {name}`" in costs for name in ALL)
    assert "| `singleset` |" in costs
    assert "a control variate, as large as the model, each way" in costs


def test_the_queue_gives_way_to_everything_else(tmp_path: Path) -> None:
    code = "import os, pathlib; pathlib.Path('nice').write_text(str(os.nice(0)))"
    assert queue.call_at_lowest_priority([sys.executable, "-c", code], tmp_path) == 0
    assert (tmp_path / "nice").read_text() == "19"
    if Path("/proc/self/autogroup").exists():
        command = ["sh", "-c", "sleep 0.5; grep 'nice 19' /proc/self/autogroup"]
        assert queue.call_at_lowest_priority(command, tmp_path) == 0


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    common = {**TINY.common, "clients": 6, "per_round": 3, "rounds": 4}
    one = {"mc": TINY.federations["mc"]}
    methods = ("fedavg", "cadis-paper")
    short = replace(TINY, common=common, federations=one, methods=methods, variants={})
    monkeypatch.setitem(PLANS, "tiny", short)
    monkeypatch.setattr(queue, "QUEUE", ("tiny",))
    results = tmp_path / "results"
    results.mkdir()
    return tmp_path / "home", results


def stored(results: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in run.items() if key != "seconds_per_round"}
        for run in running.results_of("tiny", results)
    ]


def test_all_runs_are_stored_with_their_commit_and_none_is_repeated(
    folders: tuple[Path, Path],
) -> None:
    home, results = folders
    queue.work("", *folders)
    runs = stored(results)
    assert [run["method"] for run in runs] == ["fedavg", "cadis-paper"]
    assert all(len(run["commit"]) == 40 and len(run["accuracy"]) == 4 for run in runs)
    assert not list((home / "runs").iterdir())
    queue.work("", *folders)
    assert stored(results) == runs


def test_an_interrupted_run_resumes_from_its_checkpoint(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, results = folders
    whole = tmp_path / "whole"
    whole.mkdir()
    queue.work("", tmp_path / "other-home", whole)

    def fail_after_two_rounds(path: Path, text: str) -> None:
        replace_text(path, text)
        if '"round": 2' in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(queue, "replace_text", fail_after_two_rounds)
    with pytest.raises(KeyboardInterrupt):
        queue.work("", *folders)
    assert stored(results) == []
    current = queue._current(home)
    assert current is not None
    assert (current.round, current.rounds) == (2, 4)
    monkeypatch.setattr(queue, "replace_text", replace_text)
    queue.work("", *folders)
    assert stored(results) == stored(whole)


def test_the_status_shows_what_is_finished_and_left(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    queue.print_status(*folders)
    assert "0 of 2" in capsys.readouterr().out
    queue.work("", *folders)
    queue.print_status(*folders)
    shown = capsys.readouterr().out
    assert "2 of 2" in shown
    assert "Not running" in shown


def test_a_second_queue_is_refused(folders: tuple[Path, Path]) -> None:
    home, _ = folders
    home.mkdir()
    with (
        FileLock(home / "lock"),
        pytest.raises(CadisError, match="running already"),
    ):
        queue.work("", *folders)


def test_our_default_is_not_queued_before_it_is_settled() -> None:
    methods = {task.method for name in QUEUE for task in running.tasks_of(name)}
    assert "cadis" not in methods
    assert "cadis-paper" in methods
