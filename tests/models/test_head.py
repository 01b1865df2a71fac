import pytest
import torch
from torch import nn

from cadis.errors import CadisError
from cadis.models import FlatModel, Head, find_output_layer
from support import small_model


def test_the_head_is_the_named_or_the_last_linear_layer() -> None:
    assert FlatModel(small_model()).layout.head == Head("7", ("7.weight", "7.bias"))
    assert FlatModel(small_model(), "5").layout.head == Head("5", ("5.weight", "5.bias"))
    with pytest.raises(CadisError, match=r"no linear layer 'top'; it has: 5, 7"):
        FlatModel(small_model(), "top")
    assert FlatModel(small_model(), "").layout.head is None
    assert FlatModel(nn.Sequential(nn.Conv2d(1, 1, 1))).layout.head is None
    with pytest.raises(CadisError, match=r"no linear layer '0'; it has: none"):
        FlatModel(nn.Sequential(nn.Conv2d(1, 1, 1)), "0")


class Auxiliary(nn.Module):
    """A model that defines its classifier first, and an auxiliary layer last."""

    def __init__(self, uses_extra: bool) -> None:
        super().__init__()
        self.classifier = nn.Linear(8, 5)
        self.body = nn.Linear(16, 8)
        self.extra = nn.Linear(8, 5)
        self.uses_extra = uses_extra

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.body(x.flatten(1))
        if self.uses_extra:
            self.extra(features)
        logits: torch.Tensor = self.classifier(features).log_softmax(dim=1)
        return logits


@pytest.mark.parametrize("uses_extra", [True, False])
def test_the_head_is_found_by_calls_not_by_order_of_definition(uses_extra: bool) -> None:
    module = Auxiliary(uses_extra)
    assert find_output_layer(module, torch.zeros(2, 1, 4, 4)) == ("classifier", 5)
    assert not any(layer._forward_hooks for layer in module.modules())  # hooks are removed


def test_a_model_without_a_linear_output_layer_has_no_head() -> None:
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 6), nn.Unflatten(1, (6, 1)), nn.Conv1d(6, 4, 1)
    )
    message = r"returns shape \(2, 4, 1\) for 2 samples; it must return one"
    with pytest.raises(CadisError, match=message):
        find_output_layer(model, torch.zeros(2, 1, 4, 4))
    assert find_output_layer(model.append(nn.Flatten()), torch.zeros(2, 1, 4, 4)) == ("", 4)


class Pair(nn.Linear):
    """A model that returns a tuple."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        return super().forward(x), x


def test_a_model_that_returns_more_than_logits_is_refused() -> None:
    with pytest.raises(CadisError, match="returns a tuple; it must return one tensor of logits"):
        find_output_layer(Pair(4, 2), torch.zeros(2, 4))
