"""The order in which people expect names."""

import re


def natural(name: object) -> tuple[list[tuple[int, str]], str]:
    """Sorts 2 before 10; names that differ only in how a number is written, always alike."""
    parts = re.split(r"(\d+)", str(name))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], str(name)
