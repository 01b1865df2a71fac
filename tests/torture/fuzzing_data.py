"""Inputs for the readers of data."""

import io
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from PIL import Image
from safetensors.numpy import save_file

from cadis.data import load, load_own
from cadis.data.partition import read_partition
from cadis.data.published import CATALOGUE
from support import draw_pills
from torture.harm import ODD, Draw, mutate_bytes, mutate_json
from torture.outcomes import Case

_FORMATS = {"png": "PNG", "tiff": "TIFF", "gif": "GIF", "bmp": "BMP", "ppm": "PPM", "webp": "WEBP"}
_MODES = ("RGB", "L", "1", "P", "RGBA", "I;16", "CMYK")


def draw_base(base: Path) -> None:
    """Make what takes too long to be made for each input."""
    draw_pills(base / "pills", clients=2, beside=True)


def idx(_folder: Path, _base: Path, draw: Draw) -> Case:
    pictures = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (3, 28, 28))
    contents = [pictures + bytes(3 * 784), b"\0\0\x08\x01\0\0\0\x03" + b"\1\2\3"]
    which = draw(st.integers(0, 1))
    contents[which] = mutate_bytes(contents[which], draw)
    paths = [Path("images"), Path("labels")]
    return "IDX", lambda: CATALOGUE["mnist"].forms[0].read(contents, paths)


def cifar(_folder: Path, _base: Path, draw: Draw) -> Case:
    """CIFAR's files, binary or pickled."""
    form = draw(st.sampled_from([f for n in ("cifar10", "cifar100") for f in CATALOGUE[n].forms]))
    name = next(iter(form.files))
    if name.endswith(".bin"):
        content = bytes(draw(st.integers(1, 2)) * draw(st.sampled_from([3073, 3074])))
    else:
        pixels = np.zeros((2, 3072), draw(st.sampled_from(["uint8", "int64", "float32"])))
        labels = draw(st.sampled_from(["labels", "fine_labels"]))
        batch: Any = {"data": pixels, labels: [1, draw(ODD)]}
        odd = draw(st.integers(0, 9)) == 9
        content = pickle.dumps(draw(ODD) if odd else batch, draw(st.integers(0, 5)))
    if draw(st.integers(0, 4)):
        content = mutate_bytes(content, draw)
    return f"CIFAR {name}", lambda: form.read([content], [Path(name)])


def pictures(folder: Path, _base: Path, draw: Draw) -> Case:
    """A folder of pictures, of which some are broken or in odd places."""
    for number in range(6):
        suffix = draw(st.sampled_from(list(_FORMATS)))
        content = _encode_picture(suffix, draw)
        if number == 0 or draw(st.integers(0, 2)) == 2:
            content = mutate_bytes(content, draw)
        odd = [f".{number}.png", f"é\n{number}.PNG", f"../{number}.{suffix}"]
        name = draw(st.sampled_from([f"{number}.{suffix}"] * 12 + odd))
        place = folder / "data" / draw(st.sampled_from("ab")) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return "pictures", lambda: load(f"images:{folder / 'data'}", image_size=8)


def pills(folder: Path, base: Path, draw: Draw) -> Case:
    """The layout of the paper's pills, with other JSON."""
    place = shutil.copytree(base / "pills", folder / "pills")
    file = draw(st.sampled_from(sorted(place.rglob("*.json"))))
    _mutate_file(file, draw)
    return f"pills, {file.name}", lambda: load(f"images:{place}", image_size=8)


def tensors(folder: Path, _base: Path, draw: Draw) -> Case:
    """A site's own file of tensors."""
    arrays = {"inputs": _draw_array(4, draw), "labels": _draw_array(1, draw)}
    if draw(st.integers(0, 2)) == 2:
        arrays |= {"test_inputs": _draw_array(4, draw), "test_labels": _draw_array(1, draw)}
    path = folder / draw(st.sampled_from(["own.npz", "own.safetensors"]))
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file({name: a for name, a in arrays.items() if a.dtype.kind in "uifb"}, path)
    if draw(st.booleans()):
        path.write_bytes(mutate_bytes(path.read_bytes(), draw))
    classes = draw(st.sampled_from([["a", "b", "c"], ["a"], []]))
    return f"{path.name}", lambda: load_own(path, classes)


def partition(folder: Path, _base: Path, draw: Draw) -> Case:
    path, clusters = folder / "p.json", folder / "p.clusters.json"
    clusters.write_text('{"0": 0, "1": 0, "x": 1}')
    path.write_text('{"0": [0, 1, 2], "1": [3, 4], "x": [5, 6, 7]}')
    file = draw(st.sampled_from([path, path, clusters]))
    _mutate_file(file, draw)
    overlap, minimum = draw(st.booleans()), draw(st.integers(1, 2))
    return f"partition, {file.name}", lambda: read_partition(path, 20, overlap, minimum)


def _mutate_file(file: Path, draw: Draw) -> None:
    """Change the bytes of a file, or what its JSON says."""
    mutate = draw(st.sampled_from([mutate_json, mutate_bytes]))
    file.write_bytes(mutate(file.read_bytes(), draw))


def _encode_picture(suffix: str, draw: Draw) -> bytes:
    size = draw(st.tuples(st.sampled_from([1, 7, 12]), st.sampled_from([1, 12])))
    picture = Image.new(draw(st.sampled_from(_MODES)), size, draw(st.integers(0, 1)))
    for mode in (picture.mode, "RGB"):  # not every format has every mode
        stream = io.BytesIO()
        try:
            picture.convert(mode).save(stream, _FORMATS[suffix])
            return stream.getvalue()
        except (OSError, ValueError, KeyError):
            continue
    return b""


def _draw_array(dimensions: int, draw: Draw) -> Any:
    """Draw an array, mostly of the shape and type that it should have."""
    if draw(st.integers(0, 9)) < 7:
        kind, shape = ("float32" if dimensions > 1 else "int64"), (20, 1, 4, 4)[:dimensions]
        return draw(arrays_of.arrays(kind, shape, elements=st.integers(0, 2)))
    shapes = arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=20)
    return draw(arrays_of.arrays(arrays_of.scalar_dtypes(), shapes))
