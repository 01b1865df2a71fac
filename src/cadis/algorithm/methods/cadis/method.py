"""CADIS: clustered aggregation and knowledge-distilled regularization.

Problem: a large cluster of clients with similar data dominates the mean of FedAvg, and the classes
of small clusters are learned slowly.

Nguyen et al., CCGrid 2023, https://arxiv.org/abs/2302.10413
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cadis._io import compute_squared_distance
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
from cadis.algorithm.methods.cadis.soft_weights import compute_soft_weights, reduce_long_updates
from cadis.algorithm.methods.cadis.stale_clusters import add_absent_clusters
from cadis.algorithm.vectors import compute_cosines, normalize
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
    """Aggregation in which large clusters of similar clients do not dominate.

    Use it if clients form clusters of unequal size and one global model has to serve all classes.
    If all clients are similar, it gains nothing over FedAvg with server momentum; the weights then
    differ from those of FedAvg by chance.

    The server compares the clients' updates of the classifier layer. In the paper it puts similar
    clients into one cluster, and the weight of client i is ``alpha_i = (1 / M_i) * (n_i / N)``,
    divided by the sum of all weights (Eq. 1 and 2). Here M_i is the number of participants in its
    cluster, n_i its number of samples, and N the number of all samples. So all clusters have the
    same total weight if all clients have equally many samples. Clients add ``lambda * L_KD / b`` to
    the cross-entropy of a batch of b samples: L_KD distills the received model into the local
    model (Eq. 19 and 20).

    Departure from the paper: the defaults differ. The server compares class profiles, not whole
    updates of the layer (``signature``). Weights depend on the similarities of the participants,
    not on a decision about clusters (``weights``), and long updates get smaller weights. The
    clusters that the server reports are found without a threshold (``threshold``). The distillation
    is weaker. Participants are chosen so that they differ from each other and from recent
    participants; the server uses momentum, and tests and stores a moving average of the models
    (``default_parts``). ``CADISPaper`` has the parameters of the paper.

    Attributes:
        signature: vector that is compared between clients: "profile", one number per class that
            summarizes how the weights of this class in the classifier layer changed; or "head", the
            whole update of the classifier layer (as in the CADIS paper).
        threshold: lowest similarity (rescaled to [0, 1]) at which two clients are put into one
            cluster; "auto" finds the clusters without a threshold.
        threshold_growth: relative growth of the threshold per round; 0.001 multiplies it by 1.001.
        threshold_max: upper limit of a growing threshold.
        distillation: factor lambda of the distillation term in the local loss, which keeps the
            local model similar to the received model; 0 disables the term.
        distil: what to distill from the received model: "geometry", the distances between the
            model's representations of the samples of a batch (as in the CADIS paper); or
            "not-true", the predictions for all classes except the true class (as in FedNTD).
        bandwidth: if distil is "geometry", the width h of the Gaussian kernel that converts
            distances to similarities; "mean" uses the root mean square distance between the
            representations of a batch.
        transitive: with scope "federation", how to estimate the similarity of clients that were
            never in the same round: "mean" (expected value), "sample" (random draw, as in the CADIS
            paper) or "off" (no estimate).
        gamma: largest standard deviation of an estimated similarity (see transitive); less certain
            estimates are not used.
        scope: with signature "head", which clients are clustered: the participants of a "round" (as
            in the CADIS paper), or all clients of the "federation" seen so far.
        absent: if no client of a cluster takes part, reuse the last update of the cluster, with a
            weight multiplied by this factor per round; 0 never reuses updates.
        clusters: which clusters determine the weights of the clients (with weights "soft", their
            similarities): those "found" by the server; or, for ablations, the "true" clusters of
            the partition, or "none" (each client is its own cluster).
        weights: weight of a client with n_i samples: "soft", n_i / sum_j kappa_ij n_j, where
            kappa_ij is the similarity of two participants, so that similar clients together count
            as one; "clusters", n_i divided by the number of participants in its cluster (as in the
            CADIS paper); "samples", n_i (as in FedAvg); "auto" is "soft" if clusters are found
            without a threshold from class profiles and absent is 0, else "clusters".
    """

    name: ClassVar[str] = "cadis"
    needs_head: ClassVar[bool] = True
    largest_share: ClassVar[float] = inf  # a client that is unlike all others counts as a cluster
    default_parts: ClassVar[Mapping[str, str]] = {
        "sampler": "herding",
        "server_optimizer": "damped-momentum",
    }
    about: ClassVar[About] = About(
        topic="clustered aggregation",
        paper=CADIS_PAPER,
        server_state="one number per class and client; a velocity; the newest model",
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
    weights: Literal["auto", "soft", "clusters", "samples"] = "auto"

    def __post_init__(self) -> None:
        thresholds = (self.threshold, self.threshold_max)
        numbers = [value for value in thresholds if isinstance(value, int | float)]
        if numbers != sorted(numbers):  # "auto" is no number, and other types are refused later
            raise CadisError(
                f"The threshold {self.threshold} is above its maximum {self.threshold_max}; "
                "raise threshold_max too."
            )
        if self.absent and (self.signature != "profile" or self.clusters != "found"):
            raise CadisError(
                "The parameter absent needs class profiles to recognize a cluster in later rounds; "
                "set signature = profile and clusters = found, or leave absent out."
            )
        if self.weights == "soft" and (self.signature != "profile" or self.absent):
            raise CadisError(
                "Soft weights need class profiles, and they have no clusters whose updates could "
                "be reused; set signature = profile and absent = 0, or weights = clusters."
            )

    @property
    def needs_model_outputs(self) -> bool:
        """True with distillation, because the received model is the teacher."""
        return self.distillation > 0

    @property
    def finds_clusters(self) -> bool:
        """True if the server clusters all clients, not only the participants of a round."""
        return self.signature == "profile" or self.scope == "federation"

    @property
    def _has_soft_weights(self) -> bool:
        if self.weights == "auto":
            return self.has_profiles and self.threshold == "auto" and not self.absent
        return self.weights == "soft"

    @property
    def has_profiles(self) -> bool:
        """True if the server keeps a class profile of each client."""
        return self.signature == "profile"

    def client_profiles(self, state: ServerState, clients: Sequence[ClientId]) -> Tensor:
        """Return the mean class profile of each client, zeros for a client never seen, (n, d)."""
        return read_profiles(clients, state.tensors)

    def prepare(self, outputs: ModelOutputs) -> BatchExtras:
        """Keep the representations or logits of the teacher, which are the same in all epochs."""
        teacher = outputs.representation if self.distil == "geometry" else outputs.logits
        return BatchExtras(per_sample={"teacher": teacher})

    def penalty(self, step: Step) -> Tensor | None:
        """Return the distillation term of the local loss, lambda * L_KD / b (Eq. 20).

        Eq. 20 divides both the sum of the cross-entropy and the sum of L_KD by n_i. So lambda *
        L_KD / b is added to the mean cross-entropy of a batch of b samples.
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
        """Return the cluster of each client before a round, -1 if it is unknown, (n,)."""
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
        elif self._has_soft_weights:
            weights = compute_soft_weights(counts, self._compute_kernel(updates, clusters))
            weights = reduce_long_updates(weights, *_compute_norms(updates, state))
        else:
            weights = compute_cluster_weights(counts, clusters.labels, clusters.sizes)
        return ClientWeights(weights, clusters.tensors, clusters.report)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """Return the weighted mean of the models (Eq. 2), with the updates of absent clusters."""
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

    def _compute_kernel(
        self, updates: Sequence[ClientUpdate], clusters: ParticipantClusters
    ) -> Tensor:
        """Return kappa_ij = max(0, cosine) of each pair of participants, (k, k)."""
        if self.clusters != "found":  # an ablation: clients of one cluster are identical
            return (clusters.labels[:, None] == clusters.labels).double()
        profiles = read_profiles([update.client_id for update in updates], clusters.tensors)
        return compute_cosines(normalize(profiles)).clamp(min=0)

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

    Use it to reproduce the paper. It has the weights of Eq. 1 and the local loss of Eq. 20, with
    full distillation. The server clusters the participants of a round: it compares their updates of
    the classifier layer by their cosine similarity, averaged over rounds (Eq. 11 and 12), and
    applies a threshold to the rescaled similarities (Eq. 13).

    Departure from the paper: the threshold epsilon is constant, 0.7. In the paper it starts at 0.9
    or more and rises after every round. But clients of one cluster become less similar while the
    model converges, so that a rising threshold splits true clusters.

    Departure from the paper: with scope "round", no similarity is estimated, because all
    participants were observed together. The smallest similarity ever observed is rescaled to 0. In
    the paper this can also be an estimate for absent clients, which is smaller only while all
    observed similarities are positive. Here clusters do not depend on absent clients.
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
    weights: Literal["auto", "soft", "clusters", "samples"] = "clusters"


def _compute_norms(updates: Sequence[ClientUpdate], state: ServerState) -> tuple[Tensor, float]:
    """Return the L2 norm of each update, (k,), and of the global model."""
    received = [state.models[u.message.model_name].parameters for u in updates]
    squares = [
        compute_squared_distance(update.model.parameters, sent)
        for update, sent in zip(updates, received, strict=True)
    ]
    zeros = received[0].new_zeros(()).expand_as(received[0])
    norm = compute_squared_distance(received[0], zeros) ** 0.5
    return torch.tensor(squares, dtype=torch.float64).sqrt(), norm


def _label_individually(clients: Sequence[ClientId]) -> Tensor:
    return torch.arange(len(clients))
