"""Validation of client updates before aggregation.

The server checks every update, from the engine and from Flower, and rejects invalid ones.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import median_low

from cadis._io import all_finite
from cadis.algorithm import BaseMethod, ServerState
from cadis.errors import RunError
from cadis.server.records import Rejection, RunState
from cadis.types import ClientUpdate, Message

NOT_FINITE = "its model is infinite or not a number"
"""Reason for the rejection of an update that has diverged."""


class DivergedError(RunError):
    """A model became infinite or not a number.

    Attributes:
        problem: round and models, as the beginning of a sentence.
        state: the last finite state, before the round.
    """

    def __init__(self, number: int, what: str, state: RunState) -> None:
        self.problem = f"Round {number}: {what} became infinite or not a number"
        self.state = state
        super().__init__(
            f"{self.problem}; check the data for infinite values and NaN, or try a smaller "
            "learning rate."
        )


def find_defect(update: ClientUpdate, method: BaseMethod, state: ServerState) -> str | None:
    """Return the reason why an update is invalid; None if it is valid."""
    message = update.message
    if update.num_samples < 1:
        return f"it reports {update.num_samples} samples"
    if not message.models:
        return "it sent no model"
    for name, model in message.models.items():
        if name not in state.models:
            return f"it sent a model '{name}', which does not exist on the server"
        if model.shapes() != state.models[name].shapes():
            return "its model does not have the size of the global model"
    return _find_missing(message, method) or _find_not_finite(message)


def split_valid(
    updates: Sequence[ClientUpdate], method: BaseMethod, state: ServerState
) -> tuple[list[ClientUpdate], list[Rejection]]:
    """Split updates into valid ones and rejections.

    Valid updates all have tensors of the same names, shapes and dtypes; the majority decides which.
    """
    complete, valid, rejected = [], [], []
    for update in updates:
        reason = find_defect(update, method, state)
        if reason is None:
            complete.append((update, _describe_tensors(update.message)))
        else:
            rejected.append(Rejection(update.client_id, reason))
    most_common = Counter(layout for _, layout in complete).most_common(1)
    for update, layout in complete:
        if layout == most_common[0][0]:
            valid.append(update)
        else:
            reason = "its tensors differ in name, shape or dtype from those of other clients"
            rejected.append(Rejection(update.client_id, reason))
    return valid, rejected


def limit_counts(counts: Sequence[int], limit: float | None) -> list[int]:
    """Limit numbers of samples to ``limit`` times their median.

    The median of an even number of counts is the lower of the middle two. Otherwise, of two
    clients, one could exceed the other by more than the limit.

    Args:
        counts: number of samples that each client reported.
        limit: multiple of the median; None for no limit.

    Returns:
        The limited counts, in the same order.
    """
    if limit is None or not counts:
        return list(counts)
    max_count = limit * median_low(counts)
    return [count if count <= max_count else int(max_count) for count in counts]


def _find_missing(message: Message, method: BaseMethod) -> str | None:
    """Return a reason that names the first value the method needs and the update lacks."""
    missing = [name for name in method.needs_scalars if name not in message.scalars]
    missing += [name for name in method.needs_tensors if name not in message.tensors]
    if not missing:
        return None
    return (
        f"it did not send {missing[0]}, which {method.name} needs (on Flower, train it by "
        "cadis.flower.local_train)"
    )


def _find_not_finite(message: Message) -> str | None:
    """Return a reason that names the first part of the update that is infinite or NaN."""
    if not all(model.is_finite() for model in message.models.values()):
        return NOT_FINITE
    for name, tensor in message.tensors.items():
        if not all_finite(tensor):
            return f"its {name} is infinite or not a number"
    scalars: Mapping[str, object] = message.scalars  # user code may send any type
    for name, value in scalars.items():
        if not isinstance(value, int | float):
            return f"its {name} is not a number"
        if not isfinite(value) and name != "train_loss":
            return f"its {name} is infinite or not a number"
    return None


def _describe_tensors(message: Message) -> tuple[object, ...]:
    """Return names, shapes and dtypes of the tensors besides the models."""
    return tuple((n, t.shape, t.dtype) for n, t in sorted(message.tensors.items()))
