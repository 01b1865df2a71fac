"""Resolve and validate the options of an experiment, from a TOML file and the command line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cadis._io import is_user_code
from cadis.algorithm import (
    KINDS,
    Algorithm,
    BaseMethod,
    build_algorithm,
    check_names,
    find_part_classes,
    find_user_classes,
    get_field_names,
    get_part_table,
    join_words,
    qualify_name,
    split_names,
    to_options,
    validate,
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
    add_implied_transforms,
    find_owners,
    group_parameters,
    list_builtin_parts,
    pair_with_kinds,
)
from cadis.models import MODELS, get_auto_lr
from cadis.options import RunOptions
from cadis.permission import check_code, restrict_code_by_default
from cadis.store import find_code
from cadis.training import AUGMENTATIONS, LocalSettings

_DEFAULT_CLIENTS = 20
_DEFAULT_PER_ROUND = 10


@dataclass(frozen=True)
class Settings(RunOptions):
    """Options of a run, with functions that replace the value "auto"."""

    @property
    def num_partition_clients(self) -> int:
        """Return the number of clients among which a partition splits the dataset."""
        return _DEFAULT_CLIENTS if self.clients == "auto" else self.clients

    def resolve_auto(self, num_clients: int, shape: tuple[int, ...]) -> "Settings":
        """Replace "auto", given the number of clients and the shape of one input."""
        model = _choose_model(shape) if self.model == "auto" else self.model
        return replace(
            self,
            clients=num_clients,
            model=model,
            per_round=self._count_participants(num_clients),
            lr=get_auto_lr(MODELS.get(model)) if self.lr == "auto" else self.lr,
        )

    def _count_participants(self, num_clients: int) -> int:
        """Return the number of participants of a round, at least one."""
        if self.per_round == "auto":
            return min(_DEFAULT_PER_ROUND, num_clients)
        if isinstance(self.per_round, int):
            return self.per_round
        return max(1, int(self.per_round * num_clients + 0.5))

    def to_engine_settings(self) -> EngineSettings:
        """Return the engine settings; no option may be "auto"."""
        return select_engine_settings(vars(self))


def select_engine_settings(options: Mapping[str, Any]) -> EngineSettings:
    """Return the engine settings, which have the same names as the options."""
    local = {name: options[name] for name in get_field_names(LocalSettings)}
    settings = {name: options[name] for name in get_field_names(EngineSettings) if name != "local"}
    return validate(EngineSettings, {**settings, "local": local})


@dataclass(frozen=True)
class ExperimentConfig:
    """Validated options of an experiment, with all defaults filled in.

    Attributes:
        algorithm: the method and the other parts of the algorithm.
        settings: all other options.
        partitioner: splits the dataset among clients. It is not used if the partition is a file, or
            if the dataset names the client of each sample.
    """

    algorithm: Algorithm
    settings: Settings = field(default_factory=Settings)
    partitioner: Partitioner = field(default_factory=MultiCluster)

    @property
    def method(self) -> BaseMethod:
        """Return the method of the algorithm."""
        return self.algorithm.method

    def to_dict(self) -> dict[str, Any]:
        """Return the options in the form of ``config.toml``."""
        is_used = self.settings.partition in ("auto", *PARTITIONERS)
        partitioner = self.partitioner if is_used else None
        return to_options(self.algorithm, asdict(self.settings), partitioner)


def resolve(
    file: Mapping[str, Any], overrides: Mapping[str, Any], trust: bool = False
) -> ExperimentConfig:
    """Merge the options of a file with overrides, validate them, and fill in defaults.

    Code of the user that only the file names is refused, unless a context of ``restrict_code``
    allows it.

    Args:
        file: the content of a TOML file: names of parts such as ``method = "cadis"``, settings, and
            a table with the parameters of each part or partition.
        overrides: options of the command line: names of parts, settings and parameters, in one
            flat mapping. They override the values of the file.
        trust: allow the code that the file names.
    """
    with restrict_code_by_default(find_code(overrides), trust):
        return _resolve(file, overrides)


def _resolve(file: Mapping[str, Any], overrides: Mapping[str, Any]) -> ExperimentConfig:
    file = _flatten_tables(file)
    tables = {name: value for name, value in file.items() if isinstance(value, dict)}
    flat = {name: value for name, value in file.items() if name not in tables}
    parameters = {key: value for key, value in overrides.items() if key not in list_option_names()}
    options = flat | {key: value for key, value in overrides.items() if key not in parameters}
    _check_flat(flat)
    check_code(*find_code(options))  # the model and the dataset are loaded later
    chosen_classes = find_part_classes(options)
    settings = _validate_settings(options, parameters)
    partition: type[Any] = PARTITIONERS.get(settings.partition, MultiCluster)
    classes = add_implied_transforms({**chosen_classes, PARTITION.key: (partition,)}, parameters)
    known_parts = [*list_builtin_parts(), *find_user_classes(options)]
    if not all(_find_parts(name, known_parts) for name in tables):
        # The command line may replace a user's own part that the file names. The file may still
        # have a table for that part.
        known_parts += find_user_classes(flat)
    _check_tables(tables, known_parts, classes)
    names = {key: _format_choice(options, key, chosen_classes) for key in KINDS}
    names[PARTITION.key] = settings.partition
    tables_by_part = group_parameters(parameters, classes, names)
    for kind, part in pair_with_kinds(classes):
        name = qualify_name(kind.key, part.name)
        tables_by_part[name] = {
            **get_part_table(tables, kind.key, part.name),
            **tables_by_part[name],
        }
    _check_transforms(tables, split_names(flat.get("transforms", ())), classes)
    partitioner = validate(partition, tables_by_part[qualify_name(PARTITION.key, partition.name)])
    algorithm = build_algorithm({key: classes[key] for key in KINDS}, tables_by_part)
    return ExperimentConfig(algorithm, settings, partitioner)


def list_option_names() -> list[str]:
    """Return the names of all options except the parameters of parts."""
    return [*KINDS, *get_field_names(Settings)]


def _validate_settings(options: Mapping[str, Any], parameters: Mapping[str, Any]) -> Settings:
    """Validate the settings; a parameter of the partition "mc", if set, selects that partition."""
    values = {key: value for key, value in options.items() if key not in KINDS}
    if "partition" not in values and any(
        find_owners(name, [(PARTITION, MultiCluster)]) for name in parameters
    ):
        values["partition"] = MultiCluster.name
    settings = validate(Settings, values)
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
    """Raise an error for unknown options, and for parameters of parts outside their table."""
    for name in flat:
        owners = [part.name for _, part in list_builtin_parts() if name in get_field_names(part)]
        if owners and name not in list_option_names():
            tables = " or ".join(f"[{owner}]" for owner in owners)
            raise CadisError(
                f"'{name}' is a parameter of {join_words(owners)}; move it to the table {tables}."
            )
    check_names("option", flat, list_option_names())


def _flatten_tables(file: Mapping[str, Any]) -> dict[str, Any]:
    """Convert tables such as ``[sampler.clusters]`` to the form ``["sampler.clusters"]``.

    Both forms give the parameters of the sampler "clusters". TOML reads the first form as a table
    ``clusters`` inside a table ``sampler``, and the second form as a single table. If a file also
    has the option ``sampler = "clusters"``, only the second form is valid TOML, because
    ``sampler`` cannot be both a string and a table.
    """
    options: dict[str, Any] = {}
    for key, value in file.items():
        nested = key in ALL_KINDS and isinstance(value, dict)
        if nested and all(isinstance(table, dict) for table in value.values()):
            options |= {qualify_name(key, name): table for name, table in value.items()}
        else:
            options[key] = value
    return options


def _check_tables(
    tables: Mapping[str, Any],
    known_parts: Sequence[Part],
    chosen_classes: Mapping[str, Iterable[type[Any]]],
) -> None:
    """Raise an error for tables of unknown parts, ambiguous tables, and unknown parameters."""
    names = dict.fromkeys(part.name for _, part in known_parts)
    qualified_names = [qualify_name(kind.key, part.name) for kind, part in known_parts]
    check_names("part", (name for name in tables if name not in qualified_names), names)
    for name, table in tables.items():
        parts = _find_parts(name, pair_with_kinds(chosen_classes))
        if len(parts) > 1:
            choices = " or ".join(f'["{qualify_name(kind.key, name)}"]' for kind, _ in parts)
            raise CadisError(
                f"Two parts are called '{name}'; write the title of the table as {choices}."
            )
        parts = parts or _find_parts(name, known_parts)
        fields = [field for _, part in parts for field in get_field_names(part)]
        check_names(f"parameter of {name}", table, dict.fromkeys(fields))


def _find_parts(name: str, parts: Iterable[Part]) -> list[Part]:
    """Return the parts to which a table of this name may belong."""
    return [(k, part) for k, part in parts if name in (part.name, qualify_name(k.key, part.name))]


def _check_transforms(
    tables: Mapping[str, Any],
    file_transforms: Iterable[str],
    chosen_classes: Mapping[str, Iterable[type[Any]]],
) -> None:
    """Raise an error if a transform, such as noise for privacy, has a table but is not applied.

    There is no error if the file applies it, but the command line names other transforms.
    """
    key = KINDS["transforms"].key
    applied_names = {*file_transforms, *(part.name for part in chosen_classes[key])}
    chosen_names = {part.name for _, part in pair_with_kinds(chosen_classes)}
    for table in tables:
        name = table.removeprefix(qualify_name(key, ""))
        if name in TRANSFORMS and name not in applied_names and table not in chosen_names:
            raise CadisError(
                f"The file has a table for the transform '{name}', which is not applied; add it to "
                "transforms, or remove the table."
            )


def _format_choice(
    options: Mapping[str, Any], key: str, classes: Mapping[str, Iterable[type[Any]]]
) -> str:
    """Return the chosen parts of a kind as text for an error message."""
    names = split_names(options[key]) if key in options else [part.name for part in classes[key]]
    return join_words(map(str, names)) if names else f"any {KINDS[key].noun}"


def _choose_model(shape: tuple[int, ...]) -> str:
    """Return the name of a model for images of this size, or of an MLP for tables."""
    if len(shape) == 1:
        return "mlp"
    if len(shape) != 3:
        raise CadisError(
            f"No built-in model takes inputs of shape {shape}; name your own model with "
            "--model FILE.py:FUNCTION."
        )
    channels, height, _ = shape
    if height < 16:
        return "small-cnn"
    if height < 64:
        return "cnn" if channels == 1 else "resnet9"
    return "resnet18"
