"""How good models are for each client: the tests on clients' own data, as runs have kept them."""

from collections.abc import Mapping, Sequence
from typing import Any

from cadis.server import RoundRecord
from cadis.types import ClientId

OWN_TEST_DATA = "own test data"
OWN_TRAINING_DATA = "own training data"
"""What clients are tested on, as all that is shown calls it."""


def test_sizes(federation: Mapping[str, Any]) -> list[int]:
    """How many samples each client has held out, of those that have; empty if none has."""
    counts = (client.get("test_samples") for client in federation["clients"])
    return [sum(own) for own in counts if own and any(own)]


def in_words(sizes: Sequence[int]) -> str:
    """What clients are tested on, of which so many samples are held out."""
    return OWN_TEST_DATA if sizes else OWN_TRAINING_DATA


def accuracy_by_client(
    history: Sequence[RoundRecord], federation: Mapping[str, Any]
) -> dict[int, dict[ClientId, float]]:
    """By round, accuracy on the own data of each client tested; only the rounds that have it."""
    clients = [client["id"] for client in federation["clients"]]
    by_round = {
        record.round: {
            client: accuracy
            for client, accuracy in zip(clients, record.client_accuracy, strict=True)
            if accuracy is not None
        }
        for record in history
        if record.client_accuracy is not None
    }
    return {number: tested for number, tested in by_round.items() if tested}
