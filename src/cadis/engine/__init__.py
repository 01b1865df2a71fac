"""The embedded engine: the round loop and worker processes on one machine."""

from cadis.engine.engine import Engine as Engine
from cadis.engine.federation import EngineSettings as EngineSettings
from cadis.engine.federation import Federation as Federation
from cadis.engine.federation import labels_of as labels_of
from cadis.engine.federation import sizes_of as sizes_of
from cadis.engine.speeds import check_speeds as check_speeds
from cadis.engine.speeds import speeds_by_client as speeds_by_client
