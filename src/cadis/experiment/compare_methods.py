"""``cadis.compare``: several methods on the same federations, from Python."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm import BaseMethod, names_in, parameters_of, part_from
from cadis.algorithm.methods import METHODS
from cadis.analysis import Comparison, Results, RunData, answer, details, read_results
from cadis.errors import CadisError
from cadis.experiment.own_study import OwnStudy
from cadis.experiment.parameters import qualified
from cadis.experiment.presets import read_preset
from cadis.experiment.run_federation import folder_for, is_shown, warn
from cadis.experiment.study import RunFromOptions, RunPlanned, comparison_of, run_study
from cadis.experiment.tracking import call_each, check_tracker
from cadis.report.formats import Sheet, to_markdown, to_rich
from cadis.report.study_display import study_progress
from cadis.report.tables import sheets
from cadis.server import OnRound
from cadis.store import PlannedRun, Study, StudyFolder, planned_runs


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """The result of a comparison.

    Attributes:
        results: all runs, as reports read them.
        folder: where everything is kept, if it is.
        failures: a sentence for each run that could not go on.
    """

    results: Results
    folder: Path | None
    failures: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """Say which method is better, and whether the difference may be chance."""
        return answer(Comparison(self.results))

    @property
    def details(self) -> list[str]:
        """List what the answer is based on."""
        return details(Comparison(self.results))

    @property
    def tables(self) -> list[Sheet]:
        """Return all tables."""
        return sheets(Comparison(self.results))

    @property
    def table(self) -> list[dict[str, str]]:
        """Return the main table, a row for each method."""
        sheet = self.tables[0]
        return [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]

    @property
    def runs(self) -> list[RunData]:
        """Return all runs."""
        return self.results.runs

    def to_markdown(self) -> str:
        """Return the answer and all tables as Markdown."""
        return "\n".join([self.answer, "", *map(to_markdown, self.tables)])

    def __repr__(self) -> str:
        """Return the answer and the main table."""
        paper = Console(file=StringIO(), width=100)
        with paper.capture() as printed:
            paper.print(to_rich(self.tables[0]))
        lines = [line.rstrip() for line in printed.get().splitlines()]
        return "\n".join([self.answer, *lines]).rstrip()

    def _repr_markdown_(self) -> str:
        """Return what a notebook shows."""
        return f"{self.answer}\n\n{to_markdown(self.tables[0])}"


def compare(
    methods: Sequence[BaseMethod | str] | str = ("fedavg", "cadis"),
    *,
    seeds: int = 3,
    out: Path | str | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    preset: str | None = None,
    targets: Sequence[float] = (),
    progress: bool | None = None,
    on_round: OnRound | None = None,
    track: str | None = None,
    **options: Any,
) -> ComparisonResult:
    """Run several methods on the same federations, and compare them.

    This is ``cadis compare``: finished runs in ``out`` are reused, unfinished ones are resumed, and
    a run that diverges does not stop the others. With a model, clients and a test set of your own,
    all further options are those of :func:`cadis.run`.

    Args:
        methods: names as ``cadis compare`` takes them, or methods such as ``CADIS(threshold=0.8)``;
            with a model of your own, instances of your own classes as well.
        seeds: runs of each, from ``seed``.
        out: a folder to keep everything in; without one, only the result is kept.
        grid: options and the values that each is to have: a comparison for each combination.
        preset: an experiment of the paper to start from.
        targets: accuracies whose first round is asked for, by default some that fit.
        progress: whether to show progress; by default on a terminal and in a notebook.
        on_round: called with the result of each round of each run.
        track: a tracker to log to: "tensorboard", "wandb" or "mlflow"; it needs ``out``.
        options: as ``cadis run`` has them, by their Python names, such as ``dataset="digits"``.
    """
    if track is not None and out is None:
        raise CadisError("A tracker keeps its files in the folder of the runs; give one as out.")
    check_tracker(track)
    named = _by_name(names_in(methods) if isinstance(methods, str) else list(methods))
    first = int(options.pop("seed", 0))
    own = OwnStudy.plan(named, options) if isinstance(options.get("model"), nn.Module) else None
    if own is not None and (grid or preset):
        raise CadisError("A grid or a preset goes with a dataset that is named.")
    study = own.study() if own else _study(named, grid or {}, preset, options)
    study = replace(
        study,
        seeds=tuple(range(first, first + seeds)),
        command="cadis.compare",
        targets=tuple(targets),
    )
    begin = own or RunFromOptions()
    with folder_for(out) as path, StudyFolder(path).opened(study) as everything:
        folder = StudyFolder(path)
        if own:
            own.check_finished(planned_runs(folder, everything))
        results, failures = _run(folder, everything, begin, progress, on_round, track)
    return ComparisonResult(results, path if out is not None else None, tuple(failures))


def _by_name(methods: Sequence[BaseMethod | str]) -> dict[str, BaseMethod | None]:
    """Return methods by name, each once; None for those that are given by name only."""
    named: dict[str, BaseMethod | None] = {}
    for method in methods:
        name = method if isinstance(method, str) else part_from("method", method).name
        if name in named:
            raise CadisError(f"'{name}' is given twice; compare it with itself by a grid.")
        named[name] = None if isinstance(method, str) else method
    return named


def _study(
    named: Mapping[str, BaseMethod | None],
    grid: Mapping[str, Sequence[Any]],
    preset: str | None,
    options: Mapping[str, Any],
) -> Study:
    """Plan what ``cadis compare`` would run."""
    file = read_preset(preset) if preset else {}
    given = dict(options)
    for name, method in named.items():
        if method is not None and METHODS.get(name) is not type(method):
            raise CadisError(f"Give the method '{name}' of your own as 'FILE.py:CLASS'.")
        parameters = {} if method is None else parameters_of(method)
        given |= {qualified(type(method), k): v for k, v in parameters.items() if v is not None}
    values = {name: [str(value) for value in some] for name, some in grid.items()}
    return comparison_of(named, values, preset, file, given)


def _run(
    folder: StudyFolder,
    study: Study,
    begin: RunPlanned,
    progress: bool | None,
    on_round: OnRound | None,
    track: str | None,
) -> tuple[Results, list[str]]:
    def run_planned(run: PlannedRun, shown: OnRound, callbacks: Callbacks) -> None:
        begin(run, call_each(shown, on_round), callbacks)

    runs = list(planned_runs(folder, study))
    console = Console(stderr=True)
    shown = is_shown(progress, console)
    with study_progress(console, runs) if shown else nullcontext(_Silent()) as callbacks:
        failures = run_study(folder, study, callbacks, run_planned, track)
    if failures and not any(run.folder.has_rounds() for run in runs):
        raise CadisError(failures[0])
    return read_results([folder.path]), failures


class _Silent:
    """Callbacks that show nothing; what a command would print is a warning."""

    of_run = replace(NO_CALLBACKS, say=warn)

    def begin(self, run: PlannedRun) -> OnRound:  # noqa: ARG002
        return call_each()

    def end(self, run: PlannedRun, reused: bool) -> None:
        """Ignore that a run has ended."""

    def fail(self, sentence: str) -> None:
        """Ignore a failure, which the result holds."""
