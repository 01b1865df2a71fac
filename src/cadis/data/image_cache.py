"""Cache of decoded images: one array on disk that all processes share.

Images are decoded once, in parallel. The cache can be listed, limited in size and cleared. Entries
and their files are recognized by name; other files in the folder are never removed.
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

from cadis._io import (
    Callbacks,
    check_memory,
    check_output,
    make_write_error,
    read_regular,
)
from cadis.data.dicom import ImageError, describe_decoders, is_dicom
from cadis.data.image_reading import Frame, read_image
from cadis.errors import CadisError, RunError

_VERSION = "2"
"""Version of the decoding code; a new version invalidates all entries."""

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
"""Images may show patients, so only the user may read them."""

_PIXELS, _INDEX = "pixels.raw", "index.json"
_ENTRY_FILES = (_PIXELS, _INDEX, "pixels.npy", "broken.json")
"""Names of all files of an entry or a draft; version 1 wrote the last two."""

_DRAFT_PREFIX = ".draft-"
_DAY, _MINUTE = 24 * 60 * 60, 60
_ENTRY_NAME = re.compile(r"[0-9a-f]{20}")


@dataclass(frozen=True)
class DecodedImages:
    """Decoded images."""

    pixels: NDArray[np.uint8]  # of the readable images, in order, (n, size, size, 3)
    errors: dict[int, str]  # index of an unreadable image -> reason
    animated: list[int]  # indices of images with more frames than the first, which was read


def decode(
    paths: Sequence[Path], size: int, cache: Path | None, callbacks: Callbacks, source: str = ""
) -> DecodedImages:
    """Decode images, or return them from the cache if no file has changed.

    Args:
        paths: image files.
        size: width and height of the decoded images in pixels.
        cache: folder of the cache; None to keep the decoded images in memory only.
        callbacks: called with the progress and with warnings.
        source: folder of the images, which is shown when the cache is listed.
    """
    limit = get_cache_limit()
    if cache is None or not limit:
        return _decode_in_memory(paths, size, callbacks)
    folder = cache / _compute_key(paths, size)
    images = _read_entry(folder, len(paths), size)
    if images is None:  # missing or damaged
        try:
            cache.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            cache.chmod(_FOLDER_MODE)
            _remove_old_drafts(cache)
            with tempfile.TemporaryDirectory(dir=cache, prefix=_DRAFT_PREFIX) as draft:
                _write_entry(Path(draft), paths, size, callbacks, source)
                folder.mkdir(exist_ok=True, mode=_FOLDER_MODE)
                for name in (_PIXELS, _INDEX):
                    check_output(folder / name, folder)
                    (Path(draft) / name).replace(folder / name)
        except OSError as error:
            raise make_write_error(folder, error) from None
        images = _read_entry(folder, len(paths), size)
        if images is not None and not _enforce_limit(cache, limit, folder):
            callbacks.say(
                f"The decoded images take more than the cache's {limit / 1e9:g} GB, so they are "
                "not kept; set CADIS_CACHE_GB to a larger number to keep them."
            )
    if images is None:
        raise RunError(f"{folder} changed after it was written; check the disk, and try again.")
    return images


def _decode_in_memory(paths: Sequence[Path], size: int, callbacks: Callbacks) -> DecodedImages:
    check_memory(
        len(paths) * size * size * 3,
        f"{len(paths):,} images of {size} x {size} pixels in memory",
        "choose a smaller --image-size, or keep decoded images on disk with --cache",
    )
    pixels = np.empty((len(paths), size, size, 3), np.uint8)
    rows = iter(pixels)
    errors, animated = _decode_all(
        paths, size, callbacks, lambda image: np.copyto(next(rows), image)
    )
    return DecodedImages(pixels[: len(paths) - len(errors)], errors, animated)


def _read_entry(folder: Path, count: int, size: int) -> DecodedImages | None:
    """Return the images of an entry; None if it is missing or its checksum is wrong."""
    try:
        index, digest = read_regular(folder / _INDEX).decode().splitlines()
        content = json.loads(index)
        errors = {int(image): str(reason) for image, reason in content["broken"].items()}
        path, shape = folder / _PIXELS, (count - len(errors), size, size, 3)
        if not path.is_file() or path.stat().st_size != np.prod(shape):
            return None
        is_empty = not np.prod(shape)  # an empty file cannot be mapped
        pixels = (
            np.zeros(shape, np.uint8) if is_empty else np.memmap(path, np.uint8, "c", shape=shape)
        )
        checksum = hashlib.sha256(pixels.data)  # about one second per gigabyte
        checksum.update(index.encode())
        if checksum.hexdigest() != digest:
            return None
        os.utime(folder / _INDEX)  # the least recently used entries are removed first
        return DecodedImages(pixels, errors, content["animated"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _write_entry(
    draft: Path, paths: Sequence[Path], size: int, callbacks: Callbacks, source: str
) -> None:
    """Decode images into files of a draft folder.

    The files are not mapped to memory for writing: if the disk is full, writing to a mapping kills
    the process, whereas plain writing raises an error.
    """
    digest = hashlib.sha256()
    with (draft / _PIXELS).open("wb") as file:
        (draft / _PIXELS).chmod(_FILE_MODE)

        def write(pixels: NDArray[np.uint8]) -> None:
            file.write(pixels.data)
            digest.update(pixels.data)

        errors, animated = _decode_all(paths, size, callbacks, write)
    description = {"number": len(paths) - len(errors), "side": size, "source": source}
    index = json.dumps({"broken": errors, "animated": animated, **description})
    digest.update(index.encode())
    (draft / _INDEX).write_text(f"{index}\n{digest.hexdigest()}\n", encoding="utf-8")
    (draft / _INDEX).chmod(_FILE_MODE)


def _decode_all(
    paths: Sequence[Path],
    size: int,
    callbacks: Callbacks,
    store: Callable[[NDArray[np.uint8]], None],
) -> tuple[dict[int, str], list[int]]:
    """Call ``store`` with each image in order; return errors by index, and animated indices."""
    errors: dict[int, str] = {}
    animated = []
    with (
        warnings.catch_warnings(action="ignore"),  # images that cannot be read are reported
        ThreadPoolExecutor(os.cpu_count()) as pool,  # Pillow releases the GIL while decoding
    ):
        for index, frame in enumerate(pool.map(partial(_read_frame, size=size), paths)):
            if isinstance(frame, str):
                errors[index] = frame
            else:
                store(frame.pixels)
                animated += [index] if frame.is_animated else []
            callbacks.progress("reading images", index + 1, len(paths))
    return errors, animated


def _read_frame(path: Path, size: int) -> Frame | str:
    """Return the first frame, or the reason why it cannot be read."""
    try:
        return read_image(path, size)
    except ImageError as error:
        return str(error)


def _compute_key(paths: Sequence[Path], size: int) -> str:
    """Return a name that changes if an image is added, removed, changed or made readable."""
    digest = hashlib.sha256(f"{_VERSION} {size}\n".encode())
    if any(map(is_dicom, paths)):  # which files can be decoded depends on installed packages
        digest.update(describe_decoders().encode())
    for path in paths:
        digest.update(f"{_describe_file(path)}\n".encode(errors="backslashreplace"))
    return digest.hexdigest()[:20]


def _describe_file(path: Path) -> str:
    try:
        status, is_readable = path.stat(), os.access(path, os.R_OK)
        return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns} {is_readable}"
    except (OSError, ValueError):  # a missing file, or an invalid name
        return f"{path.absolute()} missing"


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache: images that were decoded together."""

    path: Path  # folder of the entry
    num_images: int | None  # None if unknown
    side: int | None  # width and height of an image in pixels; None if unknown
    source: str  # folder of the original images; "" if unknown
    size: int  # bytes on disk
    used: float  # time of the last use in seconds since 1970

    @property
    def is_draft(self) -> bool:
        """Return whether a process is writing the entry, or was killed while it wrote it."""
        return self.path.name.startswith(_DRAFT_PREFIX)


def get_cache_limit() -> int:
    """Return the maximum size of the cache in bytes: ``CADIS_CACHE_GB``, by default 10 GB."""
    text = os.environ.get("CADIS_CACHE_GB") or "10"
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise CadisError(
            f"CADIS_CACHE_GB is {text!r}; give a number of gigabytes, or 0 to keep nothing."
        )
    return int(limit * 1e9)


def list_cache_entries(cache: Path) -> list[CacheEntry]:
    """Return all entries and drafts, the most recently used first."""
    try:
        folders = [path for path in cache.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    entries = []
    for path in sorted(folders):
        has_name = _ENTRY_NAME.fullmatch(path.name) or path.name.startswith(_DRAFT_PREFIX)
        with suppress(OSError):  # another process may remove it
            if has_name and (_list_files(path) or not any(path.iterdir())):
                entries.append(_describe_entry(path))
    return sorted(entries, key=lambda entry: entry.used, reverse=True)


def _remove(entries: Iterable[CacheEntry]) -> list[CacheEntry]:
    """Remove entries and return the removed ones; other processes can still use mapped files."""
    removed = []
    for entry in entries:
        with suppress(OSError):  # another process may remove it at the same time
            for path in _list_files(entry.path):
                path.unlink()
            removed.append(entry)
            entry.path.rmdir()  # fails if the folder has other files
    return removed


def _enforce_limit(cache: Path, limit: int, newest: Path) -> bool:
    """Remove the least recently used entries until the cache is within a limit of bytes.

    Returns:
        True if the newest entry is kept; it is removed only if it is larger than the limit.
    """
    entries = [entry for entry in list_cache_entries(cache) if not entry.is_draft]
    entries.sort(key=lambda entry: entry.path == newest, reverse=True)
    total, excess = 0, []
    for entry in entries:
        total += entry.size
        if total > limit:
            excess.append(entry)
            total -= entry.size if entry.path == newest else 0
    _remove(excess)
    return all(entry.path != newest for entry in excess)


def clear_image_cache(cache: Path) -> tuple[list[CacheEntry], list[CacheEntry]]:
    """Remove all entries, except drafts that were written to within the last minute.

    Args:
        cache: folder of the cache.

    Returns:
        The removed entries and the remaining entries.
    """
    entries = list_cache_entries(cache)
    fresh = [e for e in entries if e.is_draft and time.time() - e.used < _MINUTE]
    removed = _remove(entry for entry in entries if entry not in fresh)
    return removed, [entry for entry in entries if entry not in removed]


def _remove_old_drafts(cache: Path) -> None:
    """Remove drafts that were not written to for a day: their processes were killed."""
    entries = list_cache_entries(cache)
    _remove(e for e in entries if e.is_draft and time.time() - e.used > _DAY)


def _list_files(folder: Path) -> Sequence[Path]:
    return [folder / name for name in _ENTRY_FILES if (folder / name).is_file()]


def _describe_entry(path: Path) -> CacheEntry:
    files = _list_files(path)
    used = max(file.stat().st_mtime for file in [path, *files])
    size = sum(file.stat().st_size for file in files)
    index: dict[str, object] = {}
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        index = dict(json.loads(read_regular(path / _INDEX).decode().splitlines()[0]))
    side, count, source = index.get("side"), index.get("number"), index.get("source")
    return CacheEntry(
        path,
        count if isinstance(count, int) else None,
        side if isinstance(side, int) else None,
        source if isinstance(source, str) else "",
        size,
        used,
    )
