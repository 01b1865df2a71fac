"""Validation of client updates before aggregation.

The server rejects invalid updates, in a simulation and on Flower.
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

NOT_FINITE = "its model has NaN or infinite values"
"""Reason for the rejection of an update whose model diverged."""


class DivergedError(RunError):
    """Training gave a model with NaN or infinite values.

    Attributes:
        problem: beginning of the error message, with the round and the model.
        state: state before the round, which is finite.
    """

    def __init__(self, round_number: int, model: str, state: RunState) -> None:
        """Make the error message.

        Args:
            round_number: number of the round, from 1.
            model: the model in words, such as "the global model".
            state: state before the round.
        """
        self.problem = f"Round {round_number}: {model} has NaN or infinite values"
        self.state = state
        super().__init__(
            f"{self.problem}; check the data for such values, or try a smaller learning rate."
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
    """Return the valid updates, and the rejections of the others.

    Methods may send tensors besides the models. If their names, shapes or dtypes differ between
    updates, the most frequent combination is valid, and updates with another one are rejected.
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

    If the number of counts is even, the median is here the lower one of the two in the middle. For
    example, two clients report 10 and 1000 samples, and the limit is 10. The median is 10, so 1000
    is reduced to 100. The mean of both, 505, would allow 5050 samples.

    Args:
        counts: number of samples that each client reported.
        limit: multiple of the median; None for no limit.
    """
    if limit is None or not counts:
        return list(counts)
    max_count = limit * median_low(counts)
    return [count if count <= max_count else int(max_count) for count in counts]


def _find_missing(message: Message, method: BaseMethod) -> str | None:
    """Return a reason that names the first value that the method needs and the client did not send.

    Return None if nothing is missing.
    """
    missing = [name for name in method.needs_scalars if name not in message.scalars]
    missing += [name for name in method.needs_tensors if name not in message.tensors]
    if not missing:
        return None
    return (
        f"it did not send {missing[0]}, which {method.name} needs (on Flower, train with "
        "cadis.flower.local_train)"
    )


def _find_not_finite(message: Message) -> str | None:
    """Return a reason that names the first NaN or infinite value; None if all are finite."""
    if not all(model.is_finite() for model in message.models.values()):
        return NOT_FINITE
    for name, tensor in message.tensors.items():
        if not all_finite(tensor):
            return f"its {name} has NaN or infinite values"
    scalars: Mapping[str, object] = message.scalars  # user code may send any type
    for name, value in scalars.items():
        if not isinstance(value, int | float):
            return f"its {name} is not a number"
        if not isfinite(value) and name != "train_loss":
            return f"its {name} is NaN or infinite"
    return None


def _describe_tensors(message: Message) -> tuple[object, ...]:
    """Return the names, shapes and dtypes of all tensors except the models."""
    tensors = sorted(message.tensors.items())
    return tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors)
