"""Decoding pictures once: in parallel, into one array on disk that all processes share."""

import hashlib
import json
import os
import tempfile
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cadis.core import RunError
from cadis.data.callbacks import Callbacks
from cadis.data.picture import Frame, PictureError, read_picture
from cadis.data.user_files import unwritable

_VERSION = "2"
"""Changes when the same files would be decoded otherwise."""

_PIXELS, _INDEX = "pixels.raw", "index.json"
_OURS = (_PIXELS, _INDEX, "pixels.npy", "broken.json")
"""All that may be in a draft; the last two were there in version 1."""

_DRAFT = ".draft-"
_DAY = 24 * 60 * 60


@dataclass(frozen=True)
class Decoded:
    """Decoded pictures.

    Attributes:
        pixels: of those that could be read, in order, (n, size, size, 3); lies on disk.
        broken: position -> why, of those that could not.
        animated: positions of those that have more frames than the first, which was read.
    """

    pixels: NDArray[np.uint8]
    broken: dict[int, str]
    animated: list[int]


def decode(paths: Sequence[Path], size: int, cache: Path, callbacks: Callbacks) -> Decoded:
    """Pictures of size x size pixels; decoded now, or taken from the cache if none has changed."""
    folder = cache / _key(paths, size)
    decoded = _read(folder, len(paths), size)
    if decoded is None:  # not there, or damaged
        try:
            cache.mkdir(parents=True, exist_ok=True)
            _sweep(cache)
            with tempfile.TemporaryDirectory(dir=cache, prefix=_DRAFT) as draft:
                _write(Path(draft), paths, size, callbacks)
                folder.mkdir(exist_ok=True)
                for name in (_PIXELS, _INDEX):
                    (Path(draft) / name).replace(folder / name)
        except OSError as error:
            raise unwritable(folder, error) from None
        decoded = _read(folder, len(paths), size)
    if decoded is None:
        raise RunError(f"{folder} is not as it was written; check the disk, and try again.")
    return decoded


def _read(folder: Path, count: int, size: int) -> Decoded | None:
    """What is in the cache; None if it is not, to the bit, what was written there."""
    try:
        index, digest = (folder / _INDEX).read_text(encoding="utf-8").splitlines()
        content = json.loads(index)
        broken = {int(number): str(why) for number, why in content["broken"].items()}
        pixels = _map(folder / _PIXELS, (count - len(broken), size, size, 3))
        found = hashlib.sha256(pixels.data)  # takes a second a gigabyte
        found.update(index.encode())
        if found.hexdigest() != digest:
            return None
        return Decoded(pixels, broken, content["animated"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _map(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The array that is a file; no page is in memory before it is used."""
    if path.stat().st_size != np.prod(shape):
        raise ValueError("it has another size")
    if not np.prod(shape):  # nothing cannot be mapped
        return np.zeros(shape, np.uint8)
    return np.memmap(path, np.uint8, "c", shape=shape)


def _write(draft: Path, paths: Sequence[Path], size: int, callbacks: Callbacks) -> None:
    """Ordinary writing says that a disk is full; through a mapping, the process would die of it."""
    digest = hashlib.sha256()
    broken: dict[int, str] = {}
    animated: list[int] = []
    with (
        (draft / _PIXELS).open("wb") as file,
        warnings.catch_warnings(action="ignore"),  # a picture is read, or it is said why not
        ThreadPoolExecutor(os.cpu_count()) as pool,  # Pillow decodes outside Python's lock
    ):
        for number, frame in enumerate(pool.map(partial(_frame_or_why, size=size), paths)):
            if isinstance(frame, str):
                broken[number] = frame
            else:
                file.write(frame.pixels.data)
                digest.update(frame.pixels.data)
                animated += [number] if frame.animated else []
            callbacks.progress("reading pictures", number + 1, len(paths))
    index = json.dumps({"broken": broken, "animated": animated})
    digest.update(index.encode())
    (draft / _INDEX).write_text(f"{index}\n{digest.hexdigest()}\n", encoding="utf-8")


def _frame_or_why(path: Path, size: int) -> Frame | str:
    try:
        return read_picture(path, size)
    except PictureError as error:
        return str(error)


def _sweep(cache: Path) -> None:
    """Remove drafts of processes that were killed: those that nobody has written to for a day."""
    for draft in cache.glob(f"{_DRAFT}*"):
        with suppress(OSError):  # another process may do the same
            ours = [draft / name for name in _OURS if (draft / name).is_file()]
            if time.time() - max(path.stat().st_mtime for path in [draft, *ours]) > _DAY:
                for path in ours:
                    path.unlink()
                draft.rmdir()  # which fails if anything else is in it


def _key(paths: Sequence[Path], size: int) -> str:
    """Changes when a picture is added, removed, written anew, or may be read at last."""
    digest = hashlib.sha256(f"{_VERSION} {size}\n".encode())
    for path in paths:
        digest.update(f"{_stamp(path)}\n".encode(errors="backslashreplace"))
    return digest.hexdigest()[:20]


def _stamp(path: Path) -> str:
    try:
        status, readable = path.stat(), os.access(path, os.R_OK)
        return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns} {readable}"
    except (OSError, ValueError):  # it is not there, or its name cannot be one
        return f"{path.absolute()} missing"
