"""Who can be compared with whom: only groups that learn the same thing from the same clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from cadis.algorithm import table_of
from cadis.analysis.results import Group, Results
from cadis.analysis.run_data import RunData
from cadis.options import MAY_CHANGE, options_of_scope

_LEARNED = (*options_of_scope("data"), "model", "task")
"""Options that decide what is learned, and from whose data; not how."""


@dataclass(frozen=True)
class Cell:
    """Groups that can be compared with each other.

    Attributes:
        values: what tells it from other cells, by the name of the option.
        results: its groups, with labels of their own.
    """

    values: dict[str, str]
    results: Results

    @property
    def label(self) -> str:
        """What tells it from other cells, in words."""
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


def cells_of(results: Results) -> list[Cell]:
    """The groups that are rivals, together; one cell if all are."""
    if results.kind == "compare" and results.parameters:
        names, keys = list(results.parameters), [group.cell for group in results.groups]
    else:
        varied = ("model",) if results.kind == "sweep" else ()  # who varies it wants the best
        facts = [_facts(group.runs[0], varied) for group in results.groups]
        names = _splitting(facts)
        keys = _keys(facts, names)
    if len(set(keys)) < 2:
        return [Cell({}, results)]
    return [
        Cell(
            dict(zip(names, key, strict=True)),
            _among(results, [g for g, k in zip(results.groups, keys, strict=True) if k == key]),
        )
        for key in dict.fromkeys(keys)
    ]


def told_apart(groups: Sequence[Group]) -> list[Group]:
    """Groups of one label get what differs between them added to it."""
    labels = [group.label for group in groups]
    flat = [_flat(telling(group.runs[0].options)) for group in groups]
    apart = []
    for place, group in enumerate(groups):
        alike = [other for other, label in enumerate(labels) if label == group.label]
        keys = sorted({key for other in alike for key in flat[other]})
        differing = [key for key in keys if len({flat[o].get(key) for o in alike}) > 1]
        if "partition" in differing:  # which says more than its parameters
            dealing = {key for other in alike for key in _dealing(groups[other].runs[0].options)}
            differing = [key for key in differing if key not in dealing]
        told = ", ".join(f"{key}={flat[place].get(key)}" for key in differing)
        path = group.runs[0].path
        label = f"{group.label} ({told or (path if len(group.runs) == 1 else path.parent)})"
        apart.append(replace(group, label=label) if len(alike) > 1 else group)
    return apart


def telling(options: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a difference between groups."""
    return {key: value for key, value in options.items() if key not in ("seed", *MAY_CHANGE)}


def baseline_of(groups: Sequence[Group], name: str = "fedavg") -> int | None:
    """The place of FedAvg or another, if it is there once and there is something else."""
    names = [group.name for group in groups]
    return names.index(name) if len(names) > 1 and names.count(name) == 1 else None


def _among(results: Results, groups: Sequence[Group]) -> Results:
    """Some of the groups, as if there were no others."""
    own = told_apart([replace(group, label=group.plain or group.label) for group in groups])
    runs = sum(len(group.runs) for group in own)
    seeds = max(len(group.runs) for group in results.groups)
    whole = results.complete or results.kind == "runs"
    base = "fedavg" if results.baseline is None else results.groups[results.baseline].name
    return replace(
        results,
        groups=own,
        baseline=baseline_of(own, base),
        parameters=results.parameters if results.kind == "sweep" else (),
        planned=runs if whole else len(own) * seeds,
    )


def _splitting(facts: Sequence[Mapping[str, str]]) -> list[str]:
    """As few names as tell the same groups apart as all of them do."""
    kept: list[str] = []
    for name in dict.fromkeys(name for fact in facts for name in fact):
        if len(set(_keys(facts, [*kept, name]))) > len(set(_keys(facts, kept))):
            kept.append(name)
    return kept


def _keys(facts: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(fact.get(name, "") for name in names) for fact in facts]


def _facts(run_data: RunData, but: Sequence[str]) -> dict[str, str]:
    """What a run learns, and from whom."""
    options = run_data.options
    found = {name: options.get(name) for name in _LEARNED if name not in but} | _dealing(options)
    return {
        name: str(value) for name, value in (found | marks(run_data)).items() if value is not None
    }


def _dealing(options: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the partition, if it has any."""
    return dict(table_of(options, "partition", str(options.get("partition"))))


def marks(run_data: RunData) -> dict[str, str | None]:
    """What tells the data of a run from others where options do not."""
    found: dict[str, str | None] = {
        "classes": f"{len(run_data.classes)} ({_mark(run_data.classes)})"
    }
    named = "dataset" in run_data.options  # data of one's own have no name
    return found if named else {"data": _data(run_data), **found}


def _data(run_data: RunData) -> str | None:
    """How many samples there are, and a mark of who has which; None if nobody knows."""
    clients = run_data.federation["clients"]
    if any(client["samples"] is None for client in clients):
        return None
    none = [0] * len(run_data.classes)
    rows = [
        [a + b for a, b in zip(c["samples"], c.get("test_samples") or none, strict=True)]
        for c in clients
    ]
    return f"{sum(map(sum, rows))} samples ({_mark(rows)})"


def _mark(content: object) -> str:
    """A few letters that other content does not have."""
    return f"{crc32(str(content).encode()):08x}"


def _flat(options: Mapping[str, Any]) -> dict[str, str]:
    """Options side by side, those of tables too."""
    flat: dict[str, str] = {}
    for key, value in options.items():
        inner = value.items() if isinstance(value, Mapping) else [(key, value)]
        flat |= {name: str(content) for name, content in inner}
    return flat
