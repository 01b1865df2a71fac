"""Tests of ``cadis.load`` on runs and on files."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import cadis
from cadis import CadisError
from cadis.data import ImagePreprocessing, digits
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
    """Return the test set of digits as pixels from 0 to 255."""
    dataset = digits()
    preprocessing = dataset.preprocessing
    assert isinstance(preprocessing, ImagePreprocessing)
    scaling = preprocessing.scaling
    return (dataset.test.inputs * scaling.deviation[0] + scaling.mean[0]) * 255


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a short run on digits."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    run_experiment(resolve({}, QUICK), folder)
    return folder


def test_accuracy_on_raw_pixels_equals_that_of_the_run(run_folder: Path) -> None:
    predictor = cadis.load(run_folder)
    description = predictor.description
    pixels, labels = digit_pixels(), digits().test.labels
    before = pixels.clone()
    probabilities = predictor(pixels)
    assert torch.equal(pixels, before)  # the input is not changed
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(len(pixels)))
    accuracy = float((probabilities.argmax(dim=1) == labels).float().mean())
    assert accuracy == pytest.approx(RunFolder(run_folder).read_json("summary.json")["accuracy"])
    assert torch.allclose(predictor(pixels.round().byte()), probabilities, atol=1e-3)
    assert not predictor.training
    assert not any(p.requires_grad for p in predictor.parameters())
    assert (description.rounds, description.training["dataset"]) == (2, "digits")
    assert repr(predictor) == (
        "Predictor(small-cnn, 13,706 parameters: inputs of shape 1 x 8 x 8 -> 10 classes; "
        "fedavg, 2 rounds)"
    )


def test_load_the_best_model_or_a_single_file(run_folder: Path, tmp_path: Path) -> None:
    best, pixels = cadis.load(run_folder, "best"), digit_pixels()[:20]
    shutil.copy(run_folder / "best.safetensors", tmp_path / "single.safetensors")
    single = cadis.load(tmp_path / "single.safetensors")
    assert torch.equal(best(pixels), single(pixels))
    with pytest.raises(CadisError, match="which must be 'last' or 'best', not 'worst'"):
        cadis.load(run_folder, "worst")  # type: ignore[arg-type]


def test_own_module_must_be_given_again(tmp_path: Path) -> None:
    result = run_small(rounds=1, method="fedavg", workers=1, out=tmp_path / "run")
    sentence = r"is a Sequential, which cadis cannot create; give a module"
    with pytest.raises(CadisError, match=sentence):
        cadis.load(tmp_path / "run")
    module = small_model()
    predictor = cadis.load(tmp_path / "run", model=module)
    assert predictor.module is not module  # it is copied
    inputs = small_federation().test.inputs
    assert torch.allclose(predictor(inputs), result.model.eval()(inputs).softmax(dim=1))
    with pytest.raises(CadisError, match=r"^Your model does not match the model in .*run: .*"):
        cadis.load(tmp_path / "run", model=nn.Linear(2, 2))
    with pytest.raises(CadisError, match="The model does not take images, but tensors: call it"):
        predictor.predict([tmp_path / "a.png"])


def test_own_model_is_created_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NET)
    path = Path("nets.py").resolve()
    run_experiment(resolve({}, QUICK | {"model": f"{path}:net"}), tmp_path / "run")
    predictor = cadis.load("run")
    assert predictor.description.architecture == "nets.py:net"
    assert predictor(digit_pixels()).shape == (360, 10)
    path.rename("others.py")
    with pytest.raises(CadisError, match=r"cannot be created: .*; or give a module: cadis.load"):
        cadis.load("run")
    other = cadis.load("run", model="others.py:net")
    assert torch.equal(other(digit_pixels()), predictor(digit_pixels()))


def test_load_one_of_several_models(tmp_path: Path) -> None:
    run_experiment(resolve({}, QUICK | {"method": "ifca"}), tmp_path / "run")
    with pytest.raises(CadisError, match=r"has several models; choose a name: (.+)\.") as error:
        cadis.load(tmp_path / "run")
    names = str(error.value).removesuffix(".").split("choose a name: ")[1].split(", ")
    models = [cadis.load(tmp_path / "run", name=name) for name in names]
    assert len(models) > 1
    pixels = digit_pixels()
    assert not torch.equal(models[0](pixels), models[1](pixels))
    with pytest.raises(CadisError, match="has no model 'none'; choose a name"):
        cadis.load(tmp_path / "run", name="none")


def test_missing_or_damaged_files_are_an_error(tmp_path: Path, run_folder: Path) -> None:
    with pytest.raises(CadisError, match="There is no run in the folder"):
        cadis.load(tmp_path)
    save_file(load_file(run_folder / "model.safetensors"), tmp_path / "plain.safetensors")
    with pytest.raises(
        CadisError, match=r"is not a model of cadis, or it is damaged"
    ):  # without description
        cadis.load(tmp_path / "plain.safetensors")
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(CadisError, match=r"has no model.safetensors; it has not finished"):
        cadis.load(tmp_path / "run")
    content = bytearray((run_folder / "best.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "run" / "best.safetensors").write_bytes(content)
    with pytest.raises(CadisError, match="is damaged: its content has changed"):
        cadis.load(tmp_path / "run", "best")


def test_binary_task_has_two_probabilities(tmp_path: Path) -> None:
    inputs = torch.randn(30, 4)
    data, model = (inputs, (inputs[:, 0] > 0).long()), nn.Sequential(nn.Linear(4, 1))
    options = {"model": model, "clients": [data], "test": data, "out": tmp_path / "run"}
    result = run_small(rounds=1, method="fedavg", task="binary", workers=1, **options)
    probabilities = cadis.load(tmp_path / "run", model=model)(inputs)
    logits = result.model(inputs)[:, 0]
    assert probabilities.shape == (30, 2)
    assert torch.equal(probabilities.argmax(dim=1), (logits > 0).long())
    assert torch.allclose(probabilities[:, 1], torch.sigmoid(logits))
