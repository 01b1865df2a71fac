"""What is told of a run whose models are not numbers: what caused it, not always the steps."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from cadis.algorithm import Algorithm
from cadis.algorithm.tasks import Classification, Reduction
from cadis.data import Examples
from cadis.engine import Engine, Federation
from cadis.errors import RunError
from support import small_federation, small_model, small_settings


def told(
    folder: Path,
    model: nn.Module,
    federation: Federation | None = None,
    algorithm: Algorithm | None = None,
    lr: float = 0.1,
) -> str:
    settings = small_settings()
    settings = replace(settings, local=replace(settings.local, lr=lr))
    given = federation or small_federation()
    engine = Engine(model, given, algorithm or Algorithm(), settings, folder)
    with pytest.raises(RunError) as caught:
        list(engine.rounds(engine.start))
    return str(caught.value)


class Logarithm(nn.Module):
    """A model of a user's who forgot that inputs may be negative."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 5)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.head(inputs.flatten(1).log())
        return found


@dataclass(frozen=True)
class Broken(Classification):
    name: ClassVar[str] = "broken"

    def loss(self, outputs: Tensor, labels: Tensor, reduction: Reduction) -> Tensor:
        return super().loss(outputs, labels, reduction) * torch.inf


def test_steps_that_are_too_large(tmp_path: Path) -> None:
    sentence = told(tmp_path, small_model(), lr=1e30)
    assert "Round 1: " in sentence
    assert "the loss was 1.6 at first" in sentence  # log(5), as nothing is known yet
    assert sentence.endswith("try a smaller learning rate than 1e+30, such as 1e+29.")


def test_a_model_that_gives_no_numbers(tmp_path: Path) -> None:
    sentence = told(tmp_path, Logarithm())
    assert "its outputs were so already for the data of client 0" in sentence
    assert sentence.endswith("look at the model.")
    assert "learning rate" not in sentence


def test_a_loss_that_is_none(tmp_path: Path) -> None:
    sentence = told(tmp_path, small_model(), algorithm=Algorithm(task=Broken()))
    assert "the loss was so already for the data of client 0" in sentence
    assert sentence.endswith("look at the loss of the task 'broken'.")


def test_inputs_that_are_too_large(tmp_path: Path) -> None:
    given = small_federation()
    clients = [Examples(client.inputs * 1e37, client.labels) for client in given.clients]
    sentence = told(tmp_path, small_model(), Federation(clients, given.test))
    assert sentence.startswith("Round 1: every client")
    assert "inputs of client 0 are as large as 2" in sentence
    assert "e+37" in sentence
    assert "bring them to about 1" in sentence
