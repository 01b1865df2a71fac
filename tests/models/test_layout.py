"""Models as flat vectors, packed from named tensors."""

import pytest
import torch
from torch import Tensor, nn

from cadis.algorithm import mean_state
from cadis.models import Layout, WrongTensorsError
from support import small_model


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


def test_packed_tensors_are_unpacked_unchanged() -> None:
    packed = LAYOUT.pack(tensors_of(1))
    assert packed.shapes() == [(422,), (6,), (3,)]
    unpacked = LAYOUT.unpack(packed)
    assert list(unpacked) == list(tensors_of(1))
    for name, tensor in tensors_of(1).items():
        assert unpacked[name].dtype == tensor.dtype
        assert torch.equal(unpacked[name], tensor)


def test_each_tensor_that_is_not_finite_is_found() -> None:
    assert LAYOUT.pack(tensors_of(3)).is_finite()
    for name, tensor in tensors_of(3).items():
        if tensor.is_floating_point():
            wrong = tensors_of(3)
            wrong[name].view(-1)[-1] = torch.nan
            assert not LAYOUT.pack(wrong).is_finite()


def test_other_precisions_become_that_of_the_global_model() -> None:
    """A mean must not be rounded to half precision because the first client sent that."""
    tensors = {name: tensor for name, tensor in tensors_of(4).items() if tensor.dim() == 2}
    layout = Layout.of_tensors(tensors)
    halved = {name: tensor.half() for name, tensor in tensors.items()}
    mean = mean_state([layout.pack(halved), layout.pack(tensors)], [0.5, 0.5])
    assert mean.parameters.dtype == torch.float32
    assert not torch.equal(mean.parameters, mean.parameters.half().float())


def test_tensors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(WrongTensorsError, match="its model lacks half_buffer"):
        LAYOUT.pack({})
