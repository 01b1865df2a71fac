"""Messages in memory that processes share."""

from multiprocessing import get_context

import pytest
import torch

from cadis.engine.shared_memory import SharedMemory, nbytes_of
from cadis.types import Message, ModelState
from parts_support import message, same_message


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_there_and_back_is_bit_for_bit(method: str) -> None:
    sent = [
        message(1),
        message(2, torch.float64),
        message(3, torch.float16),
        Message(scalars={"loss": 0.5}),
        Message({"m": ModelState(torch.zeros(0), torch.zeros(0), torch.tensor([2**62]))}),
        Message(tensors={"matrix": torch.rand(3, 5), "flag": torch.tensor([True, False])}),
    ]
    memory = SharedMemory(nbytes_of(sent), get_context(method))  # type: ignore[arg-type]
    for placed, expected in zip(memory.put(sent), sent, strict=True):
        assert same_message(memory.get(placed), expected)


def test_what_messages_share_is_copied_once() -> None:
    first = message(1)
    both = [first, Message(first.models, scalars={"which": 2.0})]
    assert nbytes_of(both) == nbytes_of([first])
    memory = SharedMemory(nbytes_of(both), get_context("fork"))
    one, other = memory.put(both)
    assert one.places["models/model/parameters"] == other.places["models/model/parameters"]
    assert memory.get(other).scalars == {"which": 2.0}


def test_a_message_is_a_view() -> None:
    memory = SharedMemory(nbytes_of([message(1)]), get_context("fork"))
    (placed,) = memory.put([message(1)])
    seen = memory.get(placed)
    memory.put([message(2)])
    assert same_message(Message(seen.models, seen.tensors, message(2).scalars), message(2))
