"""``cadis run``: one experiment, from options to pictures."""

import re
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console

from cadis import report
from cadis._io import read_toml
from cadis.analysis import read_results
from cadis.cli.guard import STOPPED, say
from cadis.errors import CadisError
from cadis.experiment import (
    ExperimentConfig,
    Tracking,
    call_each,
    read_preset,
    resolve,
    run_experiment,
    without_paper,
)
from cadis.report.terminal import run_progress, summary_table, tell
from cadis.store import RunFolder, check_named

_LONGEST_NAME = 100


def run(
    resume: bool,
    experiment: Path | None = None,
    preset: str | None = None,
    out: Path | None = None,
    track: str | None = None,
    **given: Any,
) -> int:
    """Run an experiment, and show its results."""
    if resume:
        if out is None or experiment is not None or preset is not None:
            raise CadisError(
                "--resume wants the folder of the run by --out, and no file or preset."
            )
        file = RunFolder(out).read_config()
        check_named(out, file, given)
    else:
        file = file_options(experiment, preset)
    config = resolve(file, given)
    name = preset or plain_name(config.method.name, config.settings.dataset)
    folder = RunFolder(out or _free_folder(name))
    try:
        with closing(Tracking(track, folder)) as tracking:
            _run(config, folder, resume, tracking)
    except KeyboardInterrupt:
        hint = f" Go on with: cadis run --resume --out {folder.path}" if folder.holds_run() else ""
        return say(f"Stopped.{hint}", STOPPED)
    return 0


def file_options(experiment: Path | None = None, preset: str | None = None) -> dict[str, Any]:
    """Return the options in a file or a preset; none without either."""
    if experiment is not None and preset is not None:
        raise CadisError("Give either a file or a preset, not both.")
    if preset is not None:
        return read_preset(preset)
    return {} if experiment is None else without_paper(read_toml(experiment))


def plain_name(*parts: str) -> str:
    """What was asked for, such as a method and a dataset, as one name; of paths their last part."""
    places = (re.sub(r"^(images|csv|parquet):", "", part) for part in parts)
    names = (re.sub(r"\.(csv|tsv|parquet)$", "", Path(place).resolve().name) for place in places)
    return re.sub(r"[^\w.-]+", "-", "-".join(names))


def short_name(name: str) -> str:
    """A name that file systems take; of a long one the beginning, and what tells it from others."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{sha256(name.encode()).hexdigest()[:8]}"


def _run(config: ExperimentConfig, folder: RunFolder, resume: bool, tracking: Tracking) -> None:
    console = Console()
    rounds, metric = config.settings.rounds, config.algorithm.task.headline
    with run_progress(console, rounds, metric) as (on_round, callbacks):
        heard = call_each(on_round, tracking.log_round)
        result = run_experiment(config, folder.path, resume, heard, callbacks)
    figures = report.draw_figures(read_results([folder.path]), folder.figures, pdf=False)
    tracking.finish(figures)
    classes = folder.read_json("federation.json")["classes"]
    console.print(summary_table(result.summary, classes))
    tell(console, f"Everything is in {folder.path}, pictures in {folder.figures}.")


def _free_folder(name: str) -> Path:
    """A new folder under ``runs``: the name, with a number if it is taken."""
    path, number = Path("runs") / name, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path
