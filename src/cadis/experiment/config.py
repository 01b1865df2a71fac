"""An experiment's options: from a TOML file, the command line, or both."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cadis._io import is_user_code
from cadis.algorithm import (
    KINDS,
    Algorithm,
    BaseMethod,
    algorithm_of,
    check_names,
    classes_in,
    listed,
    names_in,
    names_of,
    options_of,
    own_classes,
    qualify,
    table_of,
    validated,
)
from cadis.algorithm.transforms import TRANSFORMS
from cadis.data import DATASETS, is_dataset_name
from cadis.data.partition import PARTITIONERS, MultiCluster, Partitioner
from cadis.engine import EngineSettings, check_speeds
from cadis.errors import CadisError
from cadis.experiment.parameters import (
    ALL_KINDS,
    PARTITION,
    Part,
    our_parts,
    owners_of,
    pairs_of,
    tables_of,
    with_implied_transforms,
)
from cadis.models import MODELS, auto_lr
from cadis.options import RunOptions
from cadis.training import AUGMENTATIONS, LocalSettings

_DEFAULT_CLIENTS = 20
_DEFAULT_PER_ROUND = 10


@dataclass(frozen=True)
class Settings(RunOptions):
    """The options of a run, and how those that are "auto" are resolved."""

    @property
    def clients_to_deal_to(self) -> int:
        """Return the number of clients that a dataset is split among."""
        return _DEFAULT_CLIENTS if self.clients == "auto" else self.clients

    def resolve_auto(self, num_clients: int, shape: tuple[int, ...]) -> "Settings":
        """Return the settings without "auto", once the data and the shape of an input are known."""
        model = _fitting_model(shape) if self.model == "auto" else self.model
        return replace(
            self,
            clients=num_clients,
            model=model,
            per_round=self._participants(num_clients),
            lr=auto_lr(MODELS.get(model)) if self.lr == "auto" else self.lr,
        )

    def _participants(self, num_clients: int) -> int:
        """How many clients take part in a round; of a share, at least one."""
        if self.per_round == "auto":
            return min(_DEFAULT_PER_ROUND, num_clients)
        if isinstance(self.per_round, int):
            return self.per_round
        return max(1, int(self.per_round * num_clients + 0.5))

    def for_engine(self) -> EngineSettings:
        """Return the settings of the engine, once nothing is "auto"."""
        return engine_settings(vars(self))


def engine_settings(options: Mapping[str, Any]) -> EngineSettings:
    """Return the settings of the engine, whose names are those of options."""
    local = {name: options[name] for name in names_of(LocalSettings)}
    shared = {name: options[name] for name in names_of(EngineSettings) if name != "local"}
    return validated(EngineSettings, {**shared, "local": local})


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
    def method(self) -> BaseMethod:
        """The algorithm's method."""
        return self.algorithm.method

    def to_dict(self) -> dict[str, Any]:
        """The options, as ``config.toml`` holds them."""
        deals = self.settings.partition in ("auto", *PARTITIONERS)
        partitioner = self.partitioner if deals else None
        return options_of(self.algorithm, asdict(self.settings), partitioner)


def resolve(file: Mapping[str, Any], given: Mapping[str, Any]) -> ExperimentConfig:
    """Return the experiment that a file's options and given options describe; given ones win.

    Args:
        file: a TOML file's content: names of parts, settings, and a table for each part or
            partition that needs one.
        given: names of parts, settings and parameters, side by side, as a user types them.
    """
    file = _with_qualified_tables(file)
    tables = {name: value for name, value in file.items() if isinstance(value, dict)}
    flat = {name: value for name, value in file.items() if name not in tables}
    typed = {key: value for key, value in given.items() if key not in plain_names()}
    chosen = flat | {key: value for key, value in given.items() if key not in typed}
    _check_flat(flat)
    classes = classes_in(chosen)
    settings = _settings(chosen, typed)
    partition: type[Any] = PARTITIONERS.get(settings.partition, MultiCluster)
    everything = with_implied_transforms({**classes, PARTITION.key: (partition,)}, typed)
    known = [*our_parts(), *own_classes(chosen)]
    if not all(_parts_called(name, known) for name in tables):
        known += own_classes(flat)  # a file may choose parts that other options replace
    _check_tables(tables, known, everything)
    shown = {key: _shown(chosen, key, classes) for key in KINDS}
    shown[PARTITION.key] = settings.partition
    parameters = tables_of(typed, everything, shown)
    for kind, part in pairs_of(everything):
        name = qualify(kind.key, part.name)
        parameters[name] = {**table_of(tables, kind.key, part.name), **parameters[name]}
    _check_transforms(tables, names_in(flat.get("transforms", ())), everything)
    partitioner = validated(partition, parameters[qualify(PARTITION.key, partition.name)])
    algorithm = algorithm_of({key: everything[key] for key in KINDS}, parameters)
    return ExperimentConfig(algorithm, settings, partitioner)


def plain_names() -> list[str]:
    """The options that are no parameters of a part."""
    return [*KINDS, *names_of(Settings)]


def _settings(chosen: Mapping[str, Any], typed: Mapping[str, Any]) -> Settings:
    """Validate the settings among the chosen options; a parameter of MC chooses that partition."""
    given = {key: value for key, value in chosen.items() if key not in KINDS}
    if "partition" not in given and any(
        owners_of(name, [(PARTITION, MultiCluster)]) for name in typed
    ):
        given["partition"] = MultiCluster.name
    settings = validated(Settings, given)
    if not is_dataset_name(settings.dataset):
        check_names("dataset", [settings.dataset], DATASETS)
    if not is_user_code(settings.model):
        check_names("model", [settings.model], ["auto", *MODELS, "FILE.py:FUNCTION"])
    if not settings.partition.endswith(".json"):
        choices = ["auto", *PARTITIONERS, "clients", "FILE.json"]
        check_names("partition", [settings.partition], choices)
    check_names("augmentation", settings.augment, AUGMENTATIONS)
    check_speeds(settings.speeds)
    return settings


def _check_flat(flat: Mapping[str, Any]) -> None:
    """Refuse names beside a file's tables that nothing has, or that belong into a table."""
    for name in flat:
        owners = [part.name for _, part in our_parts() if name in names_of(part)]
        if owners and name not in plain_names():
            raise CadisError(
                f"'{name}' belongs to {listed(owners)}; put it into a table of that name."
            )
    check_names("option", flat, plain_names())


def _with_qualified_tables(file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with tables ``[kind.name]`` under that name, as ``["kind.name"]`` has.

    TOML allows the former only in a file that does not choose a part of this kind itself.
    """
    options: dict[str, Any] = {}
    for key, value in file.items():
        nested = key in ALL_KINDS and isinstance(value, dict)
        if nested and all(isinstance(table, dict) for table in value.values()):
            options |= {qualify(key, name): table for name, table in value.items()}
        else:
            options[key] = value
    return options


def _check_tables(
    tables: Mapping[str, Any], known: Sequence[Part], chosen: Mapping[str, Iterable[type[Any]]]
) -> None:
    """Refuse tables that no part has or two chosen parts share, and unknown names in them."""
    names = dict.fromkeys(part.name for _, part in known)
    clear = [qualify(kind.key, part.name) for kind, part in known]
    check_names("part", (name for name in tables if name not in clear), names)
    for name, table in tables.items():
        mine, others = _parts_called(name, pairs_of(chosen)), _parts_called(name, known)
        if len(mine) > 1:
            ways = " and ".join(f'["{qualify(kind.key, name)}"]' for kind, _ in mine)
            raise CadisError(f"Two chosen parts are called '{name}'; name their tables {ways}.")
        fields = [field for _, part in mine or others for field in names_of(part)]
        check_names(f"parameter of {name}", table, dict.fromkeys(fields))


def _parts_called(name: str, parts: Iterable[Part]) -> list[Part]:
    """Return the parts that a table of this name may be of."""
    return [(k, part) for k, part in parts if name in (part.name, qualify(k.key, part.name))]


def _check_transforms(
    tables: Mapping[str, Any], named: Iterable[str], chosen: Mapping[str, Iterable[type[Any]]]
) -> None:
    """Refuse a table of a transform that is not applied: it would seem to protect."""
    key = KINDS["transforms"].key
    applied = {*named, *(part.name for part in chosen[key])}
    others = {part.name for _, part in pairs_of(chosen)}
    for table in tables:
        name = table.removeprefix(qualify(key, ""))
        if name in TRANSFORMS and name not in applied and table not in others:
            raise CadisError(
                f"There is a table of the transform '{name}', which is not applied; add it to "
                "transforms, or leave the table out."
            )


def _shown(options: Mapping[str, Any], key: str, classes: Mapping[str, Iterable[type[Any]]]) -> str:
    """What is chosen of a kind, as a sentence names it."""
    names = names_in(options[key]) if key in options else [part.name for part in classes[key]]
    return listed(map(str, names)) if names else f"any {KINDS[key].noun}"


def _fitting_model(shape: tuple[int, ...]) -> str:
    """The paper's models for its datasets, and whatever is like them; for rows, the simplest."""
    if len(shape) == 1:
        return "mlp"
    if len(shape) != 3:
        raise CadisError(
            f"No model of ours is made for inputs of shape {shape}; name one of your own by "
            "--model FILE.py:FUNCTION."
        )
    channels, height, _ = shape
    if height < 16:
        return "small-cnn"
    if height < 64:
        return "cnn" if channels == 1 else "resnet9"
    return "resnet18"
