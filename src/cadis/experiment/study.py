"""Run a study: reuse finished runs, resume unfinished ones, and start the others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from cadis._io import Callbacks, has_name
from cadis.algorithm import KINDS, find_part_class, get_field_names
from cadis.data import Dataset
from cadis.errors import RunError
from cadis.experiment.build import load_dataset
from cadis.experiment.config import resolve
from cadis.experiment.execution import run_experiment
from cadis.experiment.presets import match_paper_results
from cadis.experiment.tracking import Tracking, combine_callbacks
from cadis.experiment.variants import choose_baseline, make_method_grid, make_method_variants
from cadis.options import DatasetOptions
from cadis.permission import UntrustedCodeError
from cadis.server import OnRound
from cadis.store import (
    DamagedError,
    PlannedRun,
    Study,
    StudyCallbacks,
    StudyFolder,
    list_planned_runs,
)

ExecuteRun: TypeAlias = Callable[[PlannedRun, OnRound, Callbacks], object]
"""Function that starts or resumes one run of a study."""


@dataclass
class RunFromOptions:
    """Starts or resumes runs from the options of their variant; caches the last dataset."""

    _key: object = field(default=None, init=False)
    _dataset: Dataset | None = field(default=None, init=False)

    def __call__(self, run: PlannedRun, on_round: OnRound, callbacks: Callbacks) -> None:
        """Start or resume one run."""
        try:
            config = resolve({**run.variant.options, "seed": run.seed}, {})
        except UntrustedCodeError as error:  # study.json names it, but not the user
            raise RunError(str(error)) from None
        key = tuple(getattr(config.settings, name) for name in get_field_names(DatasetOptions))
        if self._dataset is None or key != self._key:
            self._key, self._dataset = key, load_dataset(config.settings, callbacks)
        resume = run.folder.has_run()
        run_experiment(config, run.folder.path, resume, on_round, callbacks, self._dataset)


def plan_comparison(
    methods: Iterable[str],
    grid: Mapping[str, Sequence[str]],
    preset: str | None,
    file: Mapping[str, Any],
    overrides: Mapping[str, Any],
) -> Study:
    """Plan a comparison of methods; seeds, targets and command are set later.

    Args:
        methods: names of methods, of variants such as "cadis-uniform", and of groups: "all" and
            "ablations".
        grid: values by option; the methods are compared for every combination.
        preset: the name of the preset, if any.
        file: the content of a TOML file, or of the preset.
        overrides: options of the command line, in one flat mapping.
    """
    names, first_cell = list(methods), {name: values[0] for name, values in grid.items()}
    first_variants = make_method_variants(names, file, {**overrides, **first_cell})
    variants = make_method_grid(names, grid, file, overrides) if grid else first_variants
    paper = match_paper_results(preset, variants[0].options) if preset and not grid else None
    kind = KINDS["method"]
    classes = {v.name: find_part_class(kind, v.options["method"]) for v in first_variants}
    return Study(
        kind="compare",
        variants=variants,
        seeds=(),
        command="",
        baseline=choose_baseline(classes),
        parameters=tuple(grid),
        paper=paper,
    )


def run_study(
    folder: StudyFolder,
    study: Study,
    callbacks: StudyCallbacks,
    execute_run: ExecuteRun | None = None,
    track: str | None = None,
) -> list[str]:
    """Start or resume all runs of a study that are not finished.

    A run that fails, for example because it diverges, does not stop the others.

    Args:
        folder: the folder of the study.
        study: the variants and seeds.
        callbacks: called at the start and end of runs, with progress and with failures.
        execute_run: starts or resumes one run; by default from the options of its variant.
        track: the name of a tracker to log to.

    Returns:
        One sentence per failed run.
    """
    failures, execute = [], execute_run or RunFromOptions()
    for run in list_planned_runs(folder, study):
        try:
            reused = run.is_finished()
            with closing(Tracking(track, run.folder, folder.path.name)) as tracking:
                if not reused:
                    on_round = combine_callbacks(callbacks.begin(run), tracking.log_round)
                    execute(run, on_round, callbacks.run_callbacks)
                callbacks.end(run, reused)
                tracking.finish()
        except (RunError, DamagedError) as error:
            is_damaged = isinstance(error, DamagedError)
            hint = f" Delete {run.folder.path} to run it again." if is_damaged else ""
            failures.append(f"{run.variant.label}, seed {run.seed}: {error}{hint}")
            callbacks.fail(failures[-1])
    return failures


def find_study_folder(base: Path, study: Study) -> StudyFolder:
    """Return the first folder of ``base``, ``base-2``, ... that can be used for a study.

    It does not exist yet, or it has a study that can be merged with this one.
    """
    path, suffix = base, 1
    while True:
        folder = StudyFolder(path)
        if not has_name(path) or (
            folder.has_study() and not folder.read().describe_conflict(study)
        ):
            return folder
        suffix += 1
        path = base.with_name(f"{base.name}-{suffix}")
