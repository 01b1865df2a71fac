"""The experiments behind docs/explanation/results.md: tiny ones are run, and their tables made.

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
from experiments import drift, queue, running, signatures, tables
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


def test_plan_is_run_once_and_gives_tables(results: Path) -> None:
    outcomes = [running.run_task(task, "") for task in running.list_tasks("tiny")]
    assert len(outcomes) == 6
    text = "".join(json.dumps(result) + "\n" for result in outcomes)
    (results / "tiny.jsonl").write_text(text)
    running.run_plan("tiny")  # nothing is missing
    assert (results / "tiny.jsonl").read_text() == text
    for kind in ("full", "last", "rounds", "clusters"):
        lines = tables.table(kind, "tiny")
        assert "FedAvg" in "".join(lines)
        assert lines[-2:] == ["", "Seeds: 1."]
        assert len({line.count("|") for line in lines[:-2]}) == 1
    fedavg = outcomes[0]
    assert fedavg["last_ten"] == pytest.approx(sum(fedavg["accuracy"]) / 6, abs=1e-4)
    assert fedavg["agreement"] is None
    assert outcomes[1]["agreement"] is not None


def test_clients_that_join_are_placed_by_their_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drift, "FILE", tmp_path / "drift.jsonl")
    monkeypatch.setattr(drift, "_ROUNDS", 12)
    result = drift.measure("clients join", "cadis", 0)
    assert result["placed"] == 1
    assert result["before"] < result["last_ten"]
    assert result["lowest"] < result["last_ten"] < 1
    assert result["clusters"] <= 12
    drift.FILE.write_text(json.dumps(result))
    (line,) = tables.table("recovery", "drift")[2:]
    assert f"| {result['last_ten']:.3f} |" in line
    assert line.endswith("| 100% |")


def test_first_round_that_achieves_a_target() -> None:
    run: dict[str, Any] = {"accuracy": [0.1, 0.5, 0.4, 0.7]}
    assert [running.find_first_round(run, target) for target in (0.1, 0.45, 0.6, 0.9)] == [
        1,
        2,
        4,
        None,
    ]


def test_every_plan_can_be_built() -> None:
    for name, plan in PLANS.items():
        methods = {task.method for task in running.list_tasks(name, seeds=1)}
        assert methods == {*plan.methods, *plan.variants}
        assert all(plan.get_target(federation) for federation in plan.federations)


def test_page_has_the_tables_of_the_stored_results() -> None:
    for path in tables.PAGES:
        page = path.read_text(encoding="utf-8")
        assert tables.fill_tables(page) == page


def test_signatures_recover_the_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signatures, "FILE", tmp_path / "signatures.jsonl")
    options = {"clients": 20, "per_round": 8, "rounds": 6, "epochs": 1, "workers": 1, "lr": 0.1}
    monkeypatch.setattr(signatures, "federations", lambda: iter([("digits, mc", options)]))
    signatures.run()
    signatures.run()  # already computed
    (line,) = signatures.FILE.read_text().splitlines()
    outcomes = json.loads(line)
    assert outcomes["contrast"]["class profile"][0] > 0.9
    assert len(signatures.table()) == 3


def format_result(federation: str, method: str, seed: int, last_ten: float, own: float) -> str:
    run = {"federation": federation, "method": method, "seed": seed, "diverged": not last_ten}
    run |= {"accuracy": [0.2, last_ten], "last_ten": last_ten, "own": own, "rare": None}
    return json.dumps(run) + "\n"


def test_tuned_plan_uses_the_best_value(results: Path) -> None:
    lines = [
        format_result("lr 0.03", "fedavg", 0, 0.5, 0.9),
        format_result("lr 0.1", "fedavg", 0, 0.8, 0.7),
        format_result("lr 0.3", "fedavg", 0, 0.0, 0.0),
        format_result("lr 0.03", "ifca", 0, 0.1, 0.9),
        format_result("lr 0.1", "ifca", 0, 0.2, 0.7),
    ]
    (results / "methods.jsonl").write_text("".join(lines))
    later = {task.method: task.federation for task in running.list_tasks("methods") if task.seed}
    assert later == {"fedavg": "lr 0.1", "ifca": "lr 0.03"}
    more = [
        format_result("lr 0.1", "fedavg", 1, 0.9, 0.9),
        format_result("lr 0.03", "ifca", 1, 0.1, 1.0),
    ]
    (results / "methods.jsonl").write_text("".join(lines + more))
    table = "\n".join(tables.table("best", "methods"))
    assert "| `fedavg` | 0.1 | 0.850±0.071 | 0.800±0.141 |  | 1 of 2 | 1 of 1 at 0.3 |" in table
    assert "| `ifca` | 0.03 | 0.100±0.000 | 0.950±0.071 |" in table
    assert "Seeds: 2 at the best learning rate, 1 at the others." in table


def test_table_of_costs_is_complete() -> None:
    costs = "\n".join(tables.table("costs", "catalogue"))
    assert all(f"`{name}`" in costs or f"`--sampler {name}`" in costs for name in ALL)
    assert "| `singleset` |" in costs
    assert "a control variate, as large as the model, in both directions" in costs


def test_queue_has_low_priority(tmp_path: Path) -> None:
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


def read_runs(results: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in run.items() if key != "seconds_per_round"}
        for run in running.read_results("tiny", results)
    ]


def test_runs_are_stored_with_their_commit_and_not_repeated(
    folders: tuple[Path, Path],
) -> None:
    home, results = folders
    queue.work("", *folders)
    runs = read_runs(results)
    assert [run["method"] for run in runs] == ["fedavg", "cadis-paper"]
    assert all(len(run["commit"]) == 40 and len(run["accuracy"]) == 4 for run in runs)
    assert not list((home / "runs").iterdir())
    queue.work("", *folders)
    assert read_runs(results) == runs


def test_interrupted_run_resumes_from_its_checkpoint(
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
    assert read_runs(results) == []
    current = queue._read_progress(home)
    assert current is not None
    assert (current.round, current.rounds) == (2, 4)
    monkeypatch.setattr(queue, "replace_text", replace_text)
    queue.work("", *folders)
    assert read_runs(results) == read_runs(whole)


def test_status_shows_finished_and_remaining_runs(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    queue.print_status(*folders)
    assert "0 of 2" in capsys.readouterr().out
    queue.work("", *folders)
    queue.print_status(*folders)
    output = capsys.readouterr().out
    assert "2 of 2" in output
    assert "Not running" in output


def test_second_queue_is_refused(folders: tuple[Path, Path]) -> None:
    home, _ = folders
    home.mkdir()
    with (
        FileLock(home / "lock"),
        pytest.raises(CadisError, match="running already"),
    ):
        queue.work("", *folders)


def test_default_is_not_queued_before_it_is_decided() -> None:
    methods = {task.method for name in QUEUE for task in running.list_tasks(name)}
    assert "cadis" not in methods
    assert "cadis-paper" in methods
