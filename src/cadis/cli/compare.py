"""``cadis compare`` and ``cadis sweep``: many runs, and what they say together."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from cadis.algorithm import names_in, own_classes, validated
from cadis.analysis import read_results
from cadis.cli.guard import STOPPED, say
from cadis.cli.report import show_results
from cadis.cli.run import file_options, plain_name
from cadis.errors import CadisError
from cadis.experiment import (
    Settings,
    check_runs,
    check_tracker,
    comparison_of,
    grid_variants,
    parse_grid,
    run_study,
    study_folder,
)
from cadis.report.study_display import study_progress
from cadis.report.terminal import tell
from cadis.store import RunFolder, Study, StudyFolder, planned_runs


def compare(
    grid: Sequence[str],
    seeds: int,
    methods: str | None = None,
    targets: str = "",
    experiment: Path | None = None,
    preset: str | None = None,
    out: Path | None = None,
    track: str | None = None,
    **given: Any,
) -> int:
    """Run methods on the same federations, and say who wins; arguments are as they are typed.

    Without methods, run one with every combination of values of the options in the grid.
    """
    file = file_options(experiment, preset)
    first = given.pop("seed", file.get("seed", 0))
    varied = _grid(grid, file, given) if grid or methods is None else {}
    if methods is None:
        variants = grid_variants(varied, file, given)
        study = Study("sweep", variants, (), "", parameters=tuple(varied))
    else:
        study = comparison_of(methods.split(","), varied, preset, file, given)
    study = replace(study, seeds=_seeds(first, seeds, study), targets=_targets(targets))
    return _run(study, preset, out, track)


def _run(study: Study, preset: str | None, out: Path | None, track: str | None) -> int:
    study = replace(study, command=shlex.join(["cadis", *sys.argv[1:]]))
    name = preset or plain_name(study.variants[0].options["dataset"])
    folder = StudyFolder(out) if out else study_folder(Path("runs") / f"{study.kind}-{name}", study)
    path, console = folder.path, Console()
    check_tracker(track)
    with folder.opened(study) as everything:
        tell(console, f"Everything goes to {path}; look at it meanwhile: cadis watch {path}")
        try:
            with study_progress(console, list(planned_runs(folder, everything))) as callbacks:
                failures = run_study(folder, everything, callbacks, track=track)
        except KeyboardInterrupt:
            look = f"look at what there is by: cadis report {path}"
            return say(f"Stopped. The same command goes on from here; {look}", STOPPED)
    if not any(RunFolder(file.parent).has_rounds() for file in path.glob("*/*/config.toml")):
        return say("No run has finished a round.", 1)
    show_results(read_results([path]), path / "report.html", console, failures)
    return 1 if failures else 0


def _grid(
    texts: Sequence[str], file: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Return the options that are varied and their values; refuse one that is given as well."""
    grid = parse_grid(texts, own_classes({**file, **given}))
    for name in grid:
        if name in given:
            raise CadisError(f"'{name}' is varied by the grid; do not give it otherwise.")
    return grid


def _seeds(first: Any, number: int, study: Study) -> tuple[int, ...]:
    check_runs(number * len(study.variants))
    first = validated(Settings, {"seed": first}).seed
    return tuple(validated(Settings, {"seed": first + n}).seed for n in range(number))


def _targets(text: str) -> tuple[float, ...]:
    """Accuracies from "0.8,0.9" or "80%,90%"."""
    found = set()
    for part in names_in(text):
        try:
            value = float(part.rstrip("%")) / (100 if part.endswith("%") else 1)
        except ValueError:
            value = -1.0
        if not 0 < value <= 1:
            raise CadisError(f"A target is an accuracy such as 0.9 or 90%, not {part!r}.")
        found.add(value)
    return tuple(sorted(found))
