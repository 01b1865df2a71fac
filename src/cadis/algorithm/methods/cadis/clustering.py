"""From similarities to clusters, by a threshold (Eq. 13) or without one, and to weights (Eq. 1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cadis.algorithm.aggregation import example_weights
from cadis.algorithm.methods.cadis.profiles import LONGEST, ClientProfiles
from cadis.algorithm.methods.cadis.similarity import nan_where_unknown
from cadis.algorithm.vectors import cosines, unit

LOOKED_AT = 256  # clients among whom clusters of profiles are found: all, or an even choice of more
_HARDLY_SEEN = 2  # in so many rounds
_MOVED_ALIKE = 0.9  # similarity of profiles of one round that tells clients with the same classes
_CUTS = torch.linspace(0.4, 0.9, 51)  # clients that share most of what they have are above
_AS_GOOD = 0.03  # contrasts that differ by less are about the same
_CONFIDENT = 0.5  # the confidence that clusters are told with at least
_DIRECTIONS = 3  # profiles of so few classes are often alike by chance; they must prove to repeat
_EVERYBODY = -1.0  # the cut below which everybody is in one cluster
_REPEATED = 10  # further rounds of clients seen before that tell whether profiles repeat


def rescale(
    similarity: Tensor,  # observed or estimated, (n, n)
    known: Tensor | None = None,  # which entries say something, all unless told, (n, n)
    lowest: Tensor | None = None,  # the minimum, where the matrix is not that of all clients, ()
) -> Tensor:
    """The Q-matrix: similarities stretched to [0, 1] by their minimum and maximum.

    The diagonal takes part, so that the maximum is always a client's similarity to itself: a
    federation without clusters yields none. If all known entries are equal, everybody is alike.
    Where nothing is known, q_ij is NaN.
    """
    if known is None:
        known = torch.ones_like(similarity, dtype=torch.bool)
    values = nan_where_unknown(similarity, known.clone().fill_diagonal_(True))
    if lowest is None:
        lowest = values.nan_to_num(nan=torch.inf).min()
    spread = values.nan_to_num(nan=-torch.inf).max() - lowest
    return (values - lowest) / spread if spread > 0 else values * 0 + 1


def cluster(q: Tensor, threshold: float) -> Tensor:
    """Clusters: connected components of the graph with an edge where q_ij >= threshold (Eq. 13).

    NaN is no edge. Labels are numbered from 0 in order of first appearance, (n,), int64.
    """
    if not len(q):
        return torch.zeros(0, dtype=torch.long)
    edges = (q >= threshold).fill_diagonal_(True)
    edges = edges | edges.T
    labels = torch.arange(len(q))
    while True:  # everybody takes the least label around; ends after about log(n) turns
        least = torch.where(edges, labels, len(q)).amin(dim=1)
        least = least[least]
        if torch.equal(least, labels):
            numbered: Tensor = torch.unique(labels, return_inverse=True)[1]
            return numbered
        labels = least


def threshold_at(round: int, start: float, growth: float, maximum: float) -> float:  # noqa: A002
    """The threshold epsilon, "updated upward after every round" up to its maximum."""
    try:
        return min(maximum, start * (1 + growth) ** round)
    except OverflowError:
        return maximum if start > 0 else 0.0


def cluster_weights(
    num_examples: Tensor | Sequence[int],  # n_i of each participant, (k,)
    cluster_of_client: Tensor | Sequence[int],  # the participants' labels, (k,)
    cardinality: Tensor | Sequence[int] | None = None,  # M_i, the size of each one's cluster, (k,)
) -> Tensor:
    """Every cluster an equal voice: alpha_i = (1 / M_i)(n_i / N), normalised (Eq. 1 and 2).

    The cardinality is counted among the participants, if it is left out. The weights are float64.
    """
    if cardinality is None:
        labels = torch.as_tensor(cluster_of_client)
        cardinality = (labels[:, None] == labels[None, :]).sum(dim=1)
    shares = example_weights(num_examples) / torch.as_tensor(cardinality)
    return shares / shares.sum()


@dataclass(frozen=True)
class Cut:
    """Where similarities are cut into clusters."""

    at: float  # how alike clients of a cluster are on the average; -1 makes all one cluster
    confidence: float  # from 0 to 1, how sure it is that there are clusters at all

    def if_confident(self) -> "Cut":
        """The same, or none where it is not sure enough that there are clusters."""
        confidence = max(0.0, self.confidence)
        return Cut(self.at if confidence >= _CONFIDENT else _EVERYBODY, confidence)


def contrast_cut(similarity: Tensor, rounds: float = 1.0) -> Cut:
    """The cut that has many pairs above it and few just below.

    With A pairs from x to 1, and B from 2x - 1 to x, which is as wide, the contrast of n clients
    after r rounds each is (A - B) / (A + B + n / 2r). Where clients come in clusters, many pairs
    are alike and few are nearly alike, so that it is near 1 for some x; where they are only more or
    less alike, or not at all, pairs are the rarer the more alike they are, and it is below 0. The
    n / 2r keeps few pairs from telling much, unless they were seen often.

    Returns:
        The lowest of the cuts around the best that are about as good, so that nobody is left alone
        for want of a little likeness; and the highest contrast.
    """
    number = len(similarity)
    rows, columns = torch.triu_indices(number, number, offset=1)
    values = similarity[rows, columns].double().sort().values
    cuts = _CUTS.double()
    above = len(values) - torch.searchsorted(values, cuts)
    below = len(values) - torch.searchsorted(values, 2 * cuts - 1) - above
    contrast = (above - below) / (above + below + number / (2 * rounds))
    best = int(contrast.argmax())
    worse = (contrast[:best] < contrast[best] - _AS_GOOD).nonzero()
    lowest = int(worse.max()) + 1 if len(worse) else 0
    return Cut(float(cuts[lowest]), float(contrast[best]))


def repeatability(mean: Tensor, count: Tensor) -> float | None:
    """How alike a client's profiles of different rounds are; None if too few were seen twice.

    It is their mean cosine. The square of the length of a mean of m vectors of length 1 is the mean
    of all their cosines, m of which are those of a vector with itself.
    """
    rounds = count.double().clamp(max=LONGEST)
    pairs = (rounds * (rounds - 1)).sum()
    if (rounds - 1).clamp(min=0).sum() < _REPEATED:
        return None
    squares = mean.double().square().sum(dim=1)
    return float((rounds.square() * squares - rounds).clamp(min=0).sum() / pairs)


def average_linkage(similarity: Tensor, cut: float) -> Tensor:
    """Average linkage: join the two clusters that are most alike on the average, down to a cut.

    Pairs of clusters that are each other's nearest are joined at once, which comes to the same.
    Labels are numbered from 0 in order of first appearance, (n,), int64.
    """
    labels = torch.arange(len(similarity))
    sums, sizes = similarity.double().clone(), torch.ones(len(similarity), dtype=torch.float64)
    while len(sums) > 1:
        means = sums / (sizes[:, None] * sizes)
        means = ((means + means.T) / 2).fill_diagonal_(-torch.inf)
        best, nearest = means.max(dim=1)
        own = torch.arange(len(sums))
        mutual = (nearest[nearest] == own) & (best >= cut)
        if not mutual.any():
            break
        joined = torch.where(mutual, torch.minimum(own, nearest), own)
        new: Tensor = joined.unique(return_inverse=True)[1]
        smaller = torch.zeros(int(new.max()) + 1, len(sums), dtype=torch.float64)
        sums = smaller.index_add(0, new, sums).T.contiguous()
        sums = torch.zeros(len(smaller), len(smaller), dtype=torch.float64).index_add(0, new, sums)
        sizes = torch.zeros(len(smaller), dtype=torch.float64).index_add(0, new, sizes)
        labels = new[labels]
    return labels


def update_profiles(known: ClientProfiles, keys: Tensor, profiles: Tensor) -> ClientProfiles:
    """What is known after a round: mean profiles, in which those hardly seen yet lean on others.

    They take on the mean profile of those who moved as they did in this round. Where the model that
    everybody received is far off, all participants' profiles are, in the same way; who was seen in
    other rounds, too, tells what they are like otherwise. The profiles of the round are of length 1
    each, (k, classes).
    """
    known = known.observe(keys, profiles)
    if len(keys) > LOOKED_AT:
        return known
    alike = average_linkage(cosines(profiles), _MOVED_ALIKE)
    mean, count = known.of(keys, profiles.shape[1])
    rounds = count.clamp(max=LONGEST).float()
    groups = torch.zeros(int(alike.max()) + 1, profiles.shape[1] + 1)
    weighed = torch.cat([mean, torch.ones(len(keys), 1)], dim=1) * rounds[:, None]
    groups = groups.index_add(0, alike, weighed)
    common = (groups[:, :-1] / groups[:, -1:])[alike]
    return known.put(keys, torch.where(count[:, None] <= _HARDLY_SEEN, common, mean), count)


def nearest_centre(mean: Tensor, centres: Tensor) -> Tensor:
    """The cluster with the nearest centre, for clients with these mean profiles, (k,)."""
    return (unit(mean) @ centres.T).argmax(dim=1)


@dataclass(frozen=True)
class ProfileClusters:
    """Clusters of clients, by their profiles."""

    centres: Tensor  # their mean profiles, of length 1, (m, classes)
    cut: Cut  # where similarities were cut

    def of(self, mean: Tensor) -> Tensor:
        """The clusters of clients with these mean profiles, (k,)."""
        return nearest_centre(mean, self.centres)


def found_clusters(mean: Tensor, count: Tensor, threshold: float | None = None) -> ProfileClusters:
    """The clusters of clients with these mean profiles, (n, classes), of so many rounds, (n,).

    A threshold, epsilon, cuts the Q-matrix as the paper does (Eq. 13).
    """
    profiles = unit(mean)
    similarity = cosines(profiles)
    if threshold is not None:
        labels, cut = cluster(rescale(similarity), threshold), Cut(threshold, 1.0)
    else:
        rounds = float(count.double().clamp(max=LONGEST).mean())
        cut = contrast_cut(similarity, rounds)
        cut = Cut(cut.at, _confidence(cut, mean, count)).if_confident()
        labels = average_linkage(similarity, cut.at)
    sums = torch.zeros(int(labels.max()) + 1, mean.shape[1])
    return ProfileClusters(unit(sums.index_add(0, labels, profiles)), cut)


def _confidence(cut: Cut, mean: Tensor, count: Tensor) -> float:
    """That of a cut of profiles, which is no more than they repeat from round to round."""
    repeated = repeatability(mean, count)
    if repeated is not None:
        return min(cut.confidence, repeated)
    return cut.confidence if mean.shape[1] > _DIRECTIONS else 0.0
