"""Worker processes, and whether they end with the process that they work for."""

import time
from pathlib import Path

GRACE = 5.0
"""Seconds that workers may outlive their server."""


def workers_of(number: int) -> list[int]:
    """The processes that a process has started."""
    try:
        text = Path(f"/proc/{number}/task/{number}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def outlived(workers: list[int]) -> int:
    """How many workers live after the time that they are given."""
    deadline = time.monotonic() + GRACE
    while (left := sum(map(_lives, workers))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
