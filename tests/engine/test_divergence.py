"""Error messages of runs that diverge, which name the cause."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from cadis.algorithm import Algorithm
from cadis.algorithm.tasks import Classification, Reduction
from cadis.data import Samples
from cadis.engine import Engine, Federation
from cadis.errors import RunError
from support import small_federation, small_model, small_settings


def get_error(
    folder: Path,
    model: nn.Module,
    federation: Federation | None = None,
    algorithm: Algorithm | None = None,
    lr: float = 0.1,
) -> str:
    settings = small_settings()
    settings = replace(settings, local=replace(settings.local, lr=lr))
    federation = federation or small_federation()
    engine = Engine(model, federation, algorithm or Algorithm(), settings, folder)
    with pytest.raises(RunError) as caught:
        list(engine.rounds(engine.start))
    return str(caught.value)


class Logarithm(nn.Module):
    """A model with infinite outputs for negative inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(inputs.flatten(1).log())
        return logits


@dataclass(frozen=True)
class InfiniteLoss(Classification):
    name: ClassVar[str] = "broken"

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        return super().loss(outputs, labels, reduction) * torch.inf


def test_large_learning_rate_is_named(tmp_path: Path) -> None:
    sentence = get_error(tmp_path, small_model(), lr=1e30)
    assert "Round 1: " in sentence
    assert "the loss before the round was 1.6" in sentence  # log(5), since nothing is learned yet
    assert sentence.endswith("try a smaller learning rate than 1e+30, such as 1e+29.")


def test_model_with_infinite_outputs_is_named(tmp_path: Path) -> None:
    sentence = get_error(tmp_path, Logarithm())
    assert "its outputs were already NaN or infinite for the data of client 0" in sentence
    assert sentence.endswith("check the model.")
    assert "learning rate" not in sentence


def test_infinite_loss_is_named(tmp_path: Path) -> None:
    sentence = get_error(tmp_path, small_model(), algorithm=Algorithm(task=InfiniteLoss()))
    assert "the loss was already NaN or infinite for the data of client 0" in sentence
    assert sentence.endswith("check the loss of the task 'broken'.")


def test_large_inputs_are_named(tmp_path: Path) -> None:
    federation = small_federation()
    clients = [Samples(client.inputs * 1e37, client.labels) for client in federation.clients]
    sentence = get_error(tmp_path, small_model(), Federation(clients, federation.test))
    assert sentence.startswith("Round 1: every client")
    assert "inputs of client 0 are as large as 2" in sentence
    assert "e+37" in sentence
    assert "scale them to about 1" in sentence
