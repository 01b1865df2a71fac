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

Clients without clusters have a score above 0 by chance. It is estimated with shuffled profiles, in
which each class is assigned to the clients in random order, so that no clusters are left (Horn: A
rationale and test for the number of factors in factor analysis, Psychometrika 1965,
https://doi.org/10.1007/BF02289447). The *excess* is the score minus the score of the shuffled
profiles. It is the median of the last rounds, so that a single round changes nothing.

There are clusters if the largest excess is large enough. Of the numbers of clusters whose excess is
nearly as large, the largest is chosen, because two distant groups of similar clusters have a high
score, too. Decisions of earlier rounds are changed only if the new decision is clearly better.
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
from cadis.algorithm.methods.cadis.hierarchy import Hierarchy, compute_silhouettes
from cadis.algorithm.methods.cadis.profiles import PROFILE_WINDOW
from cadis.algorithm.vectors import compute_cosines, normalize
from cadis.rng import derive_generator

MAX_CLUSTERS = 64
_SHUFFLED_CLIENTS = 40  # profiles are shuffled several times if there are fewer clients
_NUM_ROUNDS = 7  # the excess is the median of so many rounds
_NEAR_BEST = 0.06  # numbers of clusters whose excess is smaller by this are nearly as good
_SWITCH_MARGIN = 0.03  # a number that was chosen is kept if its excess is smaller by this, too
_KEEP_MARGIN = 0.03  # clusters that were found are kept if the confidence is smaller by this
_FEW_CLASSES = 3  # with so few classes, shuffled profiles are as similar as true clusters
_REQUIRED_WITH_FEW_CLASSES = 0.75


@dataclass(frozen=True)
class StableClusters:
    """Clusters after a round, and the excesses that the next rounds need.

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
    excesses: Tensor = field(  # of 2, 3, ... clusters in recent rounds, (rounds, MAX_CLUSTERS - 1)
        default_factory=lambda: torch.zeros(0, MAX_CLUSTERS - 1, dtype=torch.float64)
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
        excess = hierarchy.compute_scores(similarity, profiles)
        if profiles.shape[1] > _FEW_CLASSES:
            excess = excess - _compute_chance_scores(mean_profiles, seed=int(num_rounds.sum()))
        excesses = self._add_excess(excess)
        excess = excesses.quantile(0.5, dim=0)[: len(hierarchy.labels)]
        confidence = _compute_confidence(excess, mean_profiles, num_rounds)
        margin = _KEEP_MARGIN if len(self.centers) > 1 else 0.0
        has_clusters = (
            confidence >= compute_required_confidence(num_rounds, profiles.shape[1]) - margin
        )
        number = self._choose_number(excess) if has_clusters else 1
        labels = self._choose_labels(hierarchy.get_labels(number), similarity, profiles)
        centers = compute_centers(profiles, labels).to(mean_profiles.dtype)
        return StableClusters(centers, excesses, Cut(hierarchy.get_level(number), confidence))

    def predict(self, mean_profiles: Tensor) -> Tensor:
        """Return the cluster whose center is nearest to each mean profile, (k,)."""
        return find_nearest_center(mean_profiles, self.centers)

    def _add_excess(self, excess: Tensor) -> Tensor:
        """Return the excesses of recent rounds and of this round, (c,)."""
        padded = torch.zeros(1, MAX_CLUSTERS - 1, dtype=torch.float64)
        padded[0, : len(excess)] = excess
        return torch.cat([self.excesses, padded])[-_NUM_ROUNDS:]

    def _choose_number(self, excess: Tensor) -> int:
        """Return the largest number of 2, 3, ... clusters whose excess is nearly the largest."""
        required = float(excess.max()) - _NEAR_BEST
        best, current = int((excess >= required).nonzero().max()), len(self.centers) - 2
        if 0 <= current < len(excess):
            keeps_larger = current > best and excess[current] >= required - _SWITCH_MARGIN
            keeps_smaller = excess[current] >= required > excess[best] - _SWITCH_MARGIN
            if keeps_larger or keeps_smaller:
                return current + 2
        return best + 2

    def _choose_labels(self, labels: Tensor, similarity: Tensor, profiles: Tensor) -> Tensor:
        """Return the labels of average linkage, or the nearest known centers if these are better.

        Labels of average linkage are renumbered, so that a cluster keeps its label, (n,).
        """
        number = int(labels.max()) + 1
        if 1 < number == len(self.centers):
            nearest = self.predict(profiles.to(self.centers.dtype))
            silhouettes = compute_silhouettes(similarity, torch.stack([nearest, labels]))
            if len(nearest.unique()) == number and silhouettes[0] >= silhouettes[1]:
                return nearest
        return _match_labels(compute_centers(profiles, labels), self.centers)[labels]

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the clusters as named tensors for a checkpoint."""
        cut = {"cut": self.cut.level, "confidence": self.cut.confidence}
        scalars = {name: torch.tensor(value, dtype=torch.float64) for name, value in cut.items()}
        return {"centres": self.centers, "excesses": self.excesses, **scalars}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "StableClusters":
        """Restore the result of :meth:`to_tensors`; without these tensors, start anew."""
        if "excesses" not in tensors:
            return cls()
        cut = Cut(float(tensors["cut"]), float(tensors["confidence"]))
        return cls(tensors["centres"], tensors["excesses"], cut)


def compute_required_confidence(num_rounds: Tensor, num_classes: int) -> float:
    """Return the confidence above which there are clusters.

    It is ``0.13 + 1 / n + 0.05 / r`` for n clients with r rounds each on average, since the
    excess varies more with few clients or few rounds. The constants were chosen so that the excess
    of random profiles, and of clients whose classes differ gradually, is below. With two or three
    classes, profiles of different clients are often similar, so that the confidence has to be 0.75.

    Args:
        num_rounds: number of rounds of each client, (n,).
        num_classes: length of a profile.
    """
    if num_classes <= _FEW_CLASSES:
        return _REQUIRED_WITH_FEW_CLASSES
    rounds = float(num_rounds.double().clamp(max=PROFILE_WINDOW).mean())
    return 0.13 + 1 / len(num_rounds) + 0.05 / rounds


def _compute_chance_scores(mean_profiles: Tensor, seed: int) -> Tensor:
    """Return the scores of 2, 3, ... clusters of shuffled profiles, (c,).

    The values of each class are sorted before they are shuffled, so that the result does not depend
    on the order of the clients. The scores of few clients are the mean of several shuffles.
    """
    generator = derive_generator(seed, "shuffle profiles")
    columns = mean_profiles.double().sort(dim=0).values.T  # (classes, n)
    scores = []
    for _ in range(max(1, _SHUFFLED_CLIENTS // len(mean_profiles))):
        order = torch.stack([torch.randperm(len(c), generator=generator) for c in columns])
        shuffled = columns.gather(1, order).T
        profiles = normalize(shuffled - shuffled.mean(dim=1, keepdim=True))
        similarity = compute_cosines(profiles)
        hierarchy = Hierarchy.build(similarity, MAX_CLUSTERS)
        scores.append(hierarchy.compute_scores(similarity, profiles))
    return torch.stack(scores).mean(dim=0)


def _compute_confidence(excess: Tensor, mean_profiles: Tensor, num_rounds: Tensor) -> float:
    """Return the largest excess, but at most the repeatability of profiles.

    While the repeatability cannot be measured yet, the confidence is 0 if there are few classes.
    """
    if not len(excess):
        return 0.0
    largest = max(0.0, float(excess.max()))
    repeatability = compute_repeatability(mean_profiles, num_rounds)
    if repeatability is not None:
        return min(largest, repeatability)
    return largest if mean_profiles.shape[1] > _FEW_CLASSES else 0.0


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
