"""``cadis compare`` and ``cadis sweep``: run a study and report its results."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cadis.algorithm import find_user_classes, split_names, validate
from cadis.analysis import read_results
from cadis.cli.guard import STOPPED, print_error
from cadis.cli.report import show_results
from cadis.cli.run import make_run_name, read_file_options
from cadis.errors import CadisError
from cadis.experiment import (
    Settings,
    check_run_count,
    check_tracker,
    find_study_folder,
    make_grid_variants,
    parse_grid,
    plan_comparison,
    run_study,
    to_option_name,
)
from cadis.report.console import SafeConsole
from cadis.report.study_display import show_study_progress
from cadis.report.terminal import print_line
from cadis.store import RunFolder, Study, StudyFolder, list_planned_runs


def compare(
    grid: Sequence[str],
    seeds: int,
    methods: str | None = None,
    targets: str = "",
    experiment: Path | None = None,
    preset: str | None = None,
    out: Path | None = None,
    track: str | None = None,
    **options: Any,
) -> int:
    """Compare methods on the same federations; the arguments are the options of the command.

    Without ``methods``, run one method with every combination of the values in the grid.
    """
    file = read_file_options(experiment, preset)
    first_seed = options.pop("seed", file.get("seed", 0))
    values = _read_grid(grid, file, options) if grid or methods is None else {}
    if methods is None:
        variants = make_grid_variants(values, file, options)
        study = Study("sweep", variants, (), "", parameters=tuple(values))
    else:
        study = plan_comparison(methods.split(","), values, preset, file, options)
    study = replace(study, seeds=_list_seeds(first_seed, seeds, study))
    study = replace(study, targets=_read_targets(targets))
    return _run(study, preset, out, track)


def _run(study: Study, preset: str | None, out: Path | None, track: str | None) -> int:
    study = replace(study, command=shlex.join(["cadis", *sys.argv[1:]]))
    name = preset or make_run_name(study.variants[0].options["dataset"])
    default = Path("runs") / f"{study.kind}-{name}"
    folder = StudyFolder(out) if out else find_study_folder(default, study)
    path, console = folder.path, SafeConsole()
    check_tracker(track)
    with folder.open(study) as everything:
        print_line(console, f"Results: {path}    Show them in a browser: cadis watch {path}")
        try:
            runs = list(list_planned_runs(folder, everything))
            with show_study_progress(console, runs) as callbacks:
                failures = run_study(folder, everything, callbacks, track=track)
        except KeyboardInterrupt:
            return print_error(
                "Stopped. Repeat the command to continue, or show the finished runs with: "
                f"cadis report {path}",
                STOPPED,
            )
    if not any(RunFolder(file.parent).has_rounds() for file in path.glob("*/*/config.toml")):
        return print_error("No run has finished a round, so there are no results.", 1)
    show_results(read_results([path]), path / "report.html", console, failures)
    return 1 if failures else 0


def _read_grid(
    texts: Sequence[str], file: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Return values by option; raise an error if an option is also set outside the grid."""
    grid = parse_grid(texts, find_user_classes({**file, **options}))
    for name in grid:
        if name in options:
            raise CadisError(f"The grid varies '{name}'; leave out {to_option_name(name)}.")
    return grid


def _list_seeds(first: Any, num_seeds: int, study: Study) -> tuple[int, ...]:
    check_run_count(num_seeds * len(study.variants))
    first = validate(Settings, {"seed": first}).seed
    return tuple(validate(Settings, {"seed": first + n}).seed for n in range(num_seeds))


def _read_targets(text: str) -> tuple[float, ...]:
    """Parse accuracies such as "0.8,0.9" or "80%,90%"."""
    targets = set()
    for part in split_names(text):
        try:
            value = float(part.rstrip("%")) / (100 if part.endswith("%") else 1)
        except ValueError:
            value = -1.0
        if not 0 < value <= 1:
            raise CadisError(f"A target is an accuracy such as 0.9 or 90%, not {part!r}.")
        targets.add(value)
    return tuple(sorted(targets))
