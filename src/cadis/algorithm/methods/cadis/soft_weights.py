"""Aggregation weights from the similarities of clients, without a decision about clusters."""

from collections.abc import Sequence

import torch
from torch import Tensor


def compute_soft_weights(num_samples: Tensor | Sequence[int], kernel: Tensor) -> Tensor:
    """Return weights with which the data of similar clients count only once. Not in the paper.

    ``w_i = n_i / sum_j kappa_ij n_j``, divided by the sum of all weights. If the clients form
    clusters (kappa_ij is 1 within a cluster and 0 between clusters), every cluster has the same
    total weight, also if clients have different sizes. If all clients are identical, the weights
    are the weights of FedAvg. Bioinformatics weights redundant protein sequences in the same way
    (Henikoff and Henikoff: Position-based sequence weights. J. Mol. Biol. 1994).

    Args:
        num_samples: n_i of each participant, (k,).
        kernel: similarity kappa_ij of each pair of participants, from 0 to 1; 1 on the diagonal,
            (k, k).

    Returns:
        Weights with sum 1, (k,), float64.

    Example:
        >>> import torch
        >>> from cadis.algorithm.methods.cadis import compute_soft_weights
        >>> kernel = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]])
        >>> compute_soft_weights([30, 10, 70], kernel).tolist()
        [0.375, 0.125, 0.5]
    """
    counts = torch.as_tensor(num_samples, dtype=torch.float64)
    weights = counts / (kernel.double() @ counts)
    return weights / weights.sum()
