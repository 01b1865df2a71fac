"""The embedded engine: the round loop and worker processes on one machine."""

from cadis.engine.engine import Engine
from cadis.engine.federation import EngineSettings, Federation

__all__ = ["Engine", "EngineSettings", "Federation"]
