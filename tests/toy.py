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
from cadis.data.published import (
    FileFormat,
    PublishedDataset,
    make_cifar_binary_reader,
    make_idx_format,
)


def to_idx(array: NDArray[Any], kind: int = 8) -> bytes:
    """Encode an array in the IDX format of MNIST."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape)
    return header + array.tobytes()


RANDOM = np.random.default_rng(0)
CONTENTS = {
    "train-images-idx3-ubyte": to_idx(RANDOM.integers(0, 256, (6, 5, 5), dtype=np.uint8)),
    "train-labels-idx1-ubyte": to_idx(np.array([0, 1, 2, 0, 1, 2], np.uint8)),
    "t10k-images-idx3-ubyte": to_idx(RANDOM.integers(0, 256, (3, 5, 5), dtype=np.uint8)),
    "t10k-labels-idx1-ubyte": to_idx(np.array([2, 1, 0], np.uint8)),
}
NAMES = list(CONTENTS)
CHECKSUMS = [hashlib.sha256(content).hexdigest() for content in CONTENTS.values()]
TOY = PublishedDataset(
    name="toy",
    classes=("a", "b", "c"),
    scaling=Scaling((0.5,), (0.5,)),
    formats=(
        make_idx_format(
            folders=("toy", "TOY/raw", "."),
            train_images=CHECKSUMS[0],
            train_labels=CHECKSUMS[1],
            test_images=CHECKSUMS[2],
            test_labels=CHECKSUMS[3],
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
    formats=(
        FileFormat(
            ("tarred-bin",),
            {"train.bin": hashlib.sha256(ROWS["train.bin"]).hexdigest()},
            {"test.bin": hashlib.sha256(ROWS["test.bin"]).hexdigest()},
            make_cifar_binary_reader(1),
        ),
    ),
)


def write_dataset(folder: Path, zipped: bool = False) -> None:
    """Write the files of the toy dataset, compressed by gzip if ``zipped``."""
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
