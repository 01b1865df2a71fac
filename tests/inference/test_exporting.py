"""Tests that exported models predict like the original model, without cadis."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cadis import CadisError, Predictor, RunError
from cadis.data import ImagePreprocessing, Scaling, TablePreprocessing
from cadis.data.preprocessing import NumberColumn
from cadis.inference import export
from cadis.models import build_network
from cadis.store import ModelDescription, ModelInputs

CLASSES = ("cat", "dog", "hen")


def make_image_predictor(name: str = "small-cnn") -> Predictor:
    preprocessing = ImagePreprocessing(3, 8, 8, Scaling((0.5,) * 3, (0.25,) * 3))
    inputs = ModelInputs((3, 8, 8), "uint8", preprocessing)
    torch.manual_seed(1)
    description = ModelDescription(
        name, 3, "classification", CLASSES, inputs, 5, {"method": "fedavg"}
    )
    model = build_network(name, inputs.shape, 3)
    with torch.no_grad():
        model(torch.randn(16, *inputs.shape))  # statistics of batch norm that are not 0 and 1
    return Predictor(model, description)


def make_session(path: Path) -> Any:
    return pytest.importorskip("onnxruntime").InferenceSession(
        path.read_bytes(), providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("name", ["small-cnn", "resnet9"])
def test_onnx_takes_pixels_and_describes_itself(name: str, tmp_path: Path) -> None:
    predictor = make_image_predictor(name)
    assert export(predictor, "onnx", tmp_path / "model.onnx") < 1e-5
    session = make_session(tmp_path / "model.onnx")
    (model_input,), (model_output,) = session.get_inputs(), session.get_outputs()
    assert (model_input.name, model_input.shape) == ("pixels", ["batch", 3, 8, 8])
    assert (model_output.name, model_output.shape) == ("probabilities", ["batch", 3])
    pixels = torch.randint(0, 256, (40, 3, 8, 8)).float()
    (probabilities,) = session.run(None, {"pixels": pixels.numpy()})
    expected = predictor(pixels)
    assert torch.allclose(torch.from_numpy(probabilities), expected, atol=1e-5)
    assert probabilities.argmax(axis=1).tolist() == expected.argmax(dim=1).tolist()
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == list(CLASSES)
    assert ModelDescription.from_text(metadata["cadis"], "it") == predictor.description


def test_onnx_of_a_binary_model_for_tables(tmp_path: Path) -> None:
    preprocessing = TablePreprocessing((NumberColumn("age", 40, 10, True),))
    inputs = ModelInputs((2,), "float32", preprocessing)
    description = ModelDescription("mlp", 1, "binary", ("well", "ill"), inputs)
    predictor = Predictor(build_network("mlp", (2,), 1), description)
    export(predictor, "onnx", tmp_path / "model.onnx")
    rows = preprocessing.encode({"age": ["30", "", "99"]})
    (probabilities,) = make_session(tmp_path / "model.onnx").run(
        ["probabilities"], {"rows": rows.numpy()}
    )
    assert torch.allclose(torch.from_numpy(probabilities), predictor(rows), atol=1e-6)


def test_torchscript_needs_nothing_but_torch(tmp_path: Path) -> None:
    predictor = make_image_predictor("resnet9")
    export(predictor, "torchscript", tmp_path / "model.torchscript")
    extra = {"cadis.json": ""}
    with pytest.warns(DeprecationWarning, match="torch.jit.load"):
        loaded = torch.jit.load(tmp_path / "model.torchscript", _extra_files=extra)
    pixels = torch.randint(0, 256, (5, 3, 8, 8)).byte()
    assert torch.allclose(loaded(pixels), predictor(pixels))
    assert ModelDescription.from_text(extra["cadis.json"], "it") == predictor.description


def test_state_dict_can_be_loaded_by_the_model(tmp_path: Path) -> None:
    predictor = make_image_predictor("resnet9")
    export(predictor, "state-dict", tmp_path / "model.pt")
    other = build_network("resnet9", (3, 8, 8), 3)
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    for name, tensor in predictor.module.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)


class Alternating(nn.Module):
    """Returns other outputs at every second call, which an export cannot represent."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.num_calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.num_calls += 1
        outputs: Tensor = self.layer(inputs) * (1 if self.num_calls % 2 else -50)
        return outputs


def make_tensor_predictor(module: nn.Module, inputs: ModelInputs | None) -> Predictor:
    return Predictor(module, ModelDescription("", 2, "classification", ("a", "b"), inputs))


def test_export_with_other_predictions_is_not_written(tmp_path: Path) -> None:
    predictor = make_tensor_predictor(Alternating(), ModelInputs((4,), "float32"))
    with pytest.raises(RunError, match=r"differ from the original model.*nothing was written"):
        export(predictor, "torchscript", tmp_path / "model.torchscript")
    assert not list(tmp_path.iterdir())


def test_failed_export_is_an_error(tmp_path: Path) -> None:
    class Failing(nn.Module):
        def forward(self, _inputs: Tensor) -> Tensor:
            raise ValueError("no")

    failing = make_tensor_predictor(Failing(), ModelInputs((4,), "float32"))
    unknown, existing = make_tensor_predictor(nn.Linear(4, 2), None), tmp_path / "existing"
    existing.write_text("text")
    for predictor, to, path, sentence in (
        (failing, "torchscript", "a", "cannot be exported to TorchScript: ValueError: no"),
        (unknown, "torchscript", "a", r"inputs is unknown.* choose state-dict"),
        (
            unknown,
            "pickle",
            "a",
            "Unknown export format pickle; choose one of: onnx, torchscript, state-dict",
        ),
        (unknown, "state-dict", "existing", "already exists"),
    ):
        with pytest.raises(CadisError, match=sentence):
            export(predictor, to, tmp_path / path)
    assert existing.read_text() == "text"
    export(unknown, "state-dict", existing, overwrite=True)
    assert list(torch.load(existing, weights_only=True)) == ["weight", "bias"]


def test_missing_onnx_packages_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cadis.inference.exporting.find_spec", lambda _: None)
    with pytest.raises(CadisError, match=r"pip install 'cadis\[onnx\]'"):
        export(make_image_predictor(), "onnx", tmp_path / "model.onnx")
