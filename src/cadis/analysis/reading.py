"""Read runs and studies from their folders."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from cadis._io import check_list, check_path
from cadis.analysis.comparability import (
    find_baseline,
    fingerprint_data,
    get_distinguishing_options,
    make_labels_unique,
)
from cadis.analysis.consistency import check_options, convert_read_errors
from cadis.analysis.results import Group, Results
from cadis.analysis.run_data import RunData
from cadis.errors import CadisError
from cadis.store import RunFolder, Study, StudyFolder, format_cell_label

_MAX_DEPTH = 3  # number of levels of folders to search


def is_result_folder(path: Path) -> bool:
    """Return whether a folder has a run or a study."""
    return StudyFolder(path).has_study() or RunFolder(path).has_run()


def _search(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the folders of runs and studies, but not of runs that belong to a study.

    Hidden folders and symbolic links are skipped.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # no permission
        return
    for path in entries:
        if path.name.startswith(".") or not path.is_dir() or path.is_symlink():
            continue
        if is_result_folder(path):
            yield path
        elif depth > 1:
            yield from _search(path, depth - 1)


def read_folder(folder: Path, say: Callable[[str], None]) -> Results:
    """Read all runs and studies inside a folder; skip damaged ones.

    Args:
        folder: folder to search.
        say: function that shows a sentence to the user. The sentences say how many runs and
            studies were read, and which were skipped.

    Returns:
        All runs and studies that can be read.
    """
    paths = list(_search(folder, _MAX_DEPTH)) if folder.is_dir() else []
    if not paths:
        raise CadisError(f"There is no run and no comparison in the folder {folder}.")
    readable, read = [], cache(RunData.read)  # runs are read one by one, then together
    for path in paths:
        try:
            read_results([path], read)
            readable.append(path)
        except CadisError as error:
            say(f"Skipped: {error}")
    if not readable:
        raise CadisError(f"No run in the folder {folder} can be read.")
    num_studies = sum(StudyFolder(path).has_study() for path in readable)
    counts = {"comparisons or sweeps": num_studies, "runs": len(readable) - num_studies}
    text = " and ".join(f"{count} {noun}" for noun, count in counts.items() if count)
    say(f"Found in {folder}: {text}.")
    return read_results(readable, read, say)


def read_results(
    paths: Sequence[Path],
    read: Callable[[RunFolder], RunData] = RunData.read,
    say: Callable[[str], None] | None = None,
) -> Results:
    """Read runs and studies; skip the runs of a study that have no finished round.

    Args:
        paths: folders of runs and studies.
        read: function that reads one run.
        say: function that shows a sentence to the user about each skipped copy of a run; if it is
            None, a copy raises an error.

    Returns:
        The runs in groups; the runs of a group differ only in the seed.

    Example:
        >>> results = read_results([Path("runs/compare-digits")])  # doctest: +SKIP
        >>> [group.label for group in results.groups]  # doctest: +SKIP
        ['FedAvg', 'CADIS']
    """
    paths = [check_path("A path", path) for path in check_list("paths", paths)]
    if not paths:
        raise CadisError("Name at least one folder of a run or comparison.")
    by_key: dict[str, Group] = {}
    planned: list[int] = []  # number of rounds of each run
    studies: list[Study] = []
    for path in paths:
        with convert_read_errors(path):
            if StudyFolder(path).has_study():
                studies.append(study := _read_study(StudyFolder(path)))
                planned += [v.options["rounds"] for v in study.variants for _ in study.seeds]
                runs = _read_study_runs(StudyFolder(path), study, read)
            elif RunFolder(path).has_run():
                run_data = read(RunFolder(path))
                planned.append(run_data.options.get("rounds", len(run_data.history)))
                group = Group(run_data.name, run_data.label, [run_data], short_label=run_data.label)
                runs = iter([(_make_group_key(run_data), group)])
            else:
                raise CadisError(f"There is no run and no comparison in the folder {path}.")
            for key, group in runs:
                by_key[key] = _merge_groups(by_key.get(key, group), group)
    if not by_key:
        raise CadisError(f"The study in {paths[0]} has no finished round yet.")
    groups = [_drop_copies(group, say) for group in make_labels_unique(list(by_key.values()))]
    if len(paths) == 1 and studies:
        results = _make_study_results(studies[0], groups)
    else:
        kind = "run" if len(paths) == 1 else "runs"
        commands = "\n".join(f"cadis run {path / 'config.toml'}" for path in paths)
        results = Results(kind, groups, commands, find_baseline(groups))
    metrics = {run_data.metric for run_data in results.runs}
    results = results.with_metric(metrics.pop() if len(metrics) == 1 else "accuracy")
    return replace(results, planned=len(planned), planned_rounds=sum(planned))


def _make_study_results(study: Study, groups: list[Group]) -> Results:
    names = [group.name for group in groups]
    return Results(
        study.kind,
        groups,
        study.command,
        names.index(study.baseline) if study.baseline in names else None,
        study.targets,
        study.parameters,
        paper=study.paper,
    )


def _merge_groups(group: Group, other: Group) -> Group:
    """Return a group with the runs of both groups, each run once."""
    runs = {run_data.path.resolve(): run_data for run_data in [*group.runs, *other.runs]}
    return replace(group, runs=sorted(runs.values(), key=lambda run_data: run_data.seed))


def _drop_copies(group: Group, say: Callable[[str], None] | None) -> Group:
    """Return a group with one run per seed, since copies of a run are no further evidence."""
    by_seed: dict[int, RunData] = {}
    for run_data in group.runs:
        first = by_seed.setdefault(run_data.seed, run_data)
        if first is not run_data:
            reason = f"{first.path} and {run_data.path} have the same options and the same seed"
            if say is None:
                raise CadisError(f"{reason}; name only one of them.")
            say(f"Skipped: {run_data.path}; {reason}.")
    return replace(group, runs=list(by_seed.values()))


def _read_study(folder: StudyFolder) -> Study:
    with convert_read_errors(folder.path / "study.json"):
        study = folder.read()
        for variant in study.variants:
            check_options({"rounds": None, **variant.options})
    return study


def _read_study_runs(
    folder: StudyFolder, study: Study, read: Callable[[RunFolder], RunData]
) -> Iterator[tuple[str, Group]]:
    """Yield the runs that have a finished round, each as a group with its key.

    In a grid, the label contains the values of the parameters; the short label does not.
    """
    for variant in study.variants:
        label = short_label = variant.label
        if variant.cell:
            suffix = f" ({format_cell_label(study.parameters, variant.cell)})"
            short_label = label.removesuffix(suffix)
        for seed in study.seeds:
            run = folder.get_run_folder(variant, seed)
            if run.has_rounds():
                name, runs = study.get_name_without_cell(variant), [read(run)]
                group = Group(name, label, runs, variant.cell, short_label=short_label)
                yield f"{folder.path} {variant.name}", group


def _make_group_key(run_data: RunData) -> str:
    """Return a key that is the same for runs that differ only in the seed."""
    options = get_distinguishing_options(run_data.options) | fingerprint_data(run_data)
    return repr(sorted((name, repr(value)) for name, value in options.items()))
