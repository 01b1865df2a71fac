"""Tests that trackers store the records of a run, and of the features of each tracker."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cadis.errors import CadisError, RunError
from cadis.store import RunFolder, Study, StudyFolder
from cadis.trackers import TRACKERS, open_tracker
from cadis.trackers import wandb as wandb_tracker
from cadis.trackers.scalars import collect_summary_scalars, flatten_options
from tracker_support import (
    NAMES,
    OPTIONS,
    RARE,
    READ,
    assert_same_points,
    collect_points,
    finish_run,
    log_history,
    mlflow_runs,
    open_test_tracker,
    read_mlflow,
    read_tensorboard,
    read_wandb,
    skip_without,
    tensorboard_events,
    track,
    wandb_all,
)

ALL_TRACKERS = pytest.mark.parametrize("name", list(TRACKERS))


@ALL_TRACKERS
def test_resumed_run_has_no_duplicate_points(
    name: str, real_run: RunFolder, tmp_path: Path
) -> None:
    history, folder = real_run.read_history(), tmp_path / "run"
    assert len(history) == 4
    track(name, folder, history[:2])
    track(name, folder, history, real_run, OPTIONS | {"rounds": 9})
    track(name, folder, history, real_run)  # all rounds are already logged
    assert_same_points(READ[name](folder), collect_points(history))


UNUSUAL_NAMES = [["a pill", "a/pill", "Größe?", "..", "x" * 300], ["", "/", "日本", "a", "A"]]


@ALL_TRACKERS
@pytest.mark.parametrize("names", UNUSUAL_NAMES)
def test_unusual_class_names_are_accepted(
    name: str, names: list[str], real_run: RunFolder, tmp_path: Path
) -> None:
    record = real_run.read_history()[0]
    with closing(open_test_tracker(name, tmp_path / "run")) as tracker:
        tracker.log(record, RARE, names)
    points = READ[name](tmp_path / "run")
    assert sum(key.startswith("class_accuracy/") for key in points) == 5  # one per class
    assert_same_points(points, collect_points([record], names))


@ALL_TRACKERS
def test_tracker_without_logged_rounds_writes_nothing(name: str, tmp_path: Path) -> None:
    open_test_tracker(name, tmp_path / "run").close()
    assert not list((tmp_path / "run").iterdir())
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("tensorboard", "torch.utils.tensorboard"),
        ("wandb", "wandb"),
        ("mlflow", "mlflow"),
        ("mlflow", "mlflow.store.tracking.sqlalchemy_store"),
    ],
)
def test_missing_package_or_unknown_tracker_is_an_error(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CadisError, match="no tracker 'tensorbord'; did you mean 'tensorboard'"):
        open_tracker("tensorbord", tmp_path, "a run", None, lambda: OPTIONS)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CadisError, match=r"Install the trackers first: pip install .cadis\[tra"):
        open_tracker(name, tmp_path, "a run", None, lambda: OPTIONS)


COMPARISON = """
import sys
from pathlib import Path
from cadis.trackers import open_tracker
from support import run_small

for seed in (1, 2):
    out = Path(sys.argv[2]) / str(seed)
    tracker = open_tracker(sys.argv[1], out, str(seed), "seeds", lambda: {"seed": seed})
    result = run_small(
        rounds=2, workers=2, seed=seed, out=out,
        on_round=lambda done: tracker.log(done.record, [], "abcde"),
    )
    tracker.finish(result.summary, [])
    tracker.close()
print("done")
"""


@ALL_TRACKERS
def test_worker_processes_and_trackers_do_not_disturb_each_other(name: str, tmp_path: Path) -> None:
    """The workers of the second run are forked from a process with an open tracker."""
    skip_without(name)
    tests = str(Path(__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", COMPARISON, name, str(tmp_path / "both")],
        env=os.environ | {"PYTHONPATH": tests},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")
    if name == "mlflow":
        runs = mlflow_runs(tmp_path / "both" / "1")
        statuses = {run.info.run_name: run.info.status for run in runs}
        assert statuses == {"1": "FINISHED", "2": "FINISHED"}
        return
    for seed in (1, 2):
        points = READ[name](tmp_path / "both" / str(seed))["loss"]
        assert [step for step, _ in points] == [1, 2]


def test_tensorboard_discards_rounds_that_are_logged_again(
    real_run: RunFolder, tmp_path: Path
) -> None:
    history, folder = real_run.read_history(), tmp_path / "run"
    track("tensorboard", folder, [replace(record, accuracy=0.0) for record in history])
    (folder / "tracking.json").unlink()  # as in a folder restored from a backup
    time.sleep(1)  # TensorBoard sorts files by the seconds in their names
    track("tensorboard", folder, history)
    assert_same_points(read_tensorboard(folder), collect_points(history))


def test_tensorboard_has_options_summary_and_figures(real_run: RunFolder, tmp_path: Path) -> None:
    track("tensorboard", tmp_path / "run", real_run.read_history(), real_run)
    events = tensorboard_events(tmp_path / "run")
    assert events.Tags()["images"] == ["figures/accuracy"]
    assert events.Images("figures/accuracy")[0].width == 24
    for key, value in collect_summary_scalars(real_run.read_json("summary.json")).items():
        assert [(e.step, e.value) for e in events.Scalars(key)] == [(4, pytest.approx(value))]
    start = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"cadis.gamma" in start
    (options,) = events.Tensors("options/text_summary")[0].tensor_proto.string_val
    assert b"cadis.gamma | 0.25" in options


def test_mlflow_has_options_summary_and_figures(real_run: RunFolder, tmp_path: Path) -> None:
    track("mlflow", tmp_path / "run", real_run.read_history(), real_run)
    (run,) = mlflow_runs(tmp_path / "run")
    assert run.info.run_name == "a run"
    assert run.info.status == "FINISHED"
    assert run.data.tags["group"] == "a group"
    assert run.data.params == {key: str(value) for key, value in flatten_options(OPTIONS).items()}
    summary = collect_summary_scalars(real_run.read_json("summary.json"))
    assert {key: run.data.metrics[key] for key in summary} == pytest.approx(summary)
    assert "summary/accuracy" in summary
    stored = list((tmp_path / "mlruns" / "artifacts").rglob("accuracy.png"))
    figure = (real_run.figures / "accuracy.png").read_bytes()
    assert [path.read_bytes() for path in stored] == [figure]


def test_wandb_has_options_summary_and_figures(real_run: RunFolder, tmp_path: Path) -> None:
    track("wandb", tmp_path / "run", real_run.read_history(), real_run)
    (run,) = wandb_all(tmp_path / "run", "run")[:1]
    assert (run.display_name, run.run_group, run.project) == ("a run", "a group", "cadis")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert flatten_options(OPTIONS).items() <= config.items()
    stored = {
        item.key: json.loads(item.value_json)
        for update in wandb_all(tmp_path / "run", "summary")
        for item in update.update
    }
    summary = collect_summary_scalars(real_run.read_json("summary.json"))
    assert {key: stored[key] for key in summary} == pytest.approx(summary)
    assert list(tmp_path.glob("run/wandb/*/files/media/images/figures/accuracy*.png"))
    assert [record.exit_code for record in wandb_all(tmp_path / "run", "exit")] == [0]


def test_status_of_stopped_runs_in_mlflow_is_killed(real_run: RunFolder, tmp_path: Path) -> None:
    history, folder = real_run.read_history(), tmp_path / "run"
    with closing(open_test_tracker("mlflow", folder)) as tracker:
        log_history(tracker, history[:2])
        (running,) = mlflow_runs(folder)
    (stopped,) = mlflow_runs(folder)
    assert (running.info.status, stopped.info.status) == ("RUNNING", "KILLED")
    with closing(open_test_tracker("mlflow", folder)) as tracker:
        log_history(tracker, history)
        (resumed,) = mlflow_runs(folder)
        finish_run(tracker, real_run)
    (complete,) = mlflow_runs(folder)
    assert (resumed.info.status, complete.info.status) == ("RUNNING", "FINISHED")
    assert complete.info.run_id == stopped.info.run_id


def test_exit_code_of_stopped_runs_in_wandb_is_1(real_run: RunFolder, tmp_path: Path) -> None:
    history, folder = real_run.read_history(), tmp_path / "run"
    track("wandb", folder, history[:2])
    track("wandb", folder, history, real_run)
    assert [record.exit_code for record in wandb_all(folder, "exit")] == [1, 0]
    assert len({run.run_id for run in wandb_all(folder, "run")}) == 1


def test_mlflow_creates_a_new_run_if_the_run_is_unknown(
    real_run: RunFolder, tmp_path: Path
) -> None:
    history, folder = real_run.read_history(), tmp_path / "run"
    track("mlflow", folder, history[:2])
    (tmp_path / "elsewhere").mkdir()
    shutil.move(folder, tmp_path / "elsewhere")
    track("mlflow", tmp_path / "elsewhere" / "run", history)
    assert_same_points(read_mlflow(tmp_path / "elsewhere" / "run"), collect_points(history))


def test_mlflow_has_one_database_per_study(real_run: RunFolder, tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "runs" / "study")
    study.write(Study("compare", (), (), "cadis compare"))
    for variant in ("fedavg", "cadis"):
        track("mlflow", study.path / variant / "seed-0", real_run.read_history()[:1])
    assert len(mlflow_runs(study.path)) == 2  # in runs/mlruns


def test_mlflow_uses_the_tracking_uri_of_the_user(
    real_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared" / "mlruns").mkdir(parents=True)
    address = f"sqlite:///{tmp_path / 'shared' / 'mlruns' / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    history = real_run.read_history()
    track("mlflow", tmp_path / "run", history)
    assert not (tmp_path / "mlruns").exists()
    assert_same_points(read_mlflow(tmp_path / "shared" / "any"), collect_points(history))


def test_unreachable_mlflow_server_is_an_error(
    real_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with closing(open_test_tracker("mlflow", tmp_path / "run")) as tracker:
        with pytest.raises(RunError, match=r"MLflow failed.*you can resume it") as caught:
            log_history(tracker, real_run.read_history())
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "x"])
def test_wandb_never_prompts_for_a_key(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", key)
    with pytest.raises(CadisError, match="W&B cannot be used" if key else "wandb login"):
        open_test_tracker("wandb", tmp_path / "run")


def test_wandb_is_offline_without_connection(
    real_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setitem(wandb_tracker._SETTINGS, "init_timeout", 2.0)
    history = real_run.read_history()
    with closing(open_test_tracker("wandb", tmp_path / "run")) as tracker:
        with pytest.warns(UserWarning, match="Cannot connect to W&B"):
            tracker.log(history[0], RARE, NAMES)
        log_history(tracker, history)
        finish_run(tracker, real_run)
    assert_same_points(read_wandb(tmp_path / "run"), collect_points(history))
