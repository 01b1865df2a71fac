"""``cadis.compare``: compare several methods on the same federations, from Python."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from torch import nn

from cadis._io import (
    NO_CALLBACKS,
    Callbacks,
    check_flag,
    check_folder,
    check_function,
    check_list,
    check_num_runs,
    check_targets,
    check_text,
    format_value,
)
from cadis.algorithm import (
    BaseMethod,
    get_parameters,
    resolve_part,
    split_names,
    validate,
)
from cadis.algorithm.methods import METHODS
from cadis.analysis import (
    Comparison,
    Results,
    RunData,
    explain_verdict,
    read_results,
    write_verdict,
)
from cadis.errors import CadisError
from cadis.experiment.config import Settings
from cadis.experiment.in_memory_study import InMemoryStudy
from cadis.experiment.parameters import qualify_parameter
from cadis.experiment.presets import read_preset
from cadis.experiment.run_federation import open_folder, should_show_progress, warn
from cadis.experiment.study import ExecuteRun, RunFromOptions, plan_comparison, run_study
from cadis.experiment.tracking import check_tracker, combine_callbacks
from cadis.experiment.variants import MAX_RUNS, check_run_count
from cadis.permission import restrict_code
from cadis.report.console import SafeConsole
from cadis.report.formats import TextTable, escape_html, to_markdown, to_rich
from cadis.report.study_display import show_study_progress
from cadis.report.tables import make_tables
from cadis.server import OnRound
from cadis.store import PlannedRun, Study, StudyFolder, find_code, list_planned_runs


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """Result of a comparison.

    Attributes:
        results: the data of all runs, in the form that reports read.
        folder: the folder with the files of the runs; None if they were not kept.
        failures: one sentence per failed run.
    """

    results: Results
    folder: Path | None
    failures: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Return which method is better, and whether the difference is significant."""
        return write_verdict(Comparison(self.results))

    @property
    def explanation(self) -> list[str]:
        """Return the facts behind the verdict, one sentence each."""
        return explain_verdict(Comparison(self.results))

    @property
    def tables(self) -> list[TextTable]:
        """Return all tables."""
        return make_tables(Comparison(self.results))

    @property
    def table(self) -> list[dict[str, str]]:
        """Return the main table: for each method, a dict with one entry per column."""
        table = self.tables[0]
        return [dict(zip(table.columns, row, strict=True)) for row in table.rows]

    @property
    def runs(self) -> list[RunData]:
        """Return all runs."""
        return self.results.runs

    def to_markdown(self) -> str:
        """Return the verdict and all tables as Markdown."""
        return "\n".join([escape_html(self.verdict), "", *map(to_markdown, self.tables)])

    def __repr__(self) -> str:
        """Return the verdict and the main table."""
        console = SafeConsole(file=StringIO(), width=100)
        with console.capture() as output:
            console.print(to_rich(self.tables[0]))
        lines = [line.rstrip() for line in output.get().splitlines()]
        return "\n".join([self.verdict, *lines]).rstrip()

    def _repr_markdown_(self) -> str:
        """Return the verdict and the main table for a notebook."""
        return f"{escape_html(self.verdict)}\n\n{to_markdown(self.tables[0])}"


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
    trust: bool = False,
    **options: Any,
) -> ComparisonResult:
    """Run several methods on the same federations, and compare their results.

    For each seed, all methods get the same partition, initial model and random numbers. Finished
    runs in ``out`` are reused, unfinished ones are resumed, and a run that fails does not stop the
    others. The command ``cadis compare`` does the same.

    There are two ways to give the data. Either name a dataset and other options of ``cadis run``,
    such as ``dataset="mnist", clients=50``; or pass ``model``, ``clients``, ``test``, ``rounds``
    and further arguments of :func:`cadis.run`.

    Args:
        methods: names of methods, as for ``cadis compare --methods``, or method instances such as
            ``CADIS(threshold=0.8)``. Instances of your own classes need a ``model``. Default:
            FedAvg and CADIS.
        seeds: number of runs per method, with seeds ``seed``, ``seed + 1``, ... Default: 3.
        out: folder for the files of all runs; by default, only the result is kept.
        grid: values by option, such as ``{"lr": [0.1, 0.01]}``; the methods are compared for every
            combination. Needs a named dataset.
        preset: name of an experiment of the paper to start from; ``cadis presets`` lists them.
        targets: accuracies between 0 and 1. A table shows the first round in which each method
            reaches them. By default, they are chosen from the results.
        progress: whether to show progress; by default, on a terminal and in a notebook.
        on_round: called with the result of each round of each run.
        track: tracker to log to: "tensorboard", "wandb" or "mlflow"; needs ``out``.
        trust: run code that only the files in ``out`` name, such as a method that is not in
            ``methods``.
        options: options of ``cadis run`` by their Python names, or arguments of :func:`cadis.run`.

    Returns:
        The comparison; print it to see the verdict and the main table.

    Raises:
        CadisError: if an option is wrong, or if no run finishes a round.

    Example:
        >>> import cadis
        >>> result = cadis.compare(["fedavg", "cadis"], seeds=2, dataset="digits", rounds=2)
        >>> len(result.runs)
        4
    """
    folder_path = _check_arguments(out, preset, progress, on_round, track)
    if "method" in options:
        raise CadisError("Name the methods to compare as methods=..., not as method=... .")
    methods_by_name = _index_by_name(methods)
    seeds, targets = check_num_runs("seeds", seeds, MAX_RUNS), check_targets(targets)
    check_run_count(seeds * len(methods_by_name))
    first = _check_first_seed(options.pop("seed", 0), seeds)
    grid_texts = _format_grid(grid)
    in_memory = None
    if isinstance(options.get("model"), nn.Module):
        in_memory = InMemoryStudy.plan(methods_by_name, options)
        if grid_texts or preset is not None:
            raise CadisError("With a model object, leave out grid and preset.")
    if in_memory:
        study = in_memory.make_study()
    else:
        study = _plan_study(methods_by_name, grid_texts, preset, options)
    check_run_count(seeds * len(study.variants))
    study = replace(
        study,
        seeds=tuple(range(first, first + seeds)),
        command="cadis.compare",
        targets=targets,
    )
    execute_run = in_memory or RunFromOptions()
    names = [name for variant in study.variants for name in find_code(variant.options)]
    with (
        restrict_code(names, trust, "The study"),
        open_folder(folder_path) as path,
        StudyFolder(path).open(study) as merged_study,
    ):
        folder = StudyFolder(path)
        if in_memory:
            in_memory.check_finished(list_planned_runs(folder, merged_study))
        results, failures = _run(folder, merged_study, execute_run, progress, on_round, track)
    return ComparisonResult(results, path if out is not None else None, tuple(failures))


def _check_arguments(
    out: object, preset: object, progress: object, on_round: object, track: str | None
) -> Path | None:
    """Check arguments that are not options; return the folder, if one is given."""
    check_text("preset", preset)
    check_text("track", track)
    check_flag("progress", progress, optional=True)
    check_function("on_round", on_round)
    if track is not None and out is None:
        raise CadisError("The tracker needs a folder for its files; give one as out.")
    check_tracker(track)
    return check_folder("out", out)


def _check_first_seed(seed: object, num_seeds: int) -> int:
    """Return the first seed; all seeds must fit into 64 bits."""
    first = validate(Settings, {"seed": seed}).seed
    validate(Settings, {"seed": first + num_seeds})
    return first


def _format_grid(grid: object) -> dict[str, list[str]]:
    """Return the values of the grid as texts, by option."""
    if grid is None:
        return {}
    if not isinstance(grid, Mapping):
        raise CadisError(
            f'grid should be a dict such as {{"lr": [0.1, 0.01]}}, not {format_value(grid)}.'
        )
    texts: dict[str, list[str]] = {}
    for name, values in grid.items():
        if not isinstance(name, str):
            raise CadisError(f"The grid should have names of options, not {format_value(name)}.")
        if name in ("seed", "seeds"):
            raise CadisError("The grid cannot vary the seed; set the number of seeds with seeds=.")
        entries = check_list(f"The grid for {name}", values, MAX_RUNS)
        if not entries:
            raise CadisError(f"The grid has no values for {name}; give at least one.")
        texts[name] = list(dict.fromkeys(map(str, entries)))
    return texts


def _index_by_name(methods: object) -> dict[str, BaseMethod | None]:
    """Return the methods by name: an instance, or None if only the name is given."""
    methods_by_name: dict[str, BaseMethod | None] = {}
    names = split_names(methods) if isinstance(methods, str) else check_list("methods", methods)
    if not names:
        raise CadisError("Give at least one method to compare, such as 'cadis'.")
    for method in names:
        name = method if isinstance(method, str) else resolve_part("method", method).name
        if name in methods_by_name:
            raise CadisError(f"The method '{name}' is given twice; use a grid to vary parameters.")
        methods_by_name[name] = None if isinstance(method, str) else method
    return methods_by_name


def _plan_study(
    methods_by_name: Mapping[str, BaseMethod | None],
    grid: Mapping[str, Sequence[str]],
    preset: str | None,
    options: Mapping[str, Any],
) -> Study:
    """Plan the same study as ``cadis compare``."""
    file = {} if preset is None else read_preset(preset)
    overrides = dict(options)
    for name, method in methods_by_name.items():
        if method is not None and METHODS.get(name) is not type(method):
            raise CadisError(f"Name your own method '{name}' as 'FILE.py:CLASS', or give a model.")
        parameters = {} if method is None else get_parameters(method)
        overrides |= {
            qualify_parameter(type(method), k): v for k, v in parameters.items() if v is not None
        }
    return plan_comparison(methods_by_name, grid, preset, file, overrides)


def _run(
    folder: StudyFolder,
    study: Study,
    execute_run: ExecuteRun,
    progress: bool | None,
    on_round: OnRound | None,
    track: str | None,
) -> tuple[Results, list[str]]:
    def execute(run: PlannedRun, show_round: OnRound, callbacks: Callbacks) -> None:
        execute_run(run, combine_callbacks(show_round, on_round), callbacks)

    runs = list(list_planned_runs(folder, study))
    console = SafeConsole(stderr=True)
    is_visible = should_show_progress(progress, console)
    with show_study_progress(console, runs) if is_visible else nullcontext(_Silent()) as callbacks:
        failures = run_study(folder, study, callbacks, execute, track)
    if failures and not any(run.folder.has_rounds() for run in runs):
        raise CadisError(failures[0])
    return read_results([folder.path]), failures


class _Silent:
    """Callbacks that show no progress; messages become warnings."""

    run_callbacks = replace(NO_CALLBACKS, say=warn)

    def begin(self, run: PlannedRun) -> OnRound:  # noqa: ARG002
        return combine_callbacks()

    def end(self, run: PlannedRun, reused: bool) -> None:
        """Ignore the end of a run."""

    def fail(self, sentence: str) -> None:
        """Ignore a failure; the result contains it."""
