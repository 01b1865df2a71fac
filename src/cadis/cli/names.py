"""Names of files and folders that a command makes."""

import re
from pathlib import Path

from cadis.core import CadisError


def plain_name(*parts: str) -> str:
    """What was asked for, such as a method and a dataset, as one name; of paths their last part."""
    names = (Path(part.removeprefix("images:")).resolve().name for part in parts)
    return re.sub(r"[^\w.-]+", "-", "-".join(names))


def check_picture(path: Path | None) -> None:
    """Refuse a picture of a kind that is not drawn."""
    if path is not None and path.suffix not in (".png", ".pdf", ".svg"):
        raise CadisError(f"The picture is written as PNG, PDF or SVG; call it {path.stem}.png.")


def writable(path: Path) -> Path:
    """A file that can be written, in a folder that is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise CadisError(f"The file {path} cannot be written: {error.strerror}.") from None
    return path
