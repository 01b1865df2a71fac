"""Reading runs and studies that are to be shown together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from cadis.analysis.checking import check_options, naming
from cadis.analysis.results import Group, Results
from cadis.analysis.run_data import RunData
from cadis.core import CadisError
from cadis.options import normalised
from cadis.runs import MAY_CHANGE, RunFolder, Study, StudyFolder


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
    groups = _told_apart(list(found.groups.values()))
    if not groups:
        raise CadisError(f"The study in {paths[0]} has no finished round yet.")
    _check_together(groups)
    if len(paths) == 1 and studies:
        results = _results_of(studies[0], groups)
    else:
        kind = "run" if len(paths) == 1 else "runs"
        commands = "\n".join(f"cadis run {path / 'config.toml'}" for path in paths)
        results = Results(kind, groups, commands, _baseline_of(groups))
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
                group = Group(variant.name, variant.label, [read(run)], variant.cell)
                found.put(f"{folder.path} {variant.name}", group)
    return study


def _put_run(found: _RunGroups, run_data: RunData) -> None:
    found.plan(run_data.options.get("rounds", len(run_data.history)))
    key = repr(sorted((k, repr(v)) for k, v in _telling(run_data.options).items()))
    found.put(key, Group(run_data.name, run_data.label, [run_data]))


def _telling(options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a difference between groups."""
    full = normalised(options)
    return {key: value for key, value in full.items() if key not in ("seed", *MAY_CHANGE)}


def _told_apart(groups: list[Group]) -> list[Group]:
    """Groups of one label get what differs between them added to it."""
    labels = [group.label for group in groups]
    flat = [_flat(_telling(group.runs[0].options)) for group in groups]
    apart = []
    for place, group in enumerate(groups):
        alike = [other for other, label in enumerate(labels) if label == group.label]
        keys = sorted({key for other in alike for key in flat[other]})
        differing = [key for key in keys if len({flat[o].get(key) for o in alike}) > 1]
        told = ", ".join(f"{key}={flat[place].get(key)}" for key in differing)
        label = f"{group.label} ({told or group.runs[0].path})"
        apart.append(replace(group, label=label) if len(alike) > 1 else group)
    return apart


def _flat(options: Mapping[str, Any]) -> dict[str, str]:
    """Options side by side, those of tables too."""
    flat: dict[str, str] = {}
    for key, value in options.items():
        inner = value.items() if isinstance(value, Mapping) else [(key, value)]
        flat |= {name: str(content) for name, content in inner}
    return flat


def _baseline_of(groups: Iterable[Group]) -> int | None:
    """FedAvg, if it is there and there is something else."""
    names = [group.name for group in groups]
    return names.index("fedavg") if len(names) > 1 and names.count("fedavg") == 1 else None
