"""Tests of reading Flower's arrays without copies, compared with Flower's own reading."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from cadis.errors import CadisError
from cadis.flower.messages import read_array, to_records, to_tensors
from cadis.models import Head, Layout, WrongTensorsError, find_head
from cadis.types import Message
from support import is_identical, small_model

TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool", ">f4", "<c8"]
SHAPES = [(), (0,), (1,), (7,), (2, 3), (0, 4), (2, 3, 2, 2)]


def make_layout(arrays: ArrayRecord, head: str | None = None) -> Layout:
    return Layout.from_tensors(to_tensors(arrays), head)


def make_record(**arrays: object) -> ArrayRecord:
    return ArrayRecord({name: torch.as_tensor(value) for name, value in arrays.items()})


def test_conversion_to_arrays_and_back_is_exact() -> None:
    model = small_model(batch_norm=True)
    model.half_buffer = nn.Buffer(torch.randn(3, dtype=torch.float16))
    model.flags = nn.Buffer(torch.tensor([True, False]))
    model.wide = nn.Parameter(torch.randn(2, dtype=torch.float64))
    arrays = ArrayRecord(model.state_dict())
    layout = make_layout(arrays)
    restored = layout.unpack(layout.pack(to_tensors(arrays)))
    assert list(restored) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert is_identical(restored[name], tensor)


def test_layout_separates_parameters_buffers_and_counters() -> None:
    layout = make_layout(ArrayRecord(small_model(batch_norm=True).state_dict()))
    assert layout.buffers == ("1.running_mean", "1.running_var")
    assert layout.counters == ("1.num_batches_tracked",)
    state = layout.pack(small_model(batch_norm=True).state_dict())
    assert state.counters.dtype == torch.int64
    assert len(state.buffers) == 6


def test_head_slices_select_the_classifier_layer() -> None:
    arrays = ArrayRecord(small_model().state_dict())
    layout = make_layout(arrays)
    weight, bias = (layout.pack(to_tensors(arrays)).parameters[part] for part in layout.head_slices)
    assert is_identical(weight, small_model().state_dict()["7.weight"].flatten())
    assert is_identical(bias, small_model().state_dict()["7.bias"])
    assert (layout.head, layout.num_outputs) == (Head("7", ("7.weight", "7.bias")), 5)
    other = make_layout(arrays, "5")
    assert (other.head, other.num_outputs) == (Head("5", ("5.weight", "5.bias")), 7)


@pytest.mark.parametrize(
    ("shapes", "parts", "layer"),
    [
        ({"a.weight": (4, 3), "a.bias": (4,), "b.weight": (2, 4)}, ("b.weight",), "b"),
        ({"a.weight": (4, 3), "n.weight": (4,), "n.bias": (4,)}, ("a.weight",), "a"),
        ({"weight": (4, 3), "bias": (4,)}, ("weight", "bias"), ""),
        ({"0": (4, 3, 3, 3), "1": (4,), "2": (5, 4), "3": (5,)}, ("2", "3"), ""),
        ({"0": (5, 4), "1": (2, 5)}, ("1",), ""),
    ],
)
def test_head_is_found_by_names_and_shapes(
    shapes: dict[str, tuple[int, ...]], parts: tuple[str, ...], layer: str
) -> None:
    head = find_head({name: torch.Size(shape) for name, shape in shapes.items()})
    assert head is not None
    assert (head.parts, head.layer) == (parts, layer)


def test_missing_head_is_an_error() -> None:
    conv, linear = torch.Size((4, 3, 3, 3)), torch.Size((4, 3))
    assert find_head({"conv.weight": conv}) is None
    for shape, layers in ((conv, "none"), (linear, "a")):
        with pytest.raises(CadisError, match=f"no linear layer 'fc'; it has: {layers}"):
            find_head({"a.weight": shape}, "fc")
    with pytest.raises(CadisError, match="have no floating-point numbers"):
        make_layout(make_record(a=[1, 2]))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (make_record(a=[1.0, 2.0]), "its model lacks b"),
        (make_record(a=[1.0, 2.0], b=[1], c=[1]), "its model has c, but the global model does not"),
        (make_record(a=[1.0], b=[1]), r"its a has shape \(1,\), not \(2,\)"),
        (make_record(a=[1, 2], b=[1]), "its a has type torch.int64, not torch.float32"),
        (make_record(a=[1.0, 2.0], b=[1.0]), "its b has type torch.float32, not torch.int64"),
    ],
)
def test_arrays_that_do_not_fit_are_an_error(arrays: ArrayRecord, reason: str) -> None:
    with pytest.raises(WrongTensorsError, match=reason):
        make_layout(make_record(a=[1.0, 2.0], b=[1])).pack(to_tensors(arrays))


def test_shared_tensors_are_converted_once() -> None:
    tensors = small_model().state_dict()
    layout = Layout.from_tensors(tensors)
    model, extra = layout.pack(tensors), torch.ones(3)
    messages = [
        Message({"model": model}, tensors) for tensors in ({"a": extra}, {"b": extra}, vars(model))
    ]
    first, second, third = contents = to_records(messages, layout, "arrays")
    assert first["arrays"] is second["arrays"] is third["arrays"]
    names = [list(content.array_records["cadis.tensors"]) for content in contents]
    assert names == [["a"], ["b"], ["parameters", "buffers", "counters"]]


def make_array(data: bytes, stype: str = "numpy.ndarray") -> Array:
    return Array("float32", (2,), stype, data)


def to_npy(array: NDArray[Any], version: tuple[int, int] | None = None) -> bytes:
    stream = BytesIO()
    np.lib.format.write_array(stream, array, version=version, allow_pickle=False)
    return stream.getvalue()


def is_view_of(array: NDArray[Any], data: bytes) -> bool:
    return array.size == 0 or np.shares_memory(array, np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_array_is_read_without_a_copy(dtype: str, shape: tuple[int, ...], order: Any) -> None:
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype, order=order)
    array = Array(numbers)
    result, expected = read_array(array), array.numpy()
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.size == 0 or result.strides == expected.strides
    assert np.array_equal(result, expected)
    assert is_view_of(result, array.data)
    assert not result.flags.writeable
    if dtype != ">f4":  # torch does not support this type
        tensor = to_tensors(ArrayRecord({"a": array}))["a"].numpy()
        assert np.array_equal(tensor, expected)
        assert is_view_of(tensor, array.data)


def test_tensors_keep_the_memory_of_deleted_arrays() -> None:
    tensors = to_tensors(ArrayRecord({"a": Array(np.arange(100_000.0))}))
    garbage = [np.full(100_000, 7.0) for _ in range(20)]
    assert tensors["a"].tolist() == list(range(100_000))
    assert len(garbage) == 20


def test_unusual_npy_files_are_read_like_flower() -> None:
    numbers = np.arange(6, dtype=np.float32)
    for data in (to_npy(numbers, (2, 0)), to_npy(numbers) + b"and more"):
        assert np.array_equal(read_array(make_array(data)), numbers)
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    assert len(header) % 4
    result = read_array(make_array(header + numbers.tobytes()))
    assert result.flags.aligned
    assert np.array_equal(result, numbers)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (7,)}",  # more values than the file has
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
def test_invalid_npy_header_is_an_error(header: str) -> None:
    text = header.encode().ljust(118) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(24)
    arrays = [make_array(part) for part in (data, data[:60], b"no", b"")]
    for wrong in (*arrays, make_array(data, "pickle")):
        with pytest.raises(WrongTensorsError, match="its a cannot be read"):
            to_tensors(ArrayRecord({"a": wrong}))


@given(
    st.sampled_from([(2, 3), (6,), (3, 1, 2)]),
    st.lists(st.tuples(st.integers(0, 151), st.integers(0, 255)), max_size=3),
    st.integers(0, 160),
)
def test_damaged_bytes_are_read_or_refused_like_flower(
    shape: tuple[int, ...], changes: list[tuple[int, int]], size: int
) -> None:
    data = bytearray(to_npy(np.arange(6, dtype=np.float32).reshape(shape)))
    for index, value in changes:
        data[index] = value
    array = make_array(bytes(data[: size if size > 120 else len(data)]))
    try:
        expected = array.numpy()
    except Exception:  # such bytes can raise any error
        with pytest.raises(Exception):  # noqa: B017, PT011
            read_array(array)
        return
    result = read_array(array)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()
