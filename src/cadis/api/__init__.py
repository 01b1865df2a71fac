"""What a program or a notebook calls: ``cadis.run``, ``cadis.compare``, and what shows them."""

from cadis.api.comparing import ComparisonResult, compare
from cadis.api.running import run
from cadis.api.tracking import Tracking, check_tracker, tracked

__all__ = ["ComparisonResult", "Tracking", "check_tracker", "compare", "run", "tracked"]
