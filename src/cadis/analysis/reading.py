"""Reading runs and studies that are to be shown together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from cadis.analysis.comparability import baseline_of, marks, telling, told_apart
from cadis.analysis.consistency import check_options, naming
from cadis.analysis.results import Group, Results
from cadis.analysis.run_data import RunData
from cadis.errors import CadisError
from cadis.store import RunFolder, Study, StudyFolder, Variant, cell_label

_DEPTH = 3
"""Folders within folders that are looked into."""


def is_result(path: Path) -> bool:
    """Return whether a folder is that of a run or a study."""
    return StudyFolder(path).holds_study() or RunFolder(path).holds_run()


def find_results(folder: Path) -> list[Path]:
    """Find the runs and studies in a folder and its folders; runs of a study are not listed.

    Hidden folders and those more than three deep are skipped.
    """
    found = list(_search(folder, _DEPTH)) if folder.is_dir() else []
    if not found:
        raise CadisError(f"There is no run and no comparison in the folder {folder}.")
    return found


def _search(folder: Path, depth: int) -> Iterator[Path]:
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


@dataclass
class _RunGroups:
    """Runs as they are found, gathered into groups, and how many there are to be."""

    groups: dict[str, Group] = field(default_factory=dict)
    planned: int = 0
    rounds: int = 0

    def plan(self, rounds: int) -> None:
        self.planned += 1
        self.rounds += rounds

    def put(self, key: str, group: Group) -> None:
        """Add a group's runs to those of the same key; a run is there once."""
        known = self.groups.get(key)
        runs = {s.path.resolve(): s for s in [*(known.runs if known else []), *group.runs]}
        by_seed = sorted(runs.values(), key=lambda run_data: run_data.seed)
        self.groups[key] = replace(known or group, runs=by_seed)


def read_folder(folder: Path, say: Callable[[str], None]) -> Results:
    """Read all runs and studies in a folder that is neither; what cannot be read is left out.

    Args:
        folder: where to look.
        say: called with a sentence about what was found, and about all that is left out.
    """
    whole, read = [], cache(RunData.read)  # what can be read alone is read together again
    for path in find_results(folder):
        try:
            read_results([path], read)
            whole.append(path)
        except CadisError as error:
            say(f"Left out: {error}")
    if not whole:
        raise CadisError(f"Nothing in the folder {folder} can be shown.")
    studies = sum(StudyFolder(path).holds_study() for path in whole)
    runs = len(whole) - studies
    counts = [
        f"{n} {what}" for n, what in ((studies, "comparisons or sweeps"), (runs, "runs")) if n
    ]
    say(f"Found in {folder}: {' and '.join(counts)}.")
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
    found, studies = _RunGroups(), []
    for path in paths:
        with naming(path):
            if StudyFolder(path).holds_study():
                studies.append(_put_study(found, StudyFolder(path), read))
            elif RunFolder(path).holds_run():
                _put_run(found, read(RunFolder(path)))
            else:
                raise CadisError(f"There is no run and no comparison in the folder {path}.")
    groups = told_apart(list(found.groups.values()))
    if not groups:
        raise CadisError(f"The study in {paths[0]} has no finished round yet.")
    groups = [_without_copies(group, say) for group in groups]
    if len(paths) == 1 and studies:
        results = _results_of(studies[0], groups)
    else:
        kind = "run" if len(paths) == 1 else "runs"
        commands = "\n".join(f"cadis run {path / 'config.toml'}" for path in paths)
        results = Results(kind, groups, commands, baseline_of(groups))
    metrics = {run_data.metric for run_data in results.runs}
    results = results.judged_by(metrics.pop() if len(metrics) == 1 else "accuracy")
    return replace(results, planned=found.planned, planned_rounds=found.rounds)


def _results_of(study: Study, groups: list[Group]) -> Results:
    names = [group.name for group in groups]
    return Results(
        kind=study.kind,
        groups=groups,
        command=study.command,
        baseline=names.index(study.baseline) if study.baseline in names else None,
        targets=study.targets,
        parameters=study.parameters,
        paper=study.paper,
    )


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


def _put_study(
    found: _RunGroups, folder: StudyFolder, read: Callable[[RunFolder], RunData]
) -> Study:
    with naming(folder.path / "study.json"):
        study = folder.read()
        for variant in study.variants:
            check_options({"rounds": None, **variant.options})
    for variant in study.variants:
        for seed in study.seeds:
            found.plan(variant.options["rounds"])
            run = folder.run_folder(variant, seed)
            if run.has_rounds():
                group = _group_of(study, variant, read(run))
                found.put(f"{folder.path} {variant.name}", group)
    return study


def _group_of(study: Study, variant: Variant, run_data: RunData) -> Group:
    """A run of a study; in a grid, the label tells its cell, which rivals do not need."""
    plain = variant.label
    if variant.cell:
        plain = plain.removesuffix(f" ({cell_label(study.parameters, variant.cell)})")
    return Group(study.contestant(variant), variant.label, [run_data], variant.cell, plain=plain)


def _put_run(found: _RunGroups, run_data: RunData) -> None:
    found.plan(run_data.options.get("rounds", len(run_data.history)))
    told = telling(run_data.options) | marks(run_data)
    key = repr(sorted((k, repr(v)) for k, v in told.items()))
    found.put(key, Group(run_data.name, run_data.label, [run_data], plain=run_data.label))
