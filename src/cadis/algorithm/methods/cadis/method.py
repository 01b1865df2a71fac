"""CADIS: clustered aggregation and knowledge-distilled regularization.

Problem: a large cluster of clients with similar data dominates the mean of FedAvg, and the classes
of small clusters are learned slowly.

Nang Hung Nguyen, Duc Long Nguyen, Trong Bang Nguyen, Thanh-Hung Nguyen, Huy Hieu Pham, Truong Thao
Nguyen, Phi Le Nguyen: CADIS: Handling Cluster-skewed Non-IID Data in Federated Learning with
Clustered Aggregation and Knowledge DIStilled Regularization. CCGrid 2023.
https://arxiv.org/abs/2302.10413
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cadis.algorithm.about import About, Paper
from cadis.algorithm.aggregation import compute_sample_weights
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import (
    Aggregation,
    BatchExtras,
    ClientWeights,
    ModelOutputs,
    ServerRound,
    ServerState,
    Step,
)
from cadis.algorithm.methods.cadis.cluster_participants import (
    LabelClients,
    PairClustering,
    ParticipantClusters,
    assign_by_profiles,
    cluster_by_profiles,
    compute_profiles,
    compute_signatures,
    get_true_labels,
    read_profiles,
)
from cadis.algorithm.methods.cadis.clustering import compute_cluster_weights, compute_threshold
from cadis.algorithm.methods.cadis.distillation import distillation_loss, not_true_loss
from cadis.algorithm.methods.cadis.similarity import TransitiveMode
from cadis.algorithm.methods.cadis.soft_weights import compute_soft_weights
from cadis.algorithm.vectors import compute_kernel
from cadis.algorithm.methods.cadis.stale_clusters import add_absent_clusters
from cadis.errors import CadisError
from cadis.types import ClientId, ClientUpdate

CADIS_PAPER = Paper(
    title="CADIS: Handling Cluster-skewed Non-IID Data in Federated Learning with Clustered "
    "Aggregation and Knowledge DIStilled Regularization",
    authors="Nang Hung Nguyen, Duc Long Nguyen, Trong Bang Nguyen, Thanh-Hung Nguyen, "
    "Huy Hieu Pham, Truong Thao Nguyen, Phi Le Nguyen",
    venue="CCGrid",
    year=2023,
    link="https://arxiv.org/abs/2302.10413",
)


@dataclass(frozen=True)
class CADIS(BaseMethod):
    """Aggregation with the same total weight for every cluster of similar clients.

    The server clusters clients by their updates of the classifier layer. The weight of client i is
    ``alpha_i = (1 / M_i) * (n_i / N)``, normalized (Eq. 1 and 2 of the paper), with M_i clients in
    its cluster and n_i of all N samples. Clients add ``lambda * L_KD / b`` to the cross-entropy, a
    distillation from the received global model (Eq. 19 and 20).

    Use it if clients form clusters of unequal size and one global model has to serve all classes.
    Without clusters it finds one cluster, and the weights are those of FedAvg.

    Departure: by default, clients are compared by class profiles instead of the whole layer
    (``signature``); the cut is found without a threshold (``threshold``); the distillation is weak;
    participants are drawn evenly from the clusters, and the server uses momentum
    (``default_parts``). ``CADISPaper`` has the parameters of the paper.

    Attributes:
        signature: compare clients by "profile", one number per class, or by the "head" (paper).
        threshold: epsilon, smallest entry of the Q-matrix within a cluster; "auto" finds a cut.
        threshold_growth: relative growth of a numeric threshold per round.
        threshold_max: largest value of a growing threshold.
        distillation: lambda, strength of the distillation from the global model; 0 disables it.
        distil: distill the "geometry" of a batch (paper), or "not-true" class predictions (FedNTD).
        bandwidth: h of the Gaussian kernel of "geometry"; "mean" uses the mean distance of a batch.
        transitive: estimate for pairs never observed together: its "mean", a "sample", or "off".
        gamma: largest deviation of a transitive estimate.
        scope: with signature "head", cluster participants of the "round" or of the "federation".
        absent: decay per round of the last update of a cluster without participants; 0 drops it.
        clusters: clusters "found", or for ablations the "true" ones or "none" (single clients).
        weights: equal weight per "clusters", or n_i / N as in FedAvg, by "samples".
    """

    name: ClassVar[str] = "cadis"
    needs_head: ClassVar[bool] = True
    default_parts: ClassVar[Mapping[str, str]] = {
        "sampler": "clusters",
        "server_optimizer": "momentum",
    }
    about: ClassVar[About] = About(
        topic="clustered aggregation",
        paper=CADIS_PAPER,
        server_state="one number per class and client; a velocity",
    )
    signature: Literal["profile", "head"] = "profile"
    threshold: Annotated[float, Ge(0), Le(1)] | Literal["auto"] = "auto"
    threshold_growth: Annotated[float, Ge(0)] = 0.0
    threshold_max: Annotated[float, Ge(0), Le(1)] = 0.985
    distillation: Annotated[float, Ge(0)] = 0.1
    distil: Literal["geometry", "not-true"] = "geometry"
    bandwidth: Annotated[float, Ge(1e-6), Le(1e6)] | Literal["mean"] = "mean"
    transitive: TransitiveMode = "mean"
    gamma: Annotated[float, Gt(0)] = 0.2
    scope: Literal["round", "federation"] = "round"
    absent: Annotated[float, Ge(0), Lt(1)] = 0.0
    clusters: Literal["found", "true", "none"] = "found"
    weights: Literal["soft", "clusters", "samples"] = "clusters"

    def __post_init__(self) -> None:
        if self.threshold != "auto" and self.threshold > self.threshold_max:
            raise CadisError(
                f"The threshold {self.threshold} is above its maximum {self.threshold_max}; "
                "raise threshold_max too."
            )
        if self.absent and (self.signature != "profile" or self.clusters != "found"):
            raise CadisError(
                "The parameter absent needs profiles to identify a cluster in later rounds; set "
                "signature = profile and clusters = found, or leave absent out."
            )

    @property
    def needs_model_outputs(self) -> bool:
        """True with distillation: the received model is the teacher."""
        return self.distillation > 0

    @property
    def finds_clusters(self) -> bool:
        """True if clusters of all clients are known, not only of the participants of a round."""
        return self.signature == "profile" or self.scope == "federation"

    @property
    def has_profiles(self) -> bool:
        """True if the server keeps a class profile of each client."""
        return self.signature == "profile"

    def client_profiles(self, state: ServerState, clients: Sequence[ClientId]) -> Tensor:
        """Return the mean class profile of each client, zeros for a client never seen, (n, d)."""
        return read_profiles(clients, state.tensors)

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Keep the teacher's representations or logits, which are the same in every epoch."""
        teacher = outputs.representation if self.distil == "geometry" else outputs.logits
        return BatchExtras(per_sample={"teacher": teacher})

    def penalty(self, step: Step) -> Tensor | None:
        """Return the distillation term lambda * L_KD / b of the final loss (Eq. 20).

        Eq. 20 divides the sums of the cross-entropy and of L_KD by n_i. So a batch of b samples
        adds lambda * L_KD / b to its mean cross-entropy.
        """
        if not self.needs_model_outputs:
            return None
        teacher = step.per_sample["teacher"]
        if self.distil == "geometry":
            loss = distillation_loss(step.representation, teacher, self.bandwidth)
        else:
            loss = not_true_loss(step.logits, teacher, step.labels)
        return self.distillation / len(step.labels) * loss

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """Return the cluster of each client as known before a round, -1 if unknown, (n,)."""
        if self.clusters == "true":
            return get_true_labels(server_round.true_clusters, clients)
        if self.signature == "profile":
            labels = assign_by_profiles(clients, state.tensors)
        else:
            labels = self._make_pair_clustering(server_round).assign_clients(clients, state.tensors)
        return labels if self.clusters == "found" else labels.clamp(max=0)

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ClientWeights:
        """Cluster the participants and compute their weights (Eq. 1; Sections III-A to III-C)."""
        clusters = self._cluster_participants(server_round, updates, state)
        counts = [update.num_samples for update in updates]
        if self.weights == "samples":
            weights = compute_sample_weights(counts)
        elif self.weights == "soft":
            similarity = read_profiles([u.client_id for u in updates], clusters.tensors)
            weights = compute_soft_weights(counts, compute_kernel(similarity))
        else:
            weights = compute_cluster_weights(counts, clusters.labels, clusters.sizes)
        return ClientWeights(weights, clusters.tensors, clusters.report)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Return the weighted mean of the models (Eq. 2), plus the updates of absent clusters."""
        aggregation = super().aggregate(server_round, updates, state)
        if not self.absent:
            return aggregation
        return add_absent_clusters(aggregation, updates, state, self.absent)

    def _cluster_participants(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> ParticipantClusters:
        clients = [update.client_id for update in updates]
        oracle = partial(get_true_labels, server_round.true_clusters)
        ablations: dict[str, LabelClients] = {"true": oracle, "none": _label_individually}
        label_clients = ablations.get(self.clusters)
        if self.signature == "profile":
            profiles = compute_profiles(server_round, updates, state)
            threshold = self._get_threshold(server_round)
            return cluster_by_profiles(profiles, clients, state.tensors, threshold, label_clients)
        return self._make_pair_clustering(server_round).cluster_participants(
            compute_signatures(server_round, updates, state),
            clients,
            state.tensors,
            server_round.generator,
            label_clients,
        )

    def _get_threshold(self, server_round: ServerRound) -> float | None:
        """Return epsilon of a round; None for "auto"."""
        if self.threshold == "auto":
            return None
        past_rounds = server_round.number - 1
        return compute_threshold(
            past_rounds, self.threshold, self.threshold_growth, self.threshold_max
        )

    def _make_pair_clustering(self, server_round: ServerRound) -> PairClustering:
        threshold = self._get_threshold(server_round)
        return PairClustering(threshold, self.scope == "federation", self.transitive, self.gamma)


@dataclass(frozen=True)
class CADISPaper(CADIS):
    """CADIS with the parts and parameters of the paper.

    Use it to reproduce the paper. It clusters the participants of a round by the cosine of their
    updates of the classifier layer (Eq. 11 to 13).

    Departure: the paper starts epsilon at 0.9 or more and raises it after every round. With
    cosines of updates, as its text defines them, the similarity within a cluster falls while the
    model converges, and a rising threshold splits true clusters. So the default is constant.

    Departure: with scope "round", no pair is estimated, since all participants were observed
    together. The minimum of the Q-matrix is then the smallest similarity ever observed. An estimate
    for two absent clients can be smaller only while all observations are positive; it is not used,
    so that clusters do not depend on absent clients.
    """

    name: ClassVar[str] = "cadis-paper"
    label: ClassVar[str] = "CADIS (paper)"
    default_parts: ClassVar[Mapping[str, str]] = {}
    about: ClassVar[About] = About(
        topic="clustered aggregation",
        paper=CADIS_PAPER,
        server_state="16 bytes per pair of clients observed together",
    )
    signature: Literal["profile", "head"] = "head"
    threshold: Annotated[float, Ge(0), Le(1)] | Literal["auto"] = 0.7
    distillation: Annotated[float, Ge(0)] = 1.0


def _label_individually(clients: Sequence[ClientId]) -> Tensor:
    return torch.arange(len(clients))
