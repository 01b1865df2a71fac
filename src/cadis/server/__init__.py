"""The server: one round, written once, over any transport."""

from cadis.server.checks import DivergedError, check_answer, limited_counts
from cadis.server.driver import Server
from cadis.server.record import Outcome, together
from cadis.server.transport import Answer, Answers, Plan, Presence, Tested, Transport

__all__ = [
    "Answer",
    "Answers",
    "DivergedError",
    "Outcome",
    "Plan",
    "Presence",
    "Server",
    "Tested",
    "Transport",
    "check_answer",
    "limited_counts",
    "together",
]
