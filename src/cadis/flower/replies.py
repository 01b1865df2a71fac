"""What clients answered: whose answer is which, who is left out and why."""

from collections.abc import Iterable, Mapping, Sequence

from flwr.app import Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from cadis.flower.messages import scalars_in
from cadis.flower.strategy_settings import MetricsFunction, StrategySettings
from cadis.models import WrongTensorsError
from cadis.server import Rejection, limited_counts
from cadis.types import ClientId

_MOST_EXAMPLES = 2**53
"""Nobody has more samples; floating numbers above it are not exact."""

_LATE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""What Flower says of messages whose time is up."""


def match(
    sent: Mapping[ClientId, Message], replies: Iterable[Message], timeout: float
) -> tuple[dict[ClientId, Message], list[Rejection]]:
    """Find whose answer is which, by the message that it answers; the first one counts.

    Returns:
        The answers by client, and whose answer is missing or an error; in the order of ``sent``.
    """
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
    return good, rejected


def count_in(content: RecordDict, key: str) -> int:
    """Return how many samples a client says it has.

    Raises:
        WrongTensorsError: if that is no whole number; it ends a sentence about the client.
    """
    counts = [record[key] for record in content.metric_records.values() if key in record]
    if not counts:
        raise WrongTensorsError(f"it did not send {key}")
    count = counts[-1]
    if not isinstance(count, int | float) or isinstance(count, bool):
        raise WrongTensorsError(f"its {key} is no number")
    if not (1 <= count <= _MOST_EXAMPLES and count == int(count)):
        raise WrongTensorsError(f"it says that it has {count} samples")
    return int(count)


def join_metrics(
    contents: Sequence[RecordDict], settings: StrategySettings, own: MetricsFunction | None
) -> MetricRecord | None:
    """Make one record of the clients' metrics: by the user's own function, else their means.

    Args:
        contents: of answers whose numbers of samples have been found good.
        settings: name the number of samples, and how many times their median it counts for.
        own: the user's function, if there is one.
    """
    if not contents:
        return None
    key = settings.weighted_by_key
    if own is not None:
        return own(list(contents), key)
    counts = limited_counts([count_in(content, key) for content in contents], settings.count_limit)
    means = mean_scalars([scalars_in(content) for content in contents], counts)
    return MetricRecord({name: mean for name, mean in means.items() if name != key})


def mean_scalars(
    records: Sequence[Mapping[str, float]], weights: Sequence[float]
) -> dict[str, float]:
    """Return the weighted means of the scalars that all records have."""
    names = [name for name in (records[0] if records else ()) if all(name in r for r in records)]
    return {
        name: sum(r[name] * w for r, w in zip(records, weights, strict=True)) / sum(weights)
        for name in names
    }


def _failure(reply: Message) -> str:
    """Return why there is no answer, in one line."""
    if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
        return "it went offline"
    reason = " ".join((reply.error.reason or "no reason given").split())
    return f"its app failed: {reason}"
