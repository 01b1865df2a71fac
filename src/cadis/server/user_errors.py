"""Checks of what methods, samplers and other parts return, so that an error names the part.

The server calls them around every call of a part, since a part may be a user's own code.
"""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

from torch import Tensor

from cadis._io import format_error
from cadis.algorithm import Aggregation, ServerState
from cadis.errors import CadisError, RunError
from cadis.types import ClientId, Message, ModelState


@contextmanager
def catch_part_errors(part: Any, function: str) -> Iterator[None]:
    """Turn an exception of a part into a RunError that names the part; notes have the traceback."""
    try:
        yield
    except (CadisError, RunError):
        raise
    except Exception as error:  # user code may raise anything
        failure = RunError(f"{part.name} failed in {function}: {format_error(error)}.")
        failure.add_note(traceback.format_exc())
        raise failure from error


def validate_state(state: ServerState, name: str) -> ServerState:
    """Return the method's initial state, which must have at least one model and named tensors."""
    _check_has_models(state, ServerState, f"{name}.init")
    check_tensors(state.tensors, f"The state of {name}")
    return state


def validate_eligible(
    eligible: Sequence[ClientId], available: Sequence[ClientId], name: str
) -> Sequence[ClientId]:
    """Return the clients that a method lets take part, which must be available."""
    if eligible is available:
        return eligible
    _check_clients(eligible, available, f"{name}.eligible_clients returned")
    if not eligible:
        raise CadisError(
            f"{name}.eligible_clients returned no clients; it must return at least one client."
        )
    return list(eligible)


def check_participants(
    participants: Sequence[ClientId],
    eligible: Sequence[ClientId],
    num_participants: int,
    name: str,
) -> None:
    """Check that a sampler chose 1 to ``num_participants`` different eligible clients."""
    start = f"The sampler {name} chose"
    _check_clients(participants, eligible, start)
    if not 1 <= len(participants) <= num_participants:
        raise CadisError(
            f"{start} {len(participants)} clients; it must choose 1 to {num_participants}."
        )


def _check_clients(clients: Sequence[ClientId], available: Sequence[ClientId], start: str) -> None:
    """Check that all clients are available and different; errors begin with ``start``."""
    known = set(available)
    if unknown := [client for client in clients if client not in known]:
        raise CadisError(f"{start} {unknown[0]!r}, which is not an available client.")
    if len(set(clients)) < len(clients):
        raise CadisError(f"{start} a client twice; it must name each client once.")


def validate_clock(clock: float, before: float, name: str) -> float:
    """Return the end of a round that a method reports, which must not be before its start."""
    if not (isfinite(clock) and clock >= before):
        raise CadisError(
            f"{name}.aggregate returned the clock {clock}, but the round began at {before:g}; the "
            "clock must be finite and must not go back."
        )
    return float(clock)


def validate_message(message: Message, name: str) -> Message:
    """Return the message that a method sends to a client, which must have at least one model."""
    _check_has_models(message, Message, f"{name}.broadcast")
    check_tensors(message.tensors, f"The tensors of {name}.broadcast")
    return message


def validate_aggregation(
    aggregation: Aggregation, name: str, updates: int, sent: Mapping[str, ModelState]
) -> Aggregation:
    """Return the method's aggregation, whose models and weights must have the right shapes.

    Args:
        aggregation: what the method returned.
        name: name of the method.
        updates: number of updates that were aggregated.
        sent: the global models before the round.
    """
    if not isinstance(aggregation, Aggregation):
        raise CadisError(f"{name}.aggregate must return an Aggregation.")
    _check_models(aggregation.models, f"{name}.aggregate")
    size = len(next(iter(sent.values())).parameters)
    for key, model in aggregation.models.items():
        if model.parameters.shape != (size,):
            shape = tuple(model.parameters.shape)
            raise CadisError(
                f"{name}.aggregate returned the model '{key}' of shape {shape}; it must be "
                f"({size},)."
            )
    weights = aggregation.weights
    if not isinstance(weights, Tensor) or weights.shape != (updates,):
        raise CadisError(
            f"{name}.aggregate must return a tensor of {updates} weights, one per update."
        )
    check_tensors(aggregation.tensors, f"The state of {name}")
    check_tensors(aggregation.report, f"The report of {name}")
    return aggregation


def check_tensors(tensors: Any, subject: str) -> None:
    """Check that ``tensors`` maps names to tensors, which a checkpoint can store."""
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
