"""Client clustering and aggregation weights of CADIS.

From the paper: the Q-matrix (Section III-B.2), clusters found with a threshold (Eq. 13) and the
weights of the clients (Eq. 1). Not in the paper: clusters of class profiles (one number per class
for each client, see :mod:`~cadis.algorithm.methods.cadis.profiles`), found without a threshold.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cadis.algorithm.aggregation import compute_sample_weights
from cadis.algorithm.methods.cadis.profiles import PROFILE_WINDOW, ClientProfiles, sum_cosines
from cadis.algorithm.methods.cadis.similarity import mask_unknown
from cadis.algorithm.vectors import compute_cosines, normalize

MAX_CLUSTERED_CLIENTS = 256  # if there are more, only a subset is clustered (quadratic cost)
_SMOOTHED_ROUNDS = 2  # smooth the profiles of clients with at most this number of rounds
# two clients whose profiles in a round have a larger cosine count as having the same classes
_SAME_CLASSES_SIMILARITY = 0.9
_CUT_LEVELS = torch.linspace(0.4, 0.9, 51)  # candidates for the cut
_CONTRAST_TOLERANCE = 0.03  # contrasts that differ by less count as equal
_MIN_CONFIDENCE = 0.5  # if the confidence is smaller, all clients form one cluster
_ONE_CLUSTER_LEVEL = -1.0  # the smallest cosine: all clients are merged into one cluster
# to measure repeatability: minimum sum, over clients, of their rounds after the first
_MIN_REPEATED_ROUNDS = 10


def compute_q_matrix(
    similarity: Tensor, known: Tensor | None = None, minimum: Tensor | None = None
) -> Tensor:
    """Rescale the similarity matrix to [0, 1]: the Q-matrix (Section III-B.2).

    ``q_ij = (s_ij - s_min) / (s_max - s_min)``. The diagonal is included, so that s_max is the
    similarity of a client with itself. Without the diagonal, some pair would always have q_ij = 1,
    even if there are no clusters.

    Args:
        similarity: cumulative similarities s_ij, observed or estimated, (n, n).
        known: mask of the entries that are observed or estimated, (n, n); by default all.
        minimum: s_min, if the matrix does not contain all clients; by default its own minimum.

    Returns:
        q_ij, (n, n); NaN for unknown pairs, and 1 everywhere if all known entries are equal.
    """
    if known is None:
        known = torch.ones_like(similarity, dtype=torch.bool)
    values = mask_unknown(similarity, known.clone().fill_diagonal_(True))
    if minimum is None:
        minimum = values.nan_to_num(nan=torch.inf).min()
    value_range = values.nan_to_num(nan=-torch.inf).max() - minimum
    return (values - minimum) / value_range if value_range > 0 else values * 0 + 1


def cluster_by_threshold(q: Tensor, threshold: float) -> Tensor:
    """Cluster clients with a threshold on the Q-matrix (Eq. 13).

    ``u_ij = 1 if q_ij >= epsilon else 0``. Clients are the nodes of a graph with an edge wherever
    u_ij = 1, and the clusters are its connected components.

    Args:
        q: Q-matrix, (n, n); NaN stands for an unknown pair, which has no edge.
        threshold: epsilon.

    Returns:
        Cluster labels, numbered from 0 in order of first appearance, (n,), int64.
    """
    if not len(q):
        return torch.zeros(0, dtype=torch.long)
    edges = (q >= threshold).fill_diagonal_(True)
    edges = edges | edges.T
    labels = torch.arange(len(q))
    while True:  # propagate the smallest label to the neighbors: about log(n) iterations
        smallest = torch.where(edges, labels, len(q)).amin(dim=1)
        smallest = smallest[smallest]
        if torch.equal(smallest, labels):
            consecutive: Tensor = torch.unique(labels, return_inverse=True)[1]
            return consecutive
        labels = smallest


def compute_threshold(past_rounds: int, start: float, growth: float, maximum: float) -> float:
    """Return the threshold epsilon of a round (Section III-B.3).

    ``epsilon_t = min(maximum, start * (1 + growth)^t)`` after t past rounds.

    Departure from the paper: the paper gives no formula. It only says that epsilon is "updated
    upward after every communication round".
    """
    try:
        return min(maximum, start * (1 + growth) ** past_rounds)
    except OverflowError:
        return maximum if start > 0 else 0.0


def compute_cluster_weights(
    num_samples: Tensor | Sequence[int],
    labels: Tensor | Sequence[int],
    cardinality: Tensor | Sequence[int] | None = None,
) -> Tensor:
    """Return the weights of the participants (Eq. 1), normalized as in Eq. 2.

    ``alpha_i = (1 / M_i) * (n_i / N)``, divided by the sum of all alpha. So every cluster has the
    same total weight if all clients have equally many samples.

    Args:
        num_samples: n_i of each participant, (k,).
        labels: cluster of each participant, (k,).
        cardinality: M_i, number of clients in the cluster of each participant, (k,); by default
            counted among the participants.

    Returns:
        Weights with sum 1, (k,), float64.

    Example:
        >>> from cadis.algorithm.methods.cadis import compute_cluster_weights
        >>> compute_cluster_weights([50, 50, 50], labels=[0, 0, 1]).tolist()
        [0.25, 0.25, 0.5]
    """
    if cardinality is None:
        clusters = torch.as_tensor(labels)
        cardinality = (clusters[:, None] == clusters[None, :]).sum(dim=1)
    weights = compute_sample_weights(num_samples) / torch.as_tensor(cardinality)
    return weights / weights.sum()


@dataclass(frozen=True)
class Cut:
    """The level at which average linkage stops merging clusters."""

    level: float  # smallest mean similarity of two clusters that are merged; -1 merges all
    confidence: float  # evidence that there are clusters at all, from 0 to 1

    def merge_all_if_uncertain(self) -> "Cut":
        """Return this cut, or a cut that merges all clients if the confidence is too small."""
        confidence = max(0.0, self.confidence)
        level = self.level if confidence >= _MIN_CONFIDENCE else _ONE_CLUSTER_LEVEL
        return Cut(level, confidence)


def find_contrast_cut(similarity: Tensor, rounds: float = 1.0) -> Cut:
    """Find the cut with many pairs above it and few pairs just below it. Not in the paper.

    Let A be the number of pairs with a similarity in [x, 1], and B the number of pairs in
    [2x - 1, x), an interval of the same width. The contrast of the level x for n clients with r
    rounds each is ``(A - B) / (A + B + n / (2 r))``. If clients form clusters, many pairs are very
    similar and few pairs are moderately similar, so that the contrast is near 1 for some x. Without
    clusters, very similar pairs are rarer than moderately similar pairs, and the contrast is
    negative. The term n / (2 r) makes the contrast smaller if there are few pairs or few rounds.

    Args:
        similarity: similarities of clients, (n, n).
        rounds: r, mean number of rounds per client.

    Returns:
        The cut. Its confidence is the largest contrast. To find its level, start at the level with
        the largest contrast, and lower it while the contrast stays about the same, so that a small
        difference does not separate a client from its cluster.
    """
    num_clients = len(similarity)
    rows, columns = torch.triu_indices(num_clients, num_clients, offset=1)
    values = similarity[rows, columns].double().sort().values
    levels = _CUT_LEVELS.double()
    above = len(values) - torch.searchsorted(values, levels)
    below = len(values) - torch.searchsorted(values, 2 * levels - 1) - above
    contrast = (above - below) / (above + below + num_clients / (2 * rounds))
    best = int(contrast.argmax())
    worse = (contrast[:best] < contrast[best] - _CONTRAST_TOLERANCE).nonzero()
    lowest = int(worse.max()) + 1 if len(worse) else 0
    return Cut(float(levels[lowest]), float(contrast[best]))


def compute_repeatability(mean_profiles: Tensor, num_rounds: Tensor) -> float | None:
    """Return the mean cosine between two profiles of the same client from different rounds.

    Args:
        mean_profiles: mean profiles, (n, classes).
        num_rounds: number of rounds of each client, (n,).

    Returns:
        A number from 0 to 1, or None if too few clients took part in several rounds.
    """
    rounds = num_rounds.double().clamp(max=PROFILE_WINDOW)
    if (rounds - 1).clamp(min=0).sum() < _MIN_REPEATED_ROUNDS:
        return None
    sums, pairs = sum_cosines(mean_profiles, num_rounds)
    return float(sums.sum() / pairs.sum())


def average_linkage(similarity: Tensor, cut: float) -> Tensor:
    """Cluster clients with average linkage, a hierarchical clustering.

    Each client starts as its own cluster. Clusters are merged until the mean similarity of any two
    clusters is below the cut. One iteration merges all pairs of clusters that are nearest neighbors
    of each other. The result is the same as if one pair were merged at a time.

    Args:
        similarity: similarities of clients, (n, n).
        cut: smallest mean similarity of two clusters that are merged.

    Returns:
        Cluster labels, numbered from 0 in order of first appearance, (n,), int64.
    """
    labels = torch.arange(len(similarity))
    sums, sizes = similarity.double().clone(), torch.ones(len(similarity), dtype=torch.float64)
    while len(sums) > 1:
        means = sums / (sizes[:, None] * sizes)
        means = ((means + means.T) / 2).fill_diagonal_(-torch.inf)
        best, nearest = means.max(dim=1)
        index = torch.arange(len(sums))
        is_mutual = (nearest[nearest] == index) & (best >= cut)
        if not is_mutual.any():
            break
        targets = torch.where(is_mutual, torch.minimum(index, nearest), index)
        new: Tensor = targets.unique(return_inverse=True)[1]
        smaller = torch.zeros(int(new.max()) + 1, len(sums), dtype=torch.float64)
        sums = smaller.index_add(0, new, sums).T.contiguous()
        sums = torch.zeros(len(smaller), len(smaller), dtype=torch.float64).index_add(0, new, sums)
        sizes = torch.zeros(len(smaller), dtype=torch.float64).index_add(0, new, sizes)
        labels = new[labels]
    return labels


def update_profiles(known: ClientProfiles, keys: Tensor, profiles: Tensor) -> ClientProfiles:
    """Add the profiles of a round to the mean profiles, and smooth the profiles of new clients.

    The mean profile of a client with few rounds is replaced by the average of the mean profiles of
    all participants whose profiles in this round are similar to its own. A received model far from
    the optimum distorts all profiles of a round in the same way. The average reduces this error,
    because the mean profiles of the other participants also contain earlier rounds.

    Args:
        known: mean profiles before the round.
        keys: integer keys of the participants (:func:`cadis.types.compute_client_keys`), (k,).
        profiles: profiles of the participants in this round, of norm 1, (k, classes).
    """
    known = known.observe(keys, profiles)
    if len(keys) > MAX_CLUSTERED_CLIENTS:
        return known
    groups = average_linkage(compute_cosines(profiles), _SAME_CLASSES_SIMILARITY)
    mean_profiles, num_rounds = known.get(keys, profiles.shape[1])
    rounds = num_rounds.clamp(max=PROFILE_WINDOW).float()
    sums = torch.zeros(int(groups.max()) + 1, profiles.shape[1] + 1)
    weighted = torch.cat([mean_profiles, torch.ones(len(keys), 1)], dim=1) * rounds[:, None]
    sums = sums.index_add(0, groups, weighted)
    group_mean = (sums[:, :-1] / sums[:, -1:])[groups]
    is_new = num_rounds[:, None] <= _SMOOTHED_ROUNDS
    smoothed = torch.where(is_new, group_mean, mean_profiles)
    return known.update(keys, smoothed, num_rounds)


def find_nearest_center(mean_profiles: Tensor, centers: Tensor) -> Tensor:
    """Return the cluster whose center is nearest to each mean profile, (k,)."""
    return (normalize(mean_profiles) @ centers.T).argmax(dim=1)


def compute_centers(profiles: Tensor, labels: Tensor) -> Tensor:
    """Return the mean profile of each cluster, of norm 1, (clusters, classes)."""
    sums = torch.zeros(int(labels.max()) + 1, profiles.shape[1], dtype=profiles.dtype)
    return normalize(sums.index_add(0, labels, profiles))


def find_threshold_centers(mean_profiles: Tensor, threshold: float) -> Tensor:
    """Cluster mean class profiles with a threshold on their Q-matrix (Eq. 13).

    Args:
        mean_profiles: mean profiles, (n, classes).
        threshold: epsilon.

    Returns:
        The mean profile of each cluster, of norm 1, (clusters, classes).
    """
    profiles = normalize(mean_profiles)
    q = compute_q_matrix(compute_cosines(profiles))
    return compute_centers(profiles, cluster_by_threshold(q, threshold))
