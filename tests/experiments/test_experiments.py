"""The experiments behind docs/results.md: a tiny one is run, and its table made."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import running, signatures, tables
from experiments.plans import PLANS, Plan

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
