"""Decide which groups of runs can be compared, because they solve the same learning problem.

A group has the runs of one method, or of one setting of a sweep; they differ only in the seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from cadis.algorithm import get_part_table
from cadis.analysis.results import Group, Results
from cadis.analysis.run_data import RunData
from cadis.options import CHANGEABLE_OPTIONS, find_options_by_scope

_PROBLEM_OPTIONS = (*find_options_by_scope("data"), "model", "task")
"""Options that define the learning problem; all others define how it is solved."""


@dataclass(frozen=True)
class ComparableSet:
    """Groups that solve the same learning problem.

    Attributes:
        values: option values that distinguish this set from the other sets.
        results: the groups of this set, with labels that are unique within it.
    """

    values: dict[str, str]
    results: Results

    @property
    def label(self) -> str:
        """Option values that distinguish this set, such as ``partition=mc``."""
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


def split_comparable(results: Results) -> list[ComparableSet]:
    """Split groups into sets; the groups of a set can be compared with each other."""
    if results.kind == "compare" and results.parameters:
        names, keys = list(results.parameters), [group.cell for group in results.groups]
    else:
        # A sweep over models asks which model is best, so models are comparable there.
        ignore = ("model",) if results.kind == "sweep" else ()
        problems = [_describe_problem(group.runs[0], ignore) for group in results.groups]
        names = _find_splitting_options(problems)
        keys = _make_keys(problems, names)
    if len(set(keys)) < 2:
        return [ComparableSet({}, results)]
    by_key: dict[tuple[str, ...], list[Group]] = {}
    for key, group in zip(keys, results.groups, strict=True):
        by_key.setdefault(key, []).append(group)
    return [
        ComparableSet(dict(zip(names, key, strict=True)), _select_groups(results, groups))
        for key, groups in by_key.items()
    ]


def make_labels_unique(groups: Sequence[Group]) -> list[Group]:
    """Append the options that differ to labels that several groups share."""
    options = [_flatten_options(get_distinguishing_options(g.runs[0].options)) for g in groups]
    unique = []
    for index, group in enumerate(groups):
        same = [other for other, candidate in enumerate(groups) if candidate.label == group.label]
        if len(same) == 1:
            unique.append(group)
            continue
        names = sorted({name for other in same for name in options[other]})
        names = [name for name in names if len({options[other].get(name) for other in same}) > 1]
        if "partition" in names:  # the name of a partition says more than its parameters
            parameters = {
                name
                for other in same
                for name in _get_partition_parameters(groups[other].runs[0].options)
            }
            names = [name for name in names if name not in parameters]
        path = group.runs[0].path if len(group.runs) == 1 else group.runs[0].path.parent
        difference = ", ".join(f"{name}={options[index].get(name)}" for name in names)
        unique.append(replace(group, label=f"{group.label} ({difference or path})"))
    return unique


def get_distinguishing_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that separate groups: all except the seed and those without effect."""
    return {
        key: value for key, value in options.items() if key not in ("seed", *CHANGEABLE_OPTIONS)
    }


def find_baseline(groups: Sequence[Group], name: str = "fedavg") -> int | None:
    """Return the index of the baseline if it occurs exactly once among several groups."""
    names = [group.name for group in groups]
    return names.index(name) if len(names) > 1 and names.count(name) == 1 else None


def _select_groups(results: Results, groups: Sequence[Group]) -> Results:
    """Return results with only some of the groups."""
    selected = make_labels_unique([replace(g, label=g.short_label or g.label) for g in groups])
    num_runs = sum(len(group.runs) for group in selected)
    num_seeds = max(len(group.runs) for group in results.groups)
    is_whole = results.is_complete or results.kind == "runs"
    baseline = "fedavg" if results.baseline is None else results.groups[results.baseline].name
    return replace(
        results,
        groups=selected,
        baseline=find_baseline(selected, baseline),
        parameters=results.parameters if results.kind == "sweep" else (),
        planned=num_runs if is_whole else len(selected) * num_seeds,
    )


def _find_splitting_options(problems: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a small set of option names that separates the problems as well as all names do."""
    names: list[str] = []
    for name in dict.fromkeys(name for problem in problems for name in problem):
        if len(set(_make_keys(problems, [*names, name]))) > len(set(_make_keys(problems, names))):
            names.append(name)
    return names


def _make_keys(
    problems: Sequence[Mapping[str, str]], names: Sequence[str]
) -> list[tuple[str, ...]]:
    return [tuple(problem.get(name, "") for name in names) for problem in problems]


def _describe_problem(run_data: RunData, ignore: Sequence[str]) -> dict[str, str]:
    """Return the options and fingerprints that define the learning problem of a run."""
    options = run_data.options
    problem = {name: options.get(name) for name in _PROBLEM_OPTIONS if name not in ignore}
    problem |= _get_partition_parameters(options) | fingerprint_data(run_data)
    return {name: str(value) for name, value in problem.items() if value is not None}


def _get_partition_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    return dict(get_part_table(options, "partition", str(options.get("partition"))))


def fingerprint_data(run_data: RunData) -> dict[str, str | None]:
    """Return fingerprints of the classes and, if no option names the dataset, of the data."""
    classes = f"{len(run_data.classes)} ({_compute_checksum(run_data.classes)})"
    if "dataset" in run_data.options:
        return {"classes": classes}
    return {"data": _fingerprint_samples(run_data), "classes": classes}


def _fingerprint_samples(run_data: RunData) -> str | None:
    """Return the number of samples and a checksum of their distribution over clients.

    Return None if the server does not know the numbers of samples of all clients.
    """
    clients = run_data.federation["clients"]
    if any(client["samples"] is None for client in clients):
        return None
    no_tests = [0] * len(run_data.classes)
    counts = [
        [a + b for a, b in zip(c["samples"], c.get("test_samples") or no_tests, strict=True)]
        for c in clients
    ]
    return f"{sum(map(sum, counts))} samples ({_compute_checksum(counts)})"


def _compute_checksum(content: object) -> str:
    return f"{crc32(str(content).encode()):08x}"


def _flatten_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as text, with the entries of nested tables on the same level."""
    flat: dict[str, str] = {}
    for key, value in options.items():
        entries = value.items() if isinstance(value, Mapping) else [(key, value)]
        flat |= {name: str(content) for name, content in entries}
    return flat
