"""Decoding pictures once: in parallel, into one array on disk that all processes share."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from cadis.core import CadisError
from cadis.data.listener import Listener

_VERSION = "1"
"""Changes when the same files would be decoded otherwise."""


@dataclass(frozen=True)
class Decoded:
    """Decoded pictures.

    Attributes:
        pixels: of those that could be read, in order, (n, size, size, 3); lies on disk.
        broken: position -> why, of those that could not.
    """

    pixels: NDArray[np.uint8]
    broken: dict[int, str]


def decode(paths: Sequence[Path], size: int, cache: Path, listener: Listener) -> Decoded:
    """Pictures of size x size pixels; decoded now, or taken from the cache if none has changed."""
    folder = cache / _key(paths, size)
    if not (folder / "broken.json").is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix=".draft-") as draft:
                _decode_into(Path(draft), paths, size, listener)
                for name in ("pixels.npy", "broken.json"):  # the last one says: complete
                    (Path(draft) / name).replace(folder / name)
        except OSError as error:
            raise CadisError(f"{folder} cannot be written: {error.strerror}.") from None
    try:
        broken = json.loads((folder / "broken.json").read_text(encoding="utf-8"))
        pixels = np.load(folder / "pixels.npy", mmap_mode="c")
    except (OSError, ValueError):  # somebody has damaged the cache
        shutil.rmtree(folder)
        return decode(paths, size, cache, listener)
    return Decoded(pixels[: len(paths) - len(broken)], {int(n): why for n, why in broken.items()})


def _decode_into(draft: Path, paths: Sequence[Path], size: int, listener: Listener) -> None:
    shape = (len(paths), size, size, 3)
    pixels = np.lib.format.open_memmap(draft / "pixels.npy", "w+", np.uint8, shape)
    broken: dict[int, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside Python's lock
        decoded = pool.map(partial(_decode_one, size=size), paths)
        for number, picture in enumerate(decoded):
            if isinstance(picture, str):
                broken[number] = picture
            else:
                pixels[number - len(broken)] = picture
            listener.progress("reading pictures", number + 1, len(paths))
    pixels.flush()
    (draft / "broken.json").write_text(json.dumps(broken), encoding="utf-8")


def _decode_one(path: Path, size: int) -> NDArray[np.uint8] | str:
    """The upright picture in colour, squeezed into a square; or why it cannot be read."""
    try:
        with Image.open(path) as image:
            image.draft("RGB", (2 * size, 2 * size))  # a large JPEG need not be decoded whole
            upright = ImageOps.exif_transpose(image).convert("RGB")
            return np.asarray(upright.resize((size, size), Image.Resampling.BILINEAR))
    except UnidentifiedImageError:
        return "it is not a picture that can be read"
    except Exception as error:  # whatever a broken file may raise
        return getattr(error, "strerror", None) or str(error).rstrip(".")


def _key(paths: Sequence[Path], size: int) -> str:
    """Changes when a picture is added, removed or written anew."""
    digest = hashlib.sha256(f"{_VERSION} {size}\n".encode())
    for path in paths:
        stamp = f"{path.stat().st_size} {path.stat().st_mtime_ns}" if path.is_file() else "missing"
        digest.update(f"{path.resolve()} {stamp}\n".encode())
    return digest.hexdigest()[:20]
