"""Calling parts: what one of a user's own does wrong is told in a sentence that names it."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

from torch import Tensor

from cadis._io import one_line
from cadis.algorithm import Aggregation, ServerState
from cadis.errors import CadisError, RunError
from cadis.types import ClientId, Message, ModelState


@contextmanager
def calling(part: Any, function: str) -> Iterator[None]:
    """What a part raises ends the run in a sentence; where it was raised is in the notes."""
    try:
        yield
    except (CadisError, RunError):
        raise
    except Exception as error:  # whatever anybody's code may raise
        failure = RunError(f"{part.name} failed in {function}: {one_line(error)}.")
        failure.add_note(traceback.format_exc())
        raise failure from error


def checked_state(state: ServerState, name: str) -> ServerState:
    """What a method begins with: models, at least one, and named tensors."""
    _check_has_models(state, ServerState, f"{name}.init")
    check_tensors(state.memory, f"The memory of {name}")
    return state


def check_eligible(
    found: Sequence[ClientId], there: Sequence[ClientId], name: str
) -> Sequence[ClientId]:
    """Whom a method lets take part, of those that are there."""
    if found is there:
        return found
    _check_clients(found, there, f"{name}.eligible_clients names", "name")
    if not found:
        raise CadisError(f"{name}.eligible_clients names nobody; it must name at least one client.")
    return list(found)


def check_chosen(
    chosen: Sequence[ClientId], eligible_clients: Sequence[ClientId], wanted: int, name: str
) -> None:
    """Refuse what a sampler must not say."""
    said = f"The sampler {name} chose"
    _check_clients(chosen, eligible_clients, said, "choose")
    if not 1 <= len(chosen) <= wanted:
        raise CadisError(f"{said} {len(chosen)} clients; it must choose 1 to {wanted}.")


def _check_clients(
    named: Sequence[ClientId], there: Sequence[ClientId], said: str, verb: str
) -> None:
    """Refuse clients that are not there, and any that is named twice."""
    known = set(there)
    if strangers := [client for client in named if client not in known]:
        raise CadisError(f"{said} {strangers[0]!r}, which is no client that is there.")
    if len(set(named)) < len(named):
        raise CadisError(f"{said} a client twice; {verb} each once.")


def checked_clock(clock: float, before: float, name: str) -> float:
    """When a round ended, as a method says."""
    if not (isfinite(clock) and clock >= before):
        raise CadisError(
            f"{name}.aggregate says that the round ended at {clock}, but it began at {before:g}."
        )
    return float(clock)


def checked_message(message: Message, name: str) -> Message:
    """What a method sends to a client."""
    _check_has_models(message, Message, f"{name}.broadcast")
    check_tensors(message.tensors, f"What {name} broadcasts")
    return message


def checked_aggregation(
    aggregation: Aggregation, name: str, updates: int, sent: Mapping[str, ModelState]
) -> Aggregation:
    """What a method makes of so many updates of the models that were sent."""
    if not isinstance(aggregation, Aggregation):
        raise CadisError(f"{name}.aggregate must return an Aggregation.")
    _check_models(aggregation.models, f"{name}.aggregate")
    size = len(next(iter(sent.values())).parameters)
    for key, model in aggregation.models.items():
        if model.parameters.shape != (size,):
            shape = tuple(model.parameters.shape)
            raise CadisError(f"{name}.aggregate made '{key}' of shape {shape}, not ({size},).")
    weights = aggregation.weights
    if not isinstance(weights, Tensor) or weights.shape != (updates,):
        raise CadisError(f"{name} must tell {updates} weights, one for each update, as a tensor.")
    check_tensors(aggregation.memory, f"The memory of {name}")
    check_tensors(aggregation.report, f"The report of {name}")
    return aggregation


def check_tensors(tensors: Any, what: str) -> None:
    """Refuse what is not named tensors, as a checkpoint holds them."""
    if not isinstance(tensors, Mapping):
        raise CadisError(f"{what} must be named tensors, not a {type(tensors).__name__}.")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise CadisError(f"{what} must be named tensors, but '{name}' is a {kind}.")


def _check_has_models(returned: Any, kind: type[ServerState] | type[Message], what: str) -> None:
    if not isinstance(returned, kind) or not returned.models:
        raise CadisError(f"{what} must return a {kind.__name__} with at least one model.")
    _check_models(returned.models, what)


def _check_models(models: Mapping[Any, Any], what: str) -> None:
    for name, model in models.items():
        if not isinstance(model, ModelState):
            kind = type(model).__name__
            raise CadisError(f"{what}: the model '{name}' must be a ModelState, not a {kind}.")
        if not isinstance(name, str) or not name or "/" in name:
            raise CadisError(f"{what}: a model's name is a text without a slash, not '{name}'.")
