"""The embedded engine: runs a federation on this machine, in worker processes.

:mod:`cadis.experiment` calls it. :mod:`cadis.flower` runs the same server code on Flower.
"""

from cadis.engine.engine import Engine
from cadis.engine.federation import EngineSettings, Federation, count_samples, get_labels
from cadis.engine.speeds import check_speeds, select_speeds
