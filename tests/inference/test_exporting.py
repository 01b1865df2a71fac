"""Exported models predict as the model does, in a program that knows nothing of ours."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cadis import CadisError, Predictor, RunError
from cadis.data import PicturePreprocessing, Scaling, TablePreprocessing
from cadis.data.preprocessing import NumberColumn
from cadis.inference import export
from cadis.models import build_network
from cadis.store import ModelDescription, ModelInputs

CLASSES = ("cat", "dog", "hen")


def of_pictures(name: str = "small-cnn") -> Predictor:
    how = PicturePreprocessing(3, 8, 8, Scaling((0.5,) * 3, (0.25,) * 3))
    inputs = ModelInputs((3, 8, 8), "uint8", how)
    torch.manual_seed(1)
    told = ModelDescription(name, 3, "classification", CLASSES, inputs, 5, {"method": "fedavg"})
    model = build_network(name, inputs.shape, 3)
    with torch.no_grad():
        model(torch.randn(16, *inputs.shape))  # statistics of batch norm that are not 0 and 1
    return Predictor(model, told)


def session_of(path: Path) -> Any:
    return pytest.importorskip("onnxruntime").InferenceSession(
        path.read_bytes(), providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("name", ["small-cnn", "resnet9"])
def test_onnx_takes_pixels_and_describes_itself(name: str, tmp_path: Path) -> None:
    predictor = of_pictures(name)
    assert export(predictor, "onnx", tmp_path / "model.onnx") < 1e-5
    session = session_of(tmp_path / "model.onnx")
    (taken,), (made,) = session.get_inputs(), session.get_outputs()
    assert (taken.name, taken.shape) == ("pixels", ["batch", 3, 8, 8])
    assert (made.name, made.shape) == ("probabilities", ["batch", 3])
    pixels = torch.randint(0, 256, (40, 3, 8, 8)).float()
    (found,) = session.run(None, {"pixels": pixels.numpy()})
    expected = predictor(pixels)
    assert torch.allclose(torch.from_numpy(found), expected, atol=1e-5)
    assert found.argmax(axis=1).tolist() == expected.argmax(dim=1).tolist()
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["classes"]) == list(CLASSES)
    assert ModelDescription.from_text(told["cadis"], "it") == predictor.description


def test_onnx_of_a_binary_model_of_rows(tmp_path: Path) -> None:
    how = TablePreprocessing((NumberColumn("age", 40, 10, True),))
    inputs = ModelInputs((2,), "float32", how)
    told = ModelDescription("mlp", 1, "binary", ("well", "ill"), inputs)
    predictor = Predictor(build_network("mlp", (2,), 1), told)
    export(predictor, "onnx", tmp_path / "model.onnx")
    rows = how.encode({"age": ["30", "", "99"]})
    (found,) = session_of(tmp_path / "model.onnx").run(["probabilities"], {"rows": rows.numpy()})
    assert torch.allclose(torch.from_numpy(found), predictor(rows), atol=1e-6)


def test_torchscript_needs_nothing_but_torch(tmp_path: Path) -> None:
    predictor = of_pictures("resnet9")
    export(predictor, "torchscript", tmp_path / "model.torchscript")
    extra = {"cadis.json": ""}
    with pytest.warns(DeprecationWarning, match="torch.jit.load"):
        loaded = torch.jit.load(tmp_path / "model.torchscript", _extra_files=extra)
    pixels = torch.randint(0, 256, (5, 3, 8, 8)).byte()
    assert torch.allclose(loaded(pixels), predictor(pixels))
    assert ModelDescription.from_text(extra["cadis.json"], "it") == predictor.description


def test_a_state_dict_is_taken_by_the_model(tmp_path: Path) -> None:
    predictor = of_pictures("resnet9")
    export(predictor, "state-dict", tmp_path / "model.pt")
    other = build_network("resnet9", (3, 8, 8), 3)
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    for name, tensor in predictor.module.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)


class Moody(nn.Module):
    """Predicts otherwise each time; no exporter can know."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.times = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.times += 1
        outputs: Tensor = self.layer(inputs) * (1 if self.times % 2 else -50)
        return outputs


def of_tensors(module: nn.Module, inputs: ModelInputs | None) -> Predictor:
    return Predictor(module, ModelDescription("", 2, "classification", ("a", "b"), inputs))


def test_a_file_that_predicts_otherwise_is_not_written(tmp_path: Path) -> None:
    predictor = of_tensors(Moody(), ModelInputs((4,), "float32"))
    with pytest.raises(RunError, match=r"does not predict as the model does.*nothing was written"):
        export(predictor, "torchscript", tmp_path / "model.torchscript")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_is_one_sentence(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def forward(self, _inputs: Tensor) -> Tensor:
            raise ValueError("no")

    broken = of_tensors(Broken(), ModelInputs((4,), "float32"))
    unknown, mine = of_tensors(nn.Linear(4, 2), None), tmp_path / "mine"
    mine.write_text("thesis")
    for predictor, to, path, sentence in (
        (broken, "torchscript", "a", "cannot be exported to TorchScript: ValueError: no"),
        (unknown, "torchscript", "a", r"not known what inputs .* choose state-dict"),
        (unknown, "pickle", "a", "to onnx, torchscript, state-dict, not to pickle"),
        (unknown, "state-dict", "mine", "is there already"),
    ):
        with pytest.raises(CadisError, match=sentence):
            export(predictor, to, tmp_path / path)
    assert mine.read_text() == "thesis"
    export(unknown, "state-dict", mine, overwrite=True)
    assert list(torch.load(mine, weights_only=True)) == ["weight", "bias"]


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cadis.inference.exporting.find_spec", lambda _: None)
    with pytest.raises(CadisError, match=r"pip install 'cadis\[onnx\]'"):
        export(of_pictures(), "onnx", tmp_path / "model.onnx")
