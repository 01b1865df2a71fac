"""Running a study: many runs, each reused, resumed or begun."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from cadis._io import Callbacks
from cadis.algorithm import KINDS, names_of, part_class
from cadis.data import Dataset
from cadis.errors import RunError
from cadis.experiment.build import load_dataset
from cadis.experiment.config import resolve
from cadis.experiment.execution import run_experiment
from cadis.experiment.presets import reported
from cadis.experiment.tracking import Tracking, call_each
from cadis.experiment.variants import choose_baseline, gridded_methods, method_variants
from cadis.options import DatasetOptions
from cadis.server import OnRound
from cadis.store import DamagedError, PlannedRun, Study, StudyCallbacks, StudyFolder, planned_runs

RunPlanned: TypeAlias = Callable[[PlannedRun, OnRound, Callbacks], object]
"""Begins or resumes one run of a study, and calls back after each round and within rounds."""


@dataclass
class RunFromOptions:
    """Run what the options of a variant describe; the last dataset is kept for the next run."""

    _key: object = field(default=None, init=False)
    _dataset: Dataset | None = field(default=None, init=False)

    def __call__(self, run: PlannedRun, on_round: OnRound, callbacks: Callbacks) -> None:
        """Begin or resume one run."""
        config = resolve({**run.variant.options, "seed": run.seed}, {})
        key = tuple(getattr(config.settings, name) for name in names_of(DatasetOptions))
        if self._dataset is None or key != self._key:
            self._key, self._dataset = key, load_dataset(config.settings, callbacks)
        resume = run.folder.holds_run()
        run_experiment(config, run.folder.path, resume, on_round, callbacks, self._dataset)


def comparison_of(
    methods: Iterable[str],
    grid: Mapping[str, Sequence[str]],
    preset: str | None,
    file: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Study:
    """Plan a comparison of methods, as yet without seeds, targets and a command.

    ``file`` holds the content of a TOML file, or of the preset if one is named; ``methods``, the
    values of the ``grid`` and the ``given`` options are as users type them.
    """
    names, start = list(methods), {name: values[0] for name, values in grid.items()}
    plain = variants = method_variants(names, file, {**given, **start})
    if grid:
        variants = gridded_methods(names, grid, file, given)
    paper = reported(preset, plain[0].options) if preset and not grid else None
    methods_by_name = {v.name: part_class(KINDS["method"], v.options["method"]) for v in plain}
    base = choose_baseline(methods_by_name)
    return Study("compare", variants, (), "", base, parameters=tuple(grid), paper=paper)


def run_study(
    folder: StudyFolder,
    study: Study,
    callbacks: StudyCallbacks,
    run_planned: RunPlanned | None = None,
    track: str | None = None,
) -> list[str]:
    """Run what is missing: finished runs are reused, and unfinished ones are resumed.

    By default, a run is begun or resumed from the options of its variant. A run that diverges does
    not stop the others; the result has a sentence for each that could not go on.
    """
    failures, execute = [], run_planned or RunFromOptions()
    for run in planned_runs(folder, study):
        try:
            reused = run.finished()
            with closing(Tracking(track, run.folder, folder.path.name)) as tracking:
                if not reused:
                    on_round = call_each(callbacks.begin(run), tracking.log_round)
                    execute(run, on_round, callbacks.of_run)
                callbacks.end(run, reused)
                tracking.finish()
        except (RunError, DamagedError) as error:
            anew = f" If {run.folder.path} is deleted, it is run anew."
            hint = anew if isinstance(error, DamagedError) else ""
            failures.append(f"{run.variant.label}, seed {run.seed}: {error}{hint}")
            callbacks.fail(failures[-1])
    return failures


def study_folder(base: Path, study: Study) -> StudyFolder:
    """Return the folder of the same study if there is one, else a new folder."""
    path, number = base, 1
    while True:
        folder = StudyFolder(path)
        if not path.exists() or (folder.holds_study() and not folder.read().difference(study)):
            return folder
        number += 1
        path = base.with_name(f"{base.name}-{number}")
