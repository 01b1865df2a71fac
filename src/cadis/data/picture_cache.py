"""Decoding pictures once: in parallel, into one array on disk that all processes share."""

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cadis._io import Callbacks, unwritable
from cadis.data.cache_entries import DRAFT, INDEX, PIXELS, cache_limit, keep_within, sweep
from cadis.data.dicom import dicom_decoders, is_dicom
from cadis.data.picture import Frame, PictureError, read_picture
from cadis.errors import RunError

_VERSION = "2"
"""Changes when the same files would be decoded otherwise."""

_OWNER_ONLY, _OWNER_FILE = 0o700, 0o600
"""Pictures may be of patients: nobody else on the machine is to see them."""


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


def decode(
    paths: Sequence[Path], size: int, cache: Path | None, callbacks: Callbacks, source: str = ""
) -> Decoded:
    """Pictures of size x size pixels; decoded now, or taken from the cache if none has changed.

    Args:
        paths: of the pictures.
        size: pixels a side.
        cache: where they are kept, for their owner only; None is nowhere but in memory.
        callbacks: called as it goes on.
        source: the folder that they come from, to be told of what is kept.
    """
    limit = cache_limit()
    if cache is None or not limit:
        return _in_memory(paths, size, callbacks)
    folder = cache / _key(paths, size)
    decoded = _read(folder, len(paths), size)
    if decoded is None:  # not there, or damaged
        try:
            cache.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY)
            cache.chmod(_OWNER_ONLY)
            sweep(cache)
            with tempfile.TemporaryDirectory(dir=cache, prefix=DRAFT) as draft:
                _write(Path(draft), paths, size, callbacks, source)
                folder.mkdir(exist_ok=True, mode=_OWNER_ONLY)
                for name in (PIXELS, INDEX):
                    (Path(draft) / name).replace(folder / name)
        except OSError as error:
            raise unwritable(folder, error) from None
        decoded = _read(folder, len(paths), size)
        if decoded is not None and not keep_within(cache, limit, folder):
            callbacks.say(
                f"The decoded pictures take more than the cache's {limit / 1e9:g} GB, so that they "
                "are not kept; CADIS_CACHE_GB gives it more."
            )
    if decoded is None:
        raise RunError(f"{folder} is not as it was written; check the disk, and try again.")
    return decoded


def _in_memory(paths: Sequence[Path], size: int, callbacks: Callbacks) -> Decoded:
    pixels = np.empty((len(paths), size, size, 3), np.uint8)
    broken: dict[int, str] = {}
    animated: list[int] = []
    for number, frame in enumerate(_frames(paths, size, callbacks)):
        if isinstance(frame, str):
            broken[number] = frame
        else:
            pixels[number - len(broken)] = frame.pixels
            animated += [number] if frame.animated else []
    return Decoded(pixels[: len(paths) - len(broken)], broken, animated)


def _read(folder: Path, count: int, size: int) -> Decoded | None:
    """What is in the cache; None if it is not, to the bit, what was written there."""
    try:
        index, digest = (folder / INDEX).read_text(encoding="utf-8").splitlines()
        content = json.loads(index)
        broken = {int(number): str(why) for number, why in content["broken"].items()}
        pixels = _map(folder / PIXELS, (count - len(broken), size, size, 3))
        found = hashlib.sha256(pixels.data)  # takes a second a gigabyte
        found.update(index.encode())
        if found.hexdigest() != digest:
            return None
        os.utime(folder / INDEX)  # what was used last stays longest
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


def _write(
    draft: Path, paths: Sequence[Path], size: int, callbacks: Callbacks, source: str
) -> None:
    """Ordinary writing says that a disk is full; through a mapping, the process would die of it."""
    digest = hashlib.sha256()
    broken: dict[int, str] = {}
    animated: list[int] = []
    with (draft / PIXELS).open("wb") as file:
        (draft / PIXELS).chmod(_OWNER_FILE)
        for number, frame in enumerate(_frames(paths, size, callbacks)):
            if isinstance(frame, str):
                broken[number] = frame
            else:
                file.write(frame.pixels.data)
                digest.update(frame.pixels.data)
                animated += [number] if frame.animated else []
    told = {"number": len(paths) - len(broken), "side": size, "source": source}
    index = json.dumps({"broken": broken, "animated": animated, **told})
    digest.update(index.encode())
    (draft / INDEX).write_text(f"{index}\n{digest.hexdigest()}\n", encoding="utf-8")
    (draft / INDEX).chmod(_OWNER_FILE)


def _frames(paths: Sequence[Path], size: int, callbacks: Callbacks) -> Iterator[Frame | str]:
    """Each picture, or why there is none, in their order."""
    with (
        warnings.catch_warnings(action="ignore"),  # a picture is read, or it is said why not
        ThreadPoolExecutor(os.cpu_count()) as pool,  # Pillow decodes outside Python's lock
    ):
        for number, frame in enumerate(pool.map(partial(_frame_or_why, size=size), paths)):
            yield frame
            callbacks.progress("reading pictures", number + 1, len(paths))


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
