"""What trackers stored is read back and compared with the records; what is special about each."""

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
from cadis.trackers.scalars import flatten, summary_scalars
from tracker_support import (
    NAMES,
    OPTIONS,
    RARE,
    READ,
    assert_same,
    complete,
    expected,
    logged,
    mlflow_runs,
    opened,
    read_mlflow,
    read_tensorboard,
    read_wandb,
    skip_without,
    tensorboard_events,
    track,
    wandb_all,
)

EVERY = pytest.mark.parametrize("name", list(TRACKERS))


@EVERY
def test_a_resumed_run_goes_on_without_double_points(
    name: str, finished: RunFolder, tmp_path: Path
) -> None:
    history, folder = finished.read_history(), tmp_path / "run"
    assert len(history) == 4
    track(name, folder, history[:2])
    track(name, folder, history, finished, OPTIONS | {"rounds": 9})
    track(name, folder, history, finished)  # nothing is left to do
    assert_same(READ[name](folder), expected(history))


ODD = [["a pill", "a/pill", "Größe?", "..", "x" * 300], ["", "/", "日本", "a", "A"]]


@EVERY
@pytest.mark.parametrize("names", ODD)
def test_odd_class_names_are_accepted(
    name: str, names: list[str], finished: RunFolder, tmp_path: Path
) -> None:
    record = finished.read_history()[0]
    with closing(opened(name, tmp_path / "run")) as tracker:
        tracker.log(record, RARE, names)
    found = READ[name](tmp_path / "run")
    assert sum(key.startswith("class_accuracy/") for key in found) == 5  # none is lost
    assert_same(found, expected([record], names))


@EVERY
def test_a_tracker_that_logged_nothing_leaves_nothing(name: str, tmp_path: Path) -> None:
    opened(name, tmp_path / "run").close()
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
def test_a_missing_package_or_tracker_is_a_sentence(
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


@EVERY
def test_worker_processes_and_trackers_do_not_disturb_each_other(name: str, tmp_path: Path) -> None:
    """The second run's workers are forked from a process that has a tracker already."""
    skip_without(name)
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", COMPARISON, name, str(tmp_path / "both")],
        env=os.environ | {"PYTHONPATH": tests},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    if name == "mlflow":
        runs = mlflow_runs(tmp_path / "both" / "1")
        ended = {run.info.run_name: run.info.status for run in runs}
        assert ended == {"1": "FINISHED", "2": "FINISHED"}
        return
    for seed in (1, 2):
        points = READ[name](tmp_path / "both" / str(seed))["loss"]
        assert [step for step, _ in points] == [1, 2]


def test_tensorboard_forgets_rounds_that_the_run_has_lost(
    finished: RunFolder, tmp_path: Path
) -> None:
    history, folder = finished.read_history(), tmp_path / "run"
    track("tensorboard", folder, [replace(record, accuracy=0.0) for record in history])
    (folder / "tracking.json").unlink()  # as in a folder from a backup
    time.sleep(1)  # TensorBoard reads files in the order of the seconds in their names
    track("tensorboard", folder, history)
    assert_same(read_tensorboard(folder), expected(history))


def test_tensorboard_has_options_summary_and_pictures(finished: RunFolder, tmp_path: Path) -> None:
    track("tensorboard", tmp_path / "run", finished.read_history(), finished)
    events = tensorboard_events(tmp_path / "run")
    assert events.Tags()["images"] == ["figures/accuracy"]
    assert events.Images("figures/accuracy")[0].width == 24
    for key, value in summary_scalars(finished.read_json("summary.json")).items():
        assert [(e.step, e.value) for e in events.Scalars(key)] == [(4, pytest.approx(value))]
    start = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"cadis.gamma" in start
    (options,) = events.Tensors("options/text_summary")[0].tensor_proto.string_val
    assert b"cadis.gamma | 0.25" in options


def test_mlflow_has_options_summary_and_pictures(finished: RunFolder, tmp_path: Path) -> None:
    track("mlflow", tmp_path / "run", finished.read_history(), finished)
    (run,) = mlflow_runs(tmp_path / "run")
    assert run.info.run_name == "a run"
    assert run.info.status == "FINISHED"
    assert run.data.tags["group"] == "a group"
    assert run.data.params == {key: str(value) for key, value in flatten(OPTIONS).items()}
    summary = summary_scalars(finished.read_json("summary.json"))
    assert {key: run.data.metrics[key] for key in summary} == pytest.approx(summary)
    assert "summary/accuracy" in summary
    stored = list((tmp_path / "mlruns" / "artifacts").rglob("accuracy.png"))
    picture = (finished.figures / "accuracy.png").read_bytes()
    assert [path.read_bytes() for path in stored] == [picture]


def test_wandb_has_options_summary_and_pictures(finished: RunFolder, tmp_path: Path) -> None:
    track("wandb", tmp_path / "run", finished.read_history(), finished)
    (run,) = wandb_all(tmp_path / "run", "run")[:1]
    assert (run.display_name, run.run_group, run.project) == ("a run", "a group", "cadis")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert flatten(OPTIONS).items() <= config.items()
    stored = {
        item.key: json.loads(item.value_json)
        for update in wandb_all(tmp_path / "run", "summary")
        for item in update.update
    }
    summary = summary_scalars(finished.read_json("summary.json"))
    assert {key: stored[key] for key in summary} == pytest.approx(summary)
    assert list(tmp_path.glob("run/wandb/*/files/media/images/figures/accuracy*.png"))
    assert [record.exit_code for record in wandb_all(tmp_path / "run", "exit")] == [0]


def test_mlflow_knows_which_runs_were_stopped(finished: RunFolder, tmp_path: Path) -> None:
    history, folder = finished.read_history(), tmp_path / "run"
    with closing(opened("mlflow", folder)) as tracker:
        logged(tracker, history[:2])
        (running,) = mlflow_runs(folder)
    (stopped,) = mlflow_runs(folder)
    assert (running.info.status, stopped.info.status) == ("RUNNING", "KILLED")
    with closing(opened("mlflow", folder)) as tracker:
        logged(tracker, history)
        (again,) = mlflow_runs(folder)
        complete(tracker, finished)
    (done,) = mlflow_runs(folder)
    assert (again.info.status, done.info.status) == ("RUNNING", "FINISHED")
    assert done.info.run_id == stopped.info.run_id


def test_wandb_knows_which_runs_were_stopped(finished: RunFolder, tmp_path: Path) -> None:
    history, folder = finished.read_history(), tmp_path / "run"
    track("wandb", folder, history[:2])
    track("wandb", folder, history, finished)
    assert [record.exit_code for record in wandb_all(folder, "exit")] == [1, 0]
    assert len({run.run_id for run in wandb_all(folder, "run")}) == 1


def test_mlflow_begins_anew_where_the_run_is_unknown(finished: RunFolder, tmp_path: Path) -> None:
    history, folder = finished.read_history(), tmp_path / "run"
    track("mlflow", folder, history[:2])
    (tmp_path / "elsewhere").mkdir()
    shutil.move(folder, tmp_path / "elsewhere")
    track("mlflow", tmp_path / "elsewhere" / "run", history)
    assert_same(read_mlflow(tmp_path / "elsewhere" / "run"), expected(history))


def test_mlflow_keeps_the_runs_of_a_study_together(finished: RunFolder, tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "runs" / "study")
    study.write(Study("compare", (), (), "cadis compare"))
    for variant in ("fedavg", "cadis"):
        track("mlflow", study.path / variant / "seed-0", finished.read_history()[:1])
    assert len(mlflow_runs(study.path)) == 2  # in runs/mlruns


def test_mlflow_goes_where_the_user_says(
    finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared" / "mlruns").mkdir(parents=True)
    address = f"sqlite:///{tmp_path / 'shared' / 'mlruns' / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    history = finished.read_history()
    track("mlflow", tmp_path / "run", history)
    assert not (tmp_path / "mlruns").exists()
    assert_same(read_mlflow(tmp_path / "shared" / "any"), expected(history))


def test_a_server_that_is_gone_is_a_sentence(
    finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with closing(opened("mlflow", tmp_path / "run")) as tracker:
        with pytest.raises(RunError, match=r"MLflow failed.*can be resumed") as caught:
            logged(tracker, finished.read_history())
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "x"])
def test_wandb_never_asks_for_a_key(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", key)
    with pytest.raises(CadisError, match="W&B cannot be used" if key else "wandb login"):
        opened("wandb", tmp_path / "run")


def test_wandb_stays_offline_where_nobody_can_be_reached(
    finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setitem(wandb_tracker._SETTINGS, "init_timeout", 2.0)
    history = finished.read_history()
    with closing(opened("wandb", tmp_path / "run")) as tracker:
        with pytest.warns(UserWarning, match="W&B cannot be reached"):
            tracker.log(history[0], RARE, NAMES)
        logged(tracker, history)
        complete(tracker, finished)
    assert_same(read_wandb(tmp_path / "run"), expected(history))
