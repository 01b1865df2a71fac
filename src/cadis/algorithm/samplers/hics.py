"""HiCS-FL: clients with balanced classes take part more often."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.samplers.base import (
    BaseSampler,
    SamplerFeedback,
    SamplerRound,
    draw_without_replacement,
    read_client_rows,
)
from cadis.algorithm.vectors import compute_cosines, normalize
from cadis.errors import CadisError
from cadis.types import ClientId, ClientUpdate, TensorState, ids_to_tensor

_MAX_CLUSTERED = 1000
"""Maximum number of clients that are clustered in a round; of more, this many are drawn."""


@dataclass(frozen=True)
class HiCS(BaseSampler):
    """Prefer clients with balanced classes, estimated from updates of the classifier bias.

    The estimated label entropy of a client is that of softmax(db / T), where db is its last update
    of the bias (Eq. 7). Ward's method clusters clients by the angle between their updates plus
    lambda times the difference of their entropies (Eq. 9). Each participant is drawn in two steps:
    a cluster with probability proportional to exp(gamma_t * its mean entropy), where
    gamma_t = gamma_0 * (1 - t / T'), and a client of it with probability proportional to its number
    of samples (Eq. 10). Clients that never took part are chosen first.

    Departure: T depends on the learning rate and the number of steps (the paper uses 0.0025 and
    0.0015 at a learning rate of 0.001), so "auto" estimates it from the updates. A sampler does not
    know the number of rounds, so T' is a parameter. If there are fewer new clients than
    participants, the others are drawn as in later rounds. If the layer has no bias, the row means
    of its weight are used.

    Attributes:
        temperature: temperature T of the softmax; "auto" is half of the largest absolute entry of
            an update, averaged over clients.
        entropy_weight: lambda, weight of the difference of entropies in the distance.
        preference: gamma_0, preference for balanced clusters in the first round.
        annealing: T', number of the round after which all clusters are equally likely.
        num_clusters: M, the number of clusters; "auto" is the number of participants.
    """

    name: ClassVar[str] = "hics"
    needs_head: ClassVar[bool] = True
    about: ClassVar[About] = About(
        topic="client selection",
        paper=Paper(
            title="Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID "
            "Federated Learning",
            authors="Huancheng Chen, Haris Vikalo",
            venue="NeurIPS",
            year=2024,
            link="https://arxiv.org/abs/2310.00198",
        ),
        server_state="one number per class and client",
    )
    temperature: Annotated[float, Gt(0)] | Literal["auto"] = "auto"
    entropy_weight: Annotated[float, Ge(0)] = 10.0
    preference: Annotated[float, Ge(0)] = 4.0
    annealing: Annotated[int, Gt(0)] = 100
    num_clusters: Annotated[int, Gt(0)] | Literal["auto"] = "auto"

    def choose(self, server_round: SamplerRound, state: TensorState) -> Sequence[ClientId]:
        """Choose clients that never took part first; draw the others in two steps."""
        clients, generator = server_round.available, server_round.generator
        row_by_client = {client: row for row, client in enumerate(read_client_rows(state, "sizes"))}
        rows = torch.tensor([row_by_client.get(client, -1) for client in clients])
        order = torch.randperm(len(clients), generator=generator)
        chosen = order[rows[order] < 0][: server_round.num_participants]
        if missing := server_round.num_participants - len(chosen):
            known = order[rows[order] >= 0][: max(_MAX_CLUSTERED, missing)]
            changes, sizes = state["changes"][rows[known]], state["sizes"][rows[known]]
            log_weights = self.compute_log_weights(changes, sizes, server_round)
            drawn = draw_without_replacement(log_weights, missing, generator)
            chosen = torch.cat([chosen, known[drawn]])
        return server_round.select_clients(chosen)

    def compute_log_weights(
        self, changes: Tensor, sizes: Tensor, server_round: SamplerRound
    ) -> Tensor:
        """Return the logarithms of the sampling weights pi_m * p_k (Eq. 10), (n,).

        Args:
            changes: last update of the bias of each client, (n, classes).
            sizes: number of samples of each client, (n,).
            server_round: number of the round and of its participants.
        """
        entropy = self.compute_entropies(changes)
        number = server_round.num_participants if self.num_clusters == "auto" else self.num_clusters
        labels = _cluster_by_ward(self.compute_distances(changes, entropy), number)
        num_clusters = int(labels.max()) + 1
        members = torch.bincount(labels, minlength=num_clusters)
        zero = torch.zeros(num_clusters, dtype=torch.float64)
        mean = zero.index_add(0, labels, entropy) / members
        total = zero.index_add(0, labels, sizes.double())
        gamma = self.preference * max(0.0, 1 - server_round.number / self.annealing)
        return gamma * mean[labels] + (sizes / total[labels]).log()

    def compute_entropies(self, changes: Tensor) -> Tensor:
        """Return H(softmax(db / T)) of each client (Eq. 7), (n,)."""
        temperature = self.temperature
        if temperature == "auto":
            largest = changes.abs().amax(dim=1).mean()
            temperature = float(largest) / 2 or 1.0
        log_probabilities = (changes / temperature).log_softmax(dim=1)
        return -(log_probabilities.exp() * log_probabilities).sum(dim=1)

    def compute_distances(self, changes: Tensor, entropy: Tensor) -> Tensor:
        """Return the angle between updates + lambda * |H_u - H_k| (Eq. 9), (n, n)."""
        angles = compute_cosines(normalize(changes)).arccos()
        return angles + self.entropy_weight * (entropy[:, None] - entropy).abs()

    def learn(self, feedback: SamplerFeedback, state: TensorState) -> TensorState:
        """Store the last update of the bias and the number of samples of the participants."""
        rows = read_client_rows(state, "changes", "sizes")
        for update in feedback.updates:
            rows[update.client_id] = _compute_change(feedback, update), update.num_samples
        changes, sizes = zip(*rows.values(), strict=True)
        return {
            "clients": ids_to_tensor(list(rows)),
            "changes": torch.stack(changes),
            "sizes": torch.tensor(sizes),
        }


def _compute_change(feedback: SamplerFeedback, update: ClientUpdate) -> Tensor:
    """Return the update of the bias, or of the weight's row means without a bias, (classes,).

    A layer with one output stands for two classes with opposite updates.
    """
    if not feedback.head:
        raise CadisError(
            "The sampler 'hics' needs the classifier layer, but the model has no linear layer as "
            "its output; name the layer as head, or choose another sampler."
        )
    layer = feedback.head[-1:]  # the bias, or the weight if there is none
    received = feedback.sent[update.client_id].models[update.message.model_name]
    change = update.model.select_parameters(layer).double()
    change = change - received.select_parameters(layer).double()
    if len(feedback.head) == 1:
        change = change.view(feedback.num_outputs, -1).mean(dim=1)
    return torch.cat([-change, change]) if len(change) == 1 else change


def _cluster_by_ward(distances: Tensor, number: int) -> Tensor:
    """Return labels of at most a number of clusters by Ward's method, from 0, (n,)."""
    from scipy.cluster.hierarchy import fcluster, linkage  # noqa: PLC0415

    if len(distances) == 1:
        return torch.zeros(1, dtype=torch.int64)
    rows, columns = torch.triu_indices(len(distances), len(distances), offset=1)
    tree = linkage(distances[rows, columns].numpy(), "ward")
    return torch.from_numpy(fcluster(tree, number, "maxclust")).long() - 1
