"""Wrong arguments of functions for trained models: each is one sentence of a CadisError."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cadis
from cadis import CadisError, Predictor
from cadis.data import CategoryColumn, ImagePreprocessing, NumberColumn, Scaling, TablePreprocessing
from cadis.inference import export
from cadis.store import ModelDescription, ModelInputs
from cadis.store.model_file import encode_model

_NAN = float("nan")
_COLUMNS = (NumberColumn("age", 40.0, 10.0, False), CategoryColumn("sex", ("f", "m")))
_TABLE = ModelInputs((3,), "float32", TablePreprocessing(_COLUMNS))
_IMAGE = ModelInputs((1, 8, 8), "uint8", ImagePreprocessing(1, 8, 8, Scaling((0.5,), (0.5,))))
_PLAIN = ModelInputs((3,), "float32")


def make_predictor(inputs: ModelInputs) -> Predictor:
    module = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(inputs.shape)), 2))
    return Predictor(module, describe(inputs))


def describe(inputs: ModelInputs) -> ModelDescription:
    return ModelDescription("mine", 2, "classification", ("no", "yes"), inputs)


_PREDICTORS = {"table": make_predictor(_TABLE), "image": make_predictor(_IMAGE)}
_PREDICTORS["plain"] = make_predictor(_PLAIN)

_INPUTS: list[Any] = [
    *(None, 5, True, _NAN, "", "nope", b"x", [], {}, (), object(), [None], [5], [[]], [b"x"]),
    *("a\0b", "x" * 5000, Path("nope.csv"), ["a\0b"], nn.Linear, lambda: 1, {1, 2}, iter([])),
    *(torch.tensor(1.0), torch.zeros(0), torch.zeros(2, 9), [torch.zeros(3)]),
    *(torch.zeros(2, 3).to_sparse(), torch.zeros(2, 3, device="meta"), torch.zeros(3)),
    *(torch.zeros(2, 3, dtype=torch.complex64), torch.full((1, 3), _NAN)),
    *(torch.full((1, 1, 8, 8), _NAN), torch.full((1, 3), 1e300, dtype=torch.float64)),
    *(np.zeros((2, 2)), np.array(["a"]), np.array([None]), np.zeros((1, 3), dtype=object)),
    *({"age": 5}, {"age": "12", "sex": "fm"}, {"age": [1]}, {"age": [1, 2], "sex": ["f"]}),
    *({"age": None, "sex": None}, {"age": [[1]], "sex": [["f"]]}, {5: [1]}),
    *({"age": [], "sex": []}, {"age": [True], "sex": ["f"]}, {"age": [1], "sex": ["x"]}),
    *({"age": [_NAN], "sex": ["f"]}, {"age": [1e300], "sex": ["f"]}, {"age": [1], "sex": [None]}),
]


@pytest.fixture(autouse=True)
def stay_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", _PREDICTORS)
@pytest.mark.parametrize("number", range(len(_INPUTS)))
def test_wrong_inputs_of_a_predictor(name: str, number: int) -> None:
    predictor, inputs = _PREDICTORS[name], _INPUTS[number]
    for call in (predictor.predict, predictor):
        with pytest.raises(CadisError) as caught:
            call(inputs)
        check_sentence(caught.value)


def test_prediction_of_no_rows_is_an_error() -> None:
    with pytest.raises(CadisError, match=r"shape \(0, 3\); give at least one row"):
        _PREDICTORS["plain"].predict(torch.zeros(0, 3))


def check_sentence(error: CadisError) -> None:
    sentence = str(error)
    assert sentence.endswith((".", "?"))
    assert "\n" not in sentence


_NO_PATHS: list[Any] = [None, 5, True, b"x", "", "a\0b", "x" * 5000, [], {}, _NAN, object(), Path]

_CALLS: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
    "load": (cadis.load, [*_NO_PATHS, "nope", "."]),
    "which": (lambda v: cadis.load("own", which=v), [None, 5, "", True, "LAST", ["last"]]),
    "model": (
        lambda v: cadis.load("own.safetensors", model=v),
        [None, 5, nn.Linear, "nope", "x.py:f", True, [], lambda: 1, b"x", nn.Linear(9, 9)],
    ),
    "name": (
        lambda v: cadis.load("own.safetensors", model=nn.Linear(3, 2), name=v),
        [5, "nope", [], True, b"x"],
    ),
    "export path": (lambda v: export(_PREDICTORS["plain"], "state-dict", v), [*_NO_PATHS, "."]),
    "export to": (
        lambda v: export(_PREDICTORS["plain"], v, Path("x")),
        [None, 5, "nope", "ONNX", ["onnx"], True],
    ),
    "export predictor": (
        lambda v: export(v, "state-dict", Path("x")),
        [None, 5, nn.Linear(3, 2), "own", Predictor],
    ),
    "module": (lambda v: Predictor(v, describe(_PLAIN)), [None, 5, "x", nn.Linear]),
    "description": (lambda v: Predictor(nn.Linear(3, 2), v), [None, 5, "x", {}]),
    "task": (
        lambda v: Predictor(nn.Linear(3, 2), describe(_PLAIN), v),
        [5, "nope", "x.py:f", nn.CrossEntropyLoss(), True, ["classification"]],
    ),
}


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, (_, values) in _CALLS.items() for number in range(len(values))],
)
def test_wrong_argument(name: str, number: int) -> None:
    content = encode_model(nn.Linear(3, 2).state_dict(), describe(_PLAIN))
    Path("own.safetensors").write_bytes(content)
    call, values = _CALLS[name]
    with pytest.raises(CadisError) as caught:
        call(values[number])
    check_sentence(caught.value)
