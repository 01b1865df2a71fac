"""Models whose classifier is not a linear layer, with every method that does not need one."""

from pathlib import Path

import pytest
import torch
from torch import nn

import cadis
from cadis import CadisError
from cadis.algorithm import Algorithm, BaseMethod
from cadis.algorithm.methods import METHODS, CADISPaper, FedAvg
from cadis.algorithm.samplers import HiCS
from cadis.store import RunFolder
from support import run_rounds, run_small, small_federation, small_settings

WITHOUT_HEAD = [
    method() for method in METHODS.values() if not Algorithm(method()).find_part_needing_head()
]
WITH_HEAD = ["cadis", "cadis-clusters", "cadis-paper", "flhc", "moon"]


def make_conv_model(has_linear: bool = False) -> nn.Module:
    """Return a model whose logits are a 1 x 1 convolution and global pooling."""
    torch.manual_seed(0)
    parts: list[nn.Module] = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU()]
    if has_linear:  # a linear layer that is not the classifier
        parts += [nn.Flatten(), nn.Linear(64, 64), nn.Unflatten(1, (4, 4, 4))]
    parts += [nn.Conv2d(4, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts)


def test_methods_that_need_a_classifier_layer() -> None:
    without_head = {method.name for method in WITHOUT_HEAD}
    assert sorted(METHODS.keys() - without_head) == WITH_HEAD


@pytest.mark.parametrize("method", WITHOUT_HEAD, ids=lambda method: method.name)
def test_other_methods_train_it(method: BaseMethod, tmp_path: Path) -> None:
    results = run_rounds(method, tmp_path, small_settings(rounds=2), make_conv_model())
    accuracy = results[-1].record.accuracy
    assert accuracy is not None
    assert 0 <= accuracy <= 1
    (first, *_), (last, *_) = (result.state.server.models.values() for result in results)
    assert not torch.equal(first.parameters, last.parameters)


@pytest.mark.parametrize("has_linear", [False, True])
def test_methods_that_need_a_classifier_layer_raise_an_error(
    has_linear: bool, tmp_path: Path
) -> None:
    sentence = (
        r"^The {} needs the classifier layer of the model, but no nn.Linear layer computes the "
        r"output of this model; name the layer with the option head, or choose a method that does "
        r"not need it: .*fedavg.*\.$"
    )
    for name in WITH_HEAD:
        with pytest.raises(CadisError, match=sentence.format(f"method '{name}'")) as caught:
            run_rounds(METHODS[name](), tmp_path, model=make_conv_model(has_linear))
        assert "cadis" not in str(caught.value).split("does not need it:")[1]
    with pytest.raises(CadisError, match=sentence.format("sampler 'hics'")):
        run_rounds(Algorithm(FedAvg(), sampler=HiCS()), tmp_path, model=make_conv_model(has_linear))


def test_other_linear_layer_is_the_classifier_only_if_it_is_named_as_head(tmp_path: Path) -> None:
    results = run_rounds(FedAvg(), tmp_path, model=make_conv_model(has_linear=True))
    assert len(results[-1].record.class_accuracy) == 5
    options = {"model": make_conv_model(has_linear=True), "method": CADISPaper(), "head": "3"}
    with pytest.raises(CadisError, match="has 64 outputs, but the model has"):
        run_small(rounds=1, workers=1, **options)


def test_it_is_saved_resumed_and_loaded(tmp_path: Path) -> None:
    options = {"model": make_conv_model(), "method": "scaffold", "workers": 2}
    options["out"] = tmp_path / "run"
    run_small(rounds=1, **options)
    result = run_small(rounds=2, resume=True, **options)
    predictor = cadis.load(tmp_path / "run", model=make_conv_model())
    assert predictor.description.num_outputs == 5
    test = small_federation().test
    predictions = predictor(test.inputs).argmax(dim=1)
    assert float((predictions == test.labels).float().mean()) == pytest.approx(result.accuracy)
    assert len(RunFolder(tmp_path / "run").read_history()) == 2
