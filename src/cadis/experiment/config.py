"""An experiment as options: from a TOML file, the command line, or both."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cadis.core import CadisError
from cadis.data import DATASETS
from cadis.experiment.settings import Settings
from cadis.methods import METHODS, Method
from cadis.models import MODELS
from cadis.options import check_names, names_of, options_of, validated
from cadis.partition import PARTITIONERS, MultiCluster, Partitioner

PARTS: dict[str, type[Any]] = {**METHODS, **PARTITIONERS}
"""What has parameters of its own: in a file, a table of its name."""


@dataclass(frozen=True)
class ExperimentConfig:
    """A resolved experiment: nothing is left to defaults.

    Attributes:
        method: how to learn.
        settings: all the rest.
        partitioner: deals out the dataset, unless the settings name a file or the data's owners.
    """

    method: Method
    settings: Settings = field(default_factory=Settings)
    partitioner: Partitioner = field(default_factory=MultiCluster)

    def to_dict(self) -> dict[str, Any]:
        """As in the TOML file: settings, then tables of the parts' parameters."""
        deals = self.settings.partition in ("auto", *PARTITIONERS)
        parts = [self.partitioner] if deals else []
        return options_of(self.method, asdict(self.settings), *parts)


def resolve(file: Mapping[str, Any], given: Mapping[str, Any]) -> ExperimentConfig:
    """The experiment that a file and given options describe; given options win.

    Args:
        file: a TOML file's content: settings, and a table for each part that needs one.
        given: settings and parameters of the parts, side by side, as a user types them.
    """
    tables = {name: value for name, value in file.items() if isinstance(value, dict)}
    flat = {name: value for name, value in file.items() if name not in tables}
    _check_file(flat, tables)
    names = names_of(Settings)
    chosen = flat | {key: value for key, value in given.items() if key in (*names, "method")}
    own = {key: value for key, value in given.items() if key not in chosen}
    method = chosen.pop("method", "cadis")
    method = method.lower() if isinstance(method, str) else method
    check_names("method", [method], METHODS)
    if "partition" not in chosen and any(name in names_of(MultiCluster) for name in own):
        chosen["partition"] = MultiCluster.name
    settings = validated(Settings, chosen)
    _check_choices(settings)
    parts = [method, _partitioner_of(settings.partition)]
    _check_parameters(own, [method, settings.partition], parts)
    learner, dealer = (
        validated(PARTS[part], tables.get(part, {}) | _belonging(own, part)) for part in parts
    )
    return ExperimentConfig(learner, settings, dealer)


def _check_file(flat: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    """Refuse a file with names that nothing has, or in the wrong place."""
    check_names("method or partition", tables, PARTS)
    for name in flat:
        if owners := _owners(name):
            raise CadisError(
                f"'{name}' belongs to {' and '.join(owners)}; put it into a table of that name."
            )
    check_names("option", flat, ["method", *names_of(Settings)])
    for name, table in tables.items():
        check_names(f"parameter of {name}", table, names_of(PARTS[name]))


def _check_choices(settings: Settings) -> None:
    """Refuse names of datasets, models and partitions that there are not."""
    if not settings.dataset.startswith("images:"):
        check_names("dataset", [settings.dataset], DATASETS)
    if ":" not in settings.model:
        check_names("model", [settings.model], ["auto", *MODELS, "module:function"])
    if not settings.partition.endswith(".json"):
        choices = ["auto", *PARTITIONERS, "clients", "FILE.json"]
        check_names("partition", [settings.partition], choices)


def _check_parameters(own: Iterable[str], typed: list[str], parts: list[str]) -> None:
    """Refuse parameters of what was not chosen."""
    known = [name for part in parts for name in names_of(PARTS[part])]
    for name in own:
        owners = _owners(name)
        if owners and name not in known:
            chosen = typed[0] if owners[0] in METHODS else typed[1]
            raise CadisError(f"'{name}' is a parameter of {' and '.join(owners)}, not of {chosen}.")
    check_names("option", own, known)


def _partitioner_of(partition: str) -> str:
    """Whose parameters are kept: those of MC, where another partition has none."""
    return partition if partition in PARTITIONERS else MultiCluster.name


def _belonging(own: Mapping[str, Any], part: str) -> dict[str, Any]:
    return {name: value for name, value in own.items() if name in names_of(PARTS[part])}


def _owners(name: str) -> list[str]:
    """The parts that have a parameter of this name."""
    return [part for part, kind in PARTS.items() if name in names_of(kind)]
