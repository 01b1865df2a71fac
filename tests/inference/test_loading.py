"""``cadis.load``: the model that was trained, wherever it comes from."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import cadis
from cadis import CadisError
from cadis.data import PicturePreprocessing, digits
from cadis.experiment import resolve, run_experiment
from cadis.store import RunFolder
from support import run_small, small_federation, small_model

QUICK = {"rounds": 2, "epochs": 1, "workers": 1, "clients": 6, "method": "fedavg"}
NET = """
from torch import nn

def net(channels, height, width, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, num_classes))
"""


def digit_pixels() -> torch.Tensor:
    """The test set of digits as pixels of 0 to 255."""
    dataset = digits()
    how = dataset.preprocessing
    assert isinstance(how, PicturePreprocessing)
    return (dataset.test.inputs * how.scaling.deviation[0] + how.scaling.mean[0]) * 255


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    run_experiment(resolve({}, QUICK), folder)
    return folder


def test_it_predicts_on_raw_pixels_as_the_run_was_tested(trained: Path) -> None:
    predictor, told = cadis.load(trained), cadis.load(trained).description
    pixels, labels = digit_pixels(), digits().test.labels
    before = pixels.clone()
    probabilities = predictor(pixels)
    assert torch.equal(pixels, before)  # what it is given stays as it is
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(len(pixels)))
    accuracy = float((probabilities.argmax(dim=1) == labels).float().mean())
    assert accuracy == pytest.approx(RunFolder(trained).read_json("summary.json")["accuracy"])
    assert torch.allclose(predictor(pixels.round().byte()), probabilities, atol=1e-3)
    assert not predictor.training
    assert not any(p.requires_grad for p in predictor.parameters())
    assert (told.rounds, told.training["dataset"]) == (2, "digits")
    assert repr(predictor) == (
        "Predictor(small-cnn, 13,706 parameters: pictures of 1 x 8 x 8 -> 10 classes; "
        "fedavg, 2 rounds)"
    )


def test_the_best_model_and_a_file_alone(trained: Path, tmp_path: Path) -> None:
    best, pixels = cadis.load(trained, "best"), digit_pixels()[:20]
    shutil.copy(trained / "best.safetensors", tmp_path / "alone.safetensors")
    alone = cadis.load(tmp_path / "alone.safetensors")
    assert torch.equal(best(pixels), alone(pixels))
    with pytest.raises(CadisError, match="which is 'last' or 'best', not 'worst'"):
        cadis.load(trained, "worst")  # type: ignore[arg-type]


def test_a_model_that_was_given_to_run_is_given_again(tmp_path: Path) -> None:
    result = run_small(rounds=1, method="fedavg", workers=1, out=tmp_path / "run")
    sentence = r"is a Sequential, which cannot be made again by its name; give it"
    with pytest.raises(CadisError, match=sentence):
        cadis.load(tmp_path / "run")
    given = small_model()
    predictor = cadis.load(tmp_path / "run", model=given)
    assert predictor.module is not given  # it is copied
    inputs = small_federation().test.inputs
    assert torch.allclose(predictor(inputs), result.model.eval()(inputs).softmax(dim=1))
    with pytest.raises(CadisError, match=r"^The model does not fit that in .*run: .*"):
        cadis.load(tmp_path / "run", model=nn.Linear(2, 2))
    with pytest.raises(CadisError, match="The model does not take pictures, but tensors: call it"):
        predictor.predict([tmp_path / "a.png"])


def test_a_users_own_model_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NET)
    path = Path("nets.py").resolve()
    run_experiment(resolve({}, QUICK | {"model": f"{path}:net"}), tmp_path / "run")
    predictor = cadis.load("run")
    assert predictor.description.architecture == "nets.py:net"
    assert predictor(digit_pixels()).shape == (360, 10)
    path.rename("others.py")
    with pytest.raises(CadisError, match=r"cannot be made again: .*; or give it: cadis.load"):
        cadis.load("run")
    again = cadis.load("run", model="others.py:net")
    assert torch.equal(again(digit_pixels()), predictor(digit_pixels()))


def test_one_of_several_models(tmp_path: Path) -> None:
    run_experiment(resolve({}, QUICK | {"method": "ifca"}), tmp_path / "run")
    with pytest.raises(CadisError, match=r"has several models; there are: (.+); say which") as told:
        cadis.load(tmp_path / "run")
    names = str(told.value).split("there are: ")[1].split(";")[0].split(", ")
    models = [cadis.load(tmp_path / "run", name=name) for name in names]
    assert len(models) > 1
    pixels = digit_pixels()
    assert not torch.equal(models[0](pixels), models[1](pixels))
    with pytest.raises(CadisError, match="has no model 'none'; there are"):
        cadis.load(tmp_path / "run", name="none")


def test_what_is_not_there(tmp_path: Path, trained: Path) -> None:
    with pytest.raises(CadisError, match="There is no run in the folder"):
        cadis.load(tmp_path)
    save_file(load_file(trained / "model.safetensors"), tmp_path / "plain.safetensors")
    with pytest.raises(CadisError, match=r"is no model of cadis, or damaged"):  # not described
        cadis.load(tmp_path / "plain.safetensors")
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(CadisError, match=r"has no model.safetensors; it has not come to its end"):
        cadis.load(tmp_path / "run")
    content = bytearray((trained / "best.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "run" / "best.safetensors").write_bytes(content)
    with pytest.raises(CadisError, match="is damaged: it is not what was written"):
        cadis.load(tmp_path / "run", "best")


def test_a_binary_task_has_two_probabilities(tmp_path: Path) -> None:
    inputs = torch.randn(30, 4)
    data, model = (inputs, (inputs[:, 0] > 0).long()), nn.Sequential(nn.Linear(4, 1))
    given = {"model": model, "clients": [data], "test": data, "out": tmp_path / "run"}
    result = run_small(rounds=1, method="fedavg", task="binary", workers=1, **given)
    probabilities = cadis.load(tmp_path / "run", model=model)(inputs)
    logits = result.model(inputs)[:, 0]
    assert probabilities.shape == (30, 2)
    assert torch.equal(probabilities.argmax(dim=1), (logits > 0).long())
    assert torch.allclose(probabilities[:, 1], torch.sigmoid(logits))
