"""May several clients be trained at once? A rule, and a trial of the model and the method."""

from copy import deepcopy
from dataclasses import replace
from math import isclose

import torch
from torch import nn

from cadis.algorithm import Algorithm, BaseMethod, ClientOutput, ServerRound
from cadis.data import Examples
from cadis.models import FlatModel, channels_last
from cadis.rng import generator_for
from cadis.training.fast.stacked import replies_together
from cadis.training.fast.stacked_model import StackedModel, stacks
from cadis.training.local import Client, LocalSettings
from cadis.types import Message, ModelState, TensorState

_LARGEST_BATCH = 64
"""Examples in a batch of a trial, at the most."""

_TOLERANCE = 1e-4
"""By which part of a step, at the most, results may differ; they differ by rounding alone."""


def may_stack(model: FlatModel, algorithm: Algorithm, settings: LocalSettings) -> bool:
    """Return whether clients may be trained at once: a rule that looks and calls nothing.

    The model's layers must allow it, and the method must have the usual local training. Models
    that are small enough gain nothing from half precision, so it is taken as a wish to know of it.
    """
    usual = type(algorithm.method).local is BaseMethod.local
    return usual and settings.precision == "float32" and stacks(model)


def stacks_in_trial(
    module: nn.Module, head: str, algorithm: Algorithm, settings: LocalSettings, examples: Examples
) -> bool:
    """Return whether clients trained at once have the results of one by one, in a trial.

    A model or a method may do anything at all; the trial is the same on every worker.
    """
    before = torch.get_rng_state()
    try:
        return _trial(module, head, algorithm, settings, examples)
    except Exception:  # whatever anybody's code may raise: it is told when it is trained
        return False
    finally:
        torch.set_rng_state(before)


def _trial(
    module: nn.Module, head: str, algorithm: Algorithm, settings: LocalSettings, examples: Examples
) -> bool:
    """Whether two rounds of four small clients come out the same, at once and one by one."""
    model, models = FlatModel(deepcopy(module), head), StackedModel(deepcopy(module), head, 4)
    size = min(settings.batch_size, _LARGEST_BATCH)
    few = replace(settings, epochs=1, batch_size=size)
    sizes = (4 * size, 4 * size + 1, 3 * size + 2, size)  # with all kinds of last batches
    owned = [
        examples.take(torch.arange(first, first + n) % len(examples))
        for first, n in enumerate(sizes)
    ]
    if _draws(model, owned[0]):
        return False  # each client has its own chance, which a common pass would mix
    starts, memories = _starts(model.state()), list[TensorState]([{}, {}, {}, {}])
    further = _further_tensors(model, algorithm)
    received = [Message({"model": start}, further) for start in starts]

    def clients(number: int) -> list[Client]:
        generators = [generator_for(0, "train", number, place) for place in range(4)]
        return [
            Client(model, own, algorithm, few, number, message, memory, generator)
            for own, message, memory, generator in zip(
                owned, received, memories, generators, strict=True
            )
        ]

    for number in (1, 2):
        alone = [algorithm.method.local(client) for client in clients(number)]
        together = replies_together(clients(number), models)
        if not all(map(_alike, alone, together, starts)):
            return False
        memories = [output.state for output in alone]
    return True


def _further_tensors(model: FlatModel, algorithm: Algorithm) -> TensorState:
    """What the method sends in a first round besides a model."""
    method, layout, chance = algorithm.method, model.layout, generator_for(0, "trial")
    state = method.init(model.state(), chance)
    server_round = ServerRound(1, layout.head_slices, 4, chance, num_outputs=layout.num_outputs)
    return method.broadcast(server_round, state, 0).tensors


def _starts(state: ModelState) -> list[ModelState]:
    """Models near this one, for four clients."""
    noise = torch.randn(4, len(state.parameters), generator=generator_for(0, "trial"))
    scale = 0.01 * state.parameters.abs().mean()
    return [replace(state, parameters=state.parameters + scale * row) for row in noise]


def _draws(model: FlatModel, examples: Examples) -> bool:
    """Whether a pass through the model needs chance, as dropout does."""
    model.module.train()
    before = torch.get_rng_state()
    with torch.no_grad():
        model.forward(channels_last(examples.scaled))
    return not torch.equal(before, torch.get_rng_state())


def _alike(alone: ClientOutput, together: ClientOutput, start: ModelState) -> bool:
    """Whether two replies of a client differ by rounding alone."""
    one, other = alone.message, together.message
    moved = (one.model.parameters - start.parameters).abs().max()
    apart = (one.model.parameters - other.model.parameters).abs().max()
    losses = one.scalars["train_loss"], other.scalars["train_loss"]
    return bool(apart <= _TOLERANCE * moved) and isclose(*losses, rel_tol=_TOLERANCE)
