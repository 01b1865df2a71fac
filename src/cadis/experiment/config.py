"""An experiment's options: from a TOML file, the command line, or both."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cadis._io import is_user_code
from cadis.algorithm import (
    KINDS,
    Algorithm,
    Method,
    algorithm_of,
    check_names,
    classes_in,
    listed,
    names_in,
    names_of,
    options_of,
    own_classes,
    validated,
)
from cadis.algorithm.transforms import TRANSFORMS
from cadis.data import DATASETS, is_dataset_name
from cadis.data.partition import PARTITIONERS, MultiCluster, Partitioner
from cadis.engine import check_speeds
from cadis.errors import CadisError
from cadis.experiment.parameters import (
    PARTITION,
    our_parts,
    owners_of,
    tables_of,
    with_implied_transforms,
)
from cadis.experiment.settings import Settings
from cadis.models import MODELS
from cadis.training import AUGMENTATIONS


@dataclass(frozen=True)
class ExperimentConfig:
    """A resolved experiment: nothing is left to defaults.

    Attributes:
        algorithm: how to learn.
        settings: all the rest.
        partitioner: deals out the dataset, unless the settings name a file or the data's owners.
    """

    algorithm: Algorithm
    settings: Settings = field(default_factory=Settings)
    partitioner: Partitioner = field(default_factory=MultiCluster)

    @property
    def method(self) -> Method:
        """The algorithm's method."""
        return self.algorithm.method

    def to_dict(self) -> dict[str, Any]:
        """The options, as ``config.toml`` holds them."""
        deals = self.settings.partition in ("auto", *PARTITIONERS)
        parts = [self.partitioner] if deals else []
        return options_of(self.algorithm, asdict(self.settings), *parts)


def resolve(file: Mapping[str, Any], given: Mapping[str, Any]) -> ExperimentConfig:
    """The experiment that a file's options and given options describe; given ones win.

    Args:
        file: a TOML file's content: names of parts, settings, and a table for each part or
            partition that needs one.
        given: names of parts, settings and parameters, side by side, as a user types them.
    """
    tables = {name: value for name, value in file.items() if isinstance(value, dict)}
    flat = {name: value for name, value in file.items() if name not in tables}
    typed = {key: value for key, value in given.items() if key not in plain_names()}
    chosen = flat | {key: value for key, value in given.items() if key not in typed}
    _check_flat(flat)
    classes = classes_in(chosen)
    _check_tables(tables, flat, chosen)
    settings = _settings(chosen, typed)
    partition = _partitioner_of(settings.partition)
    everything = with_implied_transforms({**classes, PARTITION.key: (partition,)}, typed)
    shown = {key: _shown(chosen, key, classes) for key in KINDS}
    shown[PARTITION.key] = settings.partition
    for name, own in tables_of(typed, everything, shown).items():
        tables[name] = tables.get(name, {}) | own
    _check_transforms(tables, [*names_in(flat.get("transforms", ())), *everything["transforms"]])
    dealer = validated(partition, tables.get(partition.name, {}))
    algorithm = algorithm_of({key: everything[key] for key in KINDS}, tables)
    return ExperimentConfig(algorithm, settings, dealer)


def plain_names() -> list[str]:
    """The options that are no parameters of a part."""
    return [*KINDS, *names_of(Settings)]


def _settings(chosen: Mapping[str, Any], typed: Mapping[str, Any]) -> Settings:
    """The settings among the chosen options; a parameter of MC chooses that partition."""
    given = {key: value for key, value in chosen.items() if key not in KINDS}
    if "partition" not in given and any(owners_of(name, [MultiCluster]) for name in typed):
        given["partition"] = MultiCluster.name
    settings = validated(Settings, given)
    _check_choices(settings)
    return settings


def _check_flat(flat: Mapping[str, Any]) -> None:
    """Refuse names beside a file's tables that nothing has, or that belong into a table."""
    for name in flat:
        owners = [part for part, kind in our_parts().items() if name in names_of(kind)]
        if owners and name not in plain_names():
            raise CadisError(
                f"'{name}' belongs to {listed(owners)}; put it into a table of that name."
            )
    check_names("option", flat, plain_names())


def _check_tables(
    tables: Mapping[str, Any], flat: Mapping[str, Any], chosen: Mapping[str, Any]
) -> None:
    """Refuse tables that nothing has, and names in them that it does not have."""
    parts = our_parts() | {part.name: part for _, part in own_classes(chosen)}
    if not parts.keys() >= tables.keys():  # a file may choose parts that other options replace
        parts |= {part.name: part for _, part in own_classes(flat)}
    check_names("part", tables, parts)
    for name, table in tables.items():
        check_names(f"parameter of {name}", table, names_of(parts[name]))


def _check_transforms(tables: Mapping[str, Any], named: Iterable[Any]) -> None:
    """Refuse a table of a transform that nobody names: it would seem to protect."""
    names = [getattr(part, "name", part) for part in named]
    for name in tables:
        if name in TRANSFORMS and name not in names:
            raise CadisError(
                f"There is a table of the transform '{name}', which is not applied; add it to "
                "transforms, or leave the table out."
            )


def _check_choices(settings: Settings) -> None:
    """Refuse names of datasets, models, partitions and augmentations that there are not."""
    if not is_dataset_name(settings.dataset):
        check_names("dataset", [settings.dataset], DATASETS)
    if not is_user_code(settings.model):
        check_names("model", [settings.model], ["auto", *MODELS, "FILE.py:FUNCTION"])
    if not settings.partition.endswith(".json"):
        choices = ["auto", *PARTITIONERS, "clients", "FILE.json"]
        check_names("partition", [settings.partition], choices)
    check_names("augmentation", settings.augment, AUGMENTATIONS)
    check_speeds(settings.speeds)


def _partitioner_of(partition: str) -> type[Any]:
    """Whose parameters are kept: those of MC, where another partition has none."""
    return PARTITIONERS.get(partition, MultiCluster)


def _shown(options: Mapping[str, Any], key: str, classes: Mapping[str, Iterable[type[Any]]]) -> str:
    """What is chosen of a kind, as a sentence names it."""
    names = names_in(options[key]) if key in options else [part.name for part in classes[key]]
    return listed(map(str, names)) if names else f"any {KINDS[key].noun}"
