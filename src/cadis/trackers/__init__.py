"""Trackers that log the metrics of runs: TensorBoard, Weights & Biases and MLflow."""

from collections.abc import Callable
from pathlib import Path

from cadis.algorithm import check_names
from cadis.trackers.mlflow import MLflow
from cadis.trackers.scalars import collect_scalars
from cadis.trackers.tensorboard import TensorBoard
from cadis.trackers.tracker import Options, Tracker
from cadis.trackers.wandb import WandB

TRACKERS: dict[str, type[Tracker]] = {
    tracker.name: tracker for tracker in (TensorBoard, WandB, MLflow)
}


def open_tracker(
    name: str, folder: Path, run_name: str, group: str | None, options: Callable[[], Options]
) -> Tracker:
    """Return a tracker for a run.

    Args:
        name: name of the tracker, one of ``TRACKERS``.
        folder: folder of the run. Nothing is written to it before the first round is logged.
        run_name: name of the run in the tracker.
        group: name of the group of runs that the run belongs to, if any.
        options: function that returns all options of the run, as in ``config.toml``. It is called
            after the first round, because some options are known only then.

    Returns:
        The tracker.

    Raises:
        CadisError: if the tracker is unknown or cannot be used.

    Example:
        >>> tracker = open_tracker("tensorboard", Path("run"), "a run", None, lambda: {"seed": 0})
        >>> tracker.close()
    """
    check_names("tracker", [name], TRACKERS)
    return TRACKERS[name](folder, run_name, group, options)
