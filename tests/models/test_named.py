"""A model that is held as named tensors, against the same model as vectors."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cadis.algorithm import mean_state
from cadis.models import Layout, NamedState, WrongTensorsError
from cadis.types import Message, ModelState
from support import same, small_model


def tensors_of(seed: int) -> dict[str, Tensor]:
    """Convolution, batch norm, linear layers, and buffers of several types."""
    model = small_model(batch_norm=True)
    model.half_buffer = nn.Buffer(torch.zeros(3, dtype=torch.float16))
    model.flags = nn.Buffer(torch.tensor([True, False]))
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(tensor.shape, generator=generator).mul(5).to(tensor.dtype)
        for name, tensor in model.state_dict().items()
    }


LAYOUT = Layout.of_tensors(tensors_of(0))


def alike(first: ModelState, second: ModelState) -> bool:
    return all(map(same, first.vectors().values(), second.vectors().values()))


def both(seed: int) -> tuple[NamedState, ModelState]:
    return NamedState(tensors_of(seed), LAYOUT), LAYOUT.pack(tensors_of(seed))


def test_it_is_the_same_model() -> None:
    named, packed = both(1)
    assert isinstance(named, ModelState)
    assert alike(named, packed)
    assert named.shapes() == packed.shapes() == [(422,), (6,), (3,)]
    for name, vector in packed.vectors().items():
        assert same(getattr(named, name), vector)
    vectors = dict(Message({"model": named}).vectors())
    assert same(vectors["models/model/parameters"], packed.parameters)


def test_nothing_is_copied_nor_kept() -> None:
    tensors = {name: tensor for name, tensor in tensors_of(1).items() if tensor.dim() > 1}
    layout = Layout.of_tensors(tensors)
    named = NamedState(tensors, layout)
    assert {n: t.data_ptr() for n, t in named.pieces().items()} == {
        n: t.data_ptr() for n, t in tensors.items()
    }
    first = named.parameters
    first.zero_()
    assert same(named.parameters, layout.pack(tensors).parameters)


@given(st.integers(0, 430), st.integers(0, 430), st.integers(-9, 430))
def test_parameters_at_any_places(start: int, stop: int, end: int) -> None:
    named, packed = both(2)
    places = slice(start, stop), slice(end), *LAYOUT.head_slices
    expected = torch.cat([packed.parameters[place] for place in places])
    assert same(named.parameters_at(places), expected)
    assert same(packed.parameters_at(places), expected)


def test_the_mean_is_that_of_the_vectors_bit_for_bit() -> None:
    pairs, shares = [both(seed) for seed in range(4)], [0.1, 0.2, 0.3, 0.4]
    expected = mean_state([packed for _, packed in pairs], shares)
    assert alike(mean_state([named for named, _ in pairs], shares), expected)
    mixed = [pair[number % 2] for number, pair in enumerate(pairs)]
    assert alike(mean_state(mixed, shares), expected)
    assert alike(mean_state(mixed[::-1], shares), mean_state([p for _, p in pairs[::-1]], shares))


def test_each_tensor_that_is_not_finite_is_found() -> None:
    assert NamedState(tensors_of(3), LAYOUT).is_finite()
    for name, tensor in tensors_of(3).items():
        if tensor.is_floating_point():
            wrong = tensors_of(3)
            wrong[name].view(-1)[-1] = torch.nan
            assert not NamedState(wrong, LAYOUT).is_finite()


def test_other_precisions_become_that_of_the_global_model() -> None:
    """A mean must not be rounded to half precision because the first client sent that."""
    tensors = {name: tensor for name, tensor in tensors_of(4).items() if tensor.dim() == 2}
    layout = Layout.of_tensors(tensors)
    halved: Mapping[str, Tensor] = {name: tensor.half() for name, tensor in tensors.items()}
    mean = mean_state([NamedState(halved, layout), NamedState(tensors, layout)], [0.5, 0.5])
    expected = mean_state([layout.pack(halved), layout.pack(tensors)], [0.5, 0.5])
    assert alike(mean, expected)
    assert mean.parameters.dtype == torch.float32
    assert not torch.equal(mean.parameters, mean.parameters.half().float())


def test_a_changed_model_is_a_plain_one() -> None:
    named, packed = both(5)
    assert alike(deepcopy(named), packed)
    changed = replace(named, parameters=packed.parameters + 1)
    assert type(changed) is ModelState
    assert alike(changed, replace(packed, parameters=packed.parameters + 1))


def test_tensors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(WrongTensorsError, match="its model lacks half_buffer"):
        NamedState({}, LAYOUT)
