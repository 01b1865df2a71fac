"""What a server tells a client besides its message, and how the client reads it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord

from cadis.algorithm import (
    KINDS,
    Algorithm,
    BaseMethod,
    Kind,
    is_of_kind,
    names_of,
    parameters_of,
    validated,
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
    "memory_round": "cadis.memory-round",
}
_LOCAL = {name: name.replace("_", "-") for name in names_of(LocalSettings)}
_TRANSFORMS = "cadis.transforms"
_PARTS = {"method": FedAvg.name, "task": Classification.name, "local_optimizer": SGD.name}
"""The kinds of parts that a client runs, and the part that it is unless the config names one."""


def local_config(local: LocalSettings) -> ConfigRecord:
    """Return the config that makes clients train with these settings."""
    return ConfigRecord({key: _plain(getattr(local, name)) for name, key in _LOCAL.items()})


@dataclass(frozen=True)
class TrainConfig:
    """How to train, and as whom. Only scalars travel.

    Attributes:
        round: the round, from 1.
        algorithm: whose client half to run.
        local: epochs, batch size, learning rate, augmentation, precision.
        client: who the receiver is.
        seed: of everything random.
        participants: how many clients take part in the round.
        head: name of the classifier layer, empty for the last linear one.
        run: name of the run, by which a client finds its memory.
        memory_round: the round whose memory is to be gone on from, 0 for none.
    """

    round: int = 1
    algorithm: Algorithm = field(default_factory=Algorithm)
    local: LocalSettings = field(default_factory=LocalSettings)
    client: ClientId = 0
    seed: int = 0
    participants: int = 1
    head: str = ""
    run: str = ""
    memory_round: int = 0

    def config(self, given: Mapping[str, Any]) -> ConfigRecord:
        """Return the config to send: what the user gives, and the rest."""
        entries: dict[str, Any] = {key: getattr(self, name) for name, key in _ENTRIES.items()}
        for kind in _PARTS:
            entries |= _entries(f"cadis.{kind}", getattr(self.algorithm, kind))
        transforms = self.algorithm.transforms_of("client")
        if transforms:
            entries[_TRANSFORMS] = [transform.name for transform in transforms]
        for transform in transforms:
            entries |= _entries(f"cadis.transform.{transform.name}", transform)
        return ConfigRecord({**given, **entries})

    @classmethod
    def read(
        cls,
        config: Mapping[str, Any],
        own: Iterable[type[Any]] = (),
        method: BaseMethod | None = None,
        lr: float | None = None,
    ) -> "TrainConfig":
        """Read a config.

        Args:
            config: as received; without anything of ours in it, plain federated averaging.
            own: parts that are not ours, which the server may name.
            method: the client's own choice instead of the server's.
            lr: the learning rate, if the config has none.
        """
        own = tuple(own)
        local = {} if lr is None else {"lr": lr}
        local |= {name: config[key] for name, key in _LOCAL.items() if key in config}
        parts: dict[str, Any] = {} if method is None else {"method": method}
        for kind, default in _PARTS.items():
            if kind not in parts:
                parts[kind] = _part(config, f"cadis.{kind}", KINDS[kind], own, default)
        parts["transforms"] = tuple(
            _part(config, f"cadis.transform.{name}", KINDS["transforms"], own, name)
            for name in config.get(_TRANSFORMS, ())
        )
        return cls(
            algorithm=Algorithm(**parts),
            local=validated(LocalSettings, local),
            **{name: config[key] for name, key in _ENTRIES.items() if key in config},
        )


def _entries(prefix: str, part: Any) -> dict[str, Any]:
    """Return a part's name and its parameters, but those that have no value."""
    parameters = parameters_of(part).items()
    given = {f"{prefix}.{name}": _plain(value) for name, value in parameters if value is not None}
    return {prefix: part.name, **given}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _part(
    config: Mapping[str, Any], prefix: str, kind: Kind, own: Iterable[type[Any]], default: str
) -> Any:
    """Return the part that a config names, with the parameters that it has there."""
    known = {**kind.registry, **{part.name: part for part in own if is_of_kind(kind, part)}}
    name = str(config.get(prefix, default))
    if name not in known:
        word = prefix.removeprefix("cadis.").partition(".")[0].replace("_", " ")
        raise CadisError(
            f"This client has no {word} '{name}'; if it is one of your own, give its class to "
            "local_train as own."
        )
    parameters = {
        key.removeprefix(f"{prefix}."): value
        for key, value in config.items()
        if key.startswith(f"{prefix}.")
    }
    return validated(known[name], parameters)
