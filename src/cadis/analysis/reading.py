"""Reading runs and studies that are to be shown together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from cadis.analysis.comparability import baseline_of, marks, telling, told_apart
from cadis.analysis.consistency import check_options, naming
from cadis.analysis.results import Group, Results
from cadis.analysis.run_data import RunData
from cadis.errors import CadisError
from cadis.store import RunFolder, Study, StudyFolder, cell_label

_DEPTH = 3  # folders within folders that are looked into


def is_result(path: Path) -> bool:
    """Return whether a folder is that of a run or a study."""
    return StudyFolder(path).holds_study() or RunFolder(path).holds_run()


def _search(folder: Path, depth: int) -> Iterator[Path]:
    """Find runs and studies, but no runs of a study; hidden and very deep folders are skipped."""
    try:
        inside = sorted(folder.iterdir())
    except OSError:  # it is not ours to read
        return
    for path in inside:
        if path.name.startswith(".") or not path.is_dir() or path.is_symlink():
            continue
        if is_result(path):
            yield path
        elif depth > 1:
            yield from _search(path, depth - 1)


def read_folder(folder: Path, say: Callable[[str], None]) -> Results:
    """Read all runs and studies in a folder that is neither; what cannot be read is left out.

    Args:
        folder: where to look.
        say: called with a sentence about what was found, and about all that is left out.
    """
    found = list(_search(folder, _DEPTH)) if folder.is_dir() else []
    if not found:
        raise CadisError(f"There is no run and no comparison in the folder {folder}.")
    whole, read = [], cache(RunData.read)  # what can be read alone is read together again
    for path in found:
        try:
            read_results([path], read)
            whole.append(path)
        except CadisError as error:
            say(f"Left out: {error}")
    if not whole:
        raise CadisError(f"Nothing in the folder {folder} can be shown.")
    studies = sum(StudyFolder(path).holds_study() for path in whole)
    counts = {"comparisons or sweeps": studies, "runs": len(whole) - studies}
    told = " and ".join(f"{number} {what}" for what, number in counts.items() if number)
    say(f"Found in {folder}: {told}.")
    return read_results(whole, read, say)


def read_results(
    paths: Sequence[Path],
    read: Callable[[RunFolder], RunData] = RunData.read,
    say: Callable[[str], None] | None = None,
) -> Results:
    """Read runs and studies; a run of a study that has no round yet is passed over.

    Args:
        paths: the folder of each.
        read: reads a run.
        say: called with a sentence about each copy of a run that is left out; without it, copies
            are refused.
    """
    found: dict[str, Group] = {}
    planned: list[int] = []  # the rounds of each run
    studies: list[Study] = []
    for path in paths:
        with naming(path):
            if StudyFolder(path).holds_study():
                studies.append(study := _read_study(StudyFolder(path)))
                planned += [v.options["rounds"] for v in study.variants for _ in study.seeds]
                runs = _study_runs(StudyFolder(path), study, read)
            elif RunFolder(path).holds_run():
                run_data = read(RunFolder(path))
                planned.append(run_data.options.get("rounds", len(run_data.history)))
                group = Group(run_data.name, run_data.label, [run_data], plain=run_data.label)
                runs = iter([(_identify(run_data), group)])
            else:
                raise CadisError(f"There is no run and no comparison in the folder {path}.")
            for key, group in runs:
                found[key] = _join(found.get(key, group), group)
    if not found:
        raise CadisError(f"The study in {paths[0]} has no finished round yet.")
    groups = [_without_copies(group, say) for group in told_apart(list(found.values()))]
    if len(paths) == 1 and studies:
        results = _results_of(studies[0], groups)
    else:
        kind = "run" if len(paths) == 1 else "runs"
        commands = "\n".join(f"cadis run {path / 'config.toml'}" for path in paths)
        results = Results(kind, groups, commands, baseline_of(groups))
    metrics = {run_data.metric for run_data in results.runs}
    results = results.judged_by(metrics.pop() if len(metrics) == 1 else "accuracy")
    return replace(results, planned=len(planned), planned_rounds=sum(planned))


def _results_of(study: Study, groups: list[Group]) -> Results:
    names = [group.name for group in groups]
    baseline = names.index(study.baseline) if study.baseline in names else None
    told = (study.kind, groups, study.command, baseline, study.targets, study.parameters)
    return Results(*told, paper=study.paper)


def _join(group: Group, other: Group) -> Group:
    """A group with the runs of another, too; a run is there once."""
    runs = {run_data.path.resolve(): run_data for run_data in [*group.runs, *other.runs]}
    return replace(group, runs=sorted(runs.values(), key=lambda run_data: run_data.seed))


def _without_copies(group: Group, say: Callable[[str], None] | None) -> Group:
    """A group with each seed once: a copy is no further evidence."""
    kept: dict[int, RunData] = {}
    for run_data in group.runs:
        known = kept.setdefault(run_data.seed, run_data)
        if known is not run_data:
            same = f"{known.path} and {run_data.path} are runs of the same thing with the same seed"
            if say is None:
                raise CadisError(f"{same}; show one of them.")
            say(f"Left out: {run_data.path}; {same}.")
    return replace(group, runs=list(kept.values()))


def _read_study(folder: StudyFolder) -> Study:
    with naming(folder.path / "study.json"):
        study = folder.read()
        for variant in study.variants:
            check_options({"rounds": None, **variant.options})
    return study


def _study_runs(
    folder: StudyFolder, study: Study, read: Callable[[RunFolder], RunData]
) -> Iterator[tuple[str, Group]]:
    """Yield the runs that have a round; in a grid, the label tells the cell, unlike the plain."""
    for variant in study.variants:
        label = plain = variant.label
        if variant.cell:
            plain = label.removesuffix(f" ({cell_label(study.parameters, variant.cell)})")
        for seed in study.seeds:
            run = folder.run_folder(variant, seed)
            if run.has_rounds():
                name, runs = study.contestant(variant), [read(run)]
                group = Group(name, label, runs, variant.cell, plain=plain)
                yield f"{folder.path} {variant.name}", group


def _identify(run_data: RunData) -> str:
    """Return what runs that differ by the seed only have in common."""
    told = telling(run_data.options) | marks(run_data)
    return repr(sorted((k, repr(v)) for k, v in told.items()))
