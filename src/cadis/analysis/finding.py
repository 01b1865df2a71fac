"""Runs and studies in a folder that is neither."""

from collections.abc import Iterator
from pathlib import Path

from cadis.errors import CadisError
from cadis.store import RunFolder, StudyFolder

_DEPTH = 3
"""Folders within folders that are looked into."""


def is_result(path: Path) -> bool:
    """Whether a folder is that of a run or a study."""
    return StudyFolder(path).holds_study() or RunFolder(path).holds_run()


def find_results(folder: Path) -> list[Path]:
    """The runs and studies in a folder, or in folders in it; those of a study are not told apart.

    Hidden folders, and those more than three deep, are not looked into.
    """
    found = list(_found(folder, _DEPTH)) if folder.is_dir() else []
    if not found:
        raise CadisError(f"There is no run and no comparison in the folder {folder}.")
    return found


def _found(folder: Path, depth: int) -> Iterator[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError:  # it is not ours to read
        return
    for path in inside:
        if path.name.startswith(".") or not path.is_dir() or path.is_symlink():
            continue
        if is_result(path):
            yield path
        elif depth > 1:
            yield from _found(path, depth - 1)
