"""What a method is given and what it returns, on the client and on the server.

State goes in and comes out, and inputs are never changed, so that a method runs the same in the
embedded engine and on Flower.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from cadis._io import short_repr
from cadis.types import ClientId, Message, ModelState, TensorState


@dataclass(frozen=True)
class ModelOutputs:
    """What a model makes of a client's own data, before training.

    Attributes:
        logits: its outputs in evaluation mode, (n, outputs).
        representation: the inputs of its classifier layer, R(x), (n, d); empty without one.
        labels: the truth, (n,).
        correct: where it predicts the truth, (n,); False where its outputs are not numbers.
        loss: the task's mean loss of them, ().
    """

    logits: Tensor
    representation: Tensor
    labels: Tensor
    correct: Tensor
    loss: Tensor


@dataclass(frozen=True)
class BatchExtras:
    """What a client works out before training.

    Attributes:
        per_example: tensors with a row for each example; every batch gets its own rows.
        scalars: single numbers that are sent to the server with the update.
    """

    per_example: TensorState = field(default_factory=dict)
    scalars: TensorState = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One batch of local training as a method sees it.

    Attributes:
        logits: outputs of the local model, (b, outputs).
        representation: inputs of its classifier layer, (b, d); empty without one.
        labels: the truth, (b,).
        parameters: the local model w, differentiable, (P,).
        received: the global model w_t that training began with, (P,).
        tensors: what the server sent besides the model.
        per_example: this batch's rows of what was prepared.
        memory: what this client remembers.
        present: which rows are samples, where others only fill up, (b,); None if all are.
        class_counts: how many samples of each class the client has, (classes,).
    """

    logits: Tensor
    representation: Tensor
    labels: Tensor
    parameters: Tensor
    received: Tensor
    tensors: TensorState
    per_example: TensorState
    memory: TensorState
    present: Tensor | None = None
    class_counts: Tensor = field(default_factory=lambda: torch.zeros(0))


Penalty: TypeAlias = Callable[[Step], Tensor | None]
"""The term that is added to the mean loss of a batch, or None."""

Calibration: TypeAlias = Callable[[Step], Tensor]
"""The logits that the loss of a batch is taken of."""

EpochOrder: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""Which samples an epoch goes through, and in which order, (n,), of the labels of all, (n,)."""


@dataclass(frozen=True)
class LocalResult:
    """What local training came to.

    Attributes:
        model: the trained model.
        trained: its parameters w_i, (P,), on the device where it was trained.
        received: the parameters w_t that training began with, likewise.
        steps: K, how many steps were taken.
        lr: eta, the learning rate of these steps.
        loss: the mean of the batches' losses, without penalties.
        effective_steps: how many plain steps would go as far along a constant gradient: K for
            plain SGD, more with momentum.
    """

    model: ModelState
    trained: Tensor
    received: Tensor
    steps: int
    lr: float
    loss: float
    effective_steps: float


@dataclass(frozen=True)
class ClientOutput:
    """What a client keeps for its next round, and what it sends to the server.

    Attributes:
        state: named tensors that stay with the client.
        tensors: flat vectors to send besides the models.
        scalars: single numbers to send.
        models: the trained models to send, by name; ``finish`` leaves them to ``local``.
    """

    state: TensorState = field(default_factory=dict)
    tensors: TensorState = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    models: Mapping[str, ModelState] = field(default_factory=dict)

    @property
    def message(self) -> Message:
        """The part that is sent."""
        return Message(self.models, self.tensors, self.scalars)


class LocalClient(Protocol):
    """A client in a round: what it has, and what it can do with a model and its own data.

    Attributes:
        received: what the server sent.
        memory: what this client remembers.
        generator: its source of randomness in this round.
    """

    received: Message
    memory: TensorState
    generator: torch.Generator

    @property
    def num_examples(self) -> int:
        """How many samples it has."""

    def view(self, model: ModelState) -> ModelOutputs:
        """What a model makes of the client's data; it costs a pass over them."""

    def loss(self, model: ModelState) -> float:
        """The mean loss of a model on the client's data; it costs a pass over them."""

    def train(
        self,
        model: ModelState,
        penalty: Penalty | None = None,
        prepared: BatchExtras | None = None,
        calibrate: Calibration | None = None,
        epoch_order: EpochOrder | None = None,
    ) -> LocalResult:
        """Train a copy of a model on the client's data: the federation's epochs and optimiser.

        Args:
            model: what to begin with.
            penalty: the term that is added to the mean loss of a batch.
            prepared: what was worked out before, of which each batch gets its own rows.
            calibrate: the logits that the loss is taken of, instead of the model's own.
            epoch_order: which samples an epoch goes through, instead of all in an order of chance.
        """


@dataclass(frozen=True, repr=False)
class ServerState:
    """What the server has from round to round.

    Attributes:
        models: the global models, by name; most methods have one, called "model".
        memory: what the method remembers.
    """

    models: Mapping[str, ModelState]
    memory: TensorState = field(default_factory=dict)

    __repr__ = short_repr


SecondsOf: TypeAlias = Callable[[Sequence[ClientId]], Tensor]
"""The simulated time that each of some clients takes for a round, (n,), float64."""


def _one_second_each(clients: Sequence[ClientId]) -> Tensor:
    return torch.ones(len(clients), dtype=torch.float64)


@dataclass(frozen=True)
class ServerRound:
    """What the server knows in a round.

    Attributes:
        number: the round, from 1.
        head: where the classifier layer lies in a model's parameters.
        num_clients: n, all clients of the federation.
        generator: the round's source of randomness.
        true_clusters: who really belongs together, where that is known; for oracles only.
        num_outputs: rows of the classifier layer's weight; 0 if there is no such layer.
        clients: those that are there; empty where nobody has told.
        seconds_of: the simulated time that clients take for a round; by default 1 for everybody.
    """

    number: int
    head: tuple[slice, ...]
    num_clients: int
    generator: torch.Generator
    true_clusters: Mapping[ClientId, int] | None = None
    num_outputs: int = 0
    clients: Sequence[ClientId] = ()
    seconds_of: SecondsOf = _one_second_each


@dataclass(frozen=True)
class Weighing:
    """How much each update counts.

    Attributes:
        weights: not negative, sum 1, (k,).
        memory: what the method remembers for the next round.
        report: what the method tells about the round, as named arrays.
    """

    weights: Tensor
    memory: TensorState
    report: TensorState = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Aggregation:
    """The aggregated models, the method's new memory, and why they came out so.

    Attributes:
        models: the aggregated models by name; a model that is left out stays as it is.
        memory: what the method remembers for the next round.
        weights: what each update weighed in its model, (k,).
        report: what the method tells about the round, as named arrays of numbers. An array with
            one entry, row, or row and column a participant is in the order of the updates.
        clock: the simulated time at which the round ended, where it is not when the slowest
            participant was done.
    """

    models: Mapping[str, ModelState]
    memory: TensorState
    weights: Tensor
    report: TensorState = field(default_factory=dict)
    clock: float | None = None

    __repr__ = short_repr
