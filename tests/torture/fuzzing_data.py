"""Inputs for the readers of data."""

import io
import json
import os
import pickle
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

from cadis.data import load, load_own
from cadis.data.partition import read_partition
from cadis.data.published import CATALOGUE
from support import draw_pills
from torture.mutation import ODD, mutated, mutated_json, to_json
from torture.outcomes import Case

_FORMATS = {"png": "PNG", "tiff": "TIFF", "gif": "GIF", "bmp": "BMP", "ppm": "PPM", "webp": "WEBP"}
_MODES = ("RGB", "L", "1", "P", "RGBA", "I;16", "CMYK")
_TYPES = ("uint8", "int64", "float32", "float64", "float16", "bool", "complex64", "int8", "<U3")


def draw_base(base: Path) -> None:
    """What is too slow to be made for each trial."""
    draw_pills(base / "pills", clients=2, beside=True)


def idx(_folder: Path, _base: Path, random: Random) -> Case:
    """MNIST's files."""
    pictures = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (3, 28, 28))
    contents = [pictures + random.randbytes(3 * 784), b"\0\0\x08\x01\0\0\0\x03" + b"\1\2\3"]
    which = random.randrange(2)
    contents[which] = mutated(contents[which], random)
    paths = [Path("images"), Path("labels")]
    return "IDX", lambda: CATALOGUE["mnist"].forms[0].read(contents, paths)


def cifar(_folder: Path, _base: Path, random: Random) -> Case:
    """CIFAR's files, binary or pickled."""
    form = random.choice(CATALOGUE[random.choice(["cifar10", "cifar100"])].forms)
    name = next(iter(form.files))
    if name.endswith(".bin"):
        content = random.randbytes(random.choice([1, 2]) * random.choice([3073, 3074]))
    else:
        batch: Any = {
            "data": np.zeros((2, 3072), random.choice(["uint8", "int64", "float32"])),
            random.choice(["labels", "fine_labels"]): [1, random.choice(ODD)],
        }
        odd = random.random() < 0.1
        content = pickle.dumps(random.choice(ODD) if odd else batch, random.randrange(6))
    changed = mutated(content, random) if random.random() < 0.8 else content
    return f"CIFAR {name}", lambda: form.read([changed], [Path(name)])


def pictures(folder: Path, _base: Path, random: Random) -> Case:
    """A folder of pictures, of which some are broken or in odd places."""
    for number in range(6):
        suffix = random.choice(list(_FORMATS))
        content = _picture(suffix, random)
        if number == 0 or random.random() < 0.3:
            content = mutated(content, random)
        name = random.choice([f"{number}.{suffix}"] * 8 + [f".{number}.png", f"é\n{number}.PNG"])
        place = folder / "data" / random.choice("ab") / name
        if random.random() < 0.02:
            place = folder / "data" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    return "pictures", lambda: load(f"images:{folder / 'data'}", image_size=8)


def pills(folder: Path, base: Path, random: Random) -> Case:
    """The layout of the paper's pills, with other JSON."""
    place = shutil.copytree(base / "pills", folder / "pills")
    file = random.choice(sorted(place.rglob("*.json")))
    if random.random() < 0.5:
        file.write_bytes(mutated(file.read_bytes(), random))
    else:
        file.write_bytes(to_json(mutated_json(json.loads(file.read_text()), random)))
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    return f"pills, {file.name}", lambda: load(f"images:{place}", image_size=8)


def tensors(folder: Path, _base: Path, random: Random) -> Case:
    """A site's own file of tensors."""
    arrays = {"inputs": _array(random, 4), "labels": _array(random, 1)}
    if random.random() < 0.3:
        arrays |= {"test_inputs": _array(random, 4), "test_labels": _array(random, 1)}
    path = folder / random.choice(["own.npz", "own.safetensors"])
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({name: a for name, a in arrays.items() if a.dtype.kind in "uifb"}, path)
    if random.random() < 0.6:
        path.write_bytes(mutated(path.read_bytes(), random))
    classes = random.choice([["a", "b", "c"], ["a"], []])
    return f"{path.name}", lambda: load_own(path, classes)


def partition(folder: Path, _base: Path, random: Random) -> Case:
    """A partition in a file."""
    content: Any = {"0": [0, 1, 2], "1": [3, 4], "x": [5, 6, 7]}
    path, clusters = folder / "p.json", folder / "p.clusters.json"
    clusters.write_bytes(to_json({"0": 0, "1": 0, "x": 1}))
    path.write_bytes(to_json(content))
    file = random.choice([path, path, clusters])
    if random.random() < 0.5:
        file.write_bytes(mutated(file.read_bytes(), random))
    else:
        file.write_bytes(to_json(mutated_json(json.loads(file.read_text()), random)))
    overlap, minimum = random.random() < 0.5, random.choice([1, 2])
    return f"partition, {file.name}", lambda: read_partition(path, 20, overlap, minimum)


def _picture(suffix: str, random: Random) -> bytes:
    size = (random.choice([1, 7, 12]), random.choice([1, 12]))
    picture = Image.new(random.choice(_MODES), size, random.choice([0, 1]))
    for mode in (picture.mode, "RGB"):  # not every format has every mode
        stream = io.BytesIO()
        try:
            picture.convert(mode).save(stream, _FORMATS[suffix])
            return stream.getvalue()
        except (OSError, ValueError, KeyError):
            continue
    return b""


def _array(random: Random, dimensions: int) -> Any:
    if random.random() < 0.7:
        shape, kind = (20, 1, 4, 4)[:dimensions], "float32" if dimensions > 1 else "int64"
    else:
        shape = tuple(random.choice([0, 1, 3, 20]) for _ in range(random.randrange(5)))
        kind = random.choice(_TYPES)
    values = np.random.default_rng(random.randrange(2**32)).integers(0, 3, shape)
    array = np.asarray(values).astype(kind)
    if array.dtype.kind == "f" and array.size and random.random() < 0.2:
        array.flat[0] = random.choice([float("nan"), float("inf")])
    return array
