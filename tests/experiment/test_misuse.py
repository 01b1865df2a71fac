"""Wrong arguments of ``cadis.compare`` and ``cadis.run``: each is one sentence of a CadisError."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cadis
from cadis import CadisError

_NAN, _INF = float("nan"), float("inf")
_X, _Y = torch.zeros(12, 4), torch.arange(12) % 3
_DATA = (_X, _Y)

_COMPARE: dict[str, list[Any]] = {
    "methods": [
        *(None, 5, _NAN, True, {}, [], "", ",", [None], [5], [[]], [""], [True], [1.5]),
        *(cadis.FedAvg, cadis.FedAvg(), [cadis.FedAvg], [cadis.FedAvg(), "fedavg"]),
        *(["fedavg", "fedavg"], "fedavg,fedavg", "nope", ["nope"], b"fedavg", [b"fedavg"]),
        *({"fedavg": 1}, [object()], [nn.Linear(1, 1)], torch.tensor(1), ["file.py:X"], "a:b"),
        *(["cadis:run"], [cadis.FedProx(mu=_NAN)], [cadis.FedProx(mu=-1)], lambda: "fedavg"),
        itertools.repeat("fedavg"),
    ],
    "seeds": [0, -1, 1.5, 2.0, "3", None, True, _NAN, [1], (1, 2), 10**9, 2**64, range(3), 1j],
    "seed": ["x", 1.5, None, [1], -(2**70), 2**63, 2**63 - 1, _NAN, True, {}],
    "out": [5, True, b"x", "", "a\0b", "x" * 5000, object(), ["a"], _NAN, Path],
    "grid": [
        *(5, "lr", ["lr"], {"lr": []}, {"lr": 0.1}, {"lr": "0.1"}, {"lr": None}, {5: [1]}),
        *({"nope": [1]}, {"lr": [None]}, {"lr": [-1]}, {"lr": ["x"]}, {"method": ["fedavg"]}),
        *({"seed": [1]}, {"": [1]}, {"dataset": ["nope"]}, {"lr": [_NAN]}, {"rounds": [0]}),
        *({"lr": {}}, {"lr": itertools.count(1)}, {"lr": range(1, 10**9)}, {"workers": [1.5]}),
    ],
    "preset": [5, "nope", "", True, ["paper"], b"x"],
    "targets": [0.5, "0.5", None, [2], [0], [-1], [_NAN], ["x"], [True], {0.5: 1}, range(10**9)],
    "progress": [5, "yes", [], _NAN],
    "on_round": [5, "x", [], {}],
    "track": [5, "nope", True, [], "tensorboard"],
    "dataset": [None, 5, "nope", ["digits"], "csv:", "csv:/nope.csv", b"digits", "csv:a\0b.csv"],
    "data_dir": [5, None, "a\0b"],
    "rounds": [0, -1, "x", None, _NAN, 1.5, True, 10**30],
    "clients": [0, -1, "x", None, 1.5, True, 10**9],
    "partition": [None, 5, "nope", "x.json", []],
    "model": [None, 5, nn.Linear, "nope", "x.py:f"],
    "ratio": ["x", [], [0], -1, "0:1", None, {}],
    "min_samples": [0, None, 10**9, True],
    "image_size": [0, True, 5000],
    "mu": [_NAN, -1],
    "nope": [1],
    "method": ["fedavg"],
}
"""Wrong values of arguments of cadis.compare with a named dataset."""

_BOTH: dict[str, list[Any]] = {
    "clients": [
        *(None, 5, [], {}, "x", b"x", [None], [5], [(_X,)], [(_X, _Y, _Y)], ["ab"], [(_X, "ab")]),
        *([(_X, _Y[:3])], [(_X, _Y.float())], [(_X, -_Y)], [(_X, _Y + 7)], [(_X[:, :2], _Y)]),
        *({"a": None}, {1: _DATA, "1": _DATA}, [_DATA, None], [nn.Linear(1, 1)], [Path("x")]),
        *([(_X * _NAN, _Y)], [(_X, _Y[:, None])], [(_X.to("meta"), _Y)], [(_X.to_sparse(), _Y)]),
        *([(_X, _Y.bool())], [(_X[:0], _Y[:0])], itertools.repeat(_DATA), [(_X, 10**9 + _Y)]),
    ],
    "test": [None, 5, "x", (_X,), (_X[:0], _Y[:0]), (_X, _Y + 7), [], {}, (_X, None), nn.Linear],
    "client_tests": [5, "x", [_DATA], [None] * 3, {"z": _DATA}, None],
    "client_ids": [5, "abc", ["a"], ["a", "a", "b"], [None, 1, 2], [[], 1, 2], range(10**9)],
    "true_clusters": [5, "abc", [0], [0.5, 1, 1], [[1], [2], [3]], _NAN, [0, 1, 10**12]],
    "rounds": [None, 0, -1, True, 1.5, "x", _NAN],
    "per_round": [0, -1, 100, "x", True, _NAN],
    "lr": [0, -1, None, "x", _NAN, True, _INF],
    "epochs": [0, None, True, "x", 1.5],
    "speeds": [5, "x", None, [1], [1, 2, "x"], [0, 1, 1], {"0": 1}, True, itertools.repeat(1.0)],
    "head": [5, "nope", True, ["0"]],
}
"""Wrong values of arguments that cadis.run, and cadis.compare with a model, have."""

_RUN: dict[str, list[Any]] = {
    "model": [None, 5, nn.Linear, "mlp", nn.Linear(5, 3), nn.Linear(4, 2), nn.LazyLinear(3)],
    "method": [None, 5, "nope", "", cadis.FedAvg, ["fedavg"], object(), b"x", True, "x.py:A"],
    "sampler": [None, 5, "nope", cadis.FedAvg(), [], object()],
    "server_optimizer": [None, 5, "nope", torch.optim.SGD, []],
    "transforms": [None, 5, "nope", [None], [5], {"clip": 1}, [cadis.FedAvg()], iter(["clip"])],
    "task": [None, 5, "nope", nn.CrossEntropyLoss(), []],
    "local_optimizer": [None, 5, "nope", torch.optim.SGD],
    "metric": [None, 5, "nope", [], True],
    "batch_size": [0, None, True, "x", -1],
    "augment": ["nope", 5, None, [None], ["flip"], {"flip": 1}],
    "precision": [None, "float16", torch.float16],
    "seed": [None, 1.5, "x", 2**70, True, []],
    "workers": [0, None, 1.5, True, 5000],
    "device": [None, "tpu", torch.device("cpu")],
    "client_test": [1, -0.1, None, _NAN, True],
    "stack": [None, 5, "x"],
    "out": [5, True, b"x", "", "a\0b", "x" * 5000, object()],
    "resume": [None, 5, "yes", True],
    "on_round": [5, "x"],
    "progress": [5, "x"],
    "track": [5, "nope", [], "tensorboard"],
}
"""Wrong values of arguments that only cadis.run has, or that only it tests here."""


def make_cases(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}-{number}")
        for name, values in table.items()
        for number, value in enumerate(values)
    ]


def check_sentence(error: CadisError) -> None:
    sentence = str(error)
    assert sentence.endswith((".", "?"))
    assert "\n" not in sentence


@pytest.fixture(autouse=True)
def stay_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("name", "value"), make_cases(_COMPARE))
def test_wrong_argument_of_compare(name: str, value: Any) -> None:
    options: dict[str, Any] = {"methods": ["fedavg"], "seeds": 1, "dataset": "digits"}
    options |= {"rounds": 1, "epochs": 1, "clients": 4, "ratio": "3:1", "workers": 1}
    with pytest.raises(CadisError) as caught:
        cadis.compare(**{**options, name: value})
    check_sentence(caught.value)


@pytest.mark.parametrize(("name", "value"), make_cases({**_BOTH, "resume": [True], "nope": [1]}))
def test_wrong_argument_of_compare_with_a_model(name: str, value: Any) -> None:
    with pytest.raises(CadisError) as caught:
        cadis.compare(["fedavg"], seeds=1, **{**make_run_options(), name: value})
    check_sentence(caught.value)


@pytest.mark.parametrize(("name", "value"), [*make_cases(_BOTH), *make_cases(_RUN)])
def test_wrong_argument_of_run(name: str, value: Any) -> None:
    with pytest.raises(CadisError) as caught:
        cadis.run(**{**make_run_options(), name: value})
    check_sentence(caught.value)


def make_run_options() -> dict[str, Any]:
    clients, model = [_DATA] * 3, nn.Linear(4, 3)
    return {"model": model, "clients": clients, "test": _DATA, "rounds": 1, "workers": 1}


def test_generator_of_clients_that_was_used_before_is_an_error() -> None:
    clients = iter([_DATA, _DATA])
    cadis.run(**{**make_run_options(), "clients": clients, "method": "fedavg", "epochs": 1})
    with pytest.raises(CadisError, match="at least one client"):
        cadis.run(**{**make_run_options(), "clients": clients})


def test_total_number_of_runs_is_limited() -> None:
    methods = ["fedavg", "cadis"]
    with pytest.raises(CadisError, match=r"would have 2000 runs, more than the maximum of 1000"):
        cadis.compare(methods, seeds=1000, dataset="digits")
    with pytest.raises(CadisError, match=r"would have 1200 runs"):
        cadis.compare(methods, seeds=300, dataset="digits", grid={"lr": [0.1, 0.2]})


def test_wrong_parameters_of_parts_are_errors() -> None:
    for method in (cadis.CADIS(threshold="x"), cadis.FedProx(mu="x")):  # type: ignore[arg-type]
        with pytest.raises(CadisError, match=r"(threshold|mu) .*'x'"):
            cadis.run(**{**make_run_options(), "method": method})
    with pytest.raises(CadisError, match="The threshold 2 is above its maximum 1"):
        cadis.CADIS(threshold=2, threshold_max=1)
    with pytest.raises(CadisError, match=r"such as FedAvg\(\), not its class"):
        cadis.Algorithm(cadis.FedAvg)  # type: ignore[arg-type]
    with pytest.raises(CadisError, match="transforms should be a list, not None"):
        cadis.Algorithm(transforms=None)  # type: ignore[arg-type]
