"""``cadis.compare``: several methods on the same federations, from Python."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from cadis._io import NO_CALLBACKS, Callbacks
from cadis.algorithm import Method, names_in, parameters_of
from cadis.algorithm.methods import METHODS
from cadis.analysis import Comparison, Results, RunData, answer, details, read_results
from cadis.errors import CadisError
from cadis.experiment.parameters import qualified
from cadis.experiment.presets import read_preset
from cadis.experiment.progress import is_shown
from cadis.experiment.run_federation import folder_for, run
from cadis.experiment.study import comparison_of, run_study
from cadis.report.formats import Sheet, to_markdown, to_rich
from cadis.report.study_display import study_progress
from cadis.report.tables import sheets
from cadis.server import OnRound, RoundResult
from cadis.store import PlannedRun, RunFolder, Study, StudyFolder, planned_runs


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """What came of a comparison.

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
        """Who is better, if anybody is, and whether that may be chance."""
        return answer(Comparison(self.results))

    @property
    def details(self) -> list[str]:
        """What the answer rests on."""
        return details(Comparison(self.results))

    @property
    def tables(self) -> list[Sheet]:
        """All tables."""
        return sheets(Comparison(self.results))

    @property
    def table(self) -> list[dict[str, str]]:
        """The main table, a row for each method."""
        sheet = self.tables[0]
        return [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]

    @property
    def runs(self) -> list[RunData]:
        """All runs."""
        return self.results.runs

    def to_markdown(self) -> str:
        """The answer and all tables as Markdown."""
        return "\n".join([self.answer, "", *map(to_markdown, self.tables)])

    def __repr__(self) -> str:
        """The answer, and the main table."""
        paper = Console(file=StringIO(), width=100)
        with paper.capture() as printed:
            paper.print(to_rich(self.tables[0]))
        lines = [line.rstrip() for line in printed.get().splitlines()]
        return "\n".join([self.answer, *lines]).rstrip()

    def _repr_markdown_(self) -> str:
        """As a notebook shows it."""
        return f"{self.answer}\n\n{to_markdown(self.tables[0])}"


def compare(
    methods: Sequence[Method | str] | str = ("fedavg", "cadis"),
    *,
    seeds: int = 3,
    out: Path | str | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    preset: str | None = None,
    targets: Sequence[float] = (),
    progress: bool | None = None,
    **options: Any,
) -> ComparisonResult:
    """Run several methods on the same federations, and tell who is better, if anybody is.

    As ``cadis compare`` does: runs that are in ``out`` already are reused. With a model, clients
    and a test set of your own, all further options are those of :func:`cadis.run`.

    Args:
        methods: names as ``cadis compare`` takes them, or methods such as ``CADIS(threshold=0.8)``.
        seeds: runs of each, from ``seed``.
        out: a folder to keep everything in; without one, only the result is kept.
        grid: options and the values that each is to have: a comparison for each combination.
        preset: an experiment of the paper to start from.
        targets: accuracies whose first round is asked for, by default some that fit.
        progress: whether to show how far it is; by default if somebody looks: at a terminal, or at
            a notebook.
        options: as ``cadis run`` has them, by their Python names, such as ``dataset="digits"``.
    """
    named = _named(names_in(methods) if isinstance(methods, str) else list(methods))
    first = int(options.pop("seed", 0))
    numbers = tuple(range(first, first + seeds))
    failures: list[str] = []
    with folder_for(out) as folder:
        if isinstance(options.get("model"), nn.Module):
            if grid or preset:
                raise CadisError("A grid or a preset goes with a dataset that is named.")
            results = _own(named, numbers, folder, options | {"progress": progress})
        else:
            study = _study(named, numbers, grid or {}, preset, tuple(targets), options)
            results, failures = _run(study, StudyFolder(folder), progress)
    return ComparisonResult(results, folder if out is not None else None, tuple(failures))


def _named(methods: Sequence[Method | str]) -> dict[str, Method | None]:
    """What is compared by name; of methods that are given as they are, with these."""
    named: dict[str, Method | None] = {}
    for method in methods:
        name = method if isinstance(method, str) else method.name
        if name in named:
            raise CadisError(f"'{name}' is given twice; compare it with itself by a grid.")
        if not isinstance(method, str) and METHODS.get(name) is not type(method):
            raise CadisError(f"Give the method '{name}' of your own as 'FILE.py:CLASS'.")
        named[name] = None if isinstance(method, str) else method
    return named


def _study(
    named: Mapping[str, Method | None],
    seeds: tuple[int, ...],
    grid: Mapping[str, Sequence[Any]],
    preset: str | None,
    targets: tuple[float, ...],
    options: Mapping[str, Any],
) -> Study:
    """What ``cadis compare`` would run."""
    file = read_preset(preset) if preset else {}
    given = dict(options)
    for method in named.values():
        parameters = {} if method is None else parameters_of(method)
        given |= {qualified(type(method), k): v for k, v in parameters.items() if v is not None}
    values = {name: [str(value) for value in some] for name, some in grid.items()}
    planned = comparison_of(named, values, preset, file, given)
    return replace(planned, seeds=seeds, command="cadis.compare", targets=targets)


def _run(study: Study, folder: StudyFolder, progress: bool | None) -> tuple[Results, list[str]]:
    with folder.opened(study) as everything:
        runs = list(planned_runs(folder, everything))
        console = Console(stderr=True)
        shown = is_shown(progress, console)
        with study_progress(console, runs) if shown else nullcontext(_Silent()) as callbacks:
            failures = run_study(folder, everything, callbacks)
    if failures and not any(run.folder.has_rounds() for run in runs):
        raise CadisError(failures[0])
    return read_results([folder.path]), failures


def _own(
    named: Mapping[str, Method | None],
    seeds: Sequence[int],
    folder: Path,
    options: Mapping[str, Any],
) -> Results:
    """Runs of :func:`cadis.run`; those that have ended are reused, others go on."""
    paths = []
    for seed in seeds:
        for name, method in named.items():
            path = folder / Path(name).name.replace(":", "-") / f"seed-{seed}"
            there = RunFolder(path).holds_run()
            run(**options, method=method or name, seed=seed, out=path, resume=there)
            paths.append(path)
    return read_results(paths)


@dataclass
class _Silent:
    """Nobody listens."""

    of_run: Callbacks = field(default_factory=lambda: NO_CALLBACKS)

    def begin(self, run: PlannedRun) -> OnRound:  # noqa: ARG002
        """Nothing is told of its rounds."""

        def on_round(_result: RoundResult) -> None:
            """Nothing."""

        return on_round

    def end(self, run: PlannedRun, reused: bool) -> None:
        """Nothing."""

    def fail(self, sentence: str) -> None:
        """It is in the result."""
