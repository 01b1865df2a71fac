"""What the cache of decoded pictures holds: listed, kept small, and removed.

Whatever is not of our making stays: entries are known by their names, and files by theirs.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cadis.errors import CadisError

PIXELS, INDEX = "pixels.raw", "index.json"
OURS = (PIXELS, INDEX, "pixels.npy", "broken.json")
"""All that may be in an entry or a draft; the last two were there in version 1."""

DRAFT = ".draft-"
DAY = 24 * 60 * 60
_FRESH = 60
_ENTRY = re.compile(r"[0-9a-f]{20}")
_DEFAULT_GB = 10.0
_GB = 1e9


@dataclass(frozen=True)
class CacheEntry:
    """Pictures that were decoded together.

    Attributes:
        path: its folder.
        pictures: how many; None if that is not known.
        side: pixels a side; None likewise.
        source: the folder that they came from; "" if that is not known.
        size: bytes on disk.
        used: when it was read or written last, in seconds since 1970.
    """

    path: Path
    pictures: int | None
    side: int | None
    source: str
    size: int
    used: float


def cache_limit() -> int:
    """How many bytes all entries may have together: ``CADIS_CACHE_GB``, by default 10 GB."""
    given = os.environ.get("CADIS_CACHE_GB", "")
    try:
        limit = float(given) if given else _DEFAULT_GB
        if not 0 <= limit < float("inf"):
            raise ValueError
    except ValueError:
        raise CadisError(
            f"CADIS_CACHE_GB is {given!r}; give a number of gigabytes, 0 to keep nothing."
        ) from None
    return int(limit * _GB)


def cache_entries(cache: Path) -> list[CacheEntry]:
    """All entries, those used last first; drafts of processes that were killed among them."""
    found = []
    for path in _folders(cache):
        with suppress(OSError):  # another process may remove it
            if _files(path) or not any(path.iterdir()):
                found.append(_entry(path))
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def remove_entries(entries: Iterable[CacheEntry]) -> list[CacheEntry]:
    """Remove entries, and return those that are gone; what is mapped elsewhere stays usable."""
    gone = []
    for entry in entries:
        with suppress(OSError):  # another process may do the same
            for path in _files(entry.path):
                path.unlink()
            gone.append(entry)
            entry.path.rmdir()  # which fails if anything else is in it
    return gone


def keep_within(cache: Path, limit: int, newest: Path) -> bool:
    """Remove what was used least recently until all is within the limit.

    Args:
        cache: where the entries are.
        limit: bytes.
        newest: the entry in use, which goes only if it does not fit by itself.

    Returns:
        Whether the newest is kept.
    """
    entries = [e for e in cache_entries(cache) if not e.path.name.startswith(DRAFT)]
    entries.sort(key=lambda entry: entry.path == newest, reverse=True)
    total, over = 0, []
    for entry in entries:
        total += entry.size
        if total > limit:
            over.append(entry)
            total -= entry.size if entry.path == newest else 0
    remove_entries(over)
    return all(entry.path != newest for entry in over)


def clear(cache: Path) -> tuple[list[CacheEntry], list[CacheEntry]]:
    """Remove all entries; returns those that are gone, and those that are not.

    A draft that somebody has written to within the last minute is being made.
    """
    entries = cache_entries(cache)
    fresh = [e for e in entries if e.path.name.startswith(DRAFT) and time.time() - e.used < _FRESH]
    gone = remove_entries(entry for entry in entries if entry not in fresh)
    return gone, [entry for entry in entries if entry not in gone]


def sweep(cache: Path) -> None:
    """Remove drafts of processes that were killed: those that nobody has written to for a day."""
    drafts = [e for e in cache_entries(cache) if e.path.name.startswith(DRAFT)]
    remove_entries(draft for draft in drafts if time.time() - draft.used > DAY)


def _folders(cache: Path) -> list[Path]:
    try:
        everything = [path for path in cache.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    ours = (p for p in everything if _ENTRY.fullmatch(p.name) or p.name.startswith(DRAFT))
    return sorted(ours)


def _files(folder: Path) -> Sequence[Path]:
    return [folder / name for name in OURS if (folder / name).is_file()]


def _entry(path: Path) -> CacheEntry:
    files = _files(path)
    used = max(file.stat().st_mtime for file in [path, *files])
    size = sum(file.stat().st_size for file in files)
    told: dict[str, object] = {}
    with suppress(OSError, ValueError, LookupError, RecursionError):
        told = json.loads((path / INDEX).read_text(encoding="utf-8").splitlines()[0])
    side, number, source = (
        told.get(name) if isinstance(told, dict) else None for name in ("side", "number", "source")
    )
    return CacheEntry(
        path,
        number if isinstance(number, int) else None,
        side if isinstance(side, int) else None,
        source if isinstance(source, str) else "",
        size,
        used,
    )
