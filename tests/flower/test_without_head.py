"""On Flower, too, a model whose classifier is no linear layer trains by methods that look away."""

from pathlib import Path

import pytest
import torch
from flwr.app import ConfigRecord
from torch import nn

import cadis
from cadis import CadisError
from cadis.algorithm import Algorithm
from cadis.algorithm.methods import SCAFFOLD, FedProx
from cadis.algorithm.methods import FedAvg as Averaging
from cadis.flower import CADIS, FedAvg
from cadis.flower.evaluation import server_test
from cadis.store import ModelInputs, RunFolder
from flower_support import SMALL, LocalGrid, small_app, small_arrays, train_small
from support import model_after, run_rounds, small_federation, small_settings


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 5, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class Words(nn.Module):
    """Has a two-dimensional weight that is no linear layer's, which a server cannot know."""

    def __init__(self) -> None:
        super().__init__()
        self.body = convolutional()
        self.shift = nn.Embedding(1, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        shifted: torch.Tensor = self.body(inputs) + self.shift.weight
        return shifted


@pytest.mark.parametrize("method", [Averaging(), FedProx(), SCAFFOLD()], ids=lambda m: m.name)
@pytest.mark.parametrize("model", [convolutional, Words])
def test_it_comes_out_as_embedded(
    method: cadis.algorithm.Method, model: type[nn.Module], tmp_path: Path
) -> None:
    app = small_app(tmp_path / "state", model=model())
    algorithm, start = Algorithm(method), model()
    embedded = run_rounds(algorithm, tmp_path, small_settings(), start)
    arrays = train_small(algorithm, LocalGrid.of(app), start).to_torch_state_dict()
    layout = cadis.models.FlatModel(model(), "").layout
    expected = layout.unpack(model_after(embedded[-1]))
    for name, tensor in expected.items():
        assert torch.allclose(arrays[name], tensor, atol=1e-6)


def test_cadis_says_so_and_a_kept_run_wants_names_of_classes(tmp_path: Path) -> None:
    grid = LocalGrid.of(small_app(tmp_path / "state", model=convolutional()))
    arrays, config = small_arrays(convolutional()), ConfigRecord(dict(SMALL))
    with pytest.raises(CadisError, match=r"cadis looks at the model's classifier layer.*fedavg"):
        CADIS().start(grid, arrays, 1, train_config=config)
    with pytest.raises(CadisError, match="how many classes there are; name them: federation="):
        FedAvg(out=tmp_path / "run").start(grid, arrays, 1, train_config=config)
    told = {"classes": list("abcde"), "clients": []}
    test = small_federation().test
    strategy = FedAvg(out=tmp_path / "run", federation=told, inputs=ModelInputs.of(test))
    tested = server_test(convolutional(), test)
    strategy.start(grid, arrays, 1, train_config=config, evaluate_fn=tested)
    predictor = cadis.load(tmp_path / "run", model=convolutional())
    assert predictor.classes == tuple("abcde")
    assert predictor.description.num_outputs == 5
    said = predictor(test.inputs).argmax(dim=1)
    (record,) = RunFolder(tmp_path / "run").read_history()
    assert float((said == test.labels).float().mean()) == pytest.approx(record.accuracy)
    assert "| e | unknown | 5 |" in (tmp_path / "run" / "MODEL_CARD.md").read_text()
