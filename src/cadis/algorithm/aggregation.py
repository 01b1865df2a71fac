"""Aggregation: FedAvg's weights, and the weighted mean of models (Eq. 2)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cadis._io import fresh, mean_into
from cadis.errors import CadisError, RunError
from cadis.types import ModelState

_ROUNDING = 1e-4
"""By how much weights, perhaps in single precision, may miss the sum 1."""


def example_weights(num_examples: Tensor | Sequence[int]) -> Tensor:
    """FedAvg's weights n_i / N over the participants, (k,), float64, sum 1."""
    counts = torch.as_tensor(num_examples, dtype=torch.float64)
    total = counts.sum()
    if not (counts > 0).all() or not total.isfinite():
        raise RunError(f"Clients with {_few(counts)} samples cannot be weighed by them.")
    return counts / total


def weighted_mean(
    states: Sequence[Mapping[str, Tensor]], weights: Tensor | Sequence[float]
) -> dict[str, Tensor]:
    """The weighted mean of state dicts (Eq. 2), batch-norm buffers included.

    Floating tensors are averaged, at least in single precision and in the order given, and
    returned in their own type: the result is the same bit for bit on every run, and the mean of
    equal states is that state exactly. Integer tensors (counters) take the maximum and are never
    made floats. Each state is read once, and nothing of its size is written but the result.

    Args:
        states: state dicts with the same names, shapes and types.
        weights: one a state, not negative, summing to 1; anything else is refused, since it
            would scale the model, or make it vanish.
    """
    shares = _checked_shares(weights, len(states))
    _check_alike(states)
    means = {name: _like(tensor) for name, tensor in states[0].items()}
    for name, mean in means.items():
        mean_into(mean, [state[name] for state in states], shares)
    return means


def mean_state(states: Sequence[ModelState], weights: Tensor | Sequence[float]) -> ModelState:
    """:func:`weighted_mean` of model states, in whatever form they hold their numbers."""
    shares = _checked_shares(weights, len(states))
    held = [state.pieces() for state in states]
    if any(pieces.keys() != held[0].keys() for pieces in held):
        return ModelState(**weighted_mean([state.vectors() for state in states], shares))
    _check_alike(held)
    mean, places = states[0].blank()
    for name, place in places.items():
        mean_into(place, [pieces[name] for pieces in held], shares)
    return mean


def _checked_shares(weights: Tensor | Sequence[float], states: int) -> list[float]:
    shares = [float(weight) for weight in weights]
    if not states or states != len(shares):
        raise CadisError(f"{len(shares)} weights cannot average {states} states.")
    if not (all(share >= 0 for share in shares) and abs(sum(shares) - 1) <= _ROUNDING):
        raise RunError(
            f"The weights {_few(shares)} are no shares: they must not be negative, and sum to 1."
        )
    return shares


def _check_alike(states: Sequence[Mapping[str, Tensor]]) -> None:
    first = states[0]
    for state in states[1:]:
        if state.keys() != first.keys():
            differing = sorted(state.keys() ^ first.keys())
            raise CadisError(f"States differ in their names: {', '.join(differing)}.")
        for name, tensor in state.items():
            if tensor.shape != first[name].shape:
                shapes = f"{tuple(first[name].shape)} and {tuple(tensor.shape)}"
                raise CadisError(f"States differ in the shape of {name}: {shapes}.")


def _like(tensor: Tensor) -> Tensor:
    """Room for a mean of such tensors."""
    if tensor.device.type == "cpu":
        return fresh(tensor.numel(), tensor.dtype).view(tensor.shape)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _few(numbers: Sequence[float] | Tensor) -> str:
    """The first numbers, for a sentence."""
    first = ", ".join(f"{float(number):g}" for number in numbers[:5])
    return f"{first}, ..." if len(numbers) > 5 else first
