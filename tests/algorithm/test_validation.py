"""Validation accepts only values that can be written to a file and read back."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from cadis.algorithm import Algorithm, BaseMethod, compose_algorithm, validate
from cadis.algorithm.methods import CADIS, FedProx
from cadis.engine import EngineSettings
from cadis.errors import CadisError
from cadis.experiment import Settings, list_builtin_parts, resolve
from cadis.training import LocalSettings

FLOATS = [
    (cls, field.name)
    for cls in (LocalSettings, Settings, *(part for _, part in list_builtin_parts()))
    for field in fields(cls)
    if "float" in str(field.type)
]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400", float("inf"), float("nan")])
@pytest.mark.parametrize(("cls", "name"), FLOATS)
def test_infinite_and_nan_are_rejected(cls: type[Any], name: str, value: object) -> None:
    with pytest.raises(CadisError, match=f"^{name} should be "):
        validate(cls, {name: value})


def test_list_of_floats_is_complete() -> None:
    names = {name for _, name in FLOATS}
    assert {"lr", "gamma", "distillation", "bandwidth", "mu", "alpha"} <= names
    assert {"exponent", "concentration", "size_deviation", "majority"} <= names


@pytest.mark.parametrize("local", [{"lr": float("inf")}, {"epochs": 2**64}])
def test_nested_dataclasses_are_checked(local: dict[str, object]) -> None:
    with pytest.raises(CadisError, match=f"^{next(iter(local))} should be "):
        validate(EngineSettings, {"rounds": 1, "local": local})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seed": 10**400}, "seed should be an integer of at most 64 bits, not 1000"),
        ({"seed": "9" * 5000}, "seed should be an integer of at most 64 bits, not '9999"),
        ({"seed": 10**5000}, "bits, not an integer of thousands of digits."),
        ({"seed": 2**63}, "seed should be an integer of at most 64 bits"),
        ({"seed": -(2**63) - 1}, "seed should be an integer of at most 64 bits"),
        ({"min_samples": "18446744073709551616"}, "min_samples should be an integer of at most"),
        ({"rounds": 10**30}, "rounds should be an integer of at most 64 bits"),
        ({"ratio": f"{2**64}:1"}, "ratio should be an integer of at most 64 bits"),
        ({"ratio": "0:0"}, "ratio should be greater than 0"),
        ({"ratio": "1e400"}, "ratio should be a valid integer"),
        ({"bandwidth": "1e-200"}, "bandwidth should be greater than or equal to 0.000001"),
        ({"workers": 1000000}, "workers should be less than or equal to 1024"),
        ({"head": "\udcff"}, r"head should be valid UTF-8 text, not '\udcff'"),
        ({"dataset": "images:\udcff"}, "dataset should be valid UTF-8 text"),
        ({"device": "x" * 900}, "or 'mps', not 'xxx"),
        ({"a\nb": 1}, r"There is no option 'a\nb'"),
    ],
)
def test_invalid_options_are_rejected_with_one_short_sentence(
    options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(CadisError) as caught:
        resolve({}, options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 340  # the sentence may list all options


@pytest.mark.parametrize("seed", [-(2**63), -1, 0, 2**63 - 1])
def test_all_64_bit_seeds_are_accepted(seed: int) -> None:
    assert resolve({}, {"seed": seed}).settings.seed == seed


@dataclass(frozen=True)
class WithTensor(BaseMethod):
    name: ClassVar[str] = "with-tensor"
    start: Tensor = torch.zeros(1)  # noqa: RUF009


@dataclass(frozen=True)
class WithComplex(BaseMethod):
    name: ClassVar[str] = "with-complex"
    start: complex = 1j


class Plain(BaseMethod):
    name: ClassVar[str] = "plain"


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (WithTensor(), "The fields of WithTensor must be numbers, strings or lists"),
        (WithComplex(), "start of with-complex is a complex, which config.toml cannot store"),
        (Plain(), "Plain is not a dataclass"),
        (CADIS(gamma=float("inf")), "gamma should be a finite number, not inf"),
        (FedProx(mu=float("nan")), "mu should be greater than or equal to 0, not nan"),
    ],
)
def test_methods_that_cannot_be_stored_are_rejected(method: BaseMethod, sentence: str) -> None:
    with pytest.raises(CadisError, match=sentence) as caught:
        compose_algorithm(**vars(Algorithm(method)))
    assert "\n" not in str(caught.value)
