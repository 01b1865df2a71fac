"""``cadis compare`` and ``cadis sweep``: many runs, and what they say together."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from cadis.algorithm import own_classes, validated
from cadis.analysis import read_results
from cadis.cli.guard import say
from cadis.cli.interrupting import STOPPED
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
    tracked,
)
from cadis.report.study_display import study_progress
from cadis.report.terminal import tell
from cadis.store import RunFolder, Study, StudyFolder, Variant, planned_runs


def compare(
    experiment: Path | None,
    preset: str | None,
    out: Path | None,
    asked: Mapping[str, Any],
    given: Mapping[str, Any],
) -> int:
    """Run methods on the same federations, and say who wins.

    Args:
        experiment: a file of options.
        preset: or the name of a preset.
        out: where to keep everything.
        asked: methods, number of seeds, target accuracies, tracker.
        given: all other options.
    """
    study, name = _compared(experiment, preset, asked, given)
    return _run(study, out, f"compare-{name}", asked["track"])


def sweep(
    experiment: Path | None,
    preset: str | None,
    out: Path | None,
    asked: Mapping[str, Any],
    given: Mapping[str, Any],
) -> int:
    """Run a method with every combination of values of some options; arguments as above."""
    study, name = _swept(experiment, preset, asked, given)
    return _run(study, out, f"sweep-{name}", asked["track"])


def _compared(
    experiment: Path | None,
    preset: str | None,
    asked: Mapping[str, Any],
    given: Mapping[str, Any],
) -> tuple[Study, str]:
    """The comparison that is asked for, and what to call it."""
    file, options = _options(experiment, preset, given)
    grid, methods = _grid(asked["grid"], file, options), asked["methods"].split(",")
    planned = comparison_of(methods, grid, preset, file, options)
    study = replace(
        planned,
        seeds=_seeds(asked["seeds"], len(planned.variants), file, given),
        command=_typed(),
        targets=_targets(asked["targets"]),
    )
    return study, preset or _name(study.variants)


def _swept(
    experiment: Path | None,
    preset: str | None,
    asked: Mapping[str, Any],
    given: Mapping[str, Any],
) -> tuple[Study, str]:
    """The sweep that is asked for, and what to call it."""
    file, options = _options(experiment, preset, given)
    if not asked["grid"]:
        raise CadisError("Say what to vary, such as --grid threshold=0.6,0.7,0.8.")
    grid = _grid(asked["grid"], file, options)
    variants = grid_variants(grid, file, options)
    seeds = _seeds(asked["seeds"], len(variants), file, given)
    study = Study("sweep", variants, seeds, _typed(), parameters=tuple(grid))
    return study, preset or _name(variants)


def _run(study: Study, out: Path | None, name: str, track: str | None) -> int:
    folder = StudyFolder(out) if out is not None else study_folder(Path("runs") / name, study)
    check_tracker(track)
    console = Console()
    with folder.opened(study) as everything:
        tell(
            console,
            f"Everything goes to {folder.path}; look at it meanwhile: cadis watch {folder.path}",
        )
        try:
            failures = _run_all(folder, everything, track, console)
        except KeyboardInterrupt:
            look = f"look at what there is by: cadis report {folder.path}"
            return say(f"Stopped. The same command goes on from here; {look}", STOPPED)
    return _show(folder, console, failures)


def _run_all(folder: StudyFolder, study: Study, track: str | None, console: Console) -> list[str]:
    """Run what is missing; returns a sentence for each run that could not go on."""
    runs = list(planned_runs(folder, study))
    with study_progress(console, runs) as callbacks, tracked(callbacks, track, folder) as heard:
        return run_study(folder, study, heard)


def _show(folder: StudyFolder, console: Console, failures: Sequence[str]) -> int:
    """Tables, files, pictures and the page."""
    if not any(RunFolder(path.parent).has_rounds() for path in folder.path.glob("*/*/config.toml")):
        return say("No run has finished a round.", 1)
    show_results(read_results([folder.path]), folder.path / "report.html", console, failures)
    return 1 if failures else 0


def _options(
    experiment: Path | None, preset: str | None, given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A file's content, and what was typed but the seed."""
    file = file_options(experiment, preset)
    return file, {key: value for key, value in given.items() if key != "seed"}


def _grid(
    texts: Sequence[str], file: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Options and the values that they are to have; nothing if nothing is varied."""
    if not texts:
        return {}
    grid = parse_grid(texts, own_classes({**file, **options}))
    for name in grid:
        if name in options:
            raise CadisError(f"'{name}' is varied by the grid; do not give it otherwise.")
    return grid


def _seeds(
    number: int, variants: int, file: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[int, ...]:
    """So many, from the one that was given, for each of the variants."""
    check_runs(number * variants)
    first = validated(Settings, {"seed": given.get("seed", file.get("seed", 0))}).seed
    return tuple(validated(Settings, {"seed": first + n}).seed for n in range(number))


def _targets(text: str | None) -> tuple[float, ...]:
    """Accuracies from "0.8,0.9" or "80%,90%"."""
    found = []
    for part in (text or "").split(","):
        if part.strip():
            percent = part.strip().endswith("%")
            try:
                value = float(part.strip().rstrip("%")) / (100 if percent else 1)
            except ValueError:
                value = -1.0
            if not 0 < value <= 1:
                raise CadisError(
                    f"A target is an accuracy such as 0.9 or 90%, not {part.strip()!r}."
                )
            found.append(value)
    return tuple(sorted(set(found)))


def _name(variants: Sequence[Variant]) -> str:
    return plain_name(variants[0].options["dataset"])


def _typed() -> str:
    """The command as it was typed."""
    return shlex.join(["cadis", *sys.argv[1:]])
