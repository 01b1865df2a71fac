"""Clusters of clients that hardly change from round to round. Not in the paper.

In each round, the mean class profiles of all clients are clustered with average linkage, into 2, 3,
4, ... clusters. Each of these clusterings gets a score, the mean of two numbers:

- the *spectral gap*: clients are the nodes of a graph whose edges have the weight
  ``max(0, cosine)^2``. The normalized adjacency matrix of a graph with m separate clusters has m
  eigenvalues near 1, and the next eigenvalue is smaller. The difference is the gap
  (von Luxburg: A tutorial on spectral clustering, Statistics and Computing 2007,
  https://arxiv.org/abs/0711.0189);
- the *silhouette*: how much nearer clients are to their own cluster than to the nearest other one
  (Rousseeuw: Silhouettes, Journal of Computational and Applied Mathematics 1987,
  https://doi.org/10.1016/0377-0427(87)90125-7).

The scores are averaged over rounds. The number of clusters with the highest mean score is chosen,
or no clusters if the confidence is too low. Decisions of earlier rounds are changed only if the new
decision is clearly better.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cadis.algorithm.methods.cadis.clustering import (
    Cut,
    compute_centers,
    compute_repeatability,
    find_nearest_center,
)
from cadis.algorithm.methods.cadis.hierarchy import Hierarchy, compute_silhouette
from cadis.algorithm.methods.cadis.profiles import PROFILE_WINDOW
from cadis.algorithm.vectors import compute_cosines, normalize

MAX_CLUSTERS = 64
_NEW_SCORE_WEIGHT = 0.3  # weight of a round in the mean scores
_SWITCH_MARGIN = 0.03  # the number of clusters changes only if the mean score grows by this much
_KEEP_MARGIN = 0.06  # clusters that were found are kept if the confidence is smaller by this much
_MAX_REQUIRED = 0.75  # largest confidence that is required
_FEW_CLASSES = 3  # with so few classes, different clients often have similar profiles


@dataclass(frozen=True)
class StableClusters:
    """Clusters after a round, and the scores that the next round needs.

    If there are no clusters, all clients are in one cluster with the label 0.

    Example:
        >>> import torch
        >>> from cadis.algorithm.methods.cadis import StableClusters
        >>> profiles = torch.eye(4)[[0, 0, 0, 0, 1, 1, 1]]
        >>> clusters = StableClusters().update(profiles, num_rounds=torch.full((7,), 5))
        >>> clusters.predict(profiles).tolist()
        [0, 0, 0, 0, 1, 1, 1]
    """

    centers: Tensor = field(  # mean profile of each cluster, of norm 1, (clusters, classes)
        default_factory=lambda: torch.zeros(0, 0)
    )
    scores: Tensor = field(  # mean scores of 2, 3, ... clusters, (MAX_CLUSTERS - 1,)
        default_factory=lambda: torch.zeros(0, dtype=torch.float64)
    )
    cut: Cut = field(default_factory=lambda: Cut(-1.0, 0.0))  # level of average linkage; -1: none

    def update(self, mean_profiles: Tensor, num_rounds: Tensor) -> "StableClusters":
        """Return the clusters after one more round.

        Args:
            mean_profiles: mean profiles of the clustered clients, (n, classes).
            num_rounds: number of rounds of each client, (n,).
        """
        profiles = normalize(mean_profiles.double())
        similarity = compute_cosines(profiles)
        hierarchy = Hierarchy.build(similarity, MAX_CLUSTERS)
        scores = self._average_scores(hierarchy.compute_scores(similarity, profiles))
        number = self._choose_number(scores[: len(hierarchy.labels)])
        confidence = _compute_confidence(scores, number, mean_profiles, num_rounds)
        margin = _KEEP_MARGIN if len(self.centers) > 1 else 0.0
        if confidence < compute_required_confidence(num_rounds, profiles.shape[1]) - margin:
            number = 1
        labels = self._choose_labels(hierarchy.get_labels(number), similarity, profiles)
        centers = compute_centers(profiles, labels).to(mean_profiles.dtype)
        return StableClusters(centers, scores, Cut(hierarchy.get_level(number), confidence))

    def predict(self, mean_profiles: Tensor) -> Tensor:
        """Return the cluster whose center is nearest to each mean profile, (k,)."""
        return find_nearest_center(mean_profiles, self.centers)

    def _average_scores(self, scores: Tensor) -> Tensor:
        """Add the scores of a round, (c,), to the mean scores, (MAX_CLUSTERS - 1,)."""
        padded = torch.zeros(MAX_CLUSTERS - 1, dtype=torch.float64)
        padded[: len(scores)] = scores
        return torch.lerp(self.scores, padded, _NEW_SCORE_WEIGHT) if len(self.scores) else padded

    def _choose_number(self, scores: Tensor) -> int:
        """Return the number of clusters with the best mean score of 2, 3, ... clusters, (c,)."""
        if not len(scores):
            return 1
        best, current = int(scores.argmax()), len(self.centers) - 2
        is_known = 0 <= current < len(scores)
        if is_known and scores[best] < scores[current] + _SWITCH_MARGIN:
            best = current
        return best + 2

    def _choose_labels(self, labels: Tensor, similarity: Tensor, profiles: Tensor) -> Tensor:
        """Return the labels of average linkage, or the nearest known centers if these are better.

        Labels of average linkage are renumbered, so that a cluster keeps its label, (n,).
        """
        number = int(labels.max()) + 1
        if 1 < number == len(self.centers):
            nearest = self.predict(profiles.to(self.centers.dtype))
            is_complete = len(nearest.unique()) == number
            if is_complete and compute_silhouette(similarity, nearest) >= compute_silhouette(
                similarity, labels
            ):
                return nearest
        return _match_labels(compute_centers(profiles, labels), self.centers)[labels]

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the clusters as named tensors for a checkpoint."""
        cut = {"cut": self.cut.level, "confidence": self.cut.confidence}
        scalars = {name: torch.tensor(value, dtype=torch.float64) for name, value in cut.items()}
        return {"centres": self.centers, "scores": self.scores, **scalars}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "StableClusters":
        """Restore the result of :meth:`to_tensors`; without these tensors, start anew."""
        if "scores" not in tensors:
            return cls()
        cut = Cut(float(tensors["cut"]), float(tensors["confidence"]))
        return cls(tensors["centres"], tensors["scores"], cut)


def compute_required_confidence(num_rounds: Tensor, num_classes: int) -> float:
    """Return the confidence above which there are clusters.

    ``min(0.75, max(0.2, 0.05 + 2 / C) + 1.2 / n + 0.1 / r)`` for C classes and n clients with r
    rounds each on average. Clients without clusters have higher scores by chance if there are few
    classes, few clients or few rounds. The constants were chosen so that the scores of random
    profiles, and of clients whose classes differ gradually, are below.

    Args:
        num_rounds: number of rounds of each client, (n,).
        num_classes: C, length of a profile.
    """
    rounds = float(num_rounds.double().clamp(max=PROFILE_WINDOW).mean())
    chance = max(0.2, 0.05 + 2 / num_classes) + 1.2 / len(num_rounds) + 0.1 / rounds
    return min(_MAX_REQUIRED, chance)


def _compute_confidence(
    scores: Tensor, number: int, mean_profiles: Tensor, num_rounds: Tensor
) -> float:
    """Return the mean score of a number of clusters, but at most the repeatability of profiles.

    While the repeatability cannot be measured yet, the confidence is 0 if there are few classes.
    """
    if number < 2:
        return 0.0
    score = max(0.0, float(scores[number - 2]))
    repeatability = compute_repeatability(mean_profiles, num_rounds)
    if repeatability is not None:
        return min(score, repeatability)
    return score if mean_profiles.shape[1] > _FEW_CLASSES else 0.0


def _match_labels(centers: Tensor, known: Tensor) -> Tensor:
    """Return a label for each center, so that similar known centers keep their labels.

    Args:
        centers: centers of the new clusters, (m, classes).
        known: centers of the last round, in the order of their labels, (c, classes).

    Returns:
        The numbers from 0 to m - 1 in some order, (m,).
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  # slow to import

    number = len(centers)
    if len(known) < 2:
        return torch.arange(number)
    similarity = (centers @ known.to(centers.dtype).T).numpy()
    pairs = zip(*linear_sum_assignment(similarity, maximize=True), strict=True)
    kept = {int(new): int(old) for new, old in pairs if old < number}
    free = iter(sorted(set(range(number)) - set(kept.values())))
    return torch.tensor([kept[new] if new in kept else next(free) for new in range(number)])
