"""Trackers: the numbers of many runs, where they can be looked at together."""

from collections.abc import Callable
from pathlib import Path

from cadis.algorithm import check_names
from cadis.trackers.mlflow import MLflow
from cadis.trackers.scalars import scalars
from cadis.trackers.tensorboard import TensorBoard
from cadis.trackers.tracker import Options, Tracker
from cadis.trackers.wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {
    tracker.name: tracker for tracker in (TensorBoard, WandB, MLflow)
}


def open_tracker(
    name: str, folder: Path, name_of_run: str, group: str | None, options: Callable[[], Options]
) -> Tracker:
    """Return a tracker for a run; whether it can be used is clear at once.

    Args:
        name: one of ``TRACKERS``.
        folder: the run's folder. Nothing is written there before the first round is logged.
        name_of_run: what people call the run.
        group: what it is compared with, if it is.
        options: tells all options of the run, as in ``config.toml``; asked when the first round
            has ended, as some options are settled only then.
    """
    check_names("tracker", [name], TRACKERS)
    return TRACKERS[name](folder, name_of_run, group, options)
