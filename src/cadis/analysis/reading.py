"""Reading runs and studies that are to be shown together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from cadis.analysis.checking import check_options, naming
from cadis.analysis.results import Group, Results
from cadis.analysis.rivals import baseline_of, telling, told_apart
from cadis.analysis.run_data import RunData
from cadis.core import CadisError
from cadis.runs import RunFolder, Study, StudyFolder


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


def read_results(
    paths: Sequence[Path], read: Callable[[RunFolder], RunData] = RunData.read
) -> Results:
    """Read runs and studies; a run of a study that has no round yet is passed over.

    Args:
        paths: the folder of each.
        read: reads a run.
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
    _check_together(groups)
    if len(paths) == 1 and studies:
        results = _results_of(studies[0], groups)
    else:
        kind = "run" if len(paths) == 1 else "runs"
        commands = "\n".join(f"cadis run {path / 'config.toml'}" for path in paths)
        results = Results(kind, groups, commands, baseline_of(groups))
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
    )


def _check_together(groups: list[Group]) -> None:
    """Refuse runs that learned different things, and the same run twice."""
    first, *others = [run_data for group in groups for run_data in group.runs]
    for other in others:
        if other.classes != first.classes:
            raise CadisError(
                f"The runs in {first.path} and {other.path} have different classes; "
                "show them on pages of their own."
            )
    for group in groups:
        for one, another in pairwise(group.runs):
            if one.seed == another.seed:  # a copy is no further evidence
                raise CadisError(
                    f"{one.path} and {another.path} are runs of the same thing with the same "
                    "seed; show one of them."
                )


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
                label = variant.label
                group = Group(variant.name, label, [read(run)], variant.cell, plain=label)
                found.put(f"{folder.path} {variant.name}", group)
    return study


def _put_run(found: _RunGroups, run_data: RunData) -> None:
    found.plan(run_data.options.get("rounds", len(run_data.history)))
    key = repr(sorted((k, repr(v)) for k, v in telling(run_data.options).items()))
    found.put(key, Group(run_data.name, run_data.label, [run_data], plain=run_data.label))
