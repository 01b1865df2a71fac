import pytest
import torch
from torch import nn

from cadis.errors import CadisError
from cadis.models import FlatModel, Head, name_head
from support import small_model


def test_finding_the_head() -> None:
    assert FlatModel(small_model()).layout.head == Head("7", ("7.weight", "7.bias"))
    assert FlatModel(small_model(), "5").layout.head == Head("5", ("5.weight", "5.bias"))
    with pytest.raises(CadisError, match=r"no linear layer 'top'; it has: 5, 7"):
        FlatModel(small_model(), "top")
    assert FlatModel(small_model(), "").layout.head is None
    assert FlatModel(nn.Sequential(nn.Conv2d(1, 1, 1))).layout.head is None
    with pytest.raises(CadisError, match=r"no linear layer '0'; it has: none"):
        FlatModel(nn.Sequential(nn.Conv2d(1, 1, 1)), "0")


class Auxiliary(nn.Module):
    """Defines its classifier first, and a layer last that is no classifier."""

    def __init__(self, used: bool) -> None:
        super().__init__()
        self.classifier = nn.Linear(8, 5)
        self.body = nn.Linear(16, 8)
        self.extra = nn.Linear(8, 5)
        self.used = used

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.body(x.flatten(1))
        if self.used:
            self.extra(features)
        logits: torch.Tensor = self.classifier(features).log_softmax(dim=1)
        return logits


@pytest.mark.parametrize("used", [True, False])
def test_the_head_is_found_by_use_not_by_order(used: bool) -> None:
    module = Auxiliary(used)
    assert name_head(module, torch.zeros(2, 1, 4, 4)) == ("classifier", 5)
    assert not any(layer._forward_hooks for layer in module.modules())  # no trace is left


def test_a_model_whose_output_no_linear_layer_makes() -> None:
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(16, 6), nn.Unflatten(1, (6, 1)), nn.Conv1d(6, 4, 1)
    )
    with pytest.raises(CadisError, match=r"returns \(2, 4, 1\) for 2 samples; it must return one"):
        name_head(model, torch.zeros(2, 1, 4, 4))
    assert name_head(model.append(nn.Flatten()), torch.zeros(2, 1, 4, 4)) == ("", 4)


class Pair(nn.Linear):
    """Returns more than logits."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        return super().forward(x), x


def test_a_model_that_returns_more_than_logits() -> None:
    with pytest.raises(CadisError, match="returns a tuple; it must return the logits"):
        name_head(Pair(4, 2), torch.zeros(2, 4))
