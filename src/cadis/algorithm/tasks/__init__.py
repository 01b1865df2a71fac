"""Tasks: what a model's outputs mean. One file a task; it imports only the core."""

from cadis.algorithm.tasks.binary import Binary
from cadis.algorithm.tasks.classification import Classification
from cadis.algorithm.tasks.protocol import Reduction, Task

_OURS: tuple[type[Task], ...] = (Classification, Binary)

TASKS: dict[str, type[Task]] = {kind.name: kind for kind in _OURS}

__all__ = [
    "TASKS",
    "Binary",
    "Classification",
    "Reduction",
    "Task",
]
