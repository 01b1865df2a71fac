"""HiCS-FL (Chen and Vikalo, 2024): clients whose classes are balanced take part more often."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.samplers.base import BaseSampler, SampledRound, SamplerRound, client_rows, draw
from cadis.algorithm.vectors import cosines, unit
from cadis.errors import CadisError
from cadis.types import ClientId, ClientUpdate, TensorState, ids_to_tensor

_LOOKED_AT = 1000
"""Clients that are clustered in a round, at the most; of more, so many are drawn first."""


@dataclass(frozen=True)
class HiCS(BaseSampler):
    """Prefers clients whose classes are balanced, as updates of the classifier's bias tell.

    A client's estimated entropy is that of softmax(db / T), where db is its last update of the bias
    (Eq. 7). Clients are clustered by the angle between their updates plus lambda times the
    difference of their entropies (Eq. 9), by Ward's method. Each seat goes to a cluster with a
    probability in proportion to exp(gamma_t * its mean entropy), gamma_t = gamma * (1 - t / T'),
    and in it to a client in proportion to its size (Eq. 10). Clients never seen come first.

    Departure: T must fit the learning rate and the number of steps (the paper has 0.0025 and
    0.0015, at a learning rate of 0.001), so that "auto" reads it off the updates. A sampler does
    not know how many rounds there will be: T' is a parameter. Where fewer are new than there are
    seats, the rest is drawn as ever instead of being left empty. A layer without a bias is looked
    at by the means of its weight's rows.

    Attributes:
        temperature: T, of the softmax; "auto" is half of the largest number of an update, on the
            average over clients.
        entropy_weight: lambda, how much a difference of entropies counts in distances.
        preference: gamma_0, how much balanced clusters are preferred at first.
        annealing: T', the round from which on all clusters are as likely.
        num_clusters: M; "auto" are as many as take part.
    """

    name: ClassVar[str] = "hics"
    needs_head: ClassVar[bool] = True
    about: ClassVar[About] = About(
        kind="who takes part",
        paper="Chen and Vikalo, 2024",
        server_memory="a number a class and a size, a client",
    )
    temperature: Annotated[float, Gt(0)] | Literal["auto"] = "auto"
    entropy_weight: Annotated[float, Ge(0)] = 10.0
    preference: Annotated[float, Ge(0)] = 4.0
    annealing: Annotated[int, Gt(0)] = 100
    num_clusters: Annotated[int, Gt(0)] | Literal["auto"] = "auto"

    def choose(self, server_round: SamplerRound, memory: TensorState) -> Sequence[ClientId]:
        """Those never seen first; the other seats are drawn in two stages."""
        clients, generator = server_round.available, server_round.generator
        row_of = {client: row for row, client in enumerate(client_rows(memory, "sizes"))}
        rows = torch.tensor([row_of.get(client, -1) for client in clients])
        order = torch.randperm(len(clients), generator=generator)
        chosen = order[rows[order] < 0][: server_round.wanted]
        if seats := server_round.wanted - len(chosen):
            seen = order[rows[order] >= 0][: max(_LOOKED_AT, seats)]
            known = memory["changes"][rows[seen]], memory["sizes"][rows[seen]]
            drawn = draw(self.log_weights(*known, server_round), seats, generator)
            chosen = torch.cat([chosen, seen[drawn]])
        return server_round.clients_at(chosen)

    def log_weights(self, changes: Tensor, sizes: Tensor, server_round: SamplerRound) -> Tensor:
        """Logarithms of pi_m * p_k, by which each seat is drawn (Eq. 10), (n,).

        They are of the clients' last updates of the bias, (n, classes), and their sizes, (n,).
        """
        entropy = self.entropies(changes)
        number = server_round.wanted if self.num_clusters == "auto" else self.num_clusters
        labels = _ward(self.distances(changes, entropy), number)
        groups = int(labels.max()) + 1
        members = torch.bincount(labels, minlength=groups)
        zero = torch.zeros(groups, dtype=torch.float64)
        mean = zero.index_add(0, labels, entropy) / members
        total = zero.index_add(0, labels, sizes.double())
        gamma = self.preference * max(0.0, 1 - server_round.number / self.annealing)
        return gamma * mean[labels] + (sizes / total[labels]).log()

    def entropies(self, changes: Tensor) -> Tensor:
        """H(softmax(db / T)) of each client (Eq. 7), (n,)."""
        temperature = self.temperature
        if temperature == "auto":
            largest = changes.abs().amax(dim=1).mean()
            temperature = float(largest) / 2 or 1.0
        log_shares = (changes / temperature).log_softmax(dim=1)
        return -(log_shares.exp() * log_shares).sum(dim=1)

    def distances(self, changes: Tensor, entropy: Tensor) -> Tensor:
        """The arccos of the updates' cosine + lambda * |H_u - H_k| (Eq. 9), (n, n)."""
        angles = cosines(unit(changes)).arccos()
        return angles + self.entropy_weight * (entropy[:, None] - entropy).abs()

    def learn(self, sampled: SampledRound, memory: TensorState) -> TensorState:
        """Remember the last update of the bias, and the size, of everybody who took part."""
        known = client_rows(memory, "changes", "sizes")
        for update in sampled.updates:
            known[update.client_id] = _change(sampled, update), update.num_examples
        changes, sizes = zip(*known.values(), strict=True)
        return {
            "clients": ids_to_tensor(list(known)),
            "changes": torch.stack(changes),
            "sizes": torch.tensor(sizes),
        }


def _change(sampled: SampledRound, update: ClientUpdate) -> Tensor:
    """A client's update of the classifier's bias; of a layer without, of its rows' means.

    (classes,); one output tells two classes apart.
    """
    if not sampled.head:
        raise CadisError(
            "The sampler 'hics' looks at the classifier layer, and none of the model's arrays is "
            "that of a linear one; name it as head, or choose another sampler."
        )
    place = sampled.head[-1:]  # the bias, or the weight if there is none
    before = sampled.sent[update.client_id].models[update.message.model_name]
    change = update.model.parameters_at(place).double() - before.parameters_at(place).double()
    if len(sampled.head) == 1:
        change = change.view(sampled.num_outputs, -1).mean(dim=1)
    return torch.cat([-change, change]) if len(change) == 1 else change


def _ward(distances: Tensor, number: int) -> Tensor:
    """At most so many clusters, by Ward's method; labels are numbered from 0, (n,)."""
    from scipy.cluster.hierarchy import fcluster, linkage  # noqa: PLC0415

    if len(distances) == 1:
        return torch.zeros(1, dtype=torch.int64)
    rows, columns = torch.triu_indices(len(distances), len(distances), offset=1)
    tree = linkage(distances[rows, columns].numpy(), "ward")
    return torch.from_numpy(fcluster(tree, number, "maxclust")).long() - 1
