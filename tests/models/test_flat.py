import pytest
import torch
from torch import nn

from cadis.errors import CadisError
from cadis.models import FlatModel, cnn
from support import small_model


class Tied(nn.Module):
    """A model with a shared weight, a frozen layer, and buffers of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.head = nn.Linear(4, 2, bias=False)
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("table", torch.ones(3, dtype=torch.float64))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.frozen(self.second(self.first(x))))
        return logits


@pytest.mark.parametrize(
    "build", [small_model, lambda: small_model(batch_norm=True), lambda: cnn(3, 8, 8, 4)]
)
def test_flattening_changes_no_output(build: "type[nn.Module]") -> None:
    plain, module = build(), build()
    module.load_state_dict(plain.state_dict())
    flat = FlatModel(module)
    channels, size = next(plain.parameters()).shape[1], 4 if flat.num_outputs == 5 else 8
    inputs = torch.randn(6, channels, size, size)
    logits, representation = flat.forward(inputs)
    torch.testing.assert_close(logits, plain(inputs), rtol=1e-4, atol=1e-5)
    assert flat.layout.head is not None
    head = module.get_submodule(flat.layout.head.layer)
    torch.testing.assert_close(head(representation), logits)


def test_a_copied_state_restores_all_tensors() -> None:
    source, target = (FlatModel(small_model(batch_norm=True)) for _ in range(2))
    source.module.train()
    source.module(torch.randn(8, 1, 4, 4))
    with torch.no_grad():
        source.vector.mul_(1.5)
    state = source.copy_state()
    target.load(state)
    for name, tensor in source.module.state_dict().items():
        assert torch.equal(target.module.state_dict()[name], tensor), name
    with torch.no_grad():
        source.vector.zero_()
    assert torch.equal(state.parameters, target.vector)  # it is a copy


def test_vector_and_parameters_share_memory_but_not_gradients() -> None:
    model = FlatModel(small_model())
    with torch.no_grad():
        model.vector.fill_(2)
    assert all((p == 2).all() for p in model.module.parameters())
    loss = model.vector.sum()
    gradients = torch.autograd.grad(loss, [*model.parameters, model.vector], allow_unused=True)
    assert gradients[-1] is not None
    assert all(g is None for g in gradients[:-1])


def test_head_slices_select_the_weight_and_the_bias() -> None:
    model = FlatModel(small_model())
    head = model.module.get_submodule("7")
    assert isinstance(head, nn.Linear)
    weight, bias = (model.vector[part] for part in model.layout.head_slices)
    assert torch.equal(weight, head.weight.flatten())
    assert torch.equal(bias, head.bias)


def test_shared_frozen_and_non_float_tensors_keep_their_form() -> None:
    module = Tied()
    model = FlatModel(module)
    assert model.vector.numel() == 16 + 8  # the shared weight once, and the head
    assert len(model.layout.head_slices) == 1
    state = model.copy_state()
    assert state.buffers.numel() == 16 + 4 + 3
    assert state.counters.tolist() == [1, 0]
    with torch.no_grad():
        model.vector.add_(1)
    assert module.first.weight is module.second.weight
    model.load(state)
    assert module.get_buffer("flags").dtype == torch.bool
    assert module.get_buffer("table").dtype == torch.float64


def test_models_that_cannot_be_trained_are_refused() -> None:
    frozen, frozen_head, mixed = small_model(), small_model(), small_model()
    frozen.requires_grad_(False)
    frozen_head.get_submodule("7").requires_grad_(False)
    mixed.get_submodule("7").double()
    models = {"no trainable": frozen, "is frozen": frozen_head, "several types": mixed}
    for message, model in models.items():
        with pytest.raises(CadisError, match=message):
            FlatModel(model)


def test_a_model_that_is_one_linear_layer_is_its_own_classifier() -> None:
    model = FlatModel(nn.Linear(4, 3), head="")
    assert model.layout.head is not None
    assert model.num_outputs == 3
    assert FlatModel(nn.Sequential(nn.Conv2d(1, 2, 3)), head="").layout.head is None
