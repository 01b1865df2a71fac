"""Who was observed to resemble whom, as a table of the pairs of clients that have met."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cadis._io import spread
from cadis.algorithm.methods.cadis.similarity import check_observation, running_mean
from cadis.types import ClientId, ids_from_tensor, ids_to_tensor

_SHIFT = 32
"""A pair is one number: the row of who joined later, and in its last 32 bits that of the other."""


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
        """Fold one round's similarities into the running means.

        Args:
            client_ids: who took part.
            similarity: their instance similarities in that order, (k, k).

        Returns:
            The table after the round, and the participants' cumulative similarities, (k, k).
        """
        check_observation(client_ids, similarity)
        ids = tuple(dict.fromkeys((*self.client_ids, *client_ids)))
        pair, (later, earlier) = _pairs(ids, client_ids)
        grown, places = self._with(pair, similarity.dtype)
        mean, count = grown.mean, grown.count  # new ones, which nobody else holds
        values = running_mean(mean[places], count[places], similarity[later, earlier])
        mean[places] = values
        count[places] += 1
        together = torch.ones(similarity.shape, dtype=mean.dtype)
        together[later, earlier] = together[earlier, later] = values
        return ObservedPairs(ids, grown.pair, mean, count), together

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """The mean similarities of pairs of rows; NaN where two never met, 1 of one with itself.

        Args:
            rows: of some clients, of any shape.
            others: of those to compare them with, of a shape that goes with it.
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

    def _with(self, pair: Tensor, dtype: torch.dtype) -> tuple["ObservedPairs", Tensor]:
        """A copy that has these pairs, too, and where they are in it, (pairs,).

        Those that are new were observed 0 times.
        """
        places = torch.searchsorted(self.pair, pair)
        new = torch.ones_like(pair, dtype=torch.bool)
        if len(self.pair):
            new = self.pair[places.clamp(max=len(self.pair) - 1)] != pair
        places = places + new.cumsum(dim=0) - new.long()  # moved by the new ones before them
        old = torch.ones(len(self.pair) + int(new.sum()), dtype=torch.bool)
        old[places[new]] = False
        grown = spread(self.pair, old)
        grown[places] = pair
        mean = self.mean if len(self.mean) else self.mean.to(dtype)
        values = spread(mean, old), spread(self.count, old)
        return ObservedPairs(self.client_ids, grown, *values), places


def _pairs(
    ids: Sequence[ClientId], client_ids: Sequence[ClientId]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The numbers of all pairs of some clients, ascending, and their places among these clients.

    Args:
        ids: the rows.
        client_ids: k of them, in any order.
    """
    row_of = {client: row for row, client in enumerate(ids)}
    rows = torch.tensor([row_of[client] for client in client_ids], dtype=torch.int64)
    order = rows.argsort()
    later, earlier = order[torch.tril_indices(len(rows), len(rows), -1)]
    return rows[later] << _SHIFT | rows[earlier], (later, earlier)
