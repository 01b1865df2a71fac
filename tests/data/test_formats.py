"""Tests of reading published files, damaged files and malicious pickles."""

import gzip
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cadis.data.published.formats import parse_binary, parse_idx, parse_python
from cadis.data.published.published_files import read_content
from cadis.errors import CadisError
from toy import to_idx

PATH = Path("somewhere/file")


@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_idx_of_any_shape(shape: list[int]) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    assert np.array_equal(parse_idx(to_idx(array), PATH), array)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not an IDX file"),
        (b"\x89PNG and more", "not an IDX file"),
        (to_idx(np.zeros(3, np.uint8), kind=0x0D), "not an IDX file of bytes"),
        (to_idx(np.zeros((4, 5), np.uint8))[:-1], "31 bytes, but its header says 32"),
        (to_idx(np.zeros((4, 5), np.uint8)) + b"x", "33 bytes, but its header says 32"),
        (to_idx(np.zeros((4, 5), np.uint8))[:7], "but its header says"),
        (b"\0\0\x08\0x", "an array of 0 dimensions"),
        (b"\0\0\x08\x40" + 64 * b"\0\0\0\x01" + b"x", "an array of 64 dimensions"),
        (b"\0\0\x08\xff" + 255 * b"\0\0\0\x01" + b"x", "an array of 255 dimensions"),
        (b"\0\0\x08\x03" + 12 * b"\xff", "but its header says 79,228,162,"),
        (b"\0\0\x08\x03\0\0\0\0" + 8 * b"\xff", r"of shape \(0, 4294967295, 4294967295\)"),
    ],
)
def test_invalid_idx_is_rejected(content: bytes, sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence) as caught:
        parse_idx(content, PATH)
    assert str(PATH) in str(caught.value)
    assert "replace it with the published file" in str(caught.value)


def test_gzip_is_recognized_by_content(tmp_path: Path) -> None:
    for name, content in (("a.gz", b"plain"), ("b", gzip.compress(b"plain"))):
        (tmp_path / name).write_bytes(content)
        assert read_content(tmp_path / name) == b"plain"


def test_damaged_gzip_is_rejected(tmp_path: Path) -> None:
    content = gzip.compress(bytes(range(256)) * 50)
    wrong_bytes = content[:60] + bytes(4) + content[64:]
    for damaged in (content[:-20], content[:15], wrong_bytes):
        (tmp_path / "a.gz").write_bytes(damaged)
        with pytest.raises(CadisError, match=r"a.gz cannot be unzipped"):
            read_content(tmp_path / "a.gz")
    with pytest.raises(CadisError, match="cannot be read: No such file"):
        read_content(tmp_path / "none")


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_cifar_binary(label_bytes: int) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (3, label_bytes + 3072), dtype=np.uint8)
    images, labels = parse_binary(rows.tobytes(), label_bytes, PATH)
    assert (
        labels.tolist() == rows[:, label_bytes - 1].tolist()
    )  # the fine label, not the coarse one
    # Red, green, blue planes, row by row: pixel (i, j) of channel c is at c * 1024 + 32 i + j.
    assert images[2, 1, 5, 7] == rows[2, label_bytes + 1024 + 32 * 5 + 7]
    for wrong in (b"", rows.tobytes()[:-1]):
        with pytest.raises(CadisError, match="not a CIFAR binary file, or damaged"):
            parse_binary(wrong, label_bytes, PATH)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_cifar_python(protocol: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    batch = {"data": data, "labels": [6, 9, 9, 4], "batch_label": "training batch 1 of 5"}
    content = pickle.dumps(batch, protocol)
    if protocol < 3:  # files of Python 2, where bytes are strings and no codec is called
        content = make_python2_pickle(data, [6, 9, 9, 4])
    images, labels = parse_python(content, "labels", PATH)
    assert np.array_equal(images.reshape(4, 3072), data)
    assert labels.tolist() == [6, 9, 9, 4]


def make_python2_pickle(data: NDArray[Any], labels: list[int]) -> bytes:
    """Return the opcodes that cPickle of Python 2 writes with protocol 2."""
    raw = data.tobytes()
    array = b"".join(
        [
            b"cnumpy.core.multiarray\n_reconstruct\n",
            b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R",  # _reconstruct(ndarray, (0,), "b")
            b"(K\x01",
            struct.pack("<cIcH", b"J", data.shape[0], b"M", data.shape[1]) + b"\x86",
            b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb",
        ]
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels" + numbers + b"u."


class Malicious:
    """Object whose pickle runs a command when the standard unpickler loads it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_malicious_pickle_runs_no_command(tmp_path: Path) -> None:
    path = tmp_path / "evidence"
    content = pickle.dumps({"data": Malicious(f"touch {path}"), "labels": [0]})
    pickle.loads(content)
    assert path.exists()
    path.unlink()
    with pytest.raises(CadisError, match=r"file uses posix.system, .* may be malicious"):
        parse_python(content, "labels", PATH)
    assert not path.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("os", "system"),
        ("subprocess", "Popen"),
        ("numpy.f2py", "compile"),
        ("numpy", "load"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy", "ndarray.tofile"),
    ],
)
def test_pickle_may_use_only_arrays(module: str, name: str) -> None:
    for content in (
        f"c{module}\n{name}\n(V1\ntR.".encode(),  # protocol 0: GLOBAL
        b"\x80\x04\x8c" + bytes([len(module)]) + module.encode() + b"\x8c" + bytes([len(name)])
        + name.encode() + b"\x93K\x01\x85R.",  # protocol 4: STACK_GLOBAL
    ):  # fmt: skip
        with pytest.raises(CadisError, match=f"file uses {module}"):
            parse_python(content, "labels", PATH)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({"data": 3}),
        pickle.dumps({"data": np.zeros((2, 3072), np.float32), "labels": [1, 2]}),
        pickle.dumps({"data": np.zeros((2, 3071), np.uint8), "labels": [1, 2]}),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 999]}),
        pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2]})[:-50],
    ],
)
def test_invalid_pickles_are_rejected(content: bytes) -> None:
    with pytest.raises(CadisError, match=r"file is not a batch of the Python version of CIFAR"):
        parse_python(content, "labels", PATH)
