"""Aggregation: the weights of Eq. 1 and the weighted mean of Eq. 2."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cadis.core.errors import CadisError, RunError
from cadis.core.state import ModelState

_ROUNDING = 1e-4
"""By how much weights, perhaps in single precision, may miss the sum 1."""


def example_weights(num_examples: Tensor | Sequence[int]) -> Tensor:
    """FedAvg's weights n_i / N over the participants, (k,), float64, sum 1."""
    counts = torch.as_tensor(num_examples, dtype=torch.float64)
    total = counts.sum()
    if not (counts > 0).all() or not total.isfinite():
        raise RunError(f"Clients with {_few(counts)} samples cannot be weighed by them.")
    return counts / total


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


def weighted_mean(
    states: Sequence[Mapping[str, Tensor]], weights: Tensor | Sequence[float]
) -> dict[str, Tensor]:
    """The weighted mean of state dicts (Eq. 2), batch-norm buffers included.

    Floating tensors are averaged, in float64 and in the order given, and returned in their own
    type: the result is the same bit for bit on every run, and the mean of equal states is that
    state exactly. Integer tensors (counters) take the maximum and are never made floats.

    Args:
        states: state dicts with the same names, shapes and types.
        weights: one a state, not negative, summing to 1; anything else is refused, since it
            would scale the model, or make it vanish.
    """
    shares = [float(weight) for weight in weights]
    if not states or len(states) != len(shares):
        raise CadisError(f"{len(shares)} weights cannot average {len(states)} states.")
    for state in states[1:]:
        if state.keys() != states[0].keys():
            differing = sorted(state.keys() ^ states[0].keys())
            raise CadisError(f"States differ in their names: {', '.join(differing)}.")
    if not (all(share >= 0 for share in shares) and abs(sum(shares) - 1) <= _ROUNDING):
        raise RunError(
            f"The weights {_few(shares)} are no shares: they must not be negative, and sum to 1."
        )
    return {name: _mean([state[name] for state in states], shares) for name in states[0]}


def mean_state(states: Sequence[ModelState], weights: Tensor | Sequence[float]) -> ModelState:
    """:func:`weighted_mean` of flat model states."""
    return ModelState(**weighted_mean([vars(state) for state in states], weights))


def _few(numbers: Sequence[float] | Tensor) -> str:
    """The first numbers, for a sentence."""
    first = ", ".join(f"{float(number):g}" for number in numbers[:5])
    return f"{first}, ..." if len(numbers) > 5 else first


def _mean(tensors: list[Tensor], shares: list[float]) -> Tensor:
    if not tensors[0].is_floating_point():
        return torch.stack(tensors).amax(dim=0)
    total = torch.zeros(tensors[0].shape, dtype=torch.float64, device=tensors[0].device)
    for tensor, share in zip(tensors, shares, strict=True):
        total.add_(tensor, alpha=share)
    return total.to(tensors[0].dtype)
