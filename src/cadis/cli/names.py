"""Names of files and folders that a command makes."""

import re
from pathlib import Path


def plain_name(*parts: str) -> str:
    """What was asked for, such as a method and a dataset, as one name; of paths their last part."""
    names = (Path(part.removeprefix("images:")).resolve().name for part in parts)
    return re.sub(r"[^\w.-]+", "-", "-".join(names))
