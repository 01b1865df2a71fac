"""Waiting for clients, and asking those that are new who they are."""

import logging
import time

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from cadis.core import ClientId, RunError
from cadis.flower.registry import ClientRegistry, name_in, nameless
from cadis.flower.replies import match
from cadis.runs import Rejection

LOGGER = logging.getLogger("flwr")

_ASK_SECONDS = 120.0
_SAY_SECONDS = 15.0


def gather(
    grid: Grid, registry: ClientRegistry, wanted: int, needed: int, patience: float
) -> tuple[dict[ClientId, int], list[Rejection]]:
    """The node of each client that is there, and who is refused.

    Args:
        grid: Flower's connection to the nodes.
        registry: who is who; learns of new clients.
        wanted: clients to wait for.
        needed: clients that are enough when the time is up.
        patience: seconds to wait.
    """
    deadline, said = time.monotonic() + patience, 0.0
    while True:
        nodes = list(grid.get_nodes())
        _introduce(grid, registry, registry.strangers(nodes))
        present, refused = registry.call(nodes)
        late = time.monotonic() > deadline
        if len(present) >= wanted:
            return present, refused
        if late and len(present) >= needed:
            LOGGER.warning("Going on with %d of %d clients.", len(present), wanted)
            return present, refused
        if late:
            raise RunError(
                f"Only {len(present)} clients are there after {patience:g} seconds, of at least "
                f"{needed}; start the others, then resume the run."
            )
        if time.monotonic() > said + _SAY_SECONDS:
            said = time.monotonic()
            names = ", ".join(map(str, list(present)[:20]))
            LOGGER.info("Waiting for clients: %d of %d are there. %s", len(present), wanted, names)
            for refusal in refused:
                LOGGER.warning("Refused %s: %s.", refusal.client, refusal.reason)
        time.sleep(1)


def _introduce(grid: Grid, registry: ClientRegistry, strangers: list[int]) -> None:
    """Ask nodes who they are.

    A client app without an answer to such a question is known by its node. A node that does not
    answer at all is asked again, next time.
    """
    if not strangers:
        return
    questions: dict[ClientId, Message] = {
        node: Message(RecordDict(), node, MessageType.QUERY, ttl=_ASK_SECONDS) for node in strangers
    }
    replies = list(grid.send_and_receive(list(questions.values()), timeout=_ASK_SECONDS))
    answers = match(questions, replies, _ASK_SECONDS)
    for node in strangers:
        if node in answers.good:
            name = name_in(answers.good[node].content)
            registry.claims[node] = nameless(node) if name is None else name
        elif _app_answered(questions[node], replies):
            registry.claims[node] = nameless(node)


def _app_answered(question: Message, replies: list[Message]) -> bool:
    """Whether an error came from the node itself, not from Flower about the node."""
    return any(
        reply.metadata.reply_to_message_id == question.metadata.message_id
        and reply.metadata.src_node_id == question.metadata.dst_node_id
        for reply in replies
    )
