"""``cadis run``: run one experiment and draw its figures."""

import re
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from cadis import report
from cadis._io import has_name, read_toml
from cadis.analysis import read_results
from cadis.cli.guard import STOPPED, print_error
from cadis.errors import CadisError
from cadis.experiment import (
    ExperimentConfig,
    Tracking,
    combine_callbacks,
    drop_paper_results,
    read_preset,
    resolve,
    run_experiment,
)
from cadis.report.console import SafeConsole
from cadis.report.terminal import make_summary_table, print_line, show_run_progress
from cadis.store import RunFolder, check_same_parts, permit_signed_code

_MAX_NAME = 100
"""Maximum number of characters of a name; a longer name is cut, and its hash is added."""


def run(
    resume: bool,
    experiment: Path | None = None,
    preset: str | None = None,
    out: Path | None = None,
    track: str | None = None,
    **options: Any,
) -> int:
    """Run an experiment and show its results; ``options`` replace those of the file or preset."""
    if resume:
        if out is None or experiment is not None or preset is not None:
            raise CadisError(
                "Give the folder of the run to continue, without a file or preset: --resume "
                "--out FOLDER."
            )
        file = RunFolder(out).read_config()
        permit_signed_code(out, file)
        check_same_parts(out, file, options)
    else:
        file = read_file_options(experiment, preset)
    config = resolve(file, options)
    name = preset or make_run_name(config.method.name, config.settings.dataset)
    folder = RunFolder(out or _find_free_folder(name))
    try:
        with closing(Tracking(track, folder)) as tracking:
            _run(config, folder, resume, tracking)
    except KeyboardInterrupt:
        hint = f" Continue with: cadis run --resume --out {folder.path}" if folder.has_run() else ""
        return print_error(f"Stopped.{hint}", STOPPED)
    return 0


def read_file_options(experiment: Path | None = None, preset: str | None = None) -> dict[str, Any]:
    """Return the options of a file or a preset, or {} without either."""
    if experiment is not None and preset is not None:
        raise CadisError("Give either a file or a preset, not both.")
    if preset is not None:
        return read_preset(preset)
    if experiment is None:
        return {}
    options = read_toml(experiment)
    permit_signed_code(experiment.parent, options)
    return drop_paper_results(options)


def make_run_name(*parts: str) -> str:
    """Join texts, such as a method and a dataset, into a name; use the last part of a path."""
    paths = (re.sub(r"^(images|csv|parquet):", "", part) for part in parts)
    names = (re.sub(r"\.(csv|tsv|parquet)$", "", Path(path).resolve().name) for path in paths)
    return re.sub(r"[^\w.-]+", "-", "-".join(names))


def shorten_name(name: str) -> str:
    """Return a name that file systems accept: cut a long one, and add its hash."""
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[:_MAX_NAME]}-{sha256(name.encode()).hexdigest()[:8]}"


def _run(config: ExperimentConfig, folder: RunFolder, resume: bool, tracking: Tracking) -> None:
    console = SafeConsole()
    rounds, metric = config.settings.rounds, config.algorithm.task.main_metric
    with show_run_progress(console, rounds, metric) as (on_round, callbacks):
        on_each = combine_callbacks(on_round, tracking.log_round)
        result = run_experiment(config, folder.path, resume, on_each, callbacks)
    figures = report.draw_figures(read_results([folder.path]), folder.figures, pdf=False)
    tracking.finish(figures)
    classes = folder.read_json("federation.json")["classes"]
    console.print(make_summary_table(result.summary, classes))
    print_line(console, f"Results: {folder.path}    Figures: {folder.figures}")


def _find_free_folder(name: str) -> Path:
    """Return a new folder in ``runs``; add a suffix -2, -3, ... if the folder exists."""
    path, suffix = Path("runs") / name, 1
    while has_name(path):
        suffix += 1
        path = Path("runs") / f"{name}-{suffix}"
    return path
