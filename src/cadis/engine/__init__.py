"""The embedded engine: the round loop and worker processes on one machine."""

from cadis.engine.engine import Engine
from cadis.engine.federation import EngineSettings, Federation, labels_of, sizes_of
from cadis.engine.speeds import check_speeds, speeds_by_client
