"""Calls of the functions of methods, samplers and server optimizers, with checks of their results.

A part may be a user's own code. An exception in it becomes an error that names the part, and a
wrong result raises an error that says what the function must return.
"""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from cadis._io import format_error
from cadis.algorithm import Aggregation, BaseMethod, ServerRound, ServerState
from cadis.algorithm.samplers import BaseSampler, SamplerFeedback, SamplerRound
from cadis.algorithm.server_optimizers import ServerOptimizer
from cadis.errors import CadisError, RunError
from cadis.types import ClientId, ClientUpdate, Message, ModelState, TensorState


@contextmanager
def catch_part_errors(part: Any, function: str) -> Iterator[None]:
    """Convert an exception of a part to a RunError that names the part and has the traceback."""
    try:
        yield
    except (CadisError, RunError):
        raise
    except Exception as error:  # user code may raise anything
        failure = RunError(f"{part.name} failed in {function}: {format_error(error)}.")
        failure.add_note(traceback.format_exc())
        raise failure from error


def init_state(method: BaseMethod, model: ModelState, generator: torch.Generator) -> ServerState:
    """Return the method's state before the first round; it must have at least one model."""
    with catch_part_errors(method, "init"):
        state = method.init(model, generator)
        _check_has_models(state, ServerState, f"{method.name}.init")
        _check_tensors(state.tensors, f"The state of {method.name}")
        return state


def get_model_name(method: BaseMethod, client: ClientId, state: ServerState) -> str:
    """Return the name of the model that the method assigns to a client; the model must exist."""
    with catch_part_errors(method, "model_name_for"):
        name = method.model_name_for(client, state)
        if name not in state.models:
            raise CadisError(
                f"{method.name}.model_name_for returned '{name}'; it must return one of: "
                f"{', '.join(state.models)}."
            )
        return name


def get_eligible_clients(
    method: BaseMethod, server_round: ServerRound, state: ServerState
) -> Sequence[ClientId]:
    """Return the available clients that may take part according to the method; at least one."""
    available, function = server_round.clients, f"{method.name}.eligible_clients"
    with catch_part_errors(method, "eligible_clients"):
        eligible = method.eligible_clients(server_round, state, available)
        if eligible is available:
            return eligible
        _check_clients(eligible, available, f"{function} returned")
        if not eligible:
            raise CadisError(f"{function} returned no clients; it must return at least one client.")
        return list(eligible)


def get_cluster_labels(
    method: BaseMethod, server_round: ServerRound, state: ServerState, clients: Sequence[ClientId]
) -> Tensor:
    """Return the cluster of each of n clients, (n,); -1 if it is not known."""
    with catch_part_errors(method, "cluster_labels"):
        return method.cluster_labels(server_round, state, clients)


def get_client_profiles(
    method: BaseMethod, state: ServerState, clients: Sequence[ClientId]
) -> Tensor:
    """Return the profile of each of n clients, (n, d); zeros if it is not known."""
    with catch_part_errors(method, "client_profiles"):
        return method.client_profiles(state, clients)


def choose_participants(
    sampler: BaseSampler, sampler_round: SamplerRound, state: TensorState
) -> list[ClientId]:
    """Return the participants that the sampler chooses: 1 to k different eligible clients."""
    with catch_part_errors(sampler, "choose"):
        participants = list(sampler.choose(sampler_round, state))
        start, max_count = f"The sampler {sampler.name} chose", sampler_round.num_participants
        _check_clients(participants, sampler_round.available, start)
        if not 1 <= len(participants) <= max_count:
            raise CadisError(
                f"{start} {len(participants)} clients; it must choose 1 to {max_count}."
            )
        return participants


def make_message(
    method: BaseMethod, server_round: ServerRound, state: ServerState, client: ClientId
) -> Message:
    """Return the method's message to a client; it must have at least one model."""
    with catch_part_errors(method, "broadcast"):
        message = method.broadcast(server_round, state, client)
        _check_has_models(message, Message, f"{method.name}.broadcast")
        _check_tensors(message.tensors, f"The tensors of {method.name}.broadcast")
        return message


def aggregate(
    method: BaseMethod,
    server_round: ServerRound,
    updates: Sequence[ClientUpdate],
    state: ServerState,
) -> Aggregation:
    """Return the method's aggregation; its models and weights must have the right shapes."""
    function = f"{method.name}.aggregate"
    with catch_part_errors(method, "aggregate"):
        aggregation = method.aggregate(server_round, updates, state)
        if not isinstance(aggregation, Aggregation):
            raise CadisError(f"{function} must return an Aggregation.")
        _check_models(aggregation.models, function)
        _check_sizes(aggregation.models, next(iter(state.models.values())), function)
        weights = aggregation.weights
        if not isinstance(weights, Tensor) or weights.shape != (len(updates),):
            raise CadisError(
                f"{function} must return a tensor of {len(updates)} weights, one per update."
            )
        _check_tensors(aggregation.tensors, f"The state of {method.name}")
        _check_tensors(aggregation.report, f"The report of {method.name}")
        return aggregation


def step_server_optimizer(
    optimizer: ServerOptimizer, sent: ModelState, aggregated: ModelState, state: TensorState
) -> tuple[Tensor, TensorState]:
    """Return the parameters of the next global model, (P,), and the new optimizer state."""
    with catch_part_errors(optimizer, "step"):
        parameters, new_state = optimizer.step(sent.parameters, aggregated.parameters, state)
        results = {"the model": parameters, **new_state}
        _check_tensors(results, f"The results of {optimizer.name}.step")
        if parameters.shape != aggregated.parameters.shape:
            raise CadisError(f"{optimizer.name}.step must return a model of the same shape.")
        return parameters, new_state


def update_sampler(
    sampler: BaseSampler, feedback: SamplerFeedback, state: TensorState
) -> TensorState:
    """Return the state of the sampler after a round."""
    with catch_part_errors(sampler, "learn"):
        new_state = sampler.learn(feedback, state)
        _check_tensors(new_state, f"The state of {sampler.name}")
        return new_state


def validate_clock(clock: float, start: float, method: BaseMethod) -> float:
    """Return the simulated time at which a round ended according to the method.

    Args:
        clock: the time that the method returned; it must not be before ``start``.
        start: simulated time at the start of the round.
        method: the method, for the error message.
    """
    if not (isfinite(clock) and clock >= start):
        raise CadisError(
            f"{method.name}.aggregate returned the clock {clock}, but the round began at "
            f"{start:g}; the clock must be finite and must not go back."
        )
    return float(clock)


def _check_clients(clients: Sequence[ClientId], available: Sequence[ClientId], start: str) -> None:
    """Raise an error if a client is not available or occurs twice; errors begin with ``start``."""
    known = set(available)
    if unknown := [client for client in clients if client not in known]:
        raise CadisError(f"{start} {unknown[0]!r}, which is not an available client.")
    if len(set(clients)) < len(clients):
        raise CadisError(f"{start} a client twice; it must name each client once.")


def _check_tensors(tensors: Any, subject: str) -> None:
    """Raise an error unless ``tensors`` maps names to tensors, so that it can be stored."""
    if not isinstance(tensors, Mapping):
        raise CadisError(f"{subject} must be named tensors, not a {type(tensors).__name__}.")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            type_name = type(tensor).__name__
            raise CadisError(f"{subject} must be named tensors, but '{name}' is a {type_name}.")


def _check_has_models(
    value: Any, expected_type: type[ServerState] | type[Message], function: str
) -> None:
    if not isinstance(value, expected_type) or not value.models:
        raise CadisError(
            f"{function} must return a {expected_type.__name__} with at least one model."
        )
    _check_models(value.models, function)


def _check_models(models: Mapping[Any, Any], function: str) -> None:
    for name, model in models.items():
        if not isinstance(model, ModelState):
            type_name = type(model).__name__
            raise CadisError(
                f"{function}: the model '{name}' must be a ModelState, not a {type_name}."
            )
        if not isinstance(name, str) or not name or "/" in name:
            raise CadisError(
                f"{function}: the name of a model must be a text without a slash, not '{name}'."
            )


def _check_sizes(models: Mapping[str, ModelState], expected: ModelState, function: str) -> None:
    """Raise an error if a model does not have as many parameters as ``expected``."""
    size = len(expected.parameters)
    for name, model in models.items():
        shape = tuple(model.parameters.shape)
        if shape != (size,):
            raise CadisError(
                f"{function} returned the model '{name}' of shape {shape}; it must be ({size},)."
            )
