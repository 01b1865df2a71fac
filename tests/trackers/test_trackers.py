"""Runs are logged, and what all trackers stored is read back and compared with the records."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cadis.errors import CadisError
from cadis.store import RunFolder
from cadis.trackers import TRACKERS, open_tracker
from tracker_support import (
    OPTIONS,
    RARE,
    READ,
    assert_same,
    complete,
    expected,
    logged,
    mlflow_runs,
    opened,
    skip_without,
    track,
)

pytestmark = pytest.mark.filterwarnings(  # MLflow has yet to follow SQLAlchemy 2.1
    "ignore:The ``noload`` loader strategy:DeprecationWarning"
)

EVERY = pytest.mark.parametrize("name", list(TRACKERS))


@EVERY
def test_what_is_stored_is_what_was_measured(
    name: str, finished: RunFolder, tmp_path: Path
) -> None:
    history, folder = finished.read_history(), tmp_path / "run"
    with closing(opened(name, folder)) as tracker:
        assert not list(folder.iterdir())  # the run may still make its folder
        logged(tracker, history)
        complete(tracker, finished)
    assert len(history) == 4
    assert_same(READ[name](folder), expected(history))


@EVERY
def test_a_resumed_run_goes_on_without_double_points(
    name: str, finished: RunFolder, tmp_path: Path
) -> None:
    history, folder = finished.read_history(), tmp_path / "run"
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
def test_a_missing_package_is_a_sentence(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CadisError, match=r"Install the trackers first: pip install .cadis\[tra"):
        open_tracker(name, tmp_path, "a run", None, lambda: OPTIONS)


def test_an_unknown_tracker_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="no tracker 'tensorbord'; did you mean 'tensorboard'"):
        open_tracker("tensorbord", tmp_path, "a run", None, lambda: OPTIONS)


COMPARISON = """
import sys
from pathlib import Path
from cadis.trackers import open_tracker
from support import run_small

for seed in (1, 2):
    out = Path(sys.argv[2]) / str(seed)
    tracker = open_tracker(sys.argv[1], out, str(seed), "seeds", lambda: {"seed": seed})
    result = run_small(
        rounds=3, workers=2, seed=seed, out=out,
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
        assert {run.info.run_name: run.info.status for run in runs} == {
            "1": "FINISHED",
            "2": "FINISHED",
        }
    else:
        for seed in (1, 2):
            assert [step for step, _ in READ[name](tmp_path / "both" / str(seed))["loss"]] == [
                1,
                2,
                3,
            ]
