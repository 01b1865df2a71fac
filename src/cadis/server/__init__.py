"""The server: one round, written once, over any transport."""

from cadis.server.outcome import RoundOutcome as RoundOutcome
from cadis.server.outcome import together as together
from cadis.server.records import STRICT as STRICT
from cadis.server.records import Member as Member
from cadis.server.records import ModelRecord as ModelRecord
from cadis.server.records import OnRound as OnRound
from cadis.server.records import PackedMatrix as PackedMatrix
from cadis.server.records import Rejection as Rejection
from cadis.server.records import RoundRecord as RoundRecord
from cadis.server.records import RoundResult as RoundResult
from cadis.server.records import RunState as RunState
from cadis.server.records import Seconds as Seconds
from cadis.server.records import numbers as numbers
from cadis.server.round import Server as Server
from cadis.server.transport import AvailableClients as AvailableClients
from cadis.server.transport import RoundPlan as RoundPlan
from cadis.server.transport import Tested as Tested
from cadis.server.validation import DivergedError as DivergedError
from cadis.server.validation import check_answer as check_answer
from cadis.server.validation import limited_counts as limited_counts
