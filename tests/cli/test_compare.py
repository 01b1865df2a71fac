"""``cadis compare``, ``sweep``, ``report`` and ``layer`` as users type them."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import cadis
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.store import RunFolder, StudyFolder
from cli_support import call, refuse, succeed, to_options
from fabricated import write_run
from tracker_support import skip_without

TINY: dict[str, Any] = {"rounds": 2, "epochs": 1, "clients": 8, "per_round": 4, "workers": 1}
QUICK = to_options(TINY)


def test_comparison_writes_tables_figures_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["compare", *QUICK, "--methods", "fedavg,cadis,cadis-oracle", "--seeds", "2"]
    result = succeed(*arguments, "--threshold", "0.6", "--targets", "15%,0.99")
    folder = tmp_path / "runs" / "compare-digits"
    assert "run 6/6: CADIS, true clusters, seed 1" in result
    assert "Difference from FedAvg" in result
    assert "not reached" in result  # 99% is not achieved in two rounds
    for name in ("results.csv", "runs.csv", "results.md", "results.tex", "report.html"):
        assert (folder / name).stat().st_size > 100
    assert (folder / "figures" / "accuracy.pdf").exists()
    rows = list(csv.DictReader((folder / "runs.csv").read_text().splitlines()))
    assert [row["seed"] for row in rows] == ["0", "1"] * 3
    assert rows[4]["agreement"] == "1.0"  # the oracle has the true clusters
    options = StudyFolder(folder).read().variants[1].options
    assert options["cadis"]["threshold"] == 0.6


def test_sweep_runs_every_combination_of_values(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    grid = ["--grid", "threshold=0.6,0.9", "--grid", "distillation=0,1"]
    result = succeed("sweep", *QUICK, *grid, "--out", str(out))
    output = " ".join(result.split())
    assert "One seed is not enough to say which setting is better." in output
    assert (out / "figures" / "sweep.png").exists()
    cells = {(v.cell, v.options["cadis"]["distillation"]) for v in StudyFolder(out).read().variants}
    assert (("0.6", "0"), 0.0) in cells
    assert len(cells) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_interrupted_comparison_continues_with_the_same_command(tmp_path: Path) -> None:
    out = tmp_path / "study"
    arguments = ["compare", *QUICK, "--rounds", "4", "--methods", "fedavg,cadis", "--seeds", "1"]
    arguments += ["--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "cadis", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not RunFolder(out / "fedavg" / "seed-0").has_rounds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    message = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert message.startswith("cadis: Stopped. Repeat the command to continue, ")
    assert message.count("\n") == 1
    succeed(*arguments)
    assert len(RunFolder(out / "cadis" / "seed-0").read_history()) == 4


def test_diverging_run_is_reported(tmp_path: Path) -> None:
    arguments = ["compare", *QUICK, "--methods", "fedavg", "--seeds", "1", "--lr", "1e30"]
    result = call(*arguments, "--out", str(tmp_path / "study"))
    assert result.exit_code == 1
    assert "FedAvg, seed 0: Round 1" in result.output
    assert "No run has finished a round" in result.stderr


def test_report_of_one_and_of_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "fedavg-0", FedAvg())
    for seed in (0, 1):
        write_run(tmp_path / f"cadis-{seed}", CADIS(), seed)
    succeed("report", "cadis-0")
    assert (tmp_path / "cadis-0" / "report.html").exists()
    assert "CADIS" in succeed("report", "fedavg-0", "cadis-0", "cadis-1", "--out", "all/page.html")
    page = (tmp_path / "all" / "page.html").read_text()
    start = page.index('id="data">') + len('id="data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert [method["name"] for method in data["methods"]] == ["FedAvg", "CADIS"]
    assert (tmp_path / "all" / "figures" / "accuracy-rare.png").exists()
    succeed("report", "cadis-0", "--out", "folder")
    assert (tmp_path / "folder" / "report.html").exists()


def test_report_does_not_replace_the_report_of_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        write_run(tmp_path / f"run-{seed}", FedAvg(), seed, rounds=2)
    succeed("report", "run-0", "run-1")
    succeed("report", "run-0", "run-2")
    assert (tmp_path / "runs" / "report-run-0-run-1" / "report.html").exists()
    assert (tmp_path / "runs" / "report-run-0-run-2" / "report.html").exists()
    succeed("report", "run-0", "run-1", "--out", "both")
    succeed("report", "run-1", "run-0", "--out", "both")  # the same runs
    page = (tmp_path / "both" / "report.html").read_text()
    other = refuse("report", "run-2", "--out", "both")
    assert "both has the report of other runs; choose another folder with --out" in other
    assert (tmp_path / "both" / "report.html").read_text() == page


def test_report_refuses_two_runs_with_the_same_seed(tmp_path: Path) -> None:
    for name in ("one", "copy"):
        write_run(tmp_path / name, CADIS(), rounds=2)
    result = refuse("report", str(tmp_path / "one"), str(tmp_path / "copy"))
    assert "have the same options and the same seed; name only one of them" in result


def test_report_refuses_a_history_that_contradicts_the_summary(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=2)
    last = folder.read_history()[-1].accuracy
    text = folder.history_path.read_text()
    folder.history_path.write_text(text.replace(f'"accuracy": {last}', '"accuracy": 0.99'))
    assert f"accuracy is {last}, but 0.99 in history.jsonl" in refuse("report", str(folder.path))


def test_report_does_not_replace_files_of_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", FedAvg())
    for name in ("results.csv", "results.md", "report.html", "figures/accuracy.png"):
        mine = tmp_path / name.replace("/", "-") / name
        mine.parent.mkdir(parents=True)
        mine.write_text("precious")
        folder = tmp_path / name.replace("/", "-")
        result = refuse("report", "run", "--out", str(folder))
        assert "exists already; choose another folder with --out" in result
        assert [path.name for path in folder.iterdir()] == [name.split("/")[0]]
        assert mine.read_text() == "precious"
    for page in ("pages/one.html", "pages/two.html"):
        succeed("report", "run", "--out", page)


@pytest.mark.parametrize(
    "name", ["config.toml", "history.jsonl", "federation.json", "summary.json", "study.json"]
)
def test_report_names_the_damaged_file_of_a_run(name: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", CADIS(), rounds=2)
    for content in ('{"clients": []}\n', "null\n", "{bad\n", "[[[\n", "\0\0\0\n"):
        (folder.path / name).write_text(content)
        assert str(folder.path / name) in refuse("report", str(folder.path))


def read_tracked_rounds(folder: Path, tracker: str) -> tuple[int, int]:
    """Return the last tracked round, and the round after which the run was finished."""
    state = json.loads((folder / "tracking.json").read_text())[tracker]
    return state["round"], state["finished"]


def test_run_is_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    succeed("run", *QUICK, "--out", "runs/one", "--track", "mlflow")
    assert read_tracked_rounds(tmp_path / "runs/one", "mlflow") == (2, 2)
    assert (tmp_path / "runs/mlruns/mlflow.db").exists()


def test_finished_runs_of_a_comparison_are_tracked_later(tmp_path: Path) -> None:
    skip_without("tensorboard")
    out = tmp_path / "both"
    cadis.compare(["fedavg"], seeds=1, out=out, **TINY)  # not tracked at first
    arguments = ["--methods", "fedavg,cadis", "--seeds", "1", "--track", "tensorboard"]
    succeed("compare", *QUICK, *arguments, "--out", out)
    for method in ("fedavg", "cadis"):
        assert read_tracked_rounds(out / method / "seed-0", "tensorboard") == (2, 2)


def test_layer_draws_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "client 3" in succeed("layer", "--epochs", "1", "--workers", "1")
    assert (tmp_path / "runs" / "layer-digits-small-cnn-epochs-1.png").stat().st_size > 8000


def test_commands_do_not_import_optional_packages() -> None:
    check = (
        "import sys, cadis.cli.compare, cadis.cli.figures; "
        "print([m for m in ('pandas', 'sklearn', 'scipy', 'wandb', 'mlflow', 'tensorboard', 'flwr')"
        " if m in sys.modules])"
    )
    command = [sys.executable, "-c", check]
    result = subprocess.run(command, capture_output=True, check=True, text=True)
    assert result.stdout == "[]\n"


def test_grid_gives_one_comparison_per_value(tmp_path: Path) -> None:
    out = tmp_path / "grid"
    arguments = ["compare", *QUICK, "--methods", "fedavg,fedprox", "--seeds", "2"]
    arguments += ["--grid", "partition=mc,dirichlet", "--out", str(out)]
    result = succeed(*arguments)
    output = " ".join(result.split())
    assert "Accuracy by partition: mean over the last 10 rounds" in output
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    rows_by_method = {
        (r["method"], r["partition"]): r for r in rows if r["measure"] == "ten_rounds"
    }
    assert list(rows_by_method) == [
        ("FedAvg", "mc"), ("FedProx", "mc"), ("FedAvg", "dirichlet"), ("FedProx", "dirichlet"),
    ]  # fmt: skip
    for partition in ("mc", "dirichlet"):
        assert rows_by_method["FedAvg", partition]["p"] == ""  # the baseline of its cell
        assert rows_by_method["FedProx", partition]["p"] != ""
        assert (out / "cells" / f"partition={partition}" / "report.html").exists()
        assert (out / "cells" / f"partition={partition}" / "figures" / "federation.png").exists()
    runs = list(csv.DictReader((out / "runs.csv").read_text().splitlines()))
    assert len(runs) == 8
    study = StudyFolder(out).read()
    assert (study.parameters, study.baseline) == (("partition",), "fedavg")
    assert [study.get_name_without_cell(variant) for variant in study.variants] == [
        "fedavg",
        "fedprox",
    ] * 2
    again = call(*arguments)
    assert again.output.count("(finished before)") == 8


def test_methods_are_ranked_by_another_metric(tmp_path: Path) -> None:
    out = tmp_path / "judged"
    arguments = ["--methods", "fedavg,cadis", "--seeds", "1", "--metric", "auc", "--out", str(out)]
    result = succeed("compare", *QUICK, *arguments)
    output = " ".join(result.split())
    assert "AUC on the test set" in output
    assert "The AUC is 0." in output
    summary = RunFolder(out / "cadis" / "seed-0").read_json("summary.json")
    history = RunFolder(out / "cadis" / "seed-0").read_history()
    areas = [record.metrics["auc"] for record in history]
    assert summary["headline"] == "auc"
    assert summary["best_auc"] == max(area for area in areas if area is not None)
    judged = succeed("report", str(out), "--metric", "balanced-accuracy")
    output = " ".join(judged.split())
    assert "Balanced accuracy on the test set" in output
    note = (
        "Results are ranked by balanced accuracy; the stored best model of a run is the one with "
        "the highest AUC."
    )
    assert note in output
    wrong = refuse("report", str(out), "--metric", "rmse")
    assert "There is no metric in these runs 'rmse'" in wrong
