"""CADIS: clustered aggregation and knowledge-distilled regularisation (CCGRID 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from cadis.core import (
    CadisError,
    ClientId,
    ClientUpdate,
    SimilarityMatrix,
    cluster,
    cluster_weights,
    distillation_loss,
    instance_similarity,
    rescale,
    threshold_at,
)
from cadis.core.similarity import TransitiveMode
from cadis.methods.defaults import Defaults
from cadis.methods.protocol import (
    LocalView,
    Prepared,
    ServerRound,
    ServerState,
    Step,
    Weighing,
)


@dataclass(frozen=True)
class CADIS(Defaults):
    """Finds clusters of alike clients from their head updates and gives each an equal voice.

    Departure: the paper starts epsilon at 0.9 or more and raises it after every round. With
    cosines of updates, as its text defines them, clients of one cluster drift apart as the model
    converges, and a rising threshold ends by splitting true clusters. So the default is a
    constant; docs/paper.md has the measurements behind it, and behind gamma.

    Attributes:
        threshold: epsilon: how alike, in the Q-matrix, neighbours must be.
        threshold_growth: by which part of itself the threshold grows a round.
        threshold_max: where it stops growing.
        distillation: lambda, strength of the distillation from the global model; 0 is none.
        bandwidth: width h of the kernel, "mean" for the batch's own mean distance.
        transitive: how pairs that never met are estimated: the expectation, a draw, or not.
        gamma: the largest deviation of a transitive estimate that is admitted.
        scope: where clusters are looked for: among the participants of a round, as in the
            paper, or among all clients of the federation seen so far.
        clusters: what the weights are made from: the clusters found; or, for ablations, the true
            ones (an oracle), or none, everybody being alone.
    """

    name: ClassVar[str] = "cadis"
    compares_heads: ClassVar[bool] = True
    threshold: Annotated[float, Ge(0), Le(1)] = 0.7
    threshold_growth: Annotated[float, Ge(0)] = 0.0
    threshold_max: Annotated[float, Ge(0), Le(1)] = 0.985
    distillation: Annotated[float, Ge(0)] = 1.0
    bandwidth: Annotated[float, Ge(1e-6), Le(1e6)] | Literal["mean"] = "mean"
    transitive: TransitiveMode = "mean"
    gamma: Annotated[float, Gt(0)] = 0.2
    scope: Literal["round", "federation"] = "round"
    clusters: Literal["found", "true", "none"] = "found"

    def __post_init__(self) -> None:
        if self.threshold > self.threshold_max:
            raise CadisError(
                f"The threshold {self.threshold} is above its maximum {self.threshold_max}; "
                "raise threshold_max too."
            )

    @property
    def needs_view(self) -> bool:
        """For the teacher's representations, if there is anything to distil."""
        return self.distillation > 0

    def prepare(self, view: LocalView) -> Prepared:
        """The teacher's representations: the same in every epoch, so computed once."""
        return Prepared(per_example={"teacher": view.representation})

    def penalty(self, step: Step) -> Tensor | None:
        """Distillation: lambda * L_KD / b, as the final loss divides both its sums by n_i."""
        if not self.needs_view:
            return None
        loss = distillation_loss(step.representation, step.per_example["teacher"], self.bandwidth)
        return self.distillation / len(step.labels) * loss

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """Similarities, clusters, weights: Sections III-A to III-C."""
        ids = [update.client_id for update in updates]
        similarity = instance_similarity(signatures(server_round, updates, state))
        matrix = SimilarityMatrix.from_tensors(state.memory).observe(ids, similarity)
        matrix = matrix.estimate_missing(self.gamma, self.transitive, server_round.generator)
        threshold = threshold_at(
            server_round.number - 1, self.threshold, self.threshold_growth, self.threshold_max
        )
        clusters, cardinality = self._clusters(server_round, matrix, ids, threshold)
        weights = cluster_weights([u.num_examples for u in updates], clusters, cardinality)
        report = {
            "clusters": clusters,
            "similarity": similarity,
            "threshold": torch.tensor(threshold, dtype=torch.float64),
        }
        if self.transitive != "off":
            report["gamma"] = torch.tensor(self.gamma, dtype=torch.float64)
        return Weighing(weights, matrix.to_tensors(), report)

    def _clusters(
        self,
        server_round: ServerRound,
        matrix: SimilarityMatrix,
        ids: Sequence[ClientId],
        threshold: float,
    ) -> tuple[Tensor, Tensor]:
        """The participants' labels and the sizes of their clusters, (k,) each."""
        among = ids if self.scope == "round" else matrix.client_ids
        rows = matrix.index_of(among)
        if self.clusters == "found":
            q = rescale(matrix.mean, matrix.known)
            labels = cluster(q[rows[:, None], rows], threshold)
        elif self.clusters == "true":
            labels = _true_labels(server_round.true_clusters, among)
        else:
            labels = torch.arange(len(among))
        present = torch.arange(len(ids)) if self.scope == "round" else matrix.index_of(ids)
        return labels[present], torch.bincount(labels)[labels[present]]


def _true_labels(truth: Mapping[ClientId, int] | None, clients: Sequence[ClientId]) -> Tensor:
    """Who really belongs together, numbered from 0, (n,)."""
    if truth is None:
        raise CadisError(
            "The true clusters of this federation are not known; leave clusters = true out."
        )
    labels: Tensor = torch.tensor([truth[client] for client in clients]).unique(
        return_inverse=True
    )[1]
    return labels


def signatures(
    server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
) -> Tensor:
    """The clients' updates of the classifier layer, W_i - W_g, flat, (k, d)."""
    stacked = torch.stack([_signature(server_round, update, state) for update in updates])
    return stacked.to(torch.promote_types(stacked.dtype, torch.float32))  # norms overflow in half


def _signature(server_round: ServerRound, update: ClientUpdate, state: ServerState) -> Tensor:
    """One client's update of the classifier layer of the model that it trained, (d,)."""
    sent = state.models[update.message.model_name]
    return update.model.parameters_at(server_round.head) - sent.parameters_at(server_round.head)
