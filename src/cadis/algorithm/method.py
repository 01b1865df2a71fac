"""Arguments and results of the hooks of a method, on the client and on the server.

Hooks get all state as arguments and return the new state. They never change their arguments, so
that a method runs identically in the simulation engine and on Flower.
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
    """Outputs of a model for all n samples of a client, computed before training.

    Attributes:
        logits: outputs in evaluation mode, (n, outputs).
        representation: inputs of the classifier layer, R(x), (n, d); empty if the model has none.
        labels: true labels, (n,).
        correct: True where the prediction equals the label, (n,); False where outputs are NaN.
        loss: mean loss of the task, ().
    """

    logits: Tensor
    representation: Tensor
    labels: Tensor
    correct: Tensor
    loss: Tensor


@dataclass(frozen=True)
class BatchExtras:
    """Values that a client computes before training, for use in its batches.

    Attributes:
        per_sample: tensors with one row per sample, (n, ...); a batch gets its rows.
        scalars: numbers, (), that are sent to the server with the update.
    """

    per_sample: TensorState = field(default_factory=dict)
    scalars: TensorState = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One batch of local training, as the hooks ``penalty`` and ``calibrate`` get it.

    Attributes:
        logits: outputs of the local model, (b, outputs).
        representation: inputs of the classifier layer, (b, d); empty if the model has none.
        labels: true labels, (b,).
        parameters: parameters w of the local model, differentiable, (P,).
        received: parameters w_t of the received global model, (P,).
        tensors: tensors that the server sent besides the model.
        per_sample: rows of ``BatchExtras.per_sample`` that belong to this batch, (b, ...).
        client_state: tensors that this client keeps between rounds.
        row_mask: True for rows that are samples, False for padding, (b,); None without padding.
        class_counts: number of the client's samples in each class, (classes,).
    """

    logits: Tensor
    representation: Tensor
    labels: Tensor
    parameters: Tensor
    received: Tensor
    tensors: TensorState
    per_sample: TensorState
    client_state: TensorState
    row_mask: Tensor | None = None
    class_counts: Tensor = field(default_factory=lambda: torch.zeros(0))


Penalty: TypeAlias = Callable[[Step], Tensor | None]
"""Function from a batch to the term that is added to its mean loss, or None."""

Calibration: TypeAlias = Callable[[Step], Tensor]
"""Function from a batch to the logits that its loss is computed from."""

EpochOrder: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""Function from the labels of all samples, (n,), to the indices of an epoch in order, (n,)."""


@dataclass(frozen=True)
class LocalResult:
    """Result of local training.

    Attributes:
        model: the trained model.
        trained: its parameters w_i, (P,), on the device of the training.
        received: parameters w_t at the start of the training, (P,), on the same device.
        steps: K, the number of optimizer steps.
        lr: eta, the learning rate of these steps.
        loss: mean loss over the batches, without penalties.
        effective_steps: number of plain SGD steps that would move equally far along a constant
            gradient: K for plain SGD, more with momentum.
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
    """Message of a client to the server, and the state that the client keeps for its next round.

    Attributes:
        state: named tensors that stay with the client.
        tensors: flat vectors to send besides the models.
        scalars: numbers to send.
        models: trained models to send, by name; ``finish`` leaves them out, ``local`` adds them.
    """

    state: TensorState = field(default_factory=dict)
    tensors: TensorState = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    models: Mapping[str, ModelState] = field(default_factory=dict)

    @property
    def message(self) -> Message:
        """Message to the server."""
        return Message(self.models, self.tensors, self.scalars)


class LocalClient(Protocol):
    """A participant during a round: its message, its state and operations on its data.

    Attributes:
        received: message of the server.
        state: tensors that this client keeps between rounds.
        generator: random generator of this client and round.
    """

    received: Message
    state: TensorState
    generator: torch.Generator

    @property
    def num_samples(self) -> int:
        """Number of training samples of the client."""

    def compute_outputs(self, model: ModelState) -> ModelOutputs:
        """Return the outputs of a model for the client's data; costs one forward pass."""

    def compute_loss(self, model: ModelState) -> float:
        """Return the mean loss of a model on the client's data; costs one forward pass."""

    def train(
        self,
        model: ModelState,
        penalty: Penalty | None = None,
        extras: BatchExtras | None = None,
        calibrate: Calibration | None = None,
        epoch_order: EpochOrder | None = None,
    ) -> LocalResult:
        """Train a copy of a model on the client's data, with the epochs and optimizer of the run.

        Args:
            model: the model to start from.
            penalty: hook for the term that is added to the mean loss of a batch.
            extras: values computed before training; each batch gets its rows.
            calibrate: hook for the logits of the loss; None uses the model's own.
            epoch_order: hook for the samples of an epoch; None uses a random permutation.

        Returns:
            The trained model with its number of steps and its mean loss.
        """


@dataclass(frozen=True, repr=False)
class ServerState:
    """State of the server between rounds, which checkpoints store.

    Attributes:
        models: global models by name; most methods have one, named "model".
        tensors: further tensors that the method keeps between rounds.
    """

    models: Mapping[str, ModelState]
    tensors: TensorState = field(default_factory=dict)

    __repr__ = short_repr


EstimateSeconds: TypeAlias = Callable[[Sequence[ClientId]], Tensor]
"""Function from n clients to the simulated seconds that each needs for a round, (n,), float64."""


def _one_second_each(clients: Sequence[ClientId]) -> Tensor:
    return torch.ones(len(clients), dtype=torch.float64)


@dataclass(frozen=True)
class ServerRound:
    """Facts about a round, as the server hooks get them.

    Attributes:
        number: number of the round, from 1.
        head: slices of a model's parameters that are the classifier layer: its weight, then its
            bias if it has one; empty without such a layer.
        num_clients: n, the number of all clients of the federation.
        generator: random generator of the round.
        true_clusters: true cluster of each client, if known; only for oracle methods.
        num_outputs: number of outputs of the classifier layer; 0 without such a layer.
        clients: available clients; empty if the server does not know them.
        estimate_seconds: simulated seconds that clients need for a round; by default 1 each.
    """

    number: int
    head: tuple[slice, ...]
    num_clients: int
    generator: torch.Generator
    true_clusters: Mapping[ClientId, int] | None = None
    num_outputs: int = 0
    clients: Sequence[ClientId] = ()
    estimate_seconds: EstimateSeconds = _one_second_each


@dataclass(frozen=True)
class ClientWeights:
    """Result of the hook ``weigh``.

    Attributes:
        weights: weight of each update, (k,), not negative, with sum 1.
        tensors: tensors that the method keeps for the next round.
        report: named arrays for the report of the run.
    """

    weights: Tensor
    tensors: TensorState
    report: TensorState = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Aggregation:
    """Result of the hook ``aggregate``.

    Attributes:
        models: aggregated models by name; a model that is left out does not change.
        tensors: tensors that the method keeps for the next round.
        weights: weight of each update in its model, (k,).
        report: named arrays for the report of the run. In an array with one entry, one row, or one
            row and one column per participant, these are in the order of the updates.
        clock: simulated time at the end of the round, if it is not the time at which the slowest
            participant finished.
    """

    models: Mapping[str, ModelState]
    tensors: TensorState
    weights: Tensor
    report: TensorState = field(default_factory=dict)
    clock: float | None = None

    __repr__ = short_repr
