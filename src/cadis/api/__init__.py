"""What a program or a notebook calls: ``cadis.run``, with a display and trackers if asked for."""

from cadis.api.running import run
from cadis.api.tracking import Tracking, check_tracker, tracked

__all__ = ["Tracking", "check_tracker", "run", "tracked"]
