"""The server of a federation: one round loop that runs over any transport.

The engine and the Flower strategy call it; records, results and errors of rounds are defined here.
"""

from cadis.algorithm.weight_limits import limit_counts
from cadis.server.outcome import RoundOutcome, UpdateSummary, combine_evaluations
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
    to_json_array,
)
from cadis.server.recovery import return_to_fallback
from cadis.server.round import Server
from cadis.server.transport import AvailableClients, RoundPlan, TestResult
from cadis.server.validation import MAX_SAMPLES, MAX_SCALAR, DivergedError, find_defect
