"""In which order people expect clients: 2 before 10, and ward-2 before ward-10."""

import re

from cadis.core import ClientId


def natural(client: ClientId) -> list[tuple[int, int, str]]:
    """What clients are sorted by: numbers within their names count as numbers."""
    parts = re.split(r"(\d+)", str(client))
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts if part]
