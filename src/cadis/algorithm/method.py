"""Arguments and return values of the functions of a method; see :class:`BaseMethod`.

The functions get all state as arguments and return the new state. They never change their
arguments, so that a method gives the same results in the simulation engine and on Flower.
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
    """Outputs of a model for all n samples of a client, in evaluation mode.

    Attributes:
        logits: outputs of the model, (n, outputs).
        representation: inputs of the classifier layer, (n, d); empty without a classifier layer.
        labels: true labels, (n,).
        correct: True where the prediction equals the label, (n,); False where outputs are NaN.
        loss: mean loss over the samples, a scalar tensor.
    """

    logits: Tensor
    representation: Tensor
    labels: Tensor
    correct: Tensor
    loss: Tensor


@dataclass(frozen=True)
class BatchExtras:
    """Values that a client computes before training; the return value of ``prepare``.

    Attributes:
        per_sample: tensors with one row per sample, (n, ...); a batch gets the rows of its samples.
        scalars: scalar tensors that the client sends to the server with its update.
    """

    per_sample: TensorState = field(default_factory=dict)
    scalars: TensorState = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One batch of b samples in local training; the argument of ``penalty`` and ``calibrate``.

    Attributes:
        logits: outputs of the local model, (b, outputs).
        representation: inputs of the classifier layer, (b, d); empty without a classifier layer.
        labels: true labels, (b,).
        parameters: parameters w of the local model, (P,); autograd differentiates them.
        received: parameters w_t of the received model, (P,).
        tensors: tensors that the server sent besides the model, by name.
        per_sample: rows of ``BatchExtras.per_sample`` for the samples of this batch, (b, ...).
        client_state: tensors that this client keeps between rounds, by name.
        row_mask: True for samples, False for padding, (b,); None if the batch has no padding.
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
"""Function that returns the term to add to the mean loss of a batch, or None."""

Calibration: TypeAlias = Callable[[Step], Tensor]
"""Function that returns the logits from which the loss of a batch is computed."""

EpochOrder: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""Function that gets the labels of all samples, (n,), and a random generator.

It returns the indices of the samples of an epoch, in the order of training, (n,).
"""


@dataclass(frozen=True)
class LocalResult:
    """Result of local training.

    Attributes:
        model: the trained model.
        trained: parameters w_i of the trained model, (P,), on the training device.
        received: parameters w_t at the start of training, (P,), on the training device.
        steps: K, the number of optimizer steps.
        lr: eta, the learning rate of these steps.
        loss: mean loss over the batches, without penalties.
        effective_steps: number of plain SGD steps that would change the parameters as much if the
            gradient were constant: equal to ``steps`` for plain SGD, larger with momentum.
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
    """Data that a client sends to the server, and state that it keeps; returned by ``finish``.

    Attributes:
        state: tensors that the client keeps for its next round, by name; they are not sent.
        tensors: flat tensors to send besides the models, by name.
        scalars: numbers to send, by name.
        models: trained models to send, by name; leave them out in ``finish``, ``local`` adds them.
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
    """A participant during a round; the argument of ``local``.

    Attributes:
        received: message of the server.
        state: tensors that this client keeps between rounds, by name.
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
            model: initial model.
            penalty: function that returns the term to add to the mean loss of a batch.
            extras: values computed before training; a batch gets the rows of its samples.
            calibrate: function that returns the logits for the loss; by default those of the model.
            epoch_order: function that returns the samples of an epoch; by default a random
                permutation of all samples.

        Returns:
            The trained model, its number of steps and its mean loss.
        """


@dataclass(frozen=True, repr=False)
class ServerState:
    """State of the server between rounds, which checkpoints store.

    Attributes:
        models: global models by name; most methods have one, named "model".
        tensors: further tensors that the method keeps between rounds, by name.
    """

    models: Mapping[str, ModelState]
    tensors: TensorState = field(default_factory=dict)

    __repr__ = short_repr


EstimateSeconds: TypeAlias = Callable[[Sequence[ClientId]], Tensor]
"""Function that returns the simulated seconds that each of n clients needs for a round, (n,)."""


def _one_second_each(clients: Sequence[ClientId]) -> Tensor:
    return torch.ones(len(clients), dtype=torch.float64)


@dataclass(frozen=True)
class ServerRound:
    """Facts about a round, for the functions of a method on the server.

    Attributes:
        number: number of the round, from 1.
        head: slices of ``model.parameters`` with the classifier layer: its weight, then its bias if
            it has one; empty without a classifier layer.
        num_clients: n, the number of all clients of the federation.
        generator: random generator of the round.
        true_clusters: true cluster of each client, if known; only for methods that use the true
            clusters as an upper bound.
        num_outputs: number of outputs of the classifier layer; 0 without a classifier layer.
        clients: ids of the available clients; empty if the server does not know them.
        estimate_seconds: function that returns the simulated seconds that each client needs for a
            round; by default 1 second for each.
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
    """Weights of the updates, and new tensors of the server; returned by ``weigh``.

    Attributes:
        weights: weight of each update, (k,), not negative, with sum 1.
        tensors: tensors that the method keeps for the next round, by name.
        report: arrays about the round for records and figures, by name.
    """

    weights: Tensor
    tensors: TensorState
    report: TensorState = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Aggregation:
    """Aggregated models, and new tensors of the server; returned by ``aggregate``.

    Attributes:
        models: aggregated models by name; a model that is left out does not change.
        tensors: tensors that the method keeps for the next round, by name.
        weights: weight of each update in the mean of its model, (k,).
        report: arrays about the round for records and figures, by name. The rows (and columns) of
            an array with one row (and column) per participant are in the order of the updates.
        clock: simulated time at the end of the round; None if the round ends when its slowest
            participant ends.
    """

    models: Mapping[str, ModelState]
    tensors: TensorState
    weights: Tensor
    report: TensorState = field(default_factory=dict)
    clock: float | None = None

    __repr__ = short_repr
