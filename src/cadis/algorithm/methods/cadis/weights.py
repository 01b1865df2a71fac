"""The weights of CADIS: every cluster has the same total weight (Eq. 1)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cadis.algorithm.aggregation import example_weights


def cluster_weights(
    num_examples: Tensor | Sequence[int],
    cluster_of_client: Tensor | Sequence[int],
    cardinality: Tensor | Sequence[int] | None = None,
) -> Tensor:
    """Every cluster an equal voice: alpha_i = (1 / M_i)(n_i / N), normalised (Eq. 1 and 2).

    Args:
        num_examples: samples n_i of each participant, (k,).
        cluster_of_client: the participants' cluster labels, (k,).
        cardinality: M_i, the number of clients in each participant's cluster, (k,). Left out:
            counted among the participants.

    Returns:
        Weights, (k,), float64, sum 1.
    """
    if cardinality is None:
        labels = torch.as_tensor(cluster_of_client)
        cardinality = (labels[:, None] == labels[None, :]).sum(dim=1)
    shares = example_weights(num_examples) / torch.as_tensor(cardinality)
    return shares / shares.sum()
