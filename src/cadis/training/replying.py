"""A client's half of a round: train as the method says, and transform what is sent."""

from dataclasses import replace

from cadis.algorithm import Algorithm
from cadis.core import ClientId, Message, TensorState, generator_for
from cadis.data import Examples
from cadis.methods import Reply
from cadis.models import FlatModel
from cadis.training.local import Client, LocalSettings
from cadis.transforms import apply_chain


def reply_to(
    received: Message,
    model: FlatModel,
    examples: Examples,
    memory: TensorState,
    algorithm: Algorithm,
    settings: LocalSettings,
    seed: int,
    number: int,
    client_id: ClientId,
    participants: int,
) -> Reply:
    """What a client sends back, and what it remembers.

    Args:
        received: what the server sent.
        model: where to train; what it held before does not matter.
        examples: the client's own, on the model's device.
        memory: what the client remembers.
        algorithm: the method, and the transforms of updates.
        settings: epochs, batch size, learning rate.
        seed: of everything random.
        number: the round, from 1.
        client_id: who it is.
        participants: how many clients take part in the round.
    """
    client = Client(
        model=model,
        examples=examples,
        algorithm=algorithm,
        settings=settings,
        number=number,
        received=received,
        memory=memory,
        generator=generator_for(seed, "train", number, client_id),
    )
    reply = algorithm.method.local(client)
    tensors = {name: tensor.cpu() for name, tensor in reply.message.tensors.items()}
    message = apply_chain(
        algorithm.transforms_of("client"),
        replace(reply.message, tensors=tensors),
        received,
        participants,
        lambda name: generator_for(seed, "transform", name, number, client_id),
    )
    return Reply(message, reply.memory)
