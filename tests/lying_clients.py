"""A small federation in which one client lies: a subclass of the method changes its real output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from cadis.algorithm import Algorithm, BaseMethod, ClientOutput, LocalClient
from cadis.algorithm.methods import METHODS
from cadis.engine import Engine, EngineSettings, Federation
from cadis.server import RoundResult
from cadis.training import LocalSettings
from support import blobs

Lie: TypeAlias = Callable[[ClientOutput], ClientOutput]

LIAR = 3
LIAR_SAMPLES = 13
"""Only the liar has this number of samples."""

NUM_CLIENTS = 10


def make_federation(num_clients: int = NUM_CLIENTS) -> Federation:
    """Return clients with all five classes and 15 samples each, but the liar with 13."""
    sizes = [15] * num_clients
    sizes[min(LIAR, num_clients - 1)] = LIAR_SAMPLES
    clients = [blobs(size, [0, 1, 2, 3, 4], seed=n) for n, size in enumerate(sizes)]
    return Federation(clients, blobs(60, [0, 1, 2, 3, 4], seed=99))


class Flatten(nn.Module):
    """Flatten inputs and convert them to a dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1).to(self.dtype)


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Build a small network with batch norm."""
    torch.manual_seed(0)
    layers = [nn.Linear(16, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5)]
    return nn.Sequential(Flatten(dtype), *(layer.to(dtype) for layer in layers))


class Exponential(nn.Module):
    """A model whose training diverges if its parameters are large."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh())
        self.head = nn.Linear(6, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(inputs))
        return logits.exp()


def make_liar(method: BaseMethod, lie: Lie, first: int = 1, last: int = 10**9) -> BaseMethod:
    """Return the method, except that the client with ``LIAR_SAMPLES`` samples lies.

    Args:
        method: the method.
        lie: changes the output of the client's real training.
        first: first round in which it lies.
        last: last round in which it lies.
    """
    original = type(method)

    def local(self: BaseMethod, client: LocalClient) -> ClientOutput:
        output = original.local(self, client)
        number = client.round_number  # type: ignore[attr-defined]  # not part of the protocol
        is_lie = client.num_samples == LIAR_SAMPLES and first <= number <= last
        return lie(output) if is_lie else output

    lying = type(f"Lying{original.__name__}", (original,), {"local": local})
    liar: BaseMethod = lying(**vars(method))
    return liar


def change_models(change: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]) -> Lie:
    """Return a lie that changes copies of the vectors of all models."""

    def lie(output: ClientOutput) -> ClientOutput:
        models = {}
        for name, model in output.models.items():
            copies = {part: vector.clone() for part, vector in model.vectors().items()}
            models[name] = replace(model, **change(copies))
        return replace(output, models=models)

    return lie


def fill(part: str, value: float, everywhere: bool = True) -> Lie:
    """Return a lie that sets one or all entries of a part of the model to a value."""

    def change(vectors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        vectors[part][slice(None) if everywhere else slice(1)] = value
        return vectors

    return change_models(change)


def shift(part: str, value: float, entries: slice = slice(None)) -> Lie:
    """Return a lie that adds a value to entries of a part of the model."""

    def change(vectors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        vectors[part][entries] += value
        return vectors

    return change_models(change)


def fill_tensors(value: float) -> Lie:
    """Return a lie about the tensors that a method sends besides the model."""
    return lambda output: replace(
        output, tensors={name: torch.full_like(t, value) for name, t in output.tensors.items()}
    )


def report(name: str, value: Any) -> Lie:
    """Return a lie about a scalar."""
    return lambda output: replace(output, scalars={**output.scalars, name: value})


@dataclass(frozen=True)
class Ending:
    """How a run ended: results of the rounds, and the final accuracy."""

    results: list[RoundResult]
    accuracy: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "accuracy", self.results[-1].record.accuracy)

    @property
    def largest_share(self) -> float:
        """The largest weight of the liar in a round; 0 if it was always rejected."""
        records = [result.record for result in self.results]
        shares = [dict(zip(r.participants, r.weights, strict=True)).get(LIAR, 0) for r in records]
        return max(shares)

    @property
    def reasons(self) -> list[str]:
        """The reasons for which the liar was rejected, without repetitions."""
        rejections = [r for result in self.results for r in result.record.rejected]
        assert all(rejection.client == LIAR for rejection in rejections)
        return list(dict.fromkeys(rejection.reason for rejection in rejections))

    @property
    def is_finite(self) -> bool:
        models = self.results[-1].state.global_models.values()
        return all(model.is_finite() for model in models)


def run(
    method: BaseMethod | Algorithm,
    folder: Path,
    rounds: int = 3,
    federation: Federation | None = None,
    model: nn.Module | None = None,
) -> Ending:
    """Run all clients of the federation."""
    engine = make_engine(method, folder, rounds, federation, model)
    return Ending(list(engine.rounds(engine.start)))


def make_engine(
    method: BaseMethod | Algorithm,
    folder: Path,
    rounds: int,
    federation: Federation | None = None,
    model: nn.Module | None = None,
) -> Engine:
    """Return an engine that trains all clients in this process."""
    algorithm = method if isinstance(method, Algorithm) else Algorithm(method)
    settings = EngineSettings(
        rounds,
        seed=7,
        workers=1,
        device="cpu",
        local=LocalSettings(epochs=2, batch_size=5, lr=0.1),
        test_clients=0,
        stack=False,
    )
    return Engine(
        model or make_model(), federation or make_federation(), algorithm, settings, folder
    )


def make_lies(method: BaseMethod) -> dict[str, Lie]:
    """Return all lies that a client can send to a method, by name."""
    lies = {
        "all parameters 1e19": fill("parameters", 1e19),
        "all parameters 3e38": fill("parameters", 3e38),
        "one parameter -1e30": fill("parameters", -1e30, everywhere=False),
        "NaN in a buffer": fill("buffers", float("nan"), everywhere=False),
        "buffers +1e3": shift("buffers", 1e3),
        "counters 2^62": fill("counters", 2**62),
    }
    if method.needs_tensors:
        lies |= {f"tensors {value:g}": fill_tensors(value) for value in (1e19, -3e38)}
    for name in method.needs_scalars:
        values = (1000, -1, 1e308, 0, True, 10**400)
        lies |= {f"{name} {str(value)[:9]}": report(name, value) for value in values}
    return lies


def list_methods() -> dict[str, BaseMethod]:
    """Return all methods in which single clients train, by name."""
    return {name: kind() for name, kind in METHODS.items() if not kind.pools_clients}
