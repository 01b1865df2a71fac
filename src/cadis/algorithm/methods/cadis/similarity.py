"""How alike are two clients? Section III-B of the paper, "Similarity Estimation"."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from cadis.algorithm.methods.cadis.transitive import Estimates, bring_up_to_date
from cadis.errors import CadisError
from cadis.types import ClientId, ids_from_tensor, ids_to_tensor

TransitiveMode: TypeAlias = Literal["mean", "sample", "off"]

_AT_ONCE = 50_000
"""About so many numbers of signatures are worked on at once, which still fit into the cache."""


def instance_similarity(signatures: Tensor) -> Tensor:
    """Cosine similarity s^t_ij of the clients' head updates in one round (Eq. 11).

    Args:
        signatures: one row a client: its update of the classifier layer, flat, (k, d).

    Returns:
        The symmetric matrix of cosines, (k, k). A zero update has similarity 0 to every
        other client and 1 to itself.
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

    Args:
        mean: s_ij before.
        count: f_ij, how often it was observed before; where that is 0, ``mean`` does not matter.
        similarity: s^t_ij.
    """
    times = count.to(mean.dtype)
    return times / (times + 1) * mean + similarity.to(mean.dtype) / (times + 1)


@dataclass(frozen=True)
class SimilarityMatrix:
    """Who resembles whom, s_ij, observed or estimated, as a matrix of all pairs of some clients.

    For pictures, and for clusters among all clients of a federation. What is observed alone, of
    any number of clients, is in :class:`~cadis.algorithm.methods.cadis.ObservedPairs`.

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
        """Fold one round's similarities into the running means.

        An estimate is replaced for good by the first observation, since its count is 0.

        Args:
            client_ids: who took part.
            similarity: their instance similarities in that order, (k, k).
        """
        check_observation(client_ids, similarity)
        grown = self._grow(client_ids, similarity)
        rows = grown.index_of(client_ids)
        block = (rows[:, None], rows[None, :])
        mean, count, known = grown.mean.clone(), grown.count.clone(), grown.known.clone()
        mean[block] = running_mean(mean[block], count[block], similarity)
        count[block] += 1
        known[block] = True
        estimates = grown._estimates and grown._estimates.outdate(rows)
        return SimilarityMatrix(grown.client_ids, mean, count, known, estimates)

    def estimate_missing(
        self,
        gamma: float,
        mode: TransitiveMode,
        generator: torch.Generator | None = None,
        helping: Tensor | None = None,
    ) -> "SimilarityMatrix":
        """Fill in pairs never observed together by transitive learning (Section III-C).

        Only direct observations are built on, never estimates. A pair without any helper
        client stays unknown.

        Args:
            gamma: the largest deviation that a helper's estimate may have.
            mode: "sample" draws the estimate as the paper does, "mean" takes its expectation,
                "off" leaves what was not observed unknown.
            generator: the source of the draws; only "sample" needs it.
            helping: observed similarities of everybody who may help, NaN where there are none,
                (p, n); those of the clients in this matrix only, unless told.
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
            draws = _symmetric_normal(values, generator)
            values = (values + estimates.deviation * draws).clamp(-1, 1)
        mean = direct.nan_to_num() + values.nan_to_num()  # where one is known, the other is not
        known = observed | ~estimates.mean.isnan()
        return replace(self, mean=mean, known=known, _estimates=estimates)

    def index_of(self, client_ids: Sequence[ClientId]) -> Tensor:
        """The rows of these clients, (k,)."""
        row_of = {client: row for row, client in enumerate(self.client_ids)}
        return torch.tensor([row_of[client] for client in client_ids], dtype=torch.long)

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        tensors = {
            "client_ids": ids_to_tensor(self.client_ids),
            "mean": self.mean,
            "count": self.count,
            "known": self.known,
        }
        return tensors | (self._estimates.to_tensors() if self._estimates else {})

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "SimilarityMatrix":
        """The inverse of :meth:`to_tensors`; without any tensors, the empty matrix."""
        if not tensors:
            return cls()
        ids = ids_from_tensor(tensors["client_ids"])
        estimates = Estimates.from_tensors(tensors)
        return cls(ids, tensors["mean"], tensors["count"], tensors["known"], estimates)

    def _grow(self, client_ids: Sequence[ClientId], similarity: Tensor) -> "SimilarityMatrix":
        seen = set(self.client_ids)
        ids = self.client_ids + tuple(c for c in client_ids if c not in seen)
        old, new = len(self.client_ids), len(ids)
        if new == old:
            return self
        dtype = self.mean.dtype if old else similarity.dtype
        mean = torch.eye(new, dtype=dtype)
        count = torch.zeros(new, new, dtype=self.count.dtype)
        known = torch.eye(new, dtype=torch.bool)
        mean[:old, :old], count[:old, :old], known[:old, :old] = self.mean, self.count, self.known
        estimates = self._estimates and self._estimates.grow(new)
        return SimilarityMatrix(ids, mean, count, known, estimates)


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


def _symmetric_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal draws, one a pair, (n, n)."""
    if generator is None:
        raise CadisError('Transitive learning with mode "sample" needs a generator.')
    draws = torch.randn(like.shape, generator=generator, dtype=like.dtype).triu(1)
    return draws + draws.T
