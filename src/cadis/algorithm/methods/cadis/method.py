"""CADIS: clustered aggregation and knowledge-distilled regularisation (CCGRID 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from cadis.algorithm.about import About
from cadis.algorithm.aggregation import example_weights
from cadis.algorithm.base_method import BaseMethod
from cadis.algorithm.method import (
    Aggregation,
    BatchExtras,
    ModelOutputs,
    ServerRound,
    ServerState,
    Step,
    Weighing,
)
from cadis.algorithm.methods.cadis.cluster_participants import (
    Given,
    PairRule,
    group_by_profiles,
    profile_clusters,
    profiles_of,
    signatures,
    true_labels,
)
from cadis.algorithm.methods.cadis.clustering import cluster_weights, threshold_at
from cadis.algorithm.methods.cadis.distillation import distillation_loss, not_true_loss
from cadis.algorithm.methods.cadis.similarity import TransitiveMode
from cadis.algorithm.methods.cadis.stale_clusters import with_absent
from cadis.errors import CadisError
from cadis.types import ClientId, ClientUpdate


@dataclass(frozen=True)
class CADIS(BaseMethod):
    """Finds clusters of alike clients from their head updates and gives each an equal voice.

    What differs from the paper by default: clients are compared by class profiles, one number a
    class, averaged over their own rounds (``signature``); the cut is read off these similarities
    (``threshold``); distillation is weak; participants are drawn evenly from the clusters found,
    and the server steps with momentum (``default_parts``). ``CADISPaper`` has what the paper has;
    docs/results.md tells what each is worth.

    Attributes:
        signature: what of a client's update of the classifier layer is compared: "profile", one
            number a class, or "head", the whole layer, as in the paper.
        threshold: epsilon: how alike, in the Q-matrix, neighbours must be; "auto" reads it off the
            similarities, and tells no clusters where there are none.
        threshold_growth: by which part of itself a threshold that is a number grows a round.
        threshold_max: where it stops growing.
        distillation: lambda, strength of the distillation from the global model; 0 is none.
        distil: what is distilled: "geometry", how alike the samples of a batch are (the paper), or
            "not-true", how likely the model holds the other classes of a sample (FedNTD).
        bandwidth: width h of the geometry's kernel, "mean" for the batch's own mean distance.
        transitive: how pairs that never met are estimated (signature head, scope federation): the
            expectation, a draw, or not.
        gamma: the largest deviation of a transitive estimate that is admitted.
        scope: where clusters are looked for with the signature "head": among the participants of a
            round, as in the paper, who have all just met, or among all clients seen so far.
        absent: which part of its last update a cluster that nobody comes of adds to a round; it
            fades by that part every round. 0 is none; else the server keeps a model a cluster.
        clusters: what the weights are made from: the clusters found; or, for ablations, the true
            ones (an oracle), or none, everybody being alone.
        weights: "clusters", every cluster an equal voice, or "samples", n_i / N as FedAvg.
    """

    name: ClassVar[str] = "cadis"
    compares_heads: ClassVar[bool] = True
    default_parts: ClassVar[Mapping[str, str]] = {
        "sampler": "clusters",
        "server_optimizer": "momentum",
    }
    about: ClassVar[About] = About(
        kind="clustered aggregation",
        paper="ours, after Nguyen et al., 2023",
        server_memory="a number a class of each client; a velocity",
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
    weights: Literal["clusters", "samples"] = "clusters"

    def __post_init__(self) -> None:
        if self.threshold != "auto" and self.threshold > self.threshold_max:
            raise CadisError(
                f"The threshold {self.threshold} is above its maximum {self.threshold_max}; "
                "raise threshold_max too."
            )
        if self.absent and (self.signature != "profile" or self.clusters != "found"):
            raise CadisError(
                "Absent clusters are known again by the profiles of the clusters found; leave "
                "absent out, or take signature = profile and clusters = found."
            )

    @property
    def needs_view(self) -> bool:
        """For what the teacher makes of the data, if there is anything to distil."""
        return self.distillation > 0

    @property
    def finds_clusters(self) -> bool:
        """Whether clusters of all clients seen are known, not of a round's participants alone."""
        return self.signature == "profile" or self.scope == "federation"

    def prepare(self, view: ModelOutputs) -> BatchExtras:
        """The teacher's representations or logits: the same in every epoch, so computed once."""
        teacher = view.representation if self.distil == "geometry" else view.logits
        return BatchExtras(per_example={"teacher": teacher})

    def penalty(self, step: Step) -> Tensor | None:
        """Distillation: lambda * L_KD / b, as the final loss divides both its sums by n_i."""
        if not self.needs_view:
            return None
        teacher = step.per_example["teacher"]
        if self.distil == "geometry":
            loss = distillation_loss(step.representation, teacher, self.bandwidth)
        else:
            loss = not_true_loss(step.logits, teacher, step.labels)
        return self.distillation / len(step.labels) * loss

    def cluster_labels(
        self, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
    ) -> Tensor:
        """The clusters of clients as they are known before a round."""
        if self.clusters == "true":
            return true_labels(server_round.true_clusters, clients)
        if self.signature == "profile":
            found = profile_clusters(clients, state.memory)
        else:
            found = self._pair_rule(server_round).clusters(clients, state.memory)
        return found if self.clusters == "found" else found.clamp(max=0)

    def weigh(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Weighing:
        """Similarities, clusters, weights: Sections III-A to III-C."""
        clients = [update.client_id for update in updates]
        oracle = partial(true_labels, server_round.true_clusters)
        labels: dict[str, Given] = {"true": oracle, "none": _label_each}
        given = labels.get(self.clusters)
        if self.signature == "profile":
            profiles = profiles_of(server_round, updates, state)
            threshold = self._threshold_in(server_round)
            grouping = group_by_profiles(profiles, clients, state.memory, threshold, given)
        else:
            changes, rule = signatures(server_round, updates, state), self._pair_rule(server_round)
            grouping = rule.group(changes, clients, state.memory, server_round.generator, given)
        counts = [update.num_examples for update in updates]
        if self.weights == "samples":
            weights = example_weights(counts)
        else:
            weights = cluster_weights(counts, grouping.labels, grouping.sizes)
        return Weighing(weights, grouping.memory, grouping.report)

    def aggregate(
        self, server_round: ServerRound, updates: Sequence[ClientUpdate], state: ServerState
    ) -> Aggregation:
        """The weighted mean of the models, and what absent clusters said last."""
        made = super().aggregate(server_round, updates, state)
        return with_absent(made, updates, state, self.absent) if self.absent else made

    def _threshold_in(self, server_round: ServerRound) -> float | None:
        """The threshold of a round; None if it is read off the similarities."""
        if self.threshold == "auto":
            return None
        growth, most = self.threshold_growth, self.threshold_max
        return threshold_at(server_round.number - 1, self.threshold, growth, most)

    def _pair_rule(self, server_round: ServerRound) -> PairRule:
        threshold = self._threshold_in(server_round)
        return PairRule(threshold, self.scope == "federation", self.transitive, self.gamma)


@dataclass(frozen=True)
class CADISPaper(CADIS):
    """CADIS with the parts and parameters of the paper.

    Departure: the paper starts epsilon at 0.9 or more and raises it after every round. With
    cosines of updates, as its text defines them, clients of one cluster drift apart as the model
    converges, and a rising threshold ends by splitting true clusters. So the default is a
    constant; docs/paper.md has the measurements behind it, and behind gamma.

    Departure: among the participants of a round nothing is estimated, since they have all just
    met; the Q-matrix is then rescaled by the smallest similarity that was ever observed. While
    every observation is positive, an estimate of two absent clients may be smaller, and is not
    asked: with it, clusters of a round would depend on guesses, or in mode "sample" on draws, about
    clients who are not there. docs/paper.md has how little that changes.
    """

    name: ClassVar[str] = "cadis-paper"
    label: ClassVar[str] = "CADIS (paper)"
    default_parts: ClassVar[Mapping[str, str]] = {}
    about: ClassVar[About] = About(
        kind="clustered aggregation",
        paper="Nguyen et al., 2023",
        server_memory="16 bytes for each pair of clients that met",
    )
    signature: Literal["profile", "head"] = "head"
    threshold: Annotated[float, Ge(0), Le(1)] | Literal["auto"] = 0.7
    distillation: Annotated[float, Ge(0)] = 1.0


def _label_each(clients: Sequence[ClientId]) -> Tensor:
    return torch.arange(len(clients))
