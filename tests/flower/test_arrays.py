"""Arrays that are read where they lie, against Flower's own reading of them."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cadis.flower.arrays import array_in, writable
from cadis.flower.messages import tensors_in
from cadis.models import WrongTensorsError

TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool", ">f4", "<c8"]
SHAPES = [(), (0,), (1,), (7,), (2, 3), (0, 4), (2, 3, 2, 2)]


def holding(data: bytes, stype: str = "numpy.ndarray") -> Array:
    return Array("float32", (2,), stype, data)


def file_of(array: NDArray[Any], version: tuple[int, int] | None = None) -> bytes:
    stream = BytesIO()
    np.lib.format.write_array(stream, array, version=version, allow_pickle=False)
    return stream.getvalue()


def lies_in(array: NDArray[Any], data: bytes) -> bool:
    return array.size == 0 or np.shares_memory(array, np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_same_numbers_without_a_copy(dtype: str, shape: tuple[int, ...], order: Any) -> None:
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype, order=order)
    array = Array(numbers)
    found, expected = array_in(array), array.numpy()
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.size == 0 or found.strides == expected.strides
    assert np.array_equal(found, expected)
    assert lies_in(found, array.data)
    assert not found.flags.writeable
    same = writable(found)
    assert same.flags.writeable
    assert np.array_equal(same, expected)
    assert lies_in(same, array.data)


def test_memory_outlives_the_array_that_it_came_in() -> None:
    tensors = tensors_in(ArrayRecord({"a": Array(np.arange(100_000.0))}))
    rubbish = [np.full(100_000, 7.0) for _ in range(20)]
    assert tensors["a"].tolist() == list(range(100_000))
    assert len(rubbish) == 20


def test_odd_files_are_read_as_flower_reads_them() -> None:
    numbers = np.arange(6, dtype=np.float32)
    newer = holding(file_of(numbers, (2, 0)))
    assert np.array_equal(array_in(newer), numbers)
    longer = holding(file_of(numbers) + b"and more")
    assert np.array_equal(array_in(longer), numbers)
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    unaligned = holding(header + numbers.tobytes())
    assert len(header) % 4
    found = array_in(unaligned)
    assert found.flags.aligned
    assert np.array_equal(found, numbers)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (7,)}",  # more than there is
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 16)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [('a', '<f4'), ('b', '|O')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<U2', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'shape': (2,)}",
        "__import__('os')",
        "(" * 5000,
    ],
)
def test_headers_that_lie_end_in_a_sentence(header: str) -> None:
    text = header.encode().ljust(118) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(24)
    for wrong in (
        holding(data),
        holding(data[:60]),
        holding(data, "pickle"),
        holding(b"no"),
        holding(b""),
    ):
        with pytest.raises(WrongTensorsError, match="its a cannot be read"):
            tensors_in(ArrayRecord({"a": wrong}))


@given(
    st.sampled_from([(2, 3), (6,), (3, 1, 2)]),
    st.lists(st.tuples(st.integers(0, 151), st.integers(0, 255)), max_size=3),
    st.integers(0, 160),
)
def test_damaged_bytes_are_read_as_flower_reads_them_or_refused_as_well(
    shape: tuple[int, ...], changes: list[tuple[int, int]], size: int
) -> None:
    data = bytearray(file_of(np.arange(6, dtype=np.float32).reshape(shape)))
    for place, value in changes:
        data[place] = value
    array = holding(bytes(data[: size if size > 120 else len(data)]))
    try:
        expected = array.numpy()
    except Exception:  # whatever such bytes may raise
        with pytest.raises(Exception):  # noqa: B017, PT011
            array_in(array)
        return
    found = array_in(array)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()
