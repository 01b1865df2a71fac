"""Aggregation weights from the similarities of clients, without a decision on clusters."""

from collections.abc import Sequence

import torch
from torch import Tensor


def compute_soft_weights(num_samples: Tensor | Sequence[int], kernel: Tensor) -> Tensor:
    """Return weights that count the data of similar clients once. Not in the paper.

    ``w_i = n_i / sum_j kappa_ij n_j``, normalized.
    """
    counts = torch.as_tensor(num_samples, dtype=torch.float64)
    weights = counts / (kernel.double() @ counts)
    return weights / weights.sum()
