"""How alike are two clients? Section III-B of the paper, "Similarity Estimation"."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cadis._io import spread
from cadis.algorithm.methods.cadis.transitive import Estimates, bring_up_to_date
from cadis.errors import CadisError
from cadis.types import ClientId, ids_from_tensor, ids_to_tensor

TransitiveMode: TypeAlias = Literal["mean", "sample", "off"]

_SHIFT = 32  # a pair is one number: the later row, and in its last 32 bits the earlier one
_AT_ONCE = 50_000  # numbers of signatures that are worked on at once, and fit into the cache


def instance_similarity(signatures: Tensor) -> Tensor:
    """Cosine similarity s^t_ij of the clients' head updates in one round (Eq. 11), (k, k).

    A signature is a client's update of the classifier layer, flat, (d,). A zero update has
    similarity 0 to every other client and 1 to itself.
    """
    highest, lowest = signatures.amax(dim=1, keepdim=True), signatures.amin(dim=1, keepdim=True)
    largest = torch.maximum(highest, -lowest)
    largest = torch.where(largest > 0, largest, 1)  # (k, 1); scaling avoids overflow
    products = signatures.new_zeros(len(signatures), len(signatures))
    for part in signatures.split(max(1, _AT_ONCE // max(1, len(signatures))), dim=1):
        scaled = part / largest
        products.addmm_(scaled, scaled.T)
    norms = products.diagonal().sqrt()
    norms = torch.where(norms > 0, norms, 1)  # (k,)
    cosines = products / (norms[:, None] * norms)
    cosines = ((cosines + cosines.T) / 2).clamp(-1, 1)
    return cosines.fill_diagonal_(1)


def running_mean(mean: Tensor, count: Tensor, similarity: Tensor) -> Tensor:
    """The cumulative similarity s_ij after one more observation s^t_ij (Eq. 12).

    It was observed f_ij times before, the count; where that is 0, the mean does not matter.
    """
    times = count.to(mean.dtype)
    return times / (times + 1) * mean + similarity.to(mean.dtype) / (times + 1)


@dataclass(frozen=True)
class SimilarityMatrix:
    """Who resembles whom, s_ij, observed or estimated, as a matrix of all pairs of some clients.

    For pictures, and for clusters among all clients of a federation. What is observed alone, of
    any number of clients, is in :class:`ObservedPairs`.

    It is a value: every method returns a new matrix and leaves this one as it is.

    Attributes:
        client_ids: the order of rows and columns; clients join at the end.
        mean: mean of the observed similarities; an estimate, or 0 for want of one, where a
            pair was never observed, (n, n).
        count: f_ij, in how many rounds both took part; 0 for an estimate, (n, n).
        known: where ``mean`` says something: observed or estimated, (n, n).
    """

    client_ids: tuple[ClientId, ...] = ()
    mean: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    count: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.int32))
    known: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.bool))
    _estimates: Estimates | None = field(default=None, repr=False)

    def observe(self, client_ids: Sequence[ClientId], similarity: Tensor) -> "SimilarityMatrix":
        """Fold one round's instance similarities, (k, k), into the running means.

        An estimate is replaced for good by the first observation, since its count is 0.
        """
        check_observation(client_ids, similarity)
        ids = tuple(dict.fromkeys((*self.client_ids, *client_ids)))
        before = len(self.client_ids)
        joined = len(ids) - before
        room = (0, joined, 0, joined)  # padding makes copies, even if nobody joined
        mean = F.pad(self.mean if before else self.mean.to(similarity.dtype), room)
        count, known = F.pad(self.count, room), F.pad(self.known, room)
        mean.diagonal()[before:] = 1
        known.diagonal()[before:] = True
        rows = index_of(client_ids, ids)
        block = (rows[:, None], rows[None, :])
        mean[block] = running_mean(mean[block], count[block], similarity)
        count[block] += 1
        known[block] = True
        estimates = self._estimates and self._estimates.outdate(rows, joined)
        return SimilarityMatrix(ids, mean, count, known, estimates)

    def estimate_missing(
        self,
        gamma: float,  # the largest deviation that a helper's estimate may have
        mode: TransitiveMode,
        generator: torch.Generator | None = None,  # the source of draws; only "sample" needs it
        helping: Tensor | None = None,
    ) -> "SimilarityMatrix":
        """Fill in pairs never observed together by transitive learning (Section III-C).

        Only direct observations are built on, never estimates. A pair without any helper client
        stays unknown. The mode "sample" draws the estimate as the paper does, "mean" takes its
        expectation, "off" leaves what was not observed unknown. Helpers are the clients in this
        matrix, unless ``helping`` has what was observed of others, NaN where it is nothing, (p, n).
        """
        observed = self.count > 0
        direct = nan_where_unknown(self.mean, observed)
        if mode == "off":
            return SimilarityMatrix(self.client_ids, direct.nan_to_num(), self.count, observed)
        estimates = self._estimates
        if estimates is None or estimates.gamma != gamma:
            estimates = Estimates.none(len(self.client_ids), gamma, self.mean.dtype)
        estimates = bring_up_to_date(estimates, direct, helping)
        values = estimates.mean
        if mode == "sample":
            if generator is None:
                raise CadisError('Transitive learning with mode "sample" needs a generator.')
            draws = torch.randn(values.shape, generator=generator, dtype=values.dtype).triu(1)
            draws = draws + draws.T  # one a pair
            values = (values + estimates.deviation * draws).clamp(-1, 1)
        mean = direct.nan_to_num() + values.nan_to_num()  # where one is known, the other is not
        known = observed | ~estimates.mean.isnan()
        return replace(self, mean=mean, known=known, _estimates=estimates)

    def index_of(self, client_ids: Sequence[ClientId]) -> Tensor:
        """The rows of these clients, (k,)."""
        return index_of(client_ids, self.client_ids)

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        ids = ids_to_tensor(self.client_ids)
        own = {"client_ids": ids, "mean": self.mean, "count": self.count, "known": self.known}
        return own | (self._estimates.to_tensors() if self._estimates else {})

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "SimilarityMatrix":
        """The inverse of :meth:`to_tensors`; without any tensors, the empty matrix."""
        if not tensors:
            return cls()
        ids = ids_from_tensor(tensors["client_ids"])
        estimates = Estimates.from_tensors(tensors)
        return cls(ids, tensors["mean"], tensors["count"], tensors["known"], estimates)


@dataclass(frozen=True)
class ObservedPairs:
    """The server's memory of who resembles whom, s_ij (Eq. 12), of the pairs that have met.

    It grows with these, not with all pairs of clients: of 10,000 clients, 100 a round, all have
    taken part after about 900 rounds, and one pair in eleven has met. It is a value: observing
    makes a new table and leaves this one as it is.

    Attributes:
        client_ids: the rows; clients join at the end.
        pair: ``later << 32 | earlier`` of two clients' rows, ascending, (pairs,).
        mean: mean of their observed similarities, (pairs,).
        count: f_ij, in how many rounds both took part, (pairs,).
    """

    client_ids: tuple[ClientId, ...] = ()
    pair: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    mean: Tensor = field(default_factory=lambda: torch.zeros(0))
    count: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))

    def observe(
        self, client_ids: Sequence[ClientId], similarity: Tensor
    ) -> tuple["ObservedPairs", Tensor]:
        """Fold one round's instance similarities, (k, k), into the running means.

        Return the table after the round, and the participants' cumulative similarities, (k, k).
        """
        check_observation(client_ids, similarity)
        ids = tuple(dict.fromkeys((*self.client_ids, *client_ids)))
        rows = index_of(client_ids, ids)
        later, earlier = rows.argsort()[torch.tril_indices(len(rows), len(rows), -1)]
        pair = rows[later] << _SHIFT | rows[earlier]  # ascending
        places, old = self._make_room(pair)
        known, count = spread(self.pair, old), spread(self.count, old)  # new pairs: 0 times
        mean = spread(self.mean if len(self.mean) else self.mean.to(similarity.dtype), old)
        values = running_mean(mean[places], count[places], similarity[later, earlier])
        known[places], mean[places] = pair, values
        count[places] += 1
        together = torch.ones(similarity.shape, dtype=mean.dtype)
        together[later, earlier] = together[earlier, later] = values
        return ObservedPairs(ids, known, mean, count), together

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """The mean similarities of pairs of rows; NaN where two never met, 1 of one with itself.

        Rows and others are of any shapes that broadcast.
        """
        rows, others = torch.broadcast_tensors(rows, others)
        found = torch.full(rows.shape, torch.nan, dtype=self.mean.dtype)
        if len(self.pair):
            pair = torch.maximum(rows, others) << _SHIFT | torch.minimum(rows, others)
            places = torch.searchsorted(self.pair, pair).clamp(max=len(self.pair) - 1)
            found = torch.where(self.pair[places] == pair, self.mean[places], found)
        return torch.where(rows == others, 1, found)

    def lowest(self) -> Tensor:
        """The smallest mean of all pairs, or 1, as everybody is like himself, if none has met; ().

        Estimates of the other pairs (Section III-C) cannot be smaller as soon as it is not above
        0, so that it is then the minimum of all that is known: an estimate is a mean of products
        s_ip * s_jp; no product is below 0 unless one of the two is, and then it is not below that
        one, since the other is at most 1.
        """
        return self.mean.min() if len(self.mean) else torch.ones(())

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        ids = ids_to_tensor(self.client_ids)
        return {"client_ids": ids, "pair": self.pair, "mean": self.mean, "count": self.count}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ObservedPairs":
        """The inverse of :meth:`to_tensors`; without any tensors, the empty table."""
        if not tensors:
            return cls()
        ids, *table = (tensors[name] for name in ("client_ids", "pair", "mean", "count"))
        return cls(ids_from_tensor(ids), *table)

    def _make_room(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Where these pairs are in a table that has them, too, (k,), and which others it has."""
        places = torch.searchsorted(self.pair, pair)
        new = torch.ones_like(pair, dtype=torch.bool)
        if len(self.pair):
            new = self.pair[places.clamp(max=len(self.pair) - 1)] != pair
        places = places + new.cumsum(dim=0) - new.long()  # moved by the new ones before them
        old = torch.ones(len(self.pair) + int(new.sum()), dtype=torch.bool)
        old[places[new]] = False
        return places, old


def index_of(client_ids: Sequence[ClientId], rows: Sequence[ClientId]) -> Tensor:
    """The rows of these clients, (k,), where the clients of all rows are given."""
    row_of = {client: row for row, client in enumerate(rows)}
    return torch.tensor([row_of[client] for client in client_ids], dtype=torch.long)


def check_observation(client_ids: Sequence[ClientId], similarity: Tensor) -> None:
    """Refuse similarities that are not those of different clients."""
    if len(set(client_ids)) != len(client_ids):
        raise CadisError("A client took part twice in one round; give every client its own id.")
    if similarity.shape != (len(client_ids), len(client_ids)):
        raise CadisError(
            f"{len(client_ids)} clients need a similarity matrix of that size, "
            f"not {tuple(similarity.shape)}."
        )


def nan_where_unknown(values: Tensor, known: Tensor) -> Tensor:
    """The values where they are known, NaN elsewhere.

    As ``torch.where(known, values, nan)``, but without a branch for each number, which on the
    server's n x n matrices is ten times as fast: 0 / 0 is NaN, and 1 / 1 is 1.
    """
    one = known.to(values.dtype)
    return values * (one / one)
