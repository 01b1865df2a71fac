"""Random inputs for the readers of data."""

import gzip
import io
import pickle
import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from PIL import Image
from safetensors.numpy import save_file

from cadis._io import read_toml
from cadis.data import as_dataset, load, load_site_data, read_table
from cadis.data.partition import read_partition
from cadis.data.published import CATALOGUE
from cadis.data.published.published_files import read_content
from support import draw_pills
from torture.harm import ODD_VALUES, Draw, mutate_bytes, mutate_json
from torture.outcomes import Case

_FORMATS = {"png": "PNG", "tiff": "TIFF", "gif": "GIF", "bmp": "BMP", "ppm": "PPM", "webp": "WEBP"}
_MODES = ("RGB", "L", "1", "P", "RGBA", "I;16", "CMYK")


def prepare_data(base: Path) -> None:
    """Prepare data that would take too long to create for each input."""
    draw_pills(base / "pills", clients=2, beside=True)


def draw_idx(_folder: Path, _base: Path, draw: Draw) -> Case:
    pictures = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (3, 28, 28))
    contents = [pictures + bytes(3 * 784), b"\0\0\x08\x01\0\0\0\x03" + b"\1\2\3"]
    index = draw(st.integers(0, 1))
    contents[index] = mutate_bytes(contents[index], draw)
    paths = [Path("images"), Path("labels")]
    return "IDX", lambda: CATALOGUE["mnist"].formats[0].read(contents, paths)


def draw_cifar(_folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a file of CIFAR, binary or pickled."""
    file_format = draw(
        st.sampled_from([f for n in ("cifar10", "cifar100") for f in CATALOGUE[n].formats])
    )
    name = next(iter(file_format.checksums))
    if name.endswith(".bin"):
        content = bytes(draw(st.integers(1, 2)) * draw(st.sampled_from([3073, 3074])))
    else:
        pixels = np.zeros((2, 3072), draw(st.sampled_from(["uint8", "int64", "float32"])))
        labels = draw(st.sampled_from(["labels", "fine_labels"]))
        batch: Any = {"data": pixels, labels: [1, draw(ODD_VALUES)]}
        is_odd = draw(st.integers(0, 9)) == 9
        content = pickle.dumps(draw(ODD_VALUES) if is_odd else batch, draw(st.integers(0, 5)))
    if draw(st.integers(0, 4)):
        content = mutate_bytes(content, draw)
    return f"CIFAR {name}", lambda: file_format.read([content], [Path(name)])


def draw_picture_folder(folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a folder of pictures, some of which are damaged or have unusual names."""
    for number in range(6):
        suffix = draw(st.sampled_from(list(_FORMATS)))
        content = _encode_picture(suffix, draw)
        if number == 0 or draw(st.integers(0, 2)) == 2:
            content = mutate_bytes(content, draw)
        unusual = [f".{number}.png", f"é\n{number}.PNG", f"../{number}.{suffix}"]
        name = draw(st.sampled_from([f"{number}.{suffix}"] * 12 + unusual))
        path = folder / "data" / draw(st.sampled_from("ab")) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return "pictures", lambda: load(f"images:{folder / 'data'}", image_size=8)


def draw_pill_folder(folder: Path, base: Path, draw: Draw) -> Case:
    """Draw the paper's folder of pills with a changed JSON file."""
    copy = shutil.copytree(base / "pills", folder / "pills")
    file = draw(st.sampled_from(sorted(copy.rglob("*.json"))))
    _mutate_file(file, draw)
    return f"pills, {file.name}", lambda: load(f"images:{copy}", image_size=8)


def draw_tensors(folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a file with the tensors of a Flower site."""
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
    return f"{path.name}", lambda: load_site_data(path, classes)


def draw_expanding_file(folder: Path, _base: Path, draw: Draw) -> Case:
    """Draw a small file that says or expands to something large; the memory is limited."""
    size = draw(st.sampled_from([10**3, 10**6, 10**9, 10**12, 2**62]))
    kind = draw(st.sampled_from(["header.npz", "sparse", "labels", "gzip", "columns.csv"]))
    path = folder / kind
    if kind == "header.npz":
        header = io.BytesIO()
        fields = {"descr": "<f8", "fortran_order": False, "shape": (size, 3)}
        np.lib.format.write_array_header_1_0(header, fields)
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("inputs.npy", "labels.npy"):
                archive.writestr(name, header.getvalue())
        return kind, lambda: load_site_data(path, ["a", "b"])
    if kind == "labels":
        data = (np.zeros((4, 2), np.float32), np.array([0, 1, 0, min(size, 2**40)]))
        return f"label {size}", lambda: as_dataset({"clients": [data, data]}, "mine")
    if kind == "gzip":
        path.write_bytes(gzip.compress(bytes(min(size, 10**8)), 1) * (size // 10**8 % 20 + 1))
        return f"gzip of {size}", lambda: read_content(path)
    if kind == "columns.csv":
        path.write_text(",".join(f"c{n}" for n in range(min(size, 10**6))))
        return f"{size} columns", lambda: load(f"csv:{path}")
    path = path.with_suffix(draw(st.sampled_from([".csv", ".toml", ".npz", ".safetensors"])))
    with path.open("wb") as file:
        file.truncate(min(size, 10**12))
    readers = {".csv": read_table, ".toml": read_toml}
    return path.name, lambda: readers.get(path.suffix, partial(load_site_data, classes=["a"]))(path)


def draw_partition(folder: Path, _base: Path, draw: Draw) -> Case:
    path, clusters = folder / "p.json", folder / "p.clusters.json"
    clusters.write_text('{"0": 0, "1": 0, "x": 1}')
    path.write_text('{"0": [0, 1, 2], "1": [3, 4], "x": [5, 6, 7]}')
    file = draw(st.sampled_from([path, path, clusters]))
    _mutate_file(file, draw)
    overlap, minimum = draw(st.booleans()), draw(st.integers(1, 2))
    return f"partition, {file.name}", lambda: read_partition(path, 20, overlap, minimum)


def _mutate_file(file: Path, draw: Draw) -> None:
    """Change the bytes of a file, or its JSON values."""
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
    """Draw an array, most often of a valid shape and dtype."""
    if draw(st.integers(0, 9)) < 7:
        dtype, shape = ("float32" if dimensions > 1 else "int64"), (20, 1, 4, 4)[:dimensions]
        return draw(arrays_of.arrays(dtype, shape, elements=st.integers(0, 2)))
    shapes = arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=20)
    return draw(arrays_of.arrays(arrays_of.scalar_dtypes(), shapes))
