"""Tasks: what a model's outputs mean. One file a task; it imports only the core."""

from cadis.tasks.classification import Classification
from cadis.tasks.protocol import Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (Classification,)}

__all__ = ["TASKS", "Classification", "Task"]
