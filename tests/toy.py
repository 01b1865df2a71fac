"""A tiny published dataset, as single files and as an archive."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cadis.data import Scaling
from cadis.data.published import Form, Published, cifar_binary, idx_form


def idx(array: NDArray[Any], kind: int = 8) -> bytes:
    """The format as its authors describe it."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape)
    return header + array.tobytes()


RANDOM = np.random.default_rng(0)
NAMES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]
CONTENTS = dict(
    zip(
        NAMES,
        [
            idx(RANDOM.integers(0, 256, (6, 5, 5), dtype=np.uint8)),
            idx(np.array([0, 1, 2, 0, 1, 2], np.uint8)),
            idx(RANDOM.integers(0, 256, (3, 5, 5), dtype=np.uint8)),
            idx(np.array([2, 1, 0], np.uint8)),
        ],
        strict=True,
    )
)
TOY = Published(
    name="toy",
    classes=("a", "b", "c"),
    scaling=Scaling((0.5,), (0.5,)),
    forms=(
        idx_form(
            ("toy", "TOY/raw", "."),
            [hashlib.sha256(content).hexdigest() for content in CONTENTS.values()],
        ),
    ),
    archive="",
    mirrors=(),
)
ROWS = {
    f"{part}.bin": RANDOM.integers(0, 3, (count, 3073), dtype=np.uint8).tobytes()
    for part, count in (("train", 4), ("test", 2))
}
TARRED = replace(
    TOY,
    name="tarred",
    archive="tarred.tar.gz",
    forms=(
        Form(
            ("tarred-bin",),
            {"train.bin": hashlib.sha256(ROWS["train.bin"]).hexdigest()},
            {"test.bin": hashlib.sha256(ROWS["test.bin"]).hexdigest()},
            cifar_binary(1),
        ),
    ),
)


def put(folder: Path, zipped: bool = False) -> None:
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
