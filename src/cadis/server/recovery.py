"""Return to an earlier model, if training from the newest one diverges for most clients.

An update can be within all limits and still damage the model so much that honest clients diverge
in the next round. They would be rejected, and the client that caused it would remain alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from cadis.server.records import Rejection, RunState
from cadis.server.transport import AvailableClients
from cadis.server.update_limits import TOO_LONG
from cadis.server.validation import NOT_FINITE


def has_diverged(num_valid: int, rejected: Sequence[Rejection], can_return: bool) -> bool:
    """Return whether the updates of a round must not be aggregated, since most clients diverged.

    Args:
        num_valid: number of valid updates.
        rejected: rejected clients, and the reasons.
        can_return: whether there is an earlier state. If so, the round is discarded if at least
            half of the clients diverged, else only if a single one of at least three is left.
    """
    num_diverged = sum(rejection.reason in (NOT_FINITE, TOO_LONG) for rejection in rejected)
    if can_return:
        return num_diverged > 0 and num_diverged >= num_valid
    return num_diverged > 1 and num_valid <= 1


def return_to_fallback(state: RunState) -> tuple[RunState, list[Rejection]]:
    """Return the state before the last round, and the clients to exclude from the next attempt.

    The models and the states of the parts are those of the earlier state. Clients keep their
    states, since they trained from the earlier models.
    """
    assert state.fallback is not None
    earlier = replace(
        state.fallback, client_files=state.client_files, members=state.members, clock=state.clock
    )
    reason = f"its update of round {state.round} made the training of most clients diverge"
    return earlier, [Rejection(client, reason) for client in state.suspects]


def exclude_clients(available: AvailableClients, excluded: Sequence[Rejection]) -> AvailableClients:
    """Return the available clients without some of them."""
    names = {rejection.client for rejection in excluded}
    return (
        replace(
            available,
            clients=[client for client in available.clients if client not in names],
            rejected=[*available.rejected, *excluded],
        )
        if names
        else available
    )
