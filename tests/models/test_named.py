"""Models stored as named tensors, compared with the same models as flat vectors."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cadis.algorithm import average_models
from cadis.models import Layout, NamedState, WrongTensorsError
from cadis.types import Message, ModelState
from support import is_identical, small_model


def draw_tensors(seed: int) -> dict[str, Tensor]:
    """Draw tensors of a convolution, batch norm, linear layers and buffers of several types."""
    model = small_model(batch_norm=True)
    model.half_buffer = nn.Buffer(torch.zeros(3, dtype=torch.float16))
    model.flags = nn.Buffer(torch.tensor([True, False]))
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(tensor.shape, generator=generator).mul(5).to(tensor.dtype)
        for name, tensor in model.state_dict().items()
    }


LAYOUT = Layout.from_tensors(draw_tensors(0))


def have_same_vectors(first: ModelState, second: ModelState) -> bool:
    return all(map(is_identical, first.vectors().values(), second.vectors().values()))


def make_both(seed: int) -> tuple[NamedState, ModelState]:
    return NamedState(draw_tensors(seed), LAYOUT), LAYOUT.pack(draw_tensors(seed))


def test_a_named_state_has_the_vectors_of_the_packed_state() -> None:
    named, packed = make_both(1)
    assert isinstance(named, ModelState)
    assert have_same_vectors(named, packed)
    assert named.shapes() == packed.shapes() == [(422,), (6,), (3,)]
    for name, vector in packed.vectors().items():
        assert is_identical(getattr(named, name), vector)
    vectors = dict(Message({"model": named}).vectors())
    assert is_identical(vectors["models/model/parameters"], packed.parameters)


def test_tensors_are_not_copied_and_vectors_are_not_cached() -> None:
    tensors = {name: tensor for name, tensor in draw_tensors(1).items() if tensor.dim() > 1}
    layout = Layout.from_tensors(tensors)
    named = NamedState(tensors, layout)
    assert {n: t.data_ptr() for n, t in named.get_tensors().items()} == {
        n: t.data_ptr() for n, t in tensors.items()
    }
    first = named.parameters
    first.zero_()
    assert is_identical(named.parameters, layout.pack(tensors).parameters)


@given(st.integers(0, 430), st.integers(0, 430), st.integers(-9, 430))
def test_any_slices_of_the_parameters_can_be_selected(start: int, stop: int, end: int) -> None:
    named, packed = make_both(2)
    slices = slice(start, stop), slice(end), *LAYOUT.head_slices
    expected = torch.cat([packed.parameters[part] for part in slices])
    assert is_identical(named.select_parameters(slices), expected)
    assert is_identical(packed.select_parameters(slices), expected)


def test_the_mean_equals_that_of_the_vectors_bit_for_bit() -> None:
    pairs, weights = [make_both(seed) for seed in range(4)], [0.1, 0.2, 0.3, 0.4]
    expected = average_models([packed for _, packed in pairs], weights)
    assert have_same_vectors(average_models([named for named, _ in pairs], weights), expected)
    mixed = [pair[number % 2] for number, pair in enumerate(pairs)]
    assert have_same_vectors(average_models(mixed, weights), expected)
    assert have_same_vectors(
        average_models(mixed[::-1], weights), average_models([p for _, p in pairs[::-1]], weights)
    )


def test_each_tensor_that_is_not_finite_is_found() -> None:
    assert NamedState(draw_tensors(3), LAYOUT).is_finite()
    for name, tensor in draw_tensors(3).items():
        if tensor.is_floating_point():
            wrong = draw_tensors(3)
            wrong[name].view(-1)[-1] = torch.nan
            assert not NamedState(wrong, LAYOUT).is_finite()


def test_tensors_are_converted_to_the_precision_of_the_global_model() -> None:
    """A mean must not be rounded to half precision because the first client sent half precision."""
    tensors = {name: tensor for name, tensor in draw_tensors(4).items() if tensor.dim() == 2}
    layout = Layout.from_tensors(tensors)
    half: Mapping[str, Tensor] = {name: tensor.half() for name, tensor in tensors.items()}
    mean = average_models([NamedState(half, layout), NamedState(tensors, layout)], [0.5, 0.5])
    expected = average_models([layout.pack(half), layout.pack(tensors)], [0.5, 0.5])
    assert have_same_vectors(mean, expected)
    assert mean.parameters.dtype == torch.float32
    assert not torch.equal(mean.parameters, mean.parameters.half().float())


def test_replace_returns_a_plain_model_state() -> None:
    named, packed = make_both(5)
    assert have_same_vectors(deepcopy(named), packed)
    changed = replace(named, parameters=packed.parameters + 1)
    assert type(changed) is ModelState
    assert have_same_vectors(changed, replace(packed, parameters=packed.parameters + 1))


def test_tensors_that_do_not_match_the_layout_are_refused() -> None:
    with pytest.raises(WrongTensorsError, match="its model lacks half_buffer"):
        NamedState({}, LAYOUT)
