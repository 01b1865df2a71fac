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
    ObservedPairs,
    SimilarityMatrix,
    TensorState,
    cluster,
    cluster_weights,
    distillation_gradient,
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

    Departure: among the participants of a round nothing is estimated, since they have all just
    met; the Q-matrix is then rescaled by the smallest similarity that was ever observed. While
    every observation is positive, an estimate of two absent clients may be smaller, and is not
    asked: with it, clusters of a round would depend on guesses, or in mode "sample" on draws, about
    clients who are not there. docs/paper.md has how little that changes.

    Attributes:
        threshold: epsilon: how alike, in the Q-matrix, neighbours must be.
        threshold_growth: by which part of itself the threshold grows a round.
        threshold_max: where it stops growing.
        distillation: lambda, strength of the distillation from the global model; 0 is none.
        bandwidth: width h of the kernel, "mean" for the batch's own mean distance.
        transitive: how pairs that never met are estimated, where there are any (see scope): the
            expectation, a draw, or not.
        gamma: the largest deviation of a transitive estimate that is admitted.
        scope: where clusters are looked for: among the participants of a round, as in the
            paper, who have all just met, or among all clients of the federation seen so far.
        clusters: what the weights are made from: the clusters found; or, for ablations, the true
            ones (an oracle), or none, everybody being alone.
    """

    name: ClassVar[str] = "cadis"
    compares_heads: ClassVar[bool] = True
    slopes_known: ClassVar[bool] = True
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
        student, teacher = step.representation, step.per_example["teacher"]
        return (
            self.distillation
            / len(step.labels)
            * distillation_loss(student, teacher, self.bandwidth)
        )

    def penalty_slopes(self, step: Step) -> Tensor | None:
        """The gradient of the same by the representations, of several clients at once."""
        if not self.needs_view:
            return None
        student, teacher = step.representation, step.per_example["teacher"]
        slopes = distillation_gradient(student, teacher, self.bandwidth, step.present)
        if step.present is None:
            return slopes.mul_(self.distillation / step.labels.shape[-1])
        return slopes * (self.distillation / step.present.sum(dim=-1))[..., None, None]

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """Similarities, clusters, weights: Sections III-A to III-C."""
        ids = [update.client_id for update in updates]
        similarity = instance_similarity(signatures(server_round, updates, state))
        threshold = threshold_at(
            server_round.number - 1, self.threshold, self.threshold_growth, self.threshold_max
        )
        compare = _compared_in_round if self.scope == "round" else self._compared_with_all
        compared = compare(ids, similarity, state.memory, server_round.generator)
        labels = self._labels(server_round, compared, threshold)
        clusters = labels[compared.present]
        cardinality = torch.bincount(labels)[clusters]
        weights = cluster_weights([u.num_examples for u in updates], clusters, cardinality)
        report = {
            "clusters": clusters,
            "similarity": similarity,
            "threshold": torch.tensor(threshold, dtype=torch.float64),
        }
        if self.transitive != "off":
            report["gamma"] = torch.tensor(self.gamma, dtype=torch.float64)
        return Weighing(weights, compared.memory, report)

    def _compared_with_all(
        self,
        ids: Sequence[ClientId],
        similarity: Tensor,
        memory: TensorState,
        generator: torch.Generator,
    ) -> "_Compared":
        """All clients ever seen; pairs that never met are estimated."""
        matrix = SimilarityMatrix.from_tensors(memory).observe(ids, similarity)
        matrix = matrix.estimate_missing(self.gamma, self.transitive, generator)
        q, present = rescale(matrix.mean, matrix.known), matrix.index_of(ids)
        return _Compared(matrix.client_ids, present, q, matrix.to_tensors())

    def _labels(self, server_round: ServerRound, compared: "_Compared", threshold: float) -> Tensor:
        """The cluster of each of the clients that clusters are looked for among, (n,)."""
        if self.clusters == "found":
            return cluster(compared.q, threshold)
        if self.clusters == "true":
            return _true_labels(server_round.true_clusters, compared.clients)
        return torch.arange(len(compared.clients))


@dataclass(frozen=True)
class _Compared:
    """Clients among whom clusters are looked for.

    Attributes:
        clients: who they are.
        present: places of the participants among them, (k,).
        q: their Q-matrix, (n, n).
        memory: what is remembered of all that were ever compared.
    """

    clients: Sequence[ClientId]
    present: Tensor
    q: Tensor
    memory: TensorState


def _compared_in_round(
    ids: Sequence[ClientId],
    similarity: Tensor,
    memory: TensorState,
    _generator: torch.Generator,
) -> _Compared:
    """The participants alone: all of them have just met, so there is nothing to estimate."""
    pairs, together = ObservedPairs.from_tensors(memory).observe(ids, similarity)
    q = rescale(together, torch.ones_like(together, dtype=torch.bool), pairs.lowest())
    return _Compared(ids, torch.arange(len(ids)), q, pairs.to_tensors())


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
    head = server_round.head
    sent = {name: model.parameters_at(head) for name, model in state.models.items()}
    changes = torch.stack([update.model.parameters_at(head) for update in updates])
    for row, update in zip(changes, updates, strict=True):  # in place: no second large matrix
        row.sub_(sent[update.message.model_name])
    return changes.to(torch.promote_types(changes.dtype, torch.float32))  # norms overflow in half
