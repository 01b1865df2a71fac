"""Aggregation without the updates that make it fail.

An update may be valid and still give NaN or infinite values, or an error, in the aggregation or in
the step of the server optimizer. The round is then aggregated again without it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from cadis._io import all_finite
from cadis.errors import RunError
from cadis.server.records import Rejection, RunState
from cadis.server.validation import DivergedError
from cadis.types import ClientId, ClientUpdate, TensorState

_T = TypeVar("_T")


def aggregate_without_culprits(
    aggregate: Callable[[Sequence[ClientUpdate]], _T],
    updates: Sequence[ClientUpdate],
    lengths: Sequence[float],
    min_updates: int,
) -> tuple[_T, list[int], RunError | None]:
    """Aggregate updates; if this fails, leave out as few as possible, the longest ones first.

    Args:
        aggregate: aggregates updates; it raises a RunError if this fails.
        updates: updates of the round.
        lengths: length of each update.
        min_updates: smallest number of updates to aggregate.

    Returns:
        The result of ``aggregate``, the indices of the updates that were left out, and the error
        that was raised with them, if any.

    Raises:
        RunError: of the first call, if nothing helps.
    """
    try:
        return aggregate(updates), [], None
    except RunError as error:
        first = error
    for excluded in _iter_exclusions(lengths, min_updates):
        try:
            rest = [update for index, update in enumerate(updates) if index not in excluded]
            return aggregate(rest), excluded, first
        except RunError:
            continue
    raise first


def _iter_exclusions(lengths: Sequence[float], min_updates: int) -> Iterator[list[int]]:
    """Yield each single update, then the two longest, the three longest, and so on.

    At most half of the updates are left out: if that does not help, the updates are not the cause.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    most = min(len(order) // 2, len(order) - max(min_updates, 1))
    yield from ([index] for index in order if most)
    yield from (order[:count] for count in range(2, most + 1))


def has_finite_vectors(state: RunState) -> bool:
    """Return whether the models, and all vectors as large as a model, are finite.

    Such vectors are velocities and control variates, which would make the next models infinite.
    Other tensors of parts may contain NaN or infinity for unknown values.
    """
    models = [*state.server.models.values(), *state.averages.values()]
    if not all(model.is_finite() for model in models):
        return False
    size = len(models[0].parameters)
    parts: list[TensorState] = [state.server.tensors, *state.server_optimizer.values()]
    return all(
        all_finite(tensor)
        for tensors in parts
        for tensor in tensors.values()
        if tensor.shape[-1:] == (size,)
    )


def make_rejection(client: ClientId, error: RunError | None) -> Rejection:
    """Return the rejection of a client with whose update the aggregation raises an error."""
    if isinstance(error, DivergedError):
        return Rejection(client, "its update makes the global model NaN or infinite")
    return Rejection(client, f"the aggregation fails with its update ({error})")
