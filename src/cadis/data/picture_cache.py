"""Decoding pictures once: in parallel, into one array on disk that all processes share.

The cache is listed, kept small and cleared. Whatever is not of our making stays: entries are known
by their names, and files by theirs.
"""

import hashlib
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cadis._io import Callbacks, unwritable
from cadis.data.dicom import PictureError, dicom_decoders, is_dicom
from cadis.data.picture import Frame, read_picture
from cadis.errors import CadisError, RunError

_VERSION = "2"
"""Changes when the same files would be decoded otherwise."""

_OWNER_ONLY, _OWNER_FILE = 0o700, 0o600
"""Pictures may be of patients: nobody else on the machine is to see them."""

_PIXELS, _INDEX = "pixels.raw", "index.json"
_OURS = (_PIXELS, _INDEX, "pixels.npy", "broken.json")
"""All that may be in an entry or a draft; the last two were there in version 1."""

_DRAFT = ".draft-"
_DAY, _FRESH = 24 * 60 * 60, 60
_ENTRY = re.compile(r"[0-9a-f]{20}")


@dataclass(frozen=True)
class Decoded:
    """Decoded pictures."""

    pixels: NDArray[np.uint8]  # of those that could be read, in order, (n, size, size, 3); on disk
    broken: dict[int, str]  # position -> why, of those that could not
    animated: list[int]  # positions of those that have more frames than the first, which was read


def decode(
    paths: Sequence[Path], size: int, cache: Path | None, callbacks: Callbacks, source: str = ""
) -> Decoded:
    """Return pictures of size x size pixels: from the cache, or decoded if one has changed.

    Without a cache they are in memory only. What is kept says from which ``source`` it is.
    """
    limit = cache_limit()
    if cache is None or not limit:
        pixels = np.empty((len(paths), size, size, 3), np.uint8)
        free = iter(pixels)
        broken, animated = _decode_all(
            paths, size, callbacks, lambda one: np.copyto(next(free), one)
        )
        return Decoded(pixels[: len(paths) - len(broken)], broken, animated)
    folder = cache / _key(paths, size)
    decoded = _read(folder, len(paths), size)
    if decoded is None:  # not there, or damaged
        try:
            cache.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY)
            cache.chmod(_OWNER_ONLY)
            _sweep(cache)
            with tempfile.TemporaryDirectory(dir=cache, prefix=_DRAFT) as draft:
                _write(Path(draft), paths, size, callbacks, source)
                folder.mkdir(exist_ok=True, mode=_OWNER_ONLY)
                for name in (_PIXELS, _INDEX):
                    (Path(draft) / name).replace(folder / name)
        except OSError as error:
            raise unwritable(folder, error) from None
        decoded = _read(folder, len(paths), size)
        if decoded is not None and not _keep_within(cache, limit, folder):
            callbacks.say(
                f"The decoded pictures take more than the cache's {limit / 1e9:g} GB, so that they "
                "are not kept; CADIS_CACHE_GB gives it more."
            )
    if decoded is None:
        raise RunError(f"{folder} is not as it was written; check the disk, and try again.")
    return decoded


def _read(folder: Path, count: int, size: int) -> Decoded | None:
    """Return what is in the cache; None if it is not, to the bit, what was written there."""
    try:
        index, digest = (folder / _INDEX).read_text(encoding="utf-8").splitlines()
        content = json.loads(index)
        broken = {int(number): str(why) for number, why in content["broken"].items()}
        path, shape = folder / _PIXELS, (count - len(broken), size, size, 3)
        if path.stat().st_size != np.prod(shape):
            return None
        empty = not np.prod(shape)  # nothing cannot be mapped
        pixels = np.zeros(shape, np.uint8) if empty else np.memmap(path, np.uint8, "c", shape=shape)
        found = hashlib.sha256(pixels.data)  # takes a second a gigabyte
        found.update(index.encode())
        if found.hexdigest() != digest:
            return None
        os.utime(folder / _INDEX)  # what was used last stays longest
        return Decoded(pixels, broken, content["animated"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _write(
    draft: Path, paths: Sequence[Path], size: int, callbacks: Callbacks, source: str
) -> None:
    """Ordinary writing says that a disk is full; through a mapping, the process would die of it."""
    digest = hashlib.sha256()
    with (draft / _PIXELS).open("wb") as file:
        (draft / _PIXELS).chmod(_OWNER_FILE)

        def keep(pixels: NDArray[np.uint8]) -> None:
            file.write(pixels.data)
            digest.update(pixels.data)

        broken, animated = _decode_all(paths, size, callbacks, keep)
    told = {"number": len(paths) - len(broken), "side": size, "source": source}
    index = json.dumps({"broken": broken, "animated": animated, **told})
    digest.update(index.encode())
    (draft / _INDEX).write_text(f"{index}\n{digest.hexdigest()}\n", encoding="utf-8")
    (draft / _INDEX).chmod(_OWNER_FILE)


def _decode_all(
    paths: Sequence[Path],
    size: int,
    callbacks: Callbacks,
    keep: Callable[[NDArray[np.uint8]], None],
) -> tuple[dict[int, str], list[int]]:
    """Call ``keep`` with each picture in order; return why others are broken, and the animated."""
    broken: dict[int, str] = {}
    animated = []
    with (
        warnings.catch_warnings(action="ignore"),  # a picture is read, or it is said why not
        ThreadPoolExecutor(os.cpu_count()) as pool,  # Pillow decodes outside Python's lock
    ):
        for number, frame in enumerate(pool.map(partial(_frame_or_why, size=size), paths)):
            if isinstance(frame, str):
                broken[number] = frame
            else:
                keep(frame.pixels)
                animated += [number] if frame.animated else []
            callbacks.progress("reading pictures", number + 1, len(paths))
    return broken, animated


def _frame_or_why(path: Path, size: int) -> Frame | str:
    try:
        return read_picture(path, size)
    except PictureError as error:
        return str(error)


def _key(paths: Sequence[Path], size: int) -> str:
    """Changes when a picture is added, removed, written anew, or may be read at last."""
    digest = hashlib.sha256(f"{_VERSION} {size}\n".encode())
    if any(map(is_dicom, paths)):  # what can be decoded depends on what is installed
        digest.update(dicom_decoders().encode())
    for path in paths:
        digest.update(f"{_stamp(path)}\n".encode(errors="backslashreplace"))
    return digest.hexdigest()[:20]


def _stamp(path: Path) -> str:
    try:
        status, readable = path.stat(), os.access(path, os.R_OK)
        return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns} {readable}"
    except (OSError, ValueError):  # it is not there, or its name cannot be one
        return f"{path.absolute()} missing"


@dataclass(frozen=True)
class CacheEntry:
    """Pictures that were decoded together."""

    path: Path  # its folder
    pictures: int | None  # how many; None if that is not known
    side: int | None  # pixels a side; None likewise
    source: str  # the folder that they came from; "" if that is not known
    size: int  # bytes on disk
    used: float  # when it was read or written last, in seconds since 1970

    @property
    def is_draft(self) -> bool:
        """Whether it is being made, or was when a process was killed."""
        return self.path.name.startswith(_DRAFT)


def cache_limit() -> int:
    """Return how many bytes all entries may have: ``CADIS_CACHE_GB``, by default 10 GB."""
    given = os.environ.get("CADIS_CACHE_GB") or "10"
    try:
        limit = float(given)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise CadisError(
            f"CADIS_CACHE_GB is {given!r}; give a number of gigabytes, 0 to keep nothing."
        )
    return int(limit * 1e9)


def cache_entries(cache: Path) -> list[CacheEntry]:
    """Return all entries, those used last first; drafts of killed processes among them."""
    try:
        folders = [path for path in cache.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    found = []
    for path in sorted(folders):
        is_ours = _ENTRY.fullmatch(path.name) or path.name.startswith(_DRAFT)
        with suppress(OSError):  # another process may remove it
            if is_ours and (_files(path) or not any(path.iterdir())):
                found.append(_entry(path))
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def _remove(entries: Iterable[CacheEntry]) -> list[CacheEntry]:
    """Remove entries, and return those that are gone; what is mapped elsewhere stays usable."""
    gone = []
    for entry in entries:
        with suppress(OSError):  # another process may do the same
            for path in _files(entry.path):
                path.unlink()
            gone.append(entry)
            entry.path.rmdir()  # which fails if anything else is in it
    return gone


def _keep_within(cache: Path, limit: int, newest: Path) -> bool:
    """Remove what was used least recently until all is within a limit of bytes.

    The newest goes only if it does not fit by itself; return whether it is kept.
    """
    entries = [entry for entry in cache_entries(cache) if not entry.is_draft]
    entries.sort(key=lambda entry: entry.path == newest, reverse=True)
    total, over = 0, []
    for entry in entries:
        total += entry.size
        if total > limit:
            over.append(entry)
            total -= entry.size if entry.path == newest else 0
    _remove(over)
    return all(entry.path != newest for entry in over)


def clear(cache: Path) -> tuple[list[CacheEntry], list[CacheEntry]]:
    """Remove all entries; return those that are gone, and those that are not.

    A draft that somebody has written to within the last minute is being made.
    """
    entries = cache_entries(cache)
    fresh = [e for e in entries if e.is_draft and time.time() - e.used < _FRESH]
    gone = _remove(entry for entry in entries if entry not in fresh)
    return gone, [entry for entry in entries if entry not in gone]


def _sweep(cache: Path) -> None:
    """Remove drafts of processes that were killed: those that nobody has written to for a day."""
    entries = cache_entries(cache)
    _remove(e for e in entries if e.is_draft and time.time() - e.used > _DAY)


def _files(folder: Path) -> Sequence[Path]:
    return [folder / name for name in _OURS if (folder / name).is_file()]


def _entry(path: Path) -> CacheEntry:
    files = _files(path)
    used = max(file.stat().st_mtime for file in [path, *files])
    size = sum(file.stat().st_size for file in files)
    told: dict[str, object] = {}
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        told = dict(json.loads((path / _INDEX).read_text(encoding="utf-8").splitlines()[0]))
    side, number, source = told.get("side"), told.get("number"), told.get("source")
    return CacheEntry(
        path,
        number if isinstance(number, int) else None,
        side if isinstance(side, int) else None,
        source if isinstance(source, str) else "",
        size,
        used,
    )
