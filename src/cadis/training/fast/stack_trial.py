"""Decide whether several clients can be trained at once: a check of the layers, and a trial."""

from copy import deepcopy
from dataclasses import replace
from math import isclose

import torch
from torch import nn

from cadis.algorithm import Algorithm, BaseMethod, ClientOutput, ServerRound
from cadis.data import Samples
from cadis.models import FlatModel, to_channels_last
from cadis.rng import derive_generator
from cadis.training.fast.stacked import train_clients_stacked
from cadis.training.fast.stacked_model import StackedModel, is_stackable
from cadis.training.local import Client, LocalSettings
from cadis.types import Message, ModelState, TensorState

_MAX_BATCH_SIZE = 64
"""The maximum batch size of the trial."""

_NUM_CLIENTS = 4
"""The number of clients of the trial."""

_TOLERANCE = 1e-4
"""The maximum relative difference of two results that differ only by rounding."""


def can_stack(model: FlatModel, algorithm: Algorithm, settings: LocalSettings) -> bool:
    """Return whether stacked training is possible, as far as it is known without a trial.

    The layers of the model must support it, and the method must not override ``local``. Stacked
    training does not support autocast, so the precision must be float32.
    """
    has_default_training = type(algorithm.method).local is BaseMethod.local
    return has_default_training and settings.precision == "float32" and is_stackable(model)


def passes_stack_trial(
    module: nn.Module, head: str, algorithm: Algorithm, settings: LocalSettings, samples: Samples
) -> bool:
    """Return whether stacked and one-by-one training give the same results in a trial.

    :func:`can_stack` cannot check everything that a model or a method may do. The trial is
    deterministic, so that all workers get the same result.
    """
    rng_state = torch.get_rng_state()
    try:
        return _run_trial(module, head, algorithm, settings, samples)
    except Exception:  # a user's model or method may raise anything; training reports it later
        return False
    finally:
        torch.set_rng_state(rng_state)


def _run_trial(
    module: nn.Module, head: str, algorithm: Algorithm, settings: LocalSettings, samples: Samples
) -> bool:
    """Train four small clients for two rounds, stacked and one by one; compare the results."""
    model = FlatModel(deepcopy(module), head)
    stacked_model = StackedModel(deepcopy(module), head, _NUM_CLIENTS)
    size = min(settings.batch_size, _MAX_BATCH_SIZE)
    settings = replace(settings, epochs=1, batch_size=size)
    sizes = (4 * size, 4 * size + 1, 3 * size + 2, size)  # last batches of different sizes
    datasets = [
        samples.take(torch.arange(first, first + count) % len(samples))
        for first, count in enumerate(sizes)
    ]
    if _is_random(model, datasets[0]):
        return False  # one forward pass cannot use a separate generator for each client
    starts, client_states = _draw_models(model.copy_state()), list[TensorState]([{}, {}, {}, {}])
    tensors = _get_broadcast_tensors(model, algorithm)
    messages = [Message({"model": start}, tensors) for start in starts]

    def make_clients(round_number: int) -> list[Client]:
        return [
            Client(
                model,
                datasets[index],
                algorithm,
                settings,
                round_number,
                messages[index],
                client_states[index],
                derive_generator(0, "train", round_number, index),
            )
            for index in range(_NUM_CLIENTS)
        ]

    for round_number in (1, 2):
        expected = [algorithm.method.local(client) for client in make_clients(round_number)]
        stacked = train_clients_stacked(make_clients(round_number), stacked_model)
        if not all(map(_is_close, expected, stacked, starts)):
            return False
        client_states = [output.state for output in expected]
    return True


def _get_broadcast_tensors(model: FlatModel, algorithm: Algorithm) -> TensorState:
    """Return the tensors that the method sends with the model in the first round."""
    method, layout, rng = algorithm.method, model.layout, derive_generator(0, "trial")
    state = method.init(model.copy_state(), rng)
    server_round = ServerRound(
        1, layout.head_slices, _NUM_CLIENTS, rng, num_outputs=layout.num_outputs
    )
    return method.broadcast(server_round, state, 0).tensors


def _draw_models(state: ModelState) -> list[ModelState]:
    """Return one model per client, with a little random noise in the parameters."""
    generator = derive_generator(0, "trial")
    noise = torch.randn(_NUM_CLIENTS, len(state.parameters), generator=generator)
    scale = 0.01 * state.parameters.abs().mean()
    return [replace(state, parameters=state.parameters + scale * row) for row in noise]


def _is_random(model: FlatModel, samples: Samples) -> bool:
    """Return whether a forward pass draws random numbers, as dropout does."""
    model.module.train()
    rng_state = torch.get_rng_state()
    with torch.no_grad():
        model.forward(to_channels_last(samples.scaled_inputs))
    return not torch.equal(rng_state, torch.get_rng_state())


def _is_close(expected: ClientOutput, stacked: ClientOutput, start: ModelState) -> bool:
    """Return whether two outputs of a client differ only by rounding."""
    one, other = expected.message, stacked.message
    update_size = (one.model.parameters - start.parameters).abs().max()
    difference = (one.model.parameters - other.model.parameters).abs().max()
    losses = one.scalars["train_loss"], other.scalars["train_loss"]
    return bool(difference <= _TOLERANCE * update_size) and isclose(*losses, rel_tol=_TOLERANCE)
