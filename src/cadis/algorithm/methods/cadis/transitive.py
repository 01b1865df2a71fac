"""Transitive learning: the similarity of two clients who never met (Section III-C)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional as F

_AT_ONCE = 200_000  # about so many numbers are worked on at once, which still fit into the cache


@dataclass(frozen=True)
class Estimates:
    """Estimates of the similarity of pairs that were never observed together."""

    gamma: float  # the largest deviation of a helper's estimate that is admitted
    mean: Tensor  # the expected similarity, NaN where there is no helper, (n, n)
    deviation: Tensor  # standard deviation of the average of the helpers' draws, (n, n)
    outdated: Tensor  # rows whose observations have changed since, (n,)

    @classmethod
    def none(cls, size: int, gamma: float, dtype: torch.dtype) -> "Estimates":
        """Nothing estimated yet, every row outdated."""
        unknown = torch.full((size, size), torch.nan, dtype=dtype)
        return cls(gamma, unknown, unknown.clone(), torch.ones(size, dtype=torch.bool))

    def outdate(self, rows: Tensor, joined: int) -> "Estimates":
        """Mark rows whose observations have changed, and those of so many clients who joined."""
        room = (0, joined, 0, joined)
        mean, deviation = (F.pad(m, room, value=torch.nan) for m in (self.mean, self.deviation))
        outdated = F.pad(self.outdated, room[:2], value=True)
        outdated[rows] = True
        return Estimates(self.gamma, mean, deviation, outdated)

    def to_tensors(self) -> dict[str, Tensor]:
        """Plain tensors, for a checkpoint."""
        own = vars(self) | {"gamma": torch.tensor(self.gamma, dtype=torch.float64)}
        return {f"estimates.{name}": tensor for name, tensor in own.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Estimates | None":
        """The inverse of :meth:`to_tensors`; None if nothing was ever estimated."""
        if "estimates.mean" not in tensors:
            return None
        gamma, *others = (tensors[f"estimates.{field.name}"] for field in fields(cls))
        return cls(float(gamma), *others)


def bring_up_to_date(
    estimates: Estimates, direct: Tensor, helping: Tensor | None = None
) -> Estimates:
    """Estimate the outdated rows, and by symmetry columns, anew.

    The estimate of a pair (i, j) rests on whom i and j were observed to resemble, so it changes
    only when the row of i or of j has: that is k rows a round, not n.

    Args:
        estimates: what was estimated before.
        direct: means of the observed similarities, the diagonal too, NaN without any, (n, n).
        helping: the same of all clients p who may help, (p, n); these n only, unless told.
    """
    helping = direct if helping is None else helping
    mean, deviation = estimates.mean.clone(), estimates.deviation.clone()
    observed = ~direct.isnan()
    outdated = estimates.outdated.nonzero()[:, 0]
    met = (~helping[:, outdated].isnan()).sum(dim=0)
    helpers = int(met.max()) if len(outdated) else 0
    at_once = max(1, _AT_ONCE // max(1, len(observed) * helpers))
    for rows in outdated.split(at_once):
        values = _estimate_rows(rows, helping, estimates.gamma)
        for matrix, new in zip((mean, deviation), values, strict=True):
            new[observed[rows]] = torch.nan
            matrix[rows] = new
            matrix[:, rows] = new.T
    return Estimates(estimates.gamma, mean, deviation, torch.zeros_like(estimates.outdated))


def _estimate_rows(rows: Tensor, helping: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the similarity of some clients i to all clients j, (i, j) each.

    A helper p was observed with both. It suggests the normal distribution with mean
    s_ip s_jp and deviation sqrt((1 - s_ip^2)(1 - s_jp^2)) / 3, and counts if that deviation is
    below gamma. The average of the helpers' independent draws is itself one normal draw. What was
    observed of helpers and clients is in ``helping``, NaN where it is nothing, (p, j).
    """
    helpers = (~helping[:, rows].isnan()).any(dim=1).nonzero()[:, 0]
    theirs = helping[helpers]
    rest = 1 - theirs.square()  # (p, j)
    variance = rest.T[rows][:, :, None] * (rest / 9)  # (i, p, j), NaN if p did not meet both
    admitted = (variance < gamma**2).to(helping.dtype)
    theirs, rest = theirs.nan_to_num(), rest.nan_to_num()
    number = admitted.sum(dim=1)  # (i, j); divided by 0 it gives NaN, "no helper"
    mean = (theirs.T[rows][:, None] @ (admitted * theirs))[:, 0] / number
    total = (rest.T[rows][:, None] @ (admitted * rest))[:, 0] / 9
    return mean, total.sqrt() / number


def estimate_all(direct: Tensor, gamma: float, helping: Tensor | None = None) -> Tensor:
    """The expected similarity of all pairs that were never observed together, NaN for the others.

    What :func:`bring_up_to_date` makes of nothing, several times as fast: without deviations, each
    pair once, and never more at once than fits into the cache, however many clients there are.
    """
    helping = direct if helping is None else helping
    values = torch.full_like(direct, torch.nan)
    for one in range(len(direct)):
        helpers = (~helping[:, one].isnan()).nonzero()[:, 0]
        own = helping[helpers, one]  # s_ip, (p,)
        rest = (1 - own.square())[:, None]
        at_once = max(1, _AT_ONCE // max(1, len(helpers)))
        for start in range(one + 1, len(direct), at_once):
            others = slice(start, start + at_once)
            theirs = helping[helpers, others]  # s_pj, (p, j)
            admitted = (rest * ((1 - theirs.square()) / 9) < gamma**2).to(direct.dtype)
            mean = own @ (admitted * theirs.nan_to_num()) / admitted.sum(dim=0)
            values[one, others] = values[others, one] = mean
    values[~direct.isnan()] = torch.nan
    return values
