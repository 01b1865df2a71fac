"""Aggregation: the weights of FedAvg, and the weighted mean of models (Eq. 2 of CADIS)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cadis._io import allocate_vector, write_mean
from cadis.errors import CadisError, RunError
from cadis.types import ClientUpdate, ModelState

_SUM_TOLERANCE = 1e-4
"""Maximum difference between the sum of the weights and 1; allows for single precision."""


def compute_sample_weights(num_samples: Tensor | Sequence[int]) -> Tensor:
    """Return the weights of FedAvg, n_i / N, where N is the number of samples of all participants.

    Args:
        num_samples: n_i, the number of samples of each participant, (k,), positive.

    Returns:
        Weights with sum 1, (k,), float64.

    Example:
        >>> from cadis.algorithm import compute_sample_weights
        >>> compute_sample_weights([30, 10]).tolist()
        [0.75, 0.25]
    """
    counts = torch.as_tensor(num_samples, dtype=torch.float64)
    total = counts.sum()
    if not (counts > 0).all() or not total.isfinite():
        raise RunError(
            "The number of samples of a client must be positive and finite; the clients have "
            f"{_format_first(counts)}."
        )
    return counts / total


def average_tensors(
    states: Sequence[Mapping[str, Tensor]], weights: Tensor | Sequence[float]
) -> dict[str, Tensor]:
    """Return the weighted mean of state dicts (Eq. 2 of CADIS), including batch-norm buffers.

    Floating-point tensors are summed in the given order, in single precision or better, and
    returned in their dtype. So the result has the same bits in every run, and the mean of equal
    states is exactly that state. The result for an integer tensor (a counter) is the maximum. Each
    state is read once, and memory is allocated only for the result.

    Args:
        states: k state dicts with the same names, shapes and dtypes.
        weights: one weight per state, (k,), not negative, with sum 1. Other weights raise an error,
            because they would scale the model.

    Returns:
        The mean state dict.

    Example:
        >>> import torch
        >>> from cadis.algorithm import average_tensors
        >>> states = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}]
        >>> average_tensors(states, [0.75, 0.25])
        {'w': tensor([1.5000, 3.0000])}
    """
    shares = _validate_weights(weights, len(states))
    _check_same_shapes(states)
    means = {name: _empty_like(tensor) for name, tensor in states[0].items()}
    for name, mean in means.items():
        write_mean(mean, [state[name] for state in states], shares)
    return means


def average_models(states: Sequence[ModelState], weights: Tensor | Sequence[float]) -> ModelState:
    """Return the weighted mean of models, computed as in :func:`average_tensors`.

    Args:
        states: k models of the same architecture.
        weights: one weight per model, (k,), not negative, with sum 1.

    Returns:
        The mean model.
    """
    shares = _validate_weights(weights, len(states))
    stored = [state.get_tensors() for state in states]
    if any(tensors.keys() != stored[0].keys() for tensors in stored):
        return ModelState(**average_tensors([state.vectors() for state in states], shares))
    _check_same_shapes(stored)
    mean, outputs = states[0].allocate()
    for name, output in outputs.items():
        write_mean(output, [tensors[name] for tensors in stored], shares)
    return mean


def average_updates(
    updates: Sequence[ClientUpdate], weights: Tensor
) -> tuple[dict[str, ModelState], Tensor]:
    """Average each model over the clients that trained it.

    If clients trained different models, the weights of each model's clients are scaled to sum 1.

    Args:
        updates: the k updates, each with one trained model.
        weights: weights of the updates, (k,), with sum 1.

    Returns:
        The mean models by name, and the weight of each update in the mean of its model, (k,).
    """
    if weights.shape != (len(updates),):
        raise CadisError(
            f"There are {weights.numel()} weights for {len(updates)} updates; return one weight "
            "per update."
        )
    indices: dict[str, list[int]] = {}
    for index, update in enumerate(updates):
        indices.setdefault(update.message.model_name, []).append(index)
    if len(indices) > 1:
        weights = weights.clone()
        for members in indices.values():
            weights[members] /= weights[members].sum()
    models = {
        name: average_models([updates[index].model for index in members], weights[members])
        for name, members in indices.items()
    }
    return models, weights


def _validate_weights(weights: Tensor | Sequence[float], num_states: int) -> list[float]:
    shares = [float(weight) for weight in weights]
    if not num_states or num_states != len(shares):
        raise CadisError(f"There are {len(shares)} weights for {num_states} states.")
    if not (all(share >= 0 for share in shares) and abs(sum(shares) - 1) <= _SUM_TOLERANCE):
        raise RunError(
            f"The weights {_format_first(shares)} are invalid; weights must not be negative, and "
            "their sum must be 1."
        )
    return shares


def _check_same_shapes(states: Sequence[Mapping[str, Tensor]]) -> None:
    first = states[0]
    for state in states[1:]:
        if state.keys() != first.keys():
            differing = sorted(state.keys() ^ first.keys())
            names = ", ".join(differing)
            raise CadisError(f"Not all states have tensors with the names: {names}.")
        for name, tensor in state.items():
            if tensor.shape != first[name].shape:
                shapes = f"{tuple(first[name].shape)} and {tuple(tensor.shape)}"
                raise CadisError(f"The states have different shapes of {name}: {shapes}.")


def _empty_like(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return allocate_vector(tensor.numel(), tensor.dtype).view(tensor.shape)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _format_first(numbers: Sequence[float] | Tensor) -> str:
    """Format the first five numbers for an error message."""
    first = ", ".join(f"{float(number):g}" for number in numbers[:5])
    return f"{first}, ..." if len(numbers) > 5 else first
