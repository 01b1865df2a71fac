"""Functions that log runs, and read the stored values with the trackers' own readers."""

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from cadis.server import RoundRecord
from cadis.store import RunFolder
from cadis.trackers import Tracker, collect_scalars, open_tracker

NAMES = ["a", "b", "c", "d", "e"]
RARE = [2, 3, 4]
OPTIONS = {"method": "cadis", "rounds": 4, "head": None, "cadis": {"gamma": 0.25, "list": [3, 1]}}

Points: TypeAlias = dict[str, list[tuple[int, float]]]
"""Pairs of round and value, by name of the scalar."""


def skip_without(name: str) -> None:
    """Skip the test if a tracker is not installed."""
    pytest.importorskip(name, reason=f"{name} is not installed")


def open_test_tracker(name: str, folder: Path, options: dict[str, Any] = OPTIONS) -> Tracker:
    skip_without(name)
    folder.mkdir(parents=True, exist_ok=True)
    return open_tracker(name, folder, "a run", "a group", lambda: options)


def log_history(tracker: Tracker, history: list[RoundRecord]) -> None:
    for record in history:
        tracker.log(record, RARE, NAMES)


def finish_run(tracker: Tracker, run: RunFolder) -> None:
    tracker.finish(run.read_json("summary.json"), sorted(run.figures.iterdir()))


def track(
    name: str,
    folder: Path,
    history: list[RoundRecord],
    finished: RunFolder | None = None,
    options: dict[str, Any] = OPTIONS,
) -> None:
    """Log rounds, and the end of the run if ``finished`` is given."""
    with closing(open_test_tracker(name, folder, options)) as tracker:
        log_history(tracker, history)
        if finished is not None:
            finish_run(tracker, finished)


def tensorboard_events(folder: Path) -> Any:
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    all_events = {"scalars": 0, "images": 0, "tensors": 0}
    events = reader.EventAccumulator(str(folder / "tensorboard"), all_events)
    return events.Reload()


def read_tensorboard(folder: Path) -> Points:
    events = tensorboard_events(folder)
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if not tag.startswith("summary/")
    }


def mlflow_client(folder: Path) -> Any:
    return import_module("mlflow").MlflowClient(
        f"sqlite:///{folder.resolve().parent / 'mlruns' / 'mlflow.db'}"
    )


def mlflow_runs(folder: Path) -> list[Any]:
    client = mlflow_client(folder)
    return list(client.search_runs([client.get_experiment_by_name("cadis").experiment_id]))


def read_mlflow(folder: Path) -> Points:
    (run,), client = mlflow_runs(folder), mlflow_client(folder)
    return {
        key: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
        for key in run.data.metrics
        if not key.startswith("summary/")
    }


def wandb_records(path: Path) -> Iterator[Any]:
    """Yield the records of an offline run: protocol buffers in a log of LevelDB's format."""
    make = import_module("wandb.proto.wandb_internal_pb2").Record
    content, position, partial = path.read_bytes(), 7, b""
    assert content.startswith(b":W&B")
    while position < len(content):
        remaining = 32768 - position % 32768
        if remaining < 7:  # the rest of the block is empty
            position += remaining
            continue
        _, size, kind = struct.unpack("<IHB", content[position : position + 7])
        partial += content[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = make()
            record.ParseFromString(partial)
            partial = b""
            yield record


def wandb_files(folder: Path) -> list[Path]:
    """Return the files of offline runs in the order of writing, after the writer has ended."""
    import_module("wandb").teardown()
    files = list(folder.glob("wandb/offline-run-*/*.wandb"))
    return sorted(files, key=lambda path: path.stat().st_mtime_ns)


def wandb_all(folder: Path, kind: str) -> list[Any]:
    return [
        getattr(record, kind)
        for path in wandb_files(folder)
        for record in wandb_records(path)
        if record.WhichOneof("record_type") == kind
    ]


def read_wandb(folder: Path) -> Points:
    points: Points = {}
    for history in wandb_all(folder, "history"):
        for item in history.item:
            key, value = item.key or "/".join(item.nested_key), json.loads(item.value_json)
            if not key.startswith(("_", "figures/")):
                points.setdefault(key, []).append((history.step.num, value))
    return points


READ: dict[str, Callable[[Path], Points]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "mlflow": read_mlflow,
}


def collect_points(history: list[RoundRecord], names: list[str] = NAMES) -> Points:
    points: Points = {}
    for record in history:
        for key, value in collect_scalars(record, RARE, names).items():
            points.setdefault(key, []).append((record.round, value))
    return points


def assert_same_points(stored: Points, expected: Points) -> None:
    assert stored.keys() == expected.keys()
    for key, points in expected.items():
        assert [step for step, _ in stored[key]] == [step for step, _ in points], key
        values = [value for _, value in points]
        assert [value for _, value in stored[key]] == pytest.approx(values, rel=1e-6), key
