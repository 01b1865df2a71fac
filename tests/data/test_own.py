"""One owner's data where they are."""

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from cadis.data import load_own
from cadis.errors import CadisError
from support import draw_picture, same

CLASSES = ("a", "b", "c")
INPUTS = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(30) % 2


def test_a_tenth_of_each_class_is_set_apart(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    save_file({"inputs": INPUTS, "labels": LABELS}, path)
    own = load_own(path, CLASSES)
    assert own.classes == CLASSES
    assert own.test.labels.bincount().tolist() == [2, 2]
    assert own.train.labels.bincount().tolist() == [13, 13]
    both = torch.cat([own.train.inputs, own.test.inputs]).flatten(1)
    assert same(both.sort(dim=0).values, INPUTS.flatten(1).sort(dim=0).values)
    assert same(load_own(path, CLASSES).test.inputs, own.test.inputs)


def test_a_test_set_of_ones_own_and_other_kinds_of_files(tmp_path: Path) -> None:
    tensors = {"inputs": INPUTS, "labels": LABELS}
    apart = {"test_inputs": INPUTS[:5].clone(), "test_labels": LABELS[:5].clone()}
    save_file(tensors | apart, tmp_path / "own.safetensors")
    arrays = {name: tensor.numpy() for name, tensor in (tensors | apart).items()}
    np.savez(tmp_path / "own.npz", **arrays)  # type: ignore[arg-type]
    for name in ("own.safetensors", "own.npz"):
        own = load_own(tmp_path / name, CLASSES)
        assert same(own.train.inputs, INPUTS)
        assert same(own.test.labels, LABELS[:5])


def test_a_folder_may_have_only_some_of_the_classes(tmp_path: Path) -> None:
    for number in range(10):
        draw_picture(tmp_path / "c" / f"{number}.png", colour=2, seed=number)
    own = load_own(tmp_path, CLASSES, image_size=8)
    assert own.classes == CLASSES
    assert own.train.labels.tolist() == [2] * 9
    assert own.train.inputs.shape[1:] == (3, 8, 8)
    with pytest.raises(CadisError, match="has pictures of c, which is none of the classes: a, b"):
        load_own(tmp_path, ("a", "b"), image_size=8)


def test_numbers_of_8_and_16_bits_are_scaled_alike(tmp_path: Path) -> None:
    shades, labels = np.array([[0], [51], [255], [102]], np.uint8), np.zeros(4, np.int64)
    pictures = shades[:, :, None, None]
    for name, inputs in (("8", shades), ("pictures", pictures), ("16", shades * np.uint16(257))):
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=labels)
        own = load_own(tmp_path / f"{name}.npz", CLASSES)
        every = torch.cat([own.train.scaled, own.test.scaled]).flatten()
        assert sorted(every.tolist()) == pytest.approx([0, 0.2, 0.4, 1])


def test_other_numbers_are_taken_as_they_are(tmp_path: Path) -> None:
    for kind in (np.bool_, np.int8, np.int32, np.int64, np.float16, np.float64):
        inputs = np.arange(30).reshape(30, 1).astype(kind)
        np.savez(tmp_path / "own.npz", inputs=inputs, labels=LABELS.float().numpy())
        own = load_own(tmp_path / "own.npz", CLASSES)
        every = torch.cat([own.train.inputs, own.test.inputs]).flatten()
        assert sorted(every.tolist()) == sorted(inputs.flatten().astype(float).tolist())
        assert own.train.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"inputs": INPUTS.numpy().astype(np.complex64)}, "'inputs' of .* torch.complex64; give"),
        ({"labels": LABELS.numpy() + 0j}, "'labels' of .* torch.complex128; give"),
        ({"labels": LABELS.numpy() + 0.5}, "'labels' that are not whole; give"),
        ({"labels": LABELS.numpy() * np.nan}, "'labels' that are not whole; give"),
        ({"labels": LABELS.numpy() + 2}, "has label 3, but there are 3 classes"),
        ({"labels": np.array(1)}, r"'labels' of shape \(\) and type torch.int64; give"),
        ({"inputs": np.array(1.0)}, r"'inputs' of shape \(\)"),
        ({"inputs": np.array([None] * 30)}, "cannot be read: Object arrays cannot be loaded"),
        ({"inputs": np.array(["x"] * 30)}, "cannot be read: can't convert np.ndarray"),
        ({"inputs": INPUTS.numpy().astype(">f4")}, "cannot be read: given numpy array has byte"),
        ({"labels": LABELS.numpy().astype(np.uint64) - np.uint64(1)}, "has a negative label"),
        ({"test_inputs": INPUTS.numpy()}, "has no tensor 'test_labels'; it has: inputs, labels"),
        ({"test_labels": LABELS.numpy()}, "has no tensor 'test_inputs'"),
        (
            {"test_inputs": INPUTS.numpy(), "test_labels": LABELS.numpy() + 2},
            "has label 3, but there are 3 classes",
        ),
    ],
)
def test_arrays_that_are_no_examples(
    change: dict[str, NDArray[Any]], sentence: str, tmp_path: Path
) -> None:
    arrays = {"inputs": INPUTS.numpy(), "labels": LABELS.numpy()} | change
    np.savez(tmp_path / "own.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(CadisError, match=sentence) as caught:
        load_own(tmp_path / "own.npz", CLASSES)
    assert str(tmp_path / "own.npz") in str(caught.value)


def zipped(method: int = zipfile.ZIP_STORED, **entries: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def header(shape: str, kind: str = "|u1") -> bytes:
    """A file of numpy that promises an array and has nothing of it."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


WHOLE = zipped(zipfile.ZIP_DEFLATED, inputs=header("(0,)"), labels=header("(0,)"))


DAMAGED_NPZ = [
    b"",
    b"PK\x03\x04",
    pickle.dumps([1]),
    b"\x93NUMPY\x01\x00",
    WHOLE[:-30],
    WHOLE[:45] + bytes([WHOLE[45] ^ 255]) + WHOLE[46:],  # packed otherwise than it says
    zipped(inputs=header("(4000000000000,)")),
    zipped(inputs=header("(99999999999999999999,)")),
    zipped(inputs=header("(-1,)")),
    zipped(inputs=header("(" * 4000)),
    zipped(inputs=header("(1,)", "|O")),
    zipped(inputs=b"\x93NUMPY\x09\x00"),
    zipped(inputs=b"no array"),
]
DAMAGED_HEADERS = [
    "",
    "[",
    "[]",
    '{"inputs": {"dtype": "U8", "shape": [4000000000000], "data_offsets": [0, 4000000000000]}}',
    '{"inputs": {"dtype": "U8", "shape": [1], "data_offsets": [0, 0]}}',
    '{"inputs": {"dtype": "X9", "shape": [0], "data_offsets": [0, 0]}}',
]
DAMAGED = [("own.npz", content) for content in DAMAGED_NPZ] + [
    ("own.safetensors", struct.pack("<Q", len(text)) + text.encode()) for text in DAMAGED_HEADERS
]


@pytest.mark.parametrize(("name", "content"), DAMAGED)
def test_damaged_files(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CadisError, match=rf"{name} cannot be read: .+; save arrays") as caught:
        load_own(tmp_path / name, CLASSES)
    assert "\n" not in str(caught.value)


def test_places_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    names = ("pipe.npz", "loop.npz", "x" * 300 + ".npz", "caf\udce9.npz", "none.safetensors")
    for name in names:
        with pytest.raises(CadisError, match="cannot be read") as caught:
            load_own(tmp_path / name, CLASSES)
        str(caught.value).encode()
    np.savez(tmp_path / "there\udce9.npz", inputs=INPUTS.numpy())
    with pytest.raises(CadisError, match="has no tensor 'labels'; it has: inputs") as caught:
        load_own(tmp_path / "there\udce9.npz", CLASSES)
    str(caught.value).encode()
    for place in (Path("~nobody-of-that-name/own"), tmp_path / "own.pt"):
        with pytest.raises(CadisError, match="neither a folder of pictures nor"):
            load_own(place, CLASSES)
