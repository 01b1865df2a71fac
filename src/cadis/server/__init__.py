"""The server: one round, written once, over any transport."""

from cadis.server.arrays import STRICT, PackedMatrix, numbers
from cadis.server.outcome import Outcome, together
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
from cadis.server.transport import Answers, Plan, Presence, Tested
from cadis.server.validation import DivergedError, check_answer, limited_counts

__all__ = [
    "STRICT",
    "Answers",
    "DivergedError",
    "Member",
    "ModelRecord",
    "OnRound",
    "Outcome",
    "PackedMatrix",
    "Plan",
    "Presence",
    "Rejection",
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
