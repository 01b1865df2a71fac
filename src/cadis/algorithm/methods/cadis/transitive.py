"""Transitive learning: similarity of clients that were never in the same round (Section III-C).

The similarity of clients i and j is estimated from their similarities to a third client p, the
helper, which was observed with both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional as F

_CHUNK_NUMEL = 200_000  # size of intermediate tensors, so that they fit into the cache


@dataclass(frozen=True)
class Estimates:
    """Estimated similarities of the pairs of clients that were never observed together."""

    gamma: float  # largest standard deviation of an estimate with one helper
    mean: Tensor  # expected similarity; NaN for observed pairs and pairs without a helper, (n, n)
    deviation: Tensor  # standard deviation of the average over the helpers, (n, n)
    outdated: Tensor  # mask of the rows with new observations, (n,)

    @classmethod
    def empty(cls, size: int, gamma: float, dtype: torch.dtype) -> "Estimates":
        """Return a matrix without estimates in which every row is outdated."""
        unknown = torch.full((size, size), torch.nan, dtype=dtype)
        return cls(gamma, unknown, unknown.clone(), torch.ones(size, dtype=torch.bool))

    def mark_outdated(self, rows: Tensor, num_new: int) -> "Estimates":
        """Mark rows with new observations, and append rows for new clients."""
        padding = (0, num_new, 0, num_new)
        mean, deviation = (F.pad(m, padding, value=torch.nan) for m in (self.mean, self.deviation))
        outdated = F.pad(self.outdated, padding[:2], value=True)
        outdated[rows] = True
        return Estimates(self.gamma, mean, deviation, outdated)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the estimates as named tensors for a checkpoint."""
        tensors = vars(self) | {"gamma": torch.tensor(self.gamma, dtype=torch.float64)}
        return {f"estimates.{name}": tensor for name, tensor in tensors.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Estimates | None":
        """Restore the result of :meth:`to_tensors`; None if the tensors contain no estimates."""
        if "estimates.mean" not in tensors:
            return None
        gamma, *others = (tensors[f"estimates.{field.name}"] for field in fields(cls))
        return cls(float(gamma), *others)


def update_estimates(
    estimates: Estimates, direct: Tensor, helper_similarity: Tensor | None = None
) -> Estimates:
    """Recompute the outdated rows and columns of the symmetric matrix of estimates.

    The estimate of a pair (i, j) depends only on the observed similarities of i and of j. So a
    round changes only the rows of its k participants, not all n rows.

    Args:
        estimates: estimates before this update.
        direct: mean observed similarities, including the diagonal, NaN where unknown, (n, n).
        helper_similarity: observed similarities of p helpers with the n clients, NaN where unknown,
            (p, n); by default the n clients are the helpers.
    """
    helper_similarity = direct if helper_similarity is None else helper_similarity
    mean, deviation = estimates.mean.clone(), estimates.deviation.clone()
    observed = ~direct.isnan()
    outdated = estimates.outdated.nonzero()[:, 0]
    num_helpers = (~helper_similarity[:, outdated].isnan()).sum(dim=0)
    max_helpers = int(num_helpers.max()) if len(outdated) else 0
    chunk = max(1, _CHUNK_NUMEL // max(1, len(observed) * max_helpers))
    for rows in outdated.split(chunk):
        values = _estimate_rows(rows, helper_similarity, estimates.gamma)
        for matrix, new in zip((mean, deviation), values, strict=True):
            new[observed[rows]] = torch.nan
            matrix[rows] = new
            matrix[:, rows] = new.T
    return Estimates(estimates.gamma, mean, deviation, torch.zeros_like(estimates.outdated))


def _estimate_rows(rows: Tensor, helper_similarity: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Estimate the similarity of some clients i to all clients j (Section III-C).

    Each helper p gives an estimate: a random draw from the normal distribution with mean
    ``s_ip * s_jp`` and standard deviation ``sqrt((1 - s_ip^2)(1 - s_jp^2)) / 3``. Helpers with a
    standard deviation of gamma or more are not used. The estimate of a pair is the average over its
    helpers, which also has a normal distribution.

    Args:
        rows: the clients i, as rows of the matrix.
        helper_similarity: observed similarities, NaN where unknown, (p, j).
        gamma: upper limit of the standard deviation.

    Returns:
        Mean and standard deviation of the average, (i, j) each; NaN without a helper.
    """
    helpers = (~helper_similarity[:, rows].isnan()).any(dim=1).nonzero()[:, 0]
    similarity = helper_similarity[helpers]
    rest = 1 - similarity.square()  # (p, j)
    variance = rest.T[rows][:, :, None] * (rest / 9)  # (i, p, j), NaN if one pair is unknown
    admitted = (variance < gamma**2).to(helper_similarity.dtype)
    similarity, rest = similarity.nan_to_num(), rest.nan_to_num()
    num_helpers = admitted.sum(dim=1)  # (i, j); division by 0 helpers gives NaN
    mean = (similarity.T[rows][:, None] @ (admitted * similarity))[:, 0] / num_helpers
    total_variance = (rest.T[rows][:, None] @ (admitted * rest))[:, 0] / 9
    return mean, total_variance.sqrt() / num_helpers


def estimate_all(direct: Tensor, gamma: float, helper_similarity: Tensor | None = None) -> Tensor:
    """Return the expected similarity of all pairs that were never observed, NaN for other pairs.

    The result equals the mean that :func:`update_estimates` computes from empty estimates. It is
    computed several times as fast, because each pair is computed once and without its deviation.

    Args:
        direct: mean observed similarities, including the diagonal, NaN where unknown, (n, n).
        gamma: largest standard deviation of an estimate with one helper.
        helper_similarity: observed similarities of p helpers with the n clients, NaN where unknown,
            (p, n); by default the n clients are the helpers.

    Returns:
        Expected similarities, (n, n).
    """
    helper_similarity = direct if helper_similarity is None else helper_similarity
    values = torch.full_like(direct, torch.nan)
    for row in range(len(direct)):
        helpers = (~helper_similarity[:, row].isnan()).nonzero()[:, 0]
        row_similarity = helper_similarity[helpers, row]  # s_ip, (p,)
        rest = (1 - row_similarity.square())[:, None]
        chunk = max(1, _CHUNK_NUMEL // max(1, len(helpers)))
        for start in range(row + 1, len(direct), chunk):
            others = slice(start, start + chunk)
            similarity = helper_similarity[helpers, others]  # s_jp, (p, j)
            admitted = (rest * ((1 - similarity.square()) / 9) < gamma**2).to(direct.dtype)
            mean = row_similarity @ (admitted * similarity.nan_to_num()) / admitted.sum(dim=0)
            values[row, others] = values[others, row] = mean
    values[~direct.isnan()] = torch.nan
    return values
