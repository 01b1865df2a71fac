"""What clients were asked and what they answered: good updates, who is left out and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from flwr.app import Message, MetricRecord
from flwr.common.constant import ErrorCode

from cadis.core import ClientId, ModelState
from cadis.flower.arrays import ArrayLayout, WrongArraysError
from cadis.methods import Aggregation, ClientUpdate, Method
from cadis.runs import Rejection
from cadis.training import limited_counts

_MOST_EXAMPLES = 2**53
"""Nobody has more samples; floating numbers above it are not exact."""

_LATE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""What Flower says of messages whose time is up."""


@dataclass(frozen=True)
class Asked:
    """Whom a round was sent to.

    Attributes:
        sent: the global model.
        messages: by client.
        refused: who was not let in.
        at: when, on a clock.
    """

    sent: ModelState
    messages: Mapping[ClientId, Message]
    refused: list[Rejection]
    at: float


@dataclass(frozen=True)
class Outcome:
    """What came of a round.

    Attributes:
        updates: the good ones.
        rejected: who was left out, and why.
        replies: the messages that the good updates came in.
        waited: seconds from the first message to the last answer.
        aggregation: the new global model, None if there are too few good updates.
        aggregated: seconds that the method's server half took.
        capped: whose number of samples was taken for a smaller one.
    """

    updates: list[ClientUpdate]
    rejected: list[Rejection]
    replies: list[Message]
    waited: float
    aggregation: Aggregation | None = None
    aggregated: float = 0.0
    capped: tuple[ClientId, ...] = ()


@dataclass(frozen=True)
class Answers:
    """The answers to one round's messages, in the order of the messages.

    Attributes:
        good: by client, the message that it sent.
        rejected: whose answer is missing or wrong, and why.
    """

    good: dict[ClientId, Message]
    rejected: list[Rejection]


@dataclass(frozen=True)
class Checker:
    """What an update must be like.

    Attributes:
        method: may want scalars besides the model.
        layout: names, shapes and kinds of the model's arrays.
        examples_key: the scalar that tells how many samples a client has.
    """

    method: Method
    layout: ArrayLayout
    examples_key: str

    def updates(self, answers: Answers) -> tuple[list[ClientUpdate], list[Rejection]]:
        """The updates that can be used, and whose cannot and why."""
        updates, rejected = [], list(answers.rejected)
        for client, message in answers.good.items():
            try:
                updates.append(self._update(client, message))
            except WrongArraysError as error:
                rejected.append(Rejection(client, str(error)))
        return updates, rejected

    def _update(self, client: ClientId, message: Message) -> ClientUpdate:
        records = list(message.content.array_records.values())
        if len(records) != 1:
            raise WrongArraysError(f"it sent {len(records)} models, not one")
        examples, metrics = count_in(message, self.examples_key), scalars(message)
        metrics.pop(self.examples_key, None)
        for name in self.method.needs_metrics:
            if name not in metrics:
                raise WrongArraysError(
                    f"it did not send {name}, which {self.method.name} needs; "
                    "train it by cadis.flower.local_train"
                )
        state = self.layout.to_state(records[0])
        if not state.is_finite():
            raise WrongArraysError("its model is infinite or not a number")
        return ClientUpdate(client, examples, state, metrics)


def match(sent: Mapping[ClientId, Message], replies: Iterable[Message], timeout: float) -> Answers:
    """Whose answer is which, by the message that it answers; the first one counts."""
    by_message: dict[str, Message] = {}
    for reply in replies:
        by_message.setdefault(reply.metadata.reply_to_message_id, reply)
    good, rejected = {}, []
    for client, message in sent.items():
        answer = by_message.get(message.metadata.message_id)
        if answer is None or (answer.has_error() and answer.error.code in _LATE):
            rejected.append(Rejection(client, f"it did not answer within {timeout:g} seconds"))
        elif answer.has_error():
            rejected.append(Rejection(client, _failure(answer)))
        else:
            good[client] = answer
    return Answers(good, rejected)


def count_in(message: Message, key: str) -> int:
    """How many samples a client says it has: a whole number, or the end of a sentence about it."""
    records = message.content.metric_records.values()
    told = [record[key] for record in records if key in record]
    if not told:
        raise WrongArraysError(f"it did not send {key}")
    count = told[-1]
    if isinstance(count, int | float) and not isinstance(count, bool):
        if 1 <= count <= _MOST_EXAMPLES and count == int(count):
            return int(count)
        raise WrongArraysError(f"it says that it has {count} samples")
    raise WrongArraysError(f"its {key} is no number")


def scalars(message: Message) -> dict[str, float]:
    """All finite scalars of a message."""
    return {
        name: value
        for record in message.content.metric_records.values()
        for name, value in record.items()
        if isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    }


def mean_metrics(
    messages: Iterable[Message], weighted_by: str, limit: float | None = None
) -> MetricRecord | None:
    """The scalars that all messages have, averaged by samples; None if there are none.

    Args:
        messages: whose numbers of samples have been found good.
        weighted_by: what these are called.
        limit: how many times their median a number of samples counts for, at the most.
    """
    replies = list(messages)
    found = [scalars(message) for message in replies]
    weights = limited_counts([count_in(message, weighted_by) for message in replies], limit)
    if not found:
        return None
    for each in found:
        del each[weighted_by]
    names = [name for name in found[0] if all(name in each for each in found)]
    return MetricRecord(
        {
            name: sum(each[name] * w for each, w in zip(found, weights, strict=True)) / sum(weights)
            for name in names
        }
    )


def _failure(reply: Message) -> str:
    """Why there is no answer, in one line."""
    if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
        return "it went offline"
    reason = " ".join((reply.error.reason or "no reason given").split())
    return f"its app failed: {reason}"
