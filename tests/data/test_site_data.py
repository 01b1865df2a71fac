"""Tests of the data of one site."""

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

from cadis.data import load_site_data
from cadis.errors import CadisError
from support import draw_picture, is_identical

CLASSES = ("a", "b", "c")
INPUTS = torch.randn(30, 1, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(30) % 2


def test_a_tenth_of_each_class_is_held_out(tmp_path: Path) -> None:
    path = tmp_path / "site.safetensors"
    save_file({"inputs": INPUTS, "labels": LABELS}, path)
    dataset = load_site_data(path, CLASSES)
    assert dataset.classes == CLASSES
    assert dataset.test.labels.bincount().tolist() == [2, 2]
    assert dataset.train.labels.bincount().tolist() == [13, 13]
    inputs = torch.cat([dataset.train.inputs, dataset.test.inputs]).flatten(1)
    assert is_identical(inputs.sort(dim=0).values, INPUTS.flatten(1).sort(dim=0).values)
    assert is_identical(load_site_data(path, CLASSES).test.inputs, dataset.test.inputs)


def test_file_with_a_test_set(tmp_path: Path) -> None:
    tensors = {"inputs": INPUTS, "labels": LABELS}
    test = {"test_inputs": INPUTS[:5].clone(), "test_labels": LABELS[:5].clone()}
    save_file(tensors | test, tmp_path / "site.safetensors")
    arrays = {name: tensor.numpy() for name, tensor in (tensors | test).items()}
    np.savez(tmp_path / "site.npz", **arrays)  # type: ignore[arg-type]
    for name in ("site.safetensors", "site.npz"):
        dataset = load_site_data(tmp_path / name, CLASSES)
        assert is_identical(dataset.train.inputs, INPUTS)
        assert is_identical(dataset.test.labels, LABELS[:5])


def test_folder_may_have_only_some_of_the_classes(tmp_path: Path) -> None:
    for number in range(10):
        draw_picture(tmp_path / "c" / f"{number}.png", colour=2, seed=number)
    dataset = load_site_data(tmp_path, CLASSES, image_size=8)
    assert dataset.classes == CLASSES
    assert dataset.train.labels.tolist() == [2] * 9
    assert dataset.train.inputs.shape[1:] == (3, 8, 8)
    with pytest.raises(CadisError, match="has images of c, which is not one of the classes: a, b"):
        load_site_data(tmp_path, ("a", "b"), image_size=8)


def test_inputs_of_8_and_16_bits_have_the_same_scale(tmp_path: Path) -> None:
    levels, labels = np.array([[0], [51], [255], [102]], np.uint8), np.zeros(4, np.int64)
    images = levels[:, :, None, None]
    for name, inputs in (("8", levels), ("images", images), ("16", levels * np.uint16(257))):
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=labels)
        dataset = load_site_data(tmp_path / f"{name}.npz", CLASSES)
        values = torch.cat([dataset.train.scaled_inputs, dataset.test.scaled_inputs]).flatten()
        assert sorted(values.tolist()) == pytest.approx([0, 0.2, 0.4, 1])


def test_other_types_are_converted_to_float32(tmp_path: Path) -> None:
    for dtype in (np.bool_, np.int8, np.int32, np.int64, np.float16, np.float64):
        inputs = np.arange(30).reshape(30, 1).astype(dtype)
        np.savez(tmp_path / "site.npz", inputs=inputs, labels=LABELS.float().numpy())
        dataset = load_site_data(tmp_path / "site.npz", CLASSES)
        values = torch.cat([dataset.train.inputs, dataset.test.inputs]).flatten()
        assert sorted(values.tolist()) == sorted(inputs.flatten().astype(float).tolist())
        assert dataset.train.labels.dtype == torch.int64


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"inputs": INPUTS.numpy().astype(np.complex64)}, "'inputs' of .* torch.complex64; give"),
        ({"labels": LABELS.numpy() + 0j}, "'labels' of .* torch.complex128; give"),
        ({"labels": LABELS.numpy() + 0.5}, "'labels' that are not integers; give"),
        ({"labels": LABELS.numpy() * np.nan}, "'labels' that are not integers; give"),
        ({"labels": LABELS.numpy() + 2}, "has the label 3, but there are 3 classes"),
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
            "has the label 3, but there are 3 classes",
        ),
    ],
)
def test_invalid_arrays_are_rejected(
    change: dict[str, NDArray[Any]], sentence: str, tmp_path: Path
) -> None:
    arrays = {"inputs": INPUTS.numpy(), "labels": LABELS.numpy()} | change
    np.savez(tmp_path / "site.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(CadisError, match=sentence) as caught:
        load_site_data(tmp_path / "site.npz", CLASSES)
    assert str(tmp_path / "site.npz") in str(caught.value)


def make_npz(method: int = zipfile.ZIP_STORED, **entries: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def make_npy_header(shape: str, dtype: str = "|u1") -> bytes:
    """Return an .npy file with a header and without data."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


VALID_NPZ = make_npz(
    zipfile.ZIP_DEFLATED, inputs=make_npy_header("(0,)"), labels=make_npy_header("(0,)")
)


DAMAGED_NPZ = [
    b"",
    b"PK\x03\x04",
    pickle.dumps([1]),
    b"\x93NUMPY\x01\x00",
    VALID_NPZ[:-30],
    VALID_NPZ[:45] + bytes([VALID_NPZ[45] ^ 255]) + VALID_NPZ[46:],  # a wrong compression method
    make_npz(inputs=make_npy_header("(4000000000000,)")),
    make_npz(inputs=make_npy_header("(99999999999999999999,)")),
    make_npz(inputs=make_npy_header("(-1,)")),
    make_npz(inputs=make_npy_header("(" * 4000)),
    make_npz(inputs=make_npy_header("(1,)", "|O")),
    make_npz(inputs=b"\x93NUMPY\x09\x00"),
    make_npz(inputs=b"not an array"),
]
DAMAGED_HEADERS = [
    "",
    "[",
    "[]",
    '{"inputs": {"dtype": "U8", "shape": [4000000000000], "data_offsets": [0, 4000000000000]}}',
    '{"inputs": {"dtype": "U8", "shape": [1], "data_offsets": [0, 0]}}',
    '{"inputs": {"dtype": "X9", "shape": [0], "data_offsets": [0, 0]}}',
]
DAMAGED = [("site.npz", content) for content in DAMAGED_NPZ] + [
    ("site.safetensors", struct.pack("<Q", len(text)) + text.encode()) for text in DAMAGED_HEADERS
]


@pytest.mark.parametrize(("name", "content"), DAMAGED)
def test_damaged_files_are_rejected(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CadisError, match=rf"{name} cannot be read: .+; save the arrays") as caught:
        load_site_data(tmp_path / name, CLASSES)
    assert "\n" not in str(caught.value)


def test_special_and_missing_files_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    names = ("pipe.npz", "loop.npz", "x" * 300 + ".npz", "caf\udce9.npz", "none.safetensors")
    for name in names:
        with pytest.raises(CadisError, match=r"cannot be (read|used)") as caught:
            load_site_data(tmp_path / name, CLASSES)
        str(caught.value).encode()
    np.savez(tmp_path / "there\udce9.npz", inputs=INPUTS.numpy())
    with pytest.raises(CadisError, match="has no tensor 'labels'; it has: inputs") as caught:
        load_site_data(tmp_path / "there\udce9.npz", CLASSES)
    str(caught.value).encode()
    for path in (Path("~unknown-user/site"), tmp_path / "site.pt"):
        with pytest.raises(CadisError, match="neither a folder of images nor"):
            load_site_data(path, CLASSES)
