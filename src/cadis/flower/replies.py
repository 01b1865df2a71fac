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
    """

    updates: list[ClientUpdate]
    rejected: list[Rejection]
    replies: list[Message]
    waited: float
    aggregation: Aggregation | None = None
    aggregated: float = 0.0


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
        metrics = scalars(message)
        examples = metrics.pop(self.examples_key, None)
        if examples is None:
            raise WrongArraysError(f"it did not send {self.examples_key}")
        if not examples >= 1 or examples != int(examples):
            raise WrongArraysError(f"it trained on {examples:g} samples")
        for name in self.method.needs_metrics:
            if name not in metrics:
                raise WrongArraysError(
                    f"it did not send {name}, which {self.method.name} needs; "
                    "train it by cadis.flower.local_train"
                )
        state = self.layout.to_state(records[0])
        if not state.is_finite():
            raise WrongArraysError("its model is infinite or not a number")
        return ClientUpdate(client, int(examples), state, metrics)


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


def scalars(message: Message) -> dict[str, float]:
    """All finite scalars of a message."""
    return {
        name: value
        for record in message.content.metric_records.values()
        for name, value in record.items()
        if isinstance(value, int | float) and isfinite(value)
    }


def mean_metrics(messages: Iterable[Message], weighted_by: str) -> MetricRecord | None:
    """The scalars that all messages have, averaged by samples; None if there are none."""
    found = [scalars(message) for message in messages]
    weights = [each.pop(weighted_by, 0.0) for each in found]
    if not found or sum(weights) <= 0:
        return None
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
