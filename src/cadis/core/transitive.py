"""Transitive learning: the similarity of two clients who never met (Section III-C)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Estimates:
    """Estimates of the similarity of pairs that were never observed together.

    Attributes:
        gamma: the largest deviation of a helper's estimate that is admitted.
        mean: the expected similarity, NaN where there is no helper, (n, n).
        deviation: standard deviation of the average of the helpers' draws, (n, n).
        outdated: rows whose observations have changed since, (n,).
    """

    gamma: float
    mean: Tensor
    deviation: Tensor
    outdated: Tensor

    @classmethod
    def none(cls, size: int, gamma: float, dtype: torch.dtype) -> "Estimates":
        """Nothing estimated yet, every row outdated."""
        unknown = torch.full((size, size), torch.nan, dtype=dtype)
        return cls(gamma, unknown, unknown.clone(), torch.ones(size, dtype=torch.bool))

    def outdate(self, rows: Tensor) -> "Estimates":
        """Mark rows whose observations have changed."""
        outdated = self.outdated.clone()
        outdated[rows] = True
        return replace(self, outdated=outdated)

    def grow(self, size: int) -> "Estimates":
        """Room for clients who joined: nothing is known of them yet."""
        grown = Estimates.none(size, self.gamma, self.mean.dtype)
        old = len(self.outdated)
        grown.mean[:old, :old] = self.mean
        grown.deviation[:old, :old] = self.deviation
        grown.outdated[:old] = self.outdated
        return grown

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        return {
            "estimates.gamma": torch.tensor(self.gamma, dtype=torch.float64),
            "estimates.mean": self.mean,
            "estimates.deviation": self.deviation,
            "estimates.outdated": self.outdated,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Estimates | None":
        """The inverse of :meth:`to_tensors`; None if nothing was ever estimated."""
        if "estimates.mean" not in tensors:
            return None
        mean, deviation = tensors["estimates.mean"], tensors["estimates.deviation"]
        return cls(
            float(tensors["estimates.gamma"]), mean, deviation, tensors["estimates.outdated"]
        )


def bring_up_to_date(estimates: Estimates, similarity: Tensor, observed: Tensor) -> Estimates:
    """Estimate the outdated rows, and by symmetry columns, anew.

    The estimate of a pair (i, j) rests on whom i and j were observed to resemble, so it changes
    only when the row of i or of j has: that is k rows a round, not n.

    Args:
        estimates: what was estimated before.
        similarity: means s_ij of the observed similarities, (n, n).
        observed: which pairs were observed, the diagonal included, (n, n).
    """
    mean, deviation = estimates.mean.clone(), estimates.deviation.clone()
    for row in estimates.outdated.nonzero()[:, 0].tolist():
        missing, row_mean, row_deviation = _estimate_row(row, similarity, observed, estimates.gamma)
        for matrix, values in ((mean, row_mean), (deviation, row_deviation)):
            matrix[row, :] = torch.nan
            matrix[:, row] = torch.nan
            matrix[row, missing] = values
            matrix[missing, row] = values
    return Estimates(estimates.gamma, mean, deviation, torch.zeros_like(estimates.outdated))


def _estimate_row(
    row: int, similarity: Tensor, observed: Tensor, gamma: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Whom client i never met, and mean and deviation of the similarity to each, (j,).

    A helper p was observed with both. It suggests the normal distribution with mean
    s_ip s_jp and deviation sqrt((1 - s_ip^2)(1 - s_jp^2)) / 3, and counts if that deviation is
    below gamma. The average of the helpers' independent draws is itself one normal draw.
    """
    missing = (~observed[row]).nonzero()[:, 0]  # (j,)
    helpers = observed[row].nonzero()[:, 0]  # (p,); p = i is no helper: it never met j
    mine = similarity[row, helpers]  # (p,)
    theirs = similarity[missing[:, None], helpers]  # (j, p)
    variance = (1 - mine**2) * (1 - theirs**2) / 9
    admitted = observed[missing[:, None], helpers] & (variance.sqrt() < gamma)
    number = admitted.sum(dim=1)  # (j,); divided by 0 it gives NaN, "no helper"
    mean = (mine * theirs * admitted).sum(dim=1) / number
    deviation = (variance * admitted).sum(dim=1).sqrt() / number
    return missing, mean, deviation
