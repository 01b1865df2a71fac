"""What clients answered: whose answer is which, who is left out and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from cadis.flower.messages import scalars_in
from cadis.models import WrongTensorsError
from cadis.server import Rejection, limited_counts
from cadis.types import ClientId

_MOST_EXAMPLES = 2**53
"""Nobody has more samples; floating numbers above it are not exact."""

_LATE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""What Flower says of messages whose time is up."""


@dataclass(frozen=True)
class Replies:
    """The answers to one round's messages, in the order of the messages.

    Attributes:
        good: by client, the message that it sent.
        rejected: whose answer is missing or wrong, and why.
    """

    good: dict[ClientId, Message]
    rejected: list[Rejection]


def match(sent: Mapping[ClientId, Message], replies: Iterable[Message], timeout: float) -> Replies:
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
    return Replies(good, rejected)


def count_in(content: RecordDict, key: str) -> int:
    """How many samples a client says it has: a whole number, or the end of a sentence about it."""
    records = content.metric_records.values()
    told = [record[key] for record in records if key in record]
    if not told:
        raise WrongTensorsError(f"it did not send {key}")
    count = told[-1]
    if isinstance(count, int | float) and not isinstance(count, bool):
        if 1 <= count <= _MOST_EXAMPLES and count == int(count):
            return int(count)
        raise WrongTensorsError(f"it says that it has {count} samples")
    raise WrongTensorsError(f"its {key} is no number")


def without_arrays(content: RecordDict) -> RecordDict:
    """What a client told, without its model."""
    return RecordDict({**content.metric_records, **content.config_records})


def mean_metrics(
    contents: Sequence[RecordDict], weighted_by: str, limit: float | None = None
) -> MetricRecord | None:
    """The scalars that all answers have, averaged by samples; None if there are none.

    Args:
        contents: of answers whose numbers of samples have been found good.
        weighted_by: what these are called.
        limit: how many times their median a number of samples counts for, at the most.
    """
    found = [scalars_in(content) for content in contents]
    weights = limited_counts([count_in(content, weighted_by) for content in contents], limit)
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
