"""What a federated method is: a client half and a server half, written once.

A method is a frozen dataclass of its hyper-parameters. State goes in and comes out; inputs are
never changed. A method opens no file, logs nothing, names no device, reads no global, and its
client half never branches on a tensor's value, so that it runs the same in the embedded engine
and elsewhere, one client at a time or several stacked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

import torch
from torch import Tensor

from cadis.core import ClientId, ModelState

TensorState: TypeAlias = Mapping[str, Tensor]
"""A method's memory, as named tensors that a checkpoint stores as they are. Empty at first."""


@dataclass(frozen=True)
class LocalView:
    """What the received global model makes of a client's own data, before training.

    Attributes:
        logits: its outputs in evaluation mode, (n, classes).
        representation: the inputs of its classifier layer, R(x), (n, d).
        labels: the truth, (n,).
    """

    logits: Tensor
    representation: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Prepared:
    """What a client works out before training.

    Attributes:
        per_example: tensors with a row for each example; every batch gets its own rows.
        metrics: scalars that are sent to the server with the update.
    """

    per_example: TensorState = field(default_factory=dict)
    metrics: TensorState = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One batch of local training as a method sees it.

    Attributes:
        logits: outputs of the local model, (b, classes).
        representation: inputs of its classifier layer, (b, d).
        labels: the truth, (b,).
        parameters: the local model w, differentiable, (P,).
        received: the global model w_t, (P,).
        per_example: this batch's rows of what was prepared.
        client_state: the client's memory.
    """

    logits: Tensor
    representation: Tensor
    labels: Tensor
    parameters: Tensor
    received: Tensor
    per_example: TensorState
    client_state: TensorState


@dataclass(frozen=True)
class ClientUpdate:
    """What a client sends back. Its own memory stays with it."""

    client_id: ClientId
    num_examples: int
    state: ModelState
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerRound:
    """What the server knows when the updates of a round are in.

    Attributes:
        number: the round, from 1.
        sent: the global model that was sent out.
        head: where the classifier layer lies in ``sent.parameters``.
        num_clients: n, all clients of the federation.
        generator: the round's source of randomness.
        true_clusters: who really belongs together, where that is known; for oracles only.
    """

    number: int
    sent: ModelState
    head: tuple[slice, ...]
    num_clients: int
    generator: torch.Generator
    true_clusters: Mapping[ClientId, int] | None = None


@dataclass(frozen=True)
class Aggregation:
    """The new global model, the method's new memory, and why it came out so.

    Attributes:
        state: the new global model.
        method_state: the server's memory for the next round.
        weights: what each update weighed, sum 1, (k,).
        clusters: a label per participant, for methods that look for clusters, (k,).
        similarity: the participants' instance similarities, for the same, (k, k).
        threshold: the threshold that was applied, for the same.
    """

    state: ModelState
    method_state: TensorState
    weights: Tensor
    clusters: Tensor | None = None
    similarity: Tensor | None = None
    threshold: float | None = None


class Method(Protocol):
    """The two halves. ``cadis.methods.Defaults`` has both as plain averaging has them.

    Attributes:
        name: as users type it.
        pools_clients: whether one client is to hold everybody's data (centralised training).
        compares_heads: whether the server looks at the updates of the classifier layer.
        needs_metrics: names of the scalars that every update must come with.
    """

    name: ClassVar[str]
    pools_clients: ClassVar[bool]
    compares_heads: ClassVar[bool]
    needs_metrics: ClassVar[tuple[str, ...]]

    @property
    def needs_view(self) -> bool:
        """Whether :meth:`prepare` wants a :class:`LocalView`; it costs a pass over the data."""

    def prepare(self, view: LocalView) -> Prepared:
        """Client: look at the received model and the own data before training."""

    def penalty(self, step: Step) -> Tensor | None:
        """Client: the term added to the mean cross-entropy of a batch, or None."""

    def finish(self, trained: Tensor, received: Tensor, client_state: TensorState) -> TensorState:
        """Client: its new memory, given w_i and w_t as flat parameters, (P,) each."""

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: TensorState
    ) -> Aggregation:
        """Server: the new global model from one or more finite updates."""
