"""Validation of client updates before aggregation.

The server rejects invalid updates, in a simulation and on Flower.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite

from cadis._io import all_finite
from cadis.algorithm import BaseMethod, ServerState
from cadis.algorithm.validation import format_value
from cadis.errors import RunError
from cadis.server.records import Rejection, RunState
from cadis.types import ClientUpdate, Message

NOT_FINITE = "its model has NaN or infinite values"
"""Reason for the rejection of an update whose model diverged."""

MAX_SAMPLES = 2**53
"""Largest number of samples of a client; larger integers are not exact as floats."""

MAX_SCALAR = 1e30
"""Largest absolute value of a scalar; sums and squares of such values are finite."""


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
    if not is_count(update.num_samples):
        return f"it reports {format_value(update.num_samples)} samples"
    if not message.models:
        return "it sent no model"
    for name, model in message.models.items():
        if name not in state.models:
            return f"it sent a model '{name}', which does not exist on the server"
        if model.shapes() != state.models[name].shapes():
            return "its model does not have the size of the global model"
    return (
        _find_missing(message, method)
        or _find_not_finite(message)
        or _find_wrong_scalar(message, method)
    )


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of samples, from 1 to 2^53."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SAMPLES


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
    return None


def _find_wrong_scalar(message: Message, method: BaseMethod) -> str | None:
    """Return a reason that names the first scalar outside its range; None if all are valid.

    The training loss may be NaN or infinite, unless the method has a range for it.
    """
    scalars: Mapping[str, object] = message.scalars  # user code may send any type
    for name, value in scalars.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            return f"its {name} is not a number"
        if name == "train_loss" and name not in method.scalar_ranges and isinstance(value, float):
            continue
        if isinstance(value, float) and not isfinite(value):
            return f"its {name} is NaN or infinite"
        lowest, highest = method.scalar_ranges.get(name, (-MAX_SCALAR, MAX_SCALAR))
        if not lowest <= value <= highest:
            number = format_value(value)
            return f"its {name} is {number}, but must be from {lowest:g} to {highest:g}"
    return None


def _describe_tensors(message: Message) -> tuple[object, ...]:
    """Return the names, shapes and dtypes of all tensors except the models."""
    tensors = sorted(message.tensors.items())
    return tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors)
