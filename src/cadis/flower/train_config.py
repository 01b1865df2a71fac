"""What a server tells a client besides the model, and how the client reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ConfigRecord

from cadis.core import ClientId
from cadis.methods import METHODS, FedAvg, Method
from cadis.options import check_names, parameters_of, validated
from cadis.training import LocalSettings

_METHOD = "cadis.method"
_PARAMETER = "cadis.method."
_ENTRIES = {
    "round": "server-round",
    "client": "cadis.client-id",
    "seed": "cadis.seed",
    "head": "cadis.head",
    "run": "cadis.run",
    "memory_round": "cadis.memory-round",
}
_LOCAL = {"epochs": "epochs", "batch_size": "batch-size", "lr": "lr"}


@dataclass(frozen=True)
class TrainConfig:
    """How to train, and as whom. Only scalars travel.

    Attributes:
        round: the round, from 1.
        method: whose client half to run.
        local: epochs, batch size, learning rate.
        client: who the receiver is.
        seed: of everything random.
        head: name of the classifier layer, empty for the last linear one.
        run: name of the run, by which a client finds its memory.
        memory_round: the round whose memory is to be gone on from, 0 for none.
    """

    round: int = 1
    method: Method = field(default_factory=FedAvg)
    local: LocalSettings = field(default_factory=LocalSettings)
    client: ClientId = 0
    seed: int = 0
    head: str = ""
    run: str = ""
    memory_round: int = 0

    def config(self, given: Mapping[str, Any]) -> ConfigRecord:
        """The config to send: what the user gives, and the train_config."""
        entries = {key: getattr(self, name) for name, key in _ENTRIES.items()}
        parameters = {f"{_PARAMETER}{n}": v for n, v in parameters_of(self.method).items()}
        return ConfigRecord({**given, **entries, _METHOD: self.method.name, **parameters})

    @classmethod
    def read(cls, config: Mapping[str, Any], method: Method | None = None) -> "TrainConfig":
        """The train_config in a config.

        Args:
            config: as received; without train_config in it, those of plain federated averaging.
            method: the client's own choice instead of the server's.
        """
        local = {name: config[key] for name, key in _LOCAL.items() if key in config}
        return cls(
            method=method or _method_in(config),
            local=validated(LocalSettings, local),
            **{name: config[key] for name, key in _ENTRIES.items() if key in config},
        )


def _method_in(config: Mapping[str, Any]) -> Method:
    name = str(config.get(_METHOD, FedAvg.name))
    check_names("method", [name], METHODS)
    parameters = {
        key.removeprefix(_PARAMETER): value
        for key, value in config.items()
        if key.startswith(_PARAMETER)
    }
    method: Method = validated(METHODS[name], parameters)
    return method
