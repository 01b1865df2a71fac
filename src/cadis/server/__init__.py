"""The server: one round, written once, over any transport."""

from cadis.server.arrays import STRICT, PackedMatrix, numbers
from cadis.server.outcome import RoundOutcome, together
from cadis.server.records import (
    Member,
    ModelRecord,
    OnRound,
    Rejection,
    RoundRecord,
    RoundResult,
    RunState,
    Seconds,
)
from cadis.server.round import Server
from cadis.server.transport import Answers, AvailableClients, RoundPlan, Tested
from cadis.server.validation import DivergedError, check_answer, limited_counts

__all__ = [
    "STRICT",
    "Answers",
    "AvailableClients",
    "DivergedError",
    "Member",
    "ModelRecord",
    "OnRound",
    "PackedMatrix",
    "Rejection",
    "RoundOutcome",
    "RoundPlan",
    "RoundRecord",
    "RoundResult",
    "RunState",
    "Seconds",
    "Server",
    "Tested",
    "check_answer",
    "limited_counts",
    "numbers",
    "together",
]
