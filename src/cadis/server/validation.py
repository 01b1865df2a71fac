"""What an update must be like, whoever sent it and however it came."""

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
"""Why an update is left out that has diverged."""


class DivergedError(RunError):
    """Models became infinite or not a number.

    Attributes:
        happened: in which round, and to which models: the beginning of a sentence.
        state: what the round began with, which is finite.
    """

    def __init__(self, number: int, what: str, state: RunState) -> None:
        self.happened = f"Round {number}: {what} became infinite or not a number"
        self.state = state
        super().__init__(
            f"{self.happened}; look for such numbers in the data, or try a smaller learning rate."
        )


def check_answer(answer: ClientUpdate, method: BaseMethod, state: ServerState) -> str | None:
    """Why an update cannot be used, as the end of a sentence about its sender; None if it can."""
    message = answer.message
    if answer.num_examples < 1:
        return f"it says that it has {answer.num_examples} samples"
    if not message.models:
        return "it sent no model"
    for name, model in message.models.items():
        if name not in state.models:
            return f"it sent a model '{name}', which there is not"
        if model.shapes() != state.models[name].shapes():
            return "its model has another size than the global one"
    return _lacking(message, method) or _not_finite(message)


def split_valid(
    answers: Sequence[ClientUpdate], method: BaseMethod, state: ServerState
) -> tuple[list[ClientUpdate], list[Rejection]]:
    """The answers that can be used, and whose cannot and why."""
    fit, good, rejected = [], [], []
    for answer in answers:
        reason = check_answer(answer, method, state)
        if reason is None:
            fit.append((answer, _forms(answer.message)))
        else:
            rejected.append(Rejection(answer.client_id, reason))
    usual = Counter(forms for _, forms in fit).most_common(1)
    for answer, forms in fit:
        if forms == usual[0][0]:
            good.append(answer)
        else:
            rejected.append(Rejection(answer.client_id, "its tensors are unlike those of others"))
    return good, rejected


def limited_counts(counts: Sequence[int], limit: float | None) -> list[int]:
    """What counts of samples are taken for: so many times their median, at the most.

    Of an even number of counts, the lower of the middle two is the median, so that of two clients
    neither can outweigh the other beyond the limit.
    """
    if limit is None or not counts:
        return list(counts)
    most = limit * median_low(counts)
    return [count if count <= most else int(most) for count in counts]


def _lacking(message: Message, method: BaseMethod) -> str | None:
    """What the method needs and the update has not."""
    lacking = [name for name in method.needs_scalars if name not in message.scalars]
    lacking += [name for name in method.needs_tensors if name not in message.tensors]
    if not lacking:
        return None
    return (
        f"it did not send {lacking[0]}, which {method.name} needs (on Flower, train it by "
        "cadis.flower.local_train)"
    )


def _not_finite(message: Message) -> str | None:
    """Which part of the update is infinite or not a number."""
    if not all(model.is_finite() for model in message.models.values()):
        return NOT_FINITE
    for name, tensor in message.tensors.items():
        if not all_finite(tensor):
            return f"its {name} is infinite or not a number"
    scalars: Mapping[str, object] = message.scalars  # anybody's code may have filled it
    for name, value in scalars.items():
        if not isinstance(value, int | float):
            return f"its {name} is no number"
        if not isfinite(value) and name != "train_loss":
            return f"its {name} is infinite or not a number"
    return None


def _forms(message: Message) -> tuple[object, ...]:
    """Names, shapes and types of the tensors besides the models."""
    return tuple((n, t.shape, t.dtype) for n, t in sorted(message.tensors.items()))
