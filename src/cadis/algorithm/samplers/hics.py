"""HiCS-FL: clients with balanced classes are chosen more often."""

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
"""Maximum number of clients to cluster; if there are more, a random subset is clustered."""


@dataclass(frozen=True)
class HiCS(BaseSampler):
    """Prefer clients with balanced classes, estimated from updates of the classifier bias.

    Let db be the last update of the classifier bias of a client. The entropy of softmax(db / T)
    estimates how balanced the classes of the client are (Eq. 7). Ward's method clusters clients;
    the distance of two clients is the angle between their db plus lambda times the difference
    between their entropies (Eq. 9). Each participant is drawn in two steps: first a cluster, with
    probability proportional to exp(gamma_t * mean entropy of the cluster), where
    gamma_t = gamma_0 * (1 - t / T') in round t; then a client of this cluster, with probability
    proportional to its number of samples (Eq. 10). Clients that never took part are chosen first.

    The parameters are T (temperature), lambda (entropy_weight), gamma_0 (preference) and T'
    (annealing).

    Departure from the paper: the best T depends on the learning rate and the number of steps (the
    paper uses 0.0025 and 0.0015 at a learning rate of 0.001), so "auto" estimates it from the
    updates. A sampler does not know the number of rounds, so T' is a parameter. If there are fewer
    new clients than participants, the other participants are drawn as in later rounds. If the
    classifier layer has no bias, the row means of its weight are used.

    Attributes:
        temperature: T in softmax(db / T), which estimates a client's class proportions from db, its
            update of the classifier bias; "auto" is half of max |db|, averaged over clients.
        entropy_weight: factor in the distance of two clients, which is angle + entropy_weight *
            (difference of their class entropies).
        preference: initial strength of the preference for clusters with balanced classes: a cluster
            is drawn with probability proportional to exp(preference * mean class entropy); with 0,
            all clusters are equally likely.
        annealing: number of rounds in which the preference decreases linearly to 0.
        num_clusters: number of clusters that clients are grouped into; "auto" is the number of
            participants.
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
        """Choose clients that never took part; draw the other participants in two steps."""
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
        """Return the logarithms of the sampling weights of clients (Eq. 10), (n,).

        The weight of a client is exp(gamma_t * mean entropy of its cluster), times its share of the
        samples of the cluster.

        Args:
            changes: last update of the bias of each client, (n, classes).
            sizes: number of samples of each client, (n,).
            server_round: facts about the round.
        """
        entropies = self.compute_entropies(changes)
        max_clusters = self.num_clusters
        if max_clusters == "auto":
            max_clusters = server_round.num_participants
        labels = _cluster_by_ward(self.compute_distances(changes, entropies), max_clusters)
        num_clusters = int(labels.max()) + 1
        num_members = torch.bincount(labels, minlength=num_clusters)
        zero = torch.zeros(num_clusters, dtype=torch.float64)
        mean_entropies = zero.index_add(0, labels, entropies) / num_members
        total_sizes = zero.index_add(0, labels, sizes.double())
        gamma = self.preference * max(0.0, 1 - server_round.number / self.annealing)
        return gamma * mean_entropies[labels] + (sizes / total_sizes[labels]).log()

    def compute_entropies(self, changes: Tensor) -> Tensor:
        """Return the entropy of softmax(db / T) for each client (Eq. 7), (n,)."""
        temperature = self.temperature
        if temperature == "auto":
            largest = changes.abs().amax(dim=1).mean()
            temperature = float(largest) / 2 or 1.0
        log_probabilities = (changes / temperature).log_softmax(dim=1)
        return -(log_probabilities.exp() * log_probabilities).sum(dim=1)

    def compute_distances(self, changes: Tensor, entropies: Tensor) -> Tensor:
        """Return the angle between updates + lambda * entropy difference (Eq. 9), (n, n)."""
        angles = compute_cosines(normalize(changes)).arccos()
        return angles + self.entropy_weight * (entropies[:, None] - entropies).abs()

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
    """Return the update of the classifier bias, (classes,).

    If the layer has no bias, return the update of the row means of its weight. A layer with one
    output counts as two classes with opposite updates.
    """
    if not feedback.head:
        raise CadisError(
            "The sampler 'hics' needs the classifier layer, but no nn.Linear layer computes the "
            "output of the model; name the layer with the option head, or choose another sampler."
        )
    layer = feedback.head[-1:]  # the bias, or the weight if there is none
    received = feedback.sent[update.client_id].models[update.message.model_name]
    change = update.model.select_parameters(layer).double()
    change = change - received.select_parameters(layer).double()
    if len(feedback.head) == 1:
        change = change.view(feedback.num_outputs, -1).mean(dim=1)
    return torch.cat([-change, change]) if len(change) == 1 else change


def _cluster_by_ward(distances: Tensor, max_clusters: int) -> Tensor:
    """Return the cluster labels, from 0, that Ward's method finds for distances (n, n), (n,)."""
    from scipy.cluster.hierarchy import fcluster, linkage  # noqa: PLC0415

    if len(distances) == 1:
        return torch.zeros(1, dtype=torch.int64)
    rows, columns = torch.triu_indices(len(distances), len(distances), offset=1)
    tree = linkage(distances[rows, columns].numpy(), "ward")
    return torch.from_numpy(fcluster(tree, max_clusters, "maxclust")).long() - 1
