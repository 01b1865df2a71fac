"""Clusters without a threshold: the cut is read off the similarities of class profiles."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cadis.algorithm.methods.cadis.clustering import cluster, rescale
from cadis.algorithm.methods.cadis.profiles import LONGEST, ClientProfiles
from cadis.algorithm.vectors import cosines, unit

LOOKED_AT = 256
"""Clients among whom clusters of profiles are looked for: all, or an even choice of more."""

_HARDLY_SEEN = 2
"""In so many rounds."""

_MOVED_ALIKE = 0.9
"""How alike the profiles of one round are of clients that most likely have the same classes."""

_CUTS = torch.linspace(0.4, 0.9, 51)
"""Where similarities may be cut: clients that share most of what they have are above."""

_AS_GOOD = 0.03
"""Contrasts that differ by less are about the same."""

_CONFIDENT = 0.5
"""The confidence that clusters are told with at least."""

_DIRECTIONS = 3
"""Profiles of so few classes are too often alike by chance; they must prove to be repeatable."""

_EVERYBODY = -1.0
"""The cut below which everybody is in one cluster."""

_REPEATED = 10
"""So many further rounds of clients that were seen before tell whether profiles repeat."""


@dataclass(frozen=True)
class Cut:
    """Where similarities are cut into clusters.

    Attributes:
        at: how alike clients of one cluster are on the average; -1 makes everybody one cluster.
        confidence: from 0 to 1, how sure it is that there are clusters at all.
    """

    at: float
    confidence: float

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

    Args:
        similarity: of all pairs, (n, n).
        rounds: r, how many rounds of a client it comes from, on the average.

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
    """How alike the profiles of a client are in its different rounds: their mean cosine.

    The square of the length of a mean of m vectors of length 1 is the mean of all their cosines,
    m of which are those of a vector with itself.

    Args:
        mean: clients' mean profiles, (n, classes).
        count: of how many rounds, (n,).

    Returns:
        None as long as too few clients were seen twice.
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

    Args:
        similarity: of all pairs, (n, n).
        cut: clusters that are less alike stay apart.

    Returns:
        A label per client, numbered from 0 in order of first appearance, (n,), int64.
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
    other rounds, too, tells what they are like otherwise.

    Args:
        known: what was known before.
        keys: of the participants, (k,).
        profiles: theirs in this round, of length 1 each, (k, classes).
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
    return known.replaced(keys, torch.where(count[:, None] <= _HARDLY_SEEN, common, mean))


@dataclass(frozen=True)
class ProfileClusters:
    """Clusters of clients, by their profiles.

    Attributes:
        centres: their mean profiles, of length 1, (m, classes).
        cut: where similarities were cut.
    """

    centres: Tensor
    cut: Cut

    def of(self, mean: Tensor) -> Tensor:
        """The cluster with the nearest centre, for clients with these mean profiles, (k,)."""
        return (unit(mean) @ self.centres.T).argmax(dim=1)


def found_clusters(mean: Tensor, count: Tensor, threshold: float | None = None) -> ProfileClusters:
    """The clusters of clients with these profiles.

    Args:
        mean: their mean profiles, (n, classes).
        count: in how many rounds each took part, (n,).
        threshold: epsilon, to cut the Q-matrix at as the paper does (Eq. 13).
    """
    profiles = unit(mean)
    similarity = cosines(profiles)
    if threshold is not None:
        everything = torch.ones_like(similarity, dtype=torch.bool)
        labels, cut = cluster(rescale(similarity, everything), threshold), Cut(threshold, 1.0)
    else:
        rounds = float(count.double().clamp(max=LONGEST).mean())
        cut = _decided(contrast_cut(similarity, rounds), mean, count)
        labels = average_linkage(similarity, cut.at)
    sums = torch.zeros(int(labels.max()) + 1, mean.shape[1])
    return ProfileClusters(unit(sums.index_add(0, labels, profiles)), cut)


def _decided(cut: Cut, mean: Tensor, count: Tensor) -> Cut:
    """A cut of profiles, as confident as they repeat from round to round."""
    repeated, confidence = repeatability(mean, count), cut.confidence
    if repeated is not None:
        confidence = min(confidence, repeated)
    elif mean.shape[1] <= _DIRECTIONS:
        confidence = 0.0
    return Cut(cut.at, confidence).if_confident()
