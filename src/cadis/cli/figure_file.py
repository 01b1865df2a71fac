"""The file of a figure that a command draws: its name, its type, and whether it can be written."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cadis.cli.run import plain_name, short_name
from cadis.errors import CadisError
from cadis.options import options_of_scope
from cadis.report.style import is_picture

_IN_NAME = ("dataset", "partition", "model", *options_of_scope("machine"))
"""Options that the name of a picture tells anyway, or that change nothing in it."""


def figure_path(what: str, of: Sequence[str], preset: str | None, given: Mapping[str, Any]) -> Path:
    """Name a figure by all options that were given, so that no other figure has its name."""
    asked = [f"{name}-{value}" for name, value in sorted(given.items()) if name not in _IN_NAME]
    files = [str(value) for value in given.values() if "/" in str(value)]  # the name has their ends
    told = [sha256("\n".join(files).encode()).hexdigest()[:8]] if files else []
    name = plain_name(what, *of, *([preset] if preset else []), *asked, *told)
    return Path("runs") / f"{short_name(name)}.png"


def check_figure_type(path: Path | None) -> None:
    """Refuse a type of file that figures are not written as."""
    if path is not None and path.suffix not in (".png", ".pdf", ".svg"):
        raise CadisError(f"The picture is written as PNG, PDF or SVG; call it {path.stem}.png.")


def make_writable(path: Path) -> Path:
    """Create the folder of a figure; refuse a file that is not one of our figures."""
    if path.is_file() and path.stat().st_size and not is_picture(path):
        raise CadisError(
            f"{path} is there already, and not drawn by cadis; choose another name by --figure."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise CadisError(f"The file {path} cannot be written: {error.strerror}.") from None
    return path
