"""The embedded engine: the round loop, worker processes and checkpoints on one machine."""

from cadis.engine.checkpoint import Checkpoint, replace_file, replace_text
from cadis.engine.errors import EngineError
from cadis.engine.federation import Federation
from cadis.engine.loop import Engine
from cadis.engine.record import EngineState, Rejection, RoundRecord, RoundResult, Seconds
from cadis.engine.server import sample_participants
from cadis.engine.settings import Device, EngineSettings, choose_device

__all__ = [
    "Checkpoint",
    "Device",
    "Engine",
    "EngineError",
    "EngineSettings",
    "EngineState",
    "Federation",
    "Rejection",
    "RoundRecord",
    "RoundResult",
    "Seconds",
    "choose_device",
    "replace_file",
    "replace_text",
    "sample_participants",
]
