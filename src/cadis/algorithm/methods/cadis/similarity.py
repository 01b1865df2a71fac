"""Similarity of clients: Section III-B.2 of the paper, "Similarity Estimation"."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cadis._io import scatter_rows
from cadis.algorithm.methods.cadis.transitive import Estimates, update_estimates
from cadis.errors import CadisError
from cadis.types import ClientId, ids_from_tensor, ids_to_tensor

TransitiveMode: TypeAlias = Literal["mean", "sample", "off"]

_ROW_BITS = 32  # a pair of rows is stored as one integer: larger << 32 | smaller
_CHUNK_NUMEL = 50_000  # numbers that are multiplied at once, so that they fit into the cache


def instance_similarity(signatures: Tensor) -> Tensor:
    """Return the instance similarity s^t_ij of the participants of a round (Eq. 11).

    ``s^t_ij = <W_i - W_g, W_j - W_g> / (||W_i - W_g|| ||W_j - W_g||)``: the cosine similarity of
    the updates of the classifier layer, which the paper calls the penultimate layer.

    Args:
        signatures: updates of the classifier layer, W_i - W_g, flat, (k, d).

    Returns:
        Cosines, (k, k), exactly 1 on the diagonal. A zero update has similarity 0 to all others.

    Example:
        >>> import torch
        >>> from cadis.algorithm.methods.cadis import instance_similarity
        >>> instance_similarity(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])).tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    highest, lowest = signatures.amax(dim=1, keepdim=True), signatures.amin(dim=1, keepdim=True)
    largest = torch.maximum(highest, -lowest)
    largest = torch.where(largest > 0, largest, 1)  # (k, 1); scaling avoids overflow
    products = signatures.new_zeros(len(signatures), len(signatures))
    for part in signatures.split(max(1, _CHUNK_NUMEL // max(1, len(signatures))), dim=1):
        scaled = part / largest
        products.addmm_(scaled, scaled.T)
    norms = products.diagonal().sqrt()
    norms = torch.where(norms > 0, norms, 1)  # (k,)
    cosines = products / (norms[:, None] * norms)
    cosines = ((cosines + cosines.T) / 2).clamp(-1, 1)
    return cosines.fill_diagonal_(1)


def cumulative_similarity(mean: Tensor, count: Tensor, similarity: Tensor) -> Tensor:
    """Return the cumulative similarity s_ij after one more observation (Eq. 12).

    ``s_ij <- f_ij / (f_ij + 1) * s_ij + 1 / (f_ij + 1) * s^t_ij``, a running mean.

    Args:
        mean: s_ij before the round, of any shape; ignored where the count is 0.
        count: f_ij, number of earlier rounds with both clients, of the same shape.
        similarity: s^t_ij of this round, of the same shape.
    """
    times = count.to(mean.dtype)
    return times / (times + 1) * mean + similarity.to(mean.dtype) / (times + 1)


@dataclass(frozen=True)
class SimilarityMatrix:
    """The similarity matrix s_ij of all pairs of clients, observed or estimated.

    It is used for figures, and to cluster all clients of a federation. For very many clients,
    :class:`ObservedPairs` stores only the observed pairs. Matrices are immutable: every method
    returns a new matrix.

    Attributes:
        client_ids: clients of the rows and columns; new clients are appended.
        mean: mean of the observed similarities; for other pairs, the estimate or 0, (n, n).
        count: f_ij, number of rounds with both clients; 0 for a pair never observed, (n, n).
        known: mask of the pairs that are observed or estimated, (n, n).
        profiles: if the similarities are cosines of mean class profiles, these profiles,
            (n, classes).
    """

    client_ids: tuple[ClientId, ...] = ()
    mean: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    count: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.int32))
    known: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.bool))
    _estimates: Estimates | None = field(default=None, repr=False)
    profiles: Tensor | None = None

    def observe(self, client_ids: Sequence[ClientId], similarity: Tensor) -> "SimilarityMatrix":
        """Add the instance similarities of a round, (k, k), to the running means (Eq. 12).

        The first observation replaces an estimate, since the count of an estimate is 0.
        """
        check_observation(client_ids, similarity)
        ids = tuple(dict.fromkeys((*self.client_ids, *client_ids)))
        before = len(self.client_ids)
        num_new = len(ids) - before
        padding = (0, num_new, 0, num_new)  # F.pad copies, even without new clients
        mean = F.pad(self.mean if before else self.mean.to(similarity.dtype), padding)
        count, known = F.pad(self.count, padding), F.pad(self.known, padding)
        mean.diagonal()[before:] = 1
        known.diagonal()[before:] = True
        rows = find_rows(client_ids, ids)
        block = (rows[:, None], rows[None, :])
        mean[block] = cumulative_similarity(mean[block], count[block], similarity)
        count[block] += 1
        known[block] = True
        estimates = self._estimates and self._estimates.mark_outdated(rows, num_new)
        return SimilarityMatrix(ids, mean, count, known, estimates)

    def estimate_missing(
        self,
        gamma: float,
        mode: TransitiveMode,
        generator: torch.Generator | None = None,
        helpers: Tensor | None = None,
    ) -> "SimilarityMatrix":
        """Estimate pairs that were never observed with transitive learning (Section III-C).

        The similarity of clients i and j is estimated from their observed similarities to a third
        client p, the helper. Estimates never use other estimates. A pair without a helper stays
        unknown.

        Args:
            gamma: largest standard deviation of an estimate with one helper.
            mode: "sample" draws the estimate at random as in the paper, "mean" uses the expected
                value, "off" estimates nothing.
            generator: random generator for the mode "sample".
            helpers: observed similarities of p helpers with the n clients, NaN where unknown,
                (p, n); by default the clients of this matrix are the helpers.
        """
        observed = self.count > 0
        direct = mask_unknown(self.mean, observed)
        if mode == "off":
            return SimilarityMatrix(self.client_ids, direct.nan_to_num(), self.count, observed)
        estimates = self._estimates
        if estimates is None or estimates.gamma != gamma:
            estimates = Estimates.empty(len(self.client_ids), gamma, self.mean.dtype)
        estimates = update_estimates(estimates, direct, helpers)
        values = estimates.mean
        if mode == "sample":
            if generator is None:
                raise CadisError('Transitive learning with mode "sample" needs a generator.')
            noise = torch.randn(values.shape, generator=generator, dtype=values.dtype).triu(1)
            noise = noise + noise.T  # one draw per pair
            values = (values + estimates.deviation * noise).clamp(-1, 1)
        mean = direct.nan_to_num() + values.nan_to_num()  # at least one of the two is NaN
        known = observed | ~estimates.mean.isnan()
        return replace(self, mean=mean, known=known, _estimates=estimates)

    def find_rows(self, client_ids: Sequence[ClientId]) -> Tensor:
        """Return the row of each client, (k,)."""
        return find_rows(client_ids, self.client_ids)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the matrix as named tensors for a checkpoint."""
        ids = ids_to_tensor(self.client_ids)
        matrix = {"client_ids": ids, "mean": self.mean, "count": self.count, "known": self.known}
        return matrix | (self._estimates.to_tensors() if self._estimates else {})

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "SimilarityMatrix":
        """Restore the result of :meth:`to_tensors`; without tensors, the empty matrix."""
        if not tensors:
            return cls()
        ids = ids_from_tensor(tensors["client_ids"])
        estimates = Estimates.from_tensors(tensors)
        return cls(ids, tensors["mean"], tensors["count"], tensors["known"], estimates)


@dataclass(frozen=True)
class ObservedPairs:
    """Cumulative similarities s_ij (Eq. 12) of the pairs that were observed together.

    The table contains these pairs only, which are few if there are many clients: with 10,000
    clients and 100 per round, every client has taken part after about 900 rounds, but only one pair
    in eleven has been observed. Tables are immutable: :meth:`observe` returns a new table.

    Attributes:
        client_ids: the client of each row number; new clients are appended.
        pair: each pair as one integer, ``larger << 32 | smaller`` row number, ascending, (pairs,).
        mean: mean of the observed similarities of each pair, (pairs,).
        count: f_ij, number of rounds with both clients, (pairs,).
    """

    client_ids: tuple[ClientId, ...] = ()
    pair: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    mean: Tensor = field(default_factory=lambda: torch.zeros(0))
    count: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))

    def observe(
        self, client_ids: Sequence[ClientId], similarity: Tensor
    ) -> tuple["ObservedPairs", Tensor]:
        """Add the instance similarities of a round, (k, k), to the running means (Eq. 12).

        Returns:
            The table after the round, and the cumulative similarities of the participants, (k, k).
        """
        check_observation(client_ids, similarity)
        ids = tuple(dict.fromkeys((*self.client_ids, *client_ids)))
        rows = find_rows(client_ids, ids)
        larger, smaller = rows.argsort()[torch.tril_indices(len(rows), len(rows), -1)]
        pair = rows[larger] << _ROW_BITS | rows[smaller]  # ascending
        index, is_old = self._find_insertion(pair)
        pairs, count = scatter_rows(self.pair, is_old), scatter_rows(self.count, is_old)
        mean = self.mean if len(self.mean) else self.mean.to(similarity.dtype)
        mean = scatter_rows(mean, is_old)
        values = cumulative_similarity(mean[index], count[index], similarity[larger, smaller])
        pairs[index], mean[index] = pair, values
        count[index] += 1
        matrix = torch.ones(similarity.shape, dtype=mean.dtype)
        matrix[larger, smaller] = matrix[smaller, larger] = values
        return ObservedPairs(ids, pairs, mean, count), matrix

    def get_similarity(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the mean similarity of pairs of clients.

        Args:
            rows: row numbers of clients.
            others: row numbers of the other clients, of a shape that broadcasts with ``rows``.

        Returns:
            Similarities of the broadcast shape; NaN for a pair that was never observed, and 1 for a
            client with itself.
        """
        rows, others = torch.broadcast_tensors(rows, others)
        similarity = torch.full(rows.shape, torch.nan, dtype=self.mean.dtype)
        if len(self.pair):
            pair = torch.maximum(rows, others) << _ROW_BITS | torch.minimum(rows, others)
            index = torch.searchsorted(self.pair, pair).clamp(max=len(self.pair) - 1)
            similarity = torch.where(self.pair[index] == pair, self.mean[index], similarity)
        return torch.where(rows == others, 1, similarity)

    def min_similarity(self) -> Tensor:
        """Return the smallest mean similarity of all pairs; 1 if there are no pairs.

        If it is not positive, no transitive estimate of another pair (Section III-C) is smaller.
        Such an estimate is a mean of products s_ip * s_jp. A negative product has one negative
        factor, and it is not smaller than this factor, since the other factor is at most 1.
        """
        return self.mean.min() if len(self.mean) else torch.ones(())

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the table as named tensors for a checkpoint."""
        ids = ids_to_tensor(self.client_ids)
        return {"client_ids": ids, "pair": self.pair, "mean": self.mean, "count": self.count}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "ObservedPairs":
        """Restore the result of :meth:`to_tensors`; without tensors, the empty table."""
        if not tensors:
            return cls()
        ids, *table = (tensors[name] for name in ("client_ids", "pair", "mean", "count"))
        return cls(ids_from_tensor(ids), *table)

    def _find_insertion(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Find where to insert pairs.

        Returns:
            The index of each given pair in the new table, (k,), and the mask of the rows of the new
            table that exist already, (new pairs,).
        """
        index = torch.searchsorted(self.pair, pair)
        is_new = torch.ones_like(pair, dtype=torch.bool)
        if len(self.pair):
            is_new = self.pair[index.clamp(max=len(self.pair) - 1)] != pair
        index = index + is_new.cumsum(dim=0) - is_new.long()  # new pairs shift later ones
        is_old = torch.ones(len(self.pair) + int(is_new.sum()), dtype=torch.bool)
        is_old[index[is_new]] = False
        return index, is_old


def find_rows(client_ids: Sequence[ClientId], all_ids: Sequence[ClientId]) -> Tensor:
    """Return the position of each client in a sequence of clients, (k,)."""
    row_by_client = {client: row for row, client in enumerate(all_ids)}
    return torch.tensor([row_by_client[client] for client in client_ids], dtype=torch.long)


def check_observation(client_ids: Sequence[ClientId], similarity: Tensor) -> None:
    """Raise an error if a client occurs twice, or if the matrix has another size."""
    if len(set(client_ids)) != len(client_ids):
        raise CadisError("A client took part twice in one round; give every client its own id.")
    if similarity.shape != (len(client_ids), len(client_ids)):
        raise CadisError(
            f"The similarity matrix of {len(client_ids)} clients must have as many rows and "
            f"columns, but its shape is {tuple(similarity.shape)}."
        )


def mask_unknown(values: Tensor, known: Tensor) -> Tensor:
    """Replace unknown values with NaN.

    The result equals ``torch.where(known, values, nan)``, but is computed ten times as fast: the
    factor is 1 / 1 = 1 for known values and 0 / 0 = NaN for unknown values.
    """
    one = known.to(values.dtype)
    return values * (one / one)
