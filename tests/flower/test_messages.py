"""Named arrays as flat vectors."""

import pytest
import torch
from flwr.app import ArrayRecord
from torch import nn

from cadis.errors import CadisError
from cadis.flower.messages import contents_of, tensors_in
from cadis.models import Head, Layout, WrongTensorsError, find_head
from cadis.types import Message
from support import same, small_model


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
    shapes = {"conv.weight": torch.Size((4, 3, 3, 3))}
    assert find_head(shapes) is None
    with pytest.raises(CadisError, match="no linear layer 'fc'; it has: none"):
        find_head(shapes, "fc")
    with pytest.raises(CadisError, match="it has: a"):
        find_head({"a.weight": torch.Size((4, 3))}, "fc")
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
    sent = [
        Message({"model": model}, {"a": extra}),
        Message({"model": model}, {"b": extra}),
        Message({"model": model}, vars(model)),
    ]
    first, second, third = contents_of(sent, layout, "arrays")
    assert first["arrays"] is second["arrays"] is third["arrays"]
    assert list(first.array_records["cadis.tensors"]) == ["a"]
    assert list(second.array_records["cadis.tensors"]) == ["b"]
    assert list(third.array_records["cadis.tensors"]) == ["parameters", "buffers", "counters"]
