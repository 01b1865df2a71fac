"""The config that the server sends to a client with each message."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord

from cadis.algorithm import (
    KINDS,
    Algorithm,
    BaseMethod,
    Kind,
    get_field_names,
    get_parameters,
    is_of_kind,
    validate,
)
from cadis.algorithm.local_optimizers import SGD
from cadis.algorithm.methods import FedAvg
from cadis.algorithm.tasks import Classification
from cadis.errors import CadisError
from cadis.training import LocalSettings
from cadis.types import ClientId

_ENTRIES = {
    "round": "server-round",
    "client": "cadis.client-id",
    "seed": "cadis.seed",
    "participants": "cadis.participants",
    "head": "cadis.head",
    "run": "cadis.run",
    "state_round": "cadis.memory-round",  # "memory" is an earlier word for state
}
"""Key of each field in the config."""
_LOCAL = {name: name.replace("_", "-") for name in get_field_names(LocalSettings)}
"""Key of each local setting in the config."""

_TRANSFORMS = "cadis.transforms"
_PARTS = {"method": FedAvg.name, "task": Classification.name, "local_optimizer": SGD.name}
"""The kinds of parts that a client runs, each with its default."""


def make_local_config(local: LocalSettings) -> ConfigRecord:
    """Convert local settings to a train config for ``strategy.start``."""
    return ConfigRecord(
        {key: _to_config_value(getattr(local, name)) for name, key in _LOCAL.items()}
    )


@dataclass(frozen=True)
class TrainConfig:
    """Settings of local training that the server sends to a client.

    Attributes:
        round: number of the round, from 1.
        algorithm: the method and other parts; the client runs their client-side code.
        local: epochs, batch size, learning rate, augmentation, precision.
        client: id of the receiving client.
        seed: seed of the run.
        participants: number of clients that train in the round.
        head: name of the classifier layer; empty for the last linear layer.
        run: id of the run, with which the client finds its state.
        state_round: last round in which the server aggregated an update of the client; the client
            starts from the state that it saved in this round. 0 for no state.
    """

    round: int = 1
    algorithm: Algorithm = field(default_factory=Algorithm)
    local: LocalSettings = field(default_factory=LocalSettings)
    client: ClientId = 0
    seed: int = 0
    participants: int = 1
    head: str = ""
    run: str = ""
    state_round: int = 0

    def to_record(self, user_config: Mapping[str, Any]) -> ConfigRecord:
        """Return the config to send: the entries of the user, and the entries of cadis."""
        entries: dict[str, Any] = {key: getattr(self, name) for name, key in _ENTRIES.items()}
        for kind in _PARTS:
            entries |= _part_to_entries(f"cadis.{kind}", getattr(self.algorithm, kind))
        transforms = self.algorithm.get_transforms("client")
        if transforms:
            entries[_TRANSFORMS] = [transform.name for transform in transforms]
        for transform in transforms:
            entries |= _part_to_entries(f"cadis.transform.{transform.name}", transform)
        return ConfigRecord({**user_config, **entries})

    @classmethod
    def from_record(
        cls,
        config: Mapping[str, Any],
        custom_classes: Iterable[type[Any]] = (),
        method: BaseMethod | None = None,
        lr: float | None = None,
    ) -> "TrainConfig":
        """Read a config.

        Args:
            config: the config in the server's message; without entries of cadis, it means FedAvg.
            custom_classes: parts of the user that the server may name.
            method: the method to use, instead of the method in the config.
            lr: the learning rate, if the config has none.
        """
        classes = tuple(custom_classes)
        local = {} if lr is None else {"lr": lr}
        local |= {name: config[key] for name, key in _LOCAL.items() if key in config}
        parts: dict[str, Any] = {} if method is None else {"method": method}
        for kind, default in _PARTS.items():
            if kind not in parts:
                parts[kind] = _read_part(config, f"cadis.{kind}", KINDS[kind], classes, default)
        parts["transforms"] = tuple(
            _read_part(config, f"cadis.transform.{name}", KINDS["transforms"], classes, name)
            for name in config.get(_TRANSFORMS, ())
        )
        return cls(
            algorithm=Algorithm(**parts),
            local=validate(LocalSettings, local),
            **{name: config[key] for name, key in _ENTRIES.items() if key in config},
        )


def _part_to_entries(prefix: str, part: Any) -> dict[str, Any]:
    """Return the name of a part and its parameters, except those that are None."""
    parameters = get_parameters(part).items()
    entries = {
        f"{prefix}.{name}": _to_config_value(value)
        for name, value in parameters
        if value is not None
    }
    return {prefix: part.name, **entries}


def _to_config_value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _read_part(
    config: Mapping[str, Any], prefix: str, kind: Kind, classes: Iterable[type[Any]], default: str
) -> Any:
    """Return the part that a config names, with its parameters in the config."""
    custom_classes = {part.name: part for part in classes if is_of_kind(kind, part)}
    class_by_name = {**kind.registry, **custom_classes}
    name = str(config.get(prefix, default))
    if name not in class_by_name:
        word = prefix.removeprefix("cadis.").partition(".")[0].replace("_", " ")
        raise CadisError(
            f"This client has no {word} '{name}'; if it is your own, pass its class to local_train "
            "and local_evaluate: custom_classes=[...]."
        )
    parameters = {
        key.removeprefix(f"{prefix}."): value
        for key, value in config.items()
        if key.startswith(f"{prefix}.")
    }
    return validate(class_by_name[name], parameters)
