"""Models whose classifier is no linear layer, with every method that does not look at it."""

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

BLIND = [kind() for kind in METHODS.values() if not Algorithm(kind()).looks_at_head()]
SEEING = ["cadis", "cadis-clusters", "cadis-paper", "flhc", "moon"]


def convolutional(squeezes: bool = False) -> nn.Module:
    """A 1 x 1 convolution and global pooling make the logits; no linear layer does."""
    torch.manual_seed(0)
    parts: list[nn.Module] = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU()]
    if squeezes:  # a linear layer that is no classifier
        parts += [nn.Flatten(), nn.Linear(64, 64), nn.Unflatten(1, (4, 4, 4))]
    parts += [nn.Conv2d(4, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts)


def test_who_looks_at_it() -> None:
    blind = {method.name for method in BLIND}
    assert sorted(METHODS.keys() - blind) == SEEING


@pytest.mark.parametrize("method", BLIND, ids=lambda method: method.name)
def test_methods_that_do_not_look_train_it(method: BaseMethod, tmp_path: Path) -> None:
    results = run_rounds(method, tmp_path, small_settings(rounds=2), convolutional())
    accuracy = results[-1].record.accuracy
    assert accuracy is not None
    assert 0 <= accuracy <= 1
    (first, *_), (last, *_) = (result.state.server.models.values() for result in results)
    assert not torch.equal(first.parameters, last.parameters)


@pytest.mark.parametrize("squeezes", [False, True])
def test_the_others_say_so_in_a_sentence(squeezes: bool, tmp_path: Path) -> None:
    sentence = (
        r"^{} looks at the model's classifier layer, and no nn.Linear layer makes this model's "
        r"output; name one as head, or choose a method that does not look at it: .*fedavg.*\.$"
    )
    for name in SEEING:
        with pytest.raises(CadisError, match=sentence.format(name)) as told:
            run_rounds(METHODS[name](), tmp_path, model=convolutional(squeezes))
        assert "cadis" not in str(told.value).split("look at it:")[1]
    with pytest.raises(CadisError, match=sentence.format("the sampler 'hics'")):
        run_rounds(Algorithm(FedAvg(), sampler=HiCS()), tmp_path, model=convolutional(squeezes))


def test_a_linear_layer_elsewhere_is_no_classifier_unless_it_is_named(tmp_path: Path) -> None:
    results = run_rounds(FedAvg(), tmp_path, model=convolutional(squeezes=True))
    assert len(results[-1].record.class_accuracy) == 5
    given = {"model": convolutional(squeezes=True), "method": CADISPaper(), "head": "3"}
    with pytest.raises(CadisError, match="has 64 outputs, but the model has"):
        run_small(rounds=1, workers=1, **given)


def test_it_is_kept_resumed_and_used(tmp_path: Path) -> None:
    given = {"model": convolutional(), "method": "scaffold", "workers": 2, "out": tmp_path / "run"}
    run_small(rounds=1, **given)
    result = run_small(rounds=2, resume=True, **given)
    predictor = cadis.load(tmp_path / "run", model=convolutional())
    assert predictor.description.num_outputs == 5
    test = small_federation().test
    said = predictor(test.inputs).argmax(dim=1)
    assert float((said == test.labels).float().mean()) == pytest.approx(result.accuracy)
    assert len(RunFolder(tmp_path / "run").read_history()) == 2
