"""Aggregation weights from the similarities of clients, without a decision about clusters."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cadis.algorithm.vectors import MIN_MODEL_NORM

_LONG = 0.15
"""An update is long if its norm is a larger multiple of the norm of the global model."""


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
            (k, k). CADIS uses ``max(0, cosine)`` of their class profiles.

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


def reduce_long_updates(weights: Tensor, norms: Tensor, model_norm: float) -> Tensor:
    """Reduce the weights of long updates, as after diverged local training. Not in the paper.

    If the local training of a client diverges, its update may be longer than the model itself, and
    the mean of the round destroys the model. ``w_i <- w_i * min(1, b / ||d_i||)``, divided by the
    sum of all weights, limits the contribution of each update d_i to that of an update of norm b.
    Here b is 15% of the norm of the global model, and at least 1.5. Healthy updates are rarely much
    longer.

    Args:
        weights: weights of the participants, (k,).
        norms: L2 norms of their updates, (k,).
        model_norm: L2 norm of the global model.

    Returns:
        Weights with sum 1, (k,).

    Example:
        >>> import torch
        >>> from cadis.algorithm.methods.cadis.soft_weights import reduce_long_updates
        >>> weights, norms = torch.tensor([0.4, 0.4, 0.2]), torch.tensor([1.0, 3.0, 12.0])
        >>> reduce_long_updates(weights, norms, model_norm=20.0)  # b = 3: 0.4, 0.4, 0.2 / 4
        tensor([0.4706, 0.4706, 0.0588])
    """
    bound = _LONG * max(model_norm, MIN_MODEL_NORM)
    reduced = weights * torch.where(norms > bound, bound / norms, 1.0)
    return reduced / reduced.sum()
