"""Flower's arrays, read where they lie against Flower's own reading, and as flat vectors."""

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
from cadis.flower.messages import array_in, contents_of, tensors_in
from cadis.models import Head, Layout, WrongTensorsError, find_head
from cadis.types import Message
from support import same, small_model

TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool", ">f4", "<c8"]
SHAPES = [(), (0,), (1,), (7,), (2, 3), (0, 4), (2, 3, 2, 2)]


def layout_of(arrays: ArrayRecord, head: str | None = None) -> Layout:
    return Layout.of_tensors(tensors_in(arrays), head)


def record(**arrays: object) -> ArrayRecord:
    return ArrayRecord({name: torch.as_tensor(value) for name, value in arrays.items()})


def test_there_and_back_is_bit_for_bit() -> None:
    model = small_model(batch_norm=True)
    model.half_buffer = nn.Buffer(torch.randn(3, dtype=torch.float16))
    model.flags = nn.Buffer(torch.tensor([True, False]))
    model.wide = nn.Parameter(torch.randn(2, dtype=torch.float64))
    arrays = ArrayRecord(model.state_dict())
    layout = layout_of(arrays)
    back = layout.unpack(layout.pack(tensors_in(arrays)))
    assert list(back) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert same(back[name], tensor)


def test_statistics_are_not_parameters_and_integers_are_not_floats() -> None:
    layout = layout_of(ArrayRecord(small_model(batch_norm=True).state_dict()))
    assert layout.buffers == ("1.running_mean", "1.running_var")
    assert layout.counters == ("1.num_batches_tracked",)
    state = layout.pack(small_model(batch_norm=True).state_dict())
    assert state.counters.dtype == torch.int64
    assert len(state.buffers) == 6


def test_the_head_lies_where_its_arrays_lie() -> None:
    arrays = ArrayRecord(small_model().state_dict())
    layout = layout_of(arrays)
    weight, bias = (layout.pack(tensors_in(arrays)).parameters[part] for part in layout.head_slices)
    assert same(weight, small_model().state_dict()["7.weight"].flatten())
    assert same(bias, small_model().state_dict()["7.bias"])
    assert (layout.head, layout.num_outputs) == (Head("7", ("7.weight", "7.bias")), 5)
    other = layout_of(arrays, "5")
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
def test_the_head_is_found_by_names(
    shapes: dict[str, tuple[int, ...]], parts: tuple[str, ...], layer: str
) -> None:
    found = find_head({name: torch.Size(shape) for name, shape in shapes.items()})
    assert found is not None
    assert (found.parts, found.layer) == (parts, layer)


def test_a_head_that_there_is_not() -> None:
    conv, linear = torch.Size((4, 3, 3, 3)), torch.Size((4, 3))
    assert find_head({"conv.weight": conv}) is None
    for shape, found in ((conv, "none"), (linear, "a")):
        with pytest.raises(CadisError, match=f"no linear layer 'fc'; it has: {found}"):
            find_head({"a.weight": shape}, "fc")
    with pytest.raises(CadisError, match="hold no floating numbers"):
        layout_of(record(a=[1, 2]))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        (record(a=[1.0, 2.0]), "its model lacks b"),
        (record(a=[1.0, 2.0], b=[1], c=[1]), "its model has c, which the global model has not"),
        (record(a=[1.0], b=[1]), r"its a has shape \(1,\), not \(2,\)"),
        (record(a=[1, 2], b=[1]), "its a has type torch.int64, not torch.float32"),
        (record(a=[1.0, 2.0], b=[1.0]), "its b has type torch.float32, not torch.int64"),
    ],
)
def test_arrays_that_do_not_fit(arrays: ArrayRecord, reason: str) -> None:
    with pytest.raises(WrongTensorsError, match=reason):
        layout_of(record(a=[1.0, 2.0], b=[1])).pack(tensors_in(arrays))


def test_what_messages_share_is_made_once_and_names_are_their_own() -> None:
    tensors = small_model().state_dict()
    layout = Layout.of_tensors(tensors)
    model, extra = layout.pack(tensors), torch.ones(3)
    sent = [Message({"model": model}, own) for own in ({"a": extra}, {"b": extra}, vars(model))]
    first, second, third = contents = contents_of(sent, layout, "arrays")
    assert first["arrays"] is second["arrays"] is third["arrays"]
    names = [list(content.array_records["cadis.tensors"]) for content in contents]
    assert names == [["a"], ["b"], ["parameters", "buffers", "counters"]]


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
    if dtype != ">f4":  # which no tensor can hold
        tensor = tensors_in(ArrayRecord({"a": array}))["a"].numpy()
        assert np.array_equal(tensor, expected)
        assert lies_in(tensor, array.data)


def test_memory_outlives_the_array_that_it_came_in() -> None:
    tensors = tensors_in(ArrayRecord({"a": Array(np.arange(100_000.0))}))
    rubbish = [np.full(100_000, 7.0) for _ in range(20)]
    assert tensors["a"].tolist() == list(range(100_000))
    assert len(rubbish) == 20


def test_odd_files_are_read_as_flower_reads_them() -> None:
    numbers = np.arange(6, dtype=np.float32)
    for data in (file_of(numbers, (2, 0)), file_of(numbers) + b"and more"):
        assert np.array_equal(array_in(holding(data)), numbers)
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    assert len(header) % 4
    found = array_in(holding(header + numbers.tobytes()))
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
    arrays = [holding(part) for part in (data, data[:60], b"no", b"")]
    for wrong in (*arrays, holding(data, "pickle")):
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
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
