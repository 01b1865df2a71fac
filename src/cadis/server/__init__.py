"""The server: one round, written once, over any transport."""

from cadis.server.outcome import RoundOutcome, together
from cadis.server.records import (
    STRICT,
    Member,
    ModelRecord,
    OnRound,
    PackedMatrix,
    Rejection,
    RoundRecord,
    RoundResult,
    RunState,
    Seconds,
    numbers,
)
from cadis.server.round import Server
from cadis.server.transport import AvailableClients, RoundPlan, Tested
from cadis.server.validation import DivergedError, check_answer, limited_counts
