"""Data that a user's function returns."""

from typing import Any

import datasets
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from cadis._io import Callbacks
from cadis.data import Dataset, as_dataset, load
from cadis.errors import CadisError


def some(number: int, first: int = 0) -> tuple[Tensor, Tensor]:
    numbers = torch.arange(first, first + number)
    return numbers[:, None].double(), numbers % 2


def made(given: object) -> tuple[Dataset, list[str]]:
    said: list[str] = []
    return as_dataset(given, "mine.py:load", Callbacks(say=said.append)), said


def test_clients_by_name_and_a_test_set() -> None:
    clients = {"ann": some(4), "bob": TensorDataset(*some(3, 4)), "eve": some(0)}
    found, said = made({"clients": clients, "test": some(2, 50), "classes": ["ill", "well"]})
    assert (found.name, found.classes) == ("mine.py:load", ("ill", "well"))
    assert {name: own.tolist() for name, own in found.owners.items()} == {
        "ann": [0, 1, 2, 3],
        "bob": [4, 5, 6],
    }
    assert found.train.inputs[:, 0].tolist() == [*range(7)]
    assert found.train.inputs.dtype == torch.float32
    assert found.test.inputs[:, 0].tolist() == [50, 51]
    assert not found.test_owners
    assert said == ["Client eve has no samples; it is left out."]


def test_a_pair_of_a_list_and_a_test_set() -> None:
    found, _ = made(([some(2), some(2)], some(2)))
    assert list(found.owners) == ["0", "1"]
    assert found.classes == ("0", "1")


def test_own_test_data_make_a_test_set_or_stand_beside_it() -> None:
    found, _ = made({"clients": [some(2), some(2)], "client_tests": {"1": some(3, 9)}})
    assert found.test.inputs[:, 0].tolist() == [9, 10, 11]
    assert {name: own.tolist() for name, own in found.test_owners.items()} == {"1": [0, 1, 2]}
    found, _ = made({"clients": [some(2)], "client_tests": [some(3, 9)], "test": some(2, 90)})
    assert found.test.inputs[:, 0].tolist() == [90, 91]
    assert found.client_tests["0"].inputs[:, 0].tolist() == [9, 10, 11]


def test_without_test_data_a_tenth_is_held_out_and_stays_its_owners() -> None:
    found, _ = made({"clients": {"ann": some(20), "bob": some(20, 20)}})
    assert len(found.test) == 4
    for side, owned in ((found.train, found.owners), (found.test, found.test_owners)):
        for name, own in owned.items():
            numbers = side.inputs[own][:, 0]
            assert bool(((numbers < 20) == (name == "ann")).all())
    everything = torch.cat([found.train.inputs, found.test.inputs])[:, 0]
    assert sorted(everything.tolist()) == [*range(40)]


@pytest.mark.parametrize("tests", [{}, {"test": some(3)}, {"client_tests": {"bob": some(3)}}])
def test_a_broken_sample_has_the_number_that_its_owner_knows(tests: dict[str, Any]) -> None:
    inputs, labels = some(30)
    inputs[17] = torch.nan
    given = {"clients": {"ann": some(40), "bob": (inputs, labels)}, **tests}
    sentence = r"Client bob has 1 sample with .*, sample 17 \(not a number at position 0\); repair"
    with pytest.raises(CadisError, match=sentence):
        made(given)


def test_a_broken_sample_of_clients_test_data() -> None:
    inputs, labels = some(9)
    inputs[2:4] = torch.inf
    clients = {"ann": some(9), "bob": some(9)}
    with pytest.raises(CadisError, match=r"The test data of client bob has 2 samples .* sample 2 "):
        made({"clients": clients, "client_tests": {"ann": some(4), "bob": (inputs, labels)}})


def test_a_dataset_is_taken_as_it_is() -> None:
    found, _ = made(load("digits"))
    assert found.name == "mine.py:load"
    assert found.classes == tuple("0123456789")


def test_names_of_classes_come_from_hugging_face() -> None:
    kinds = datasets.Features(
        {"x": datasets.Value("float32"), "label": datasets.ClassLabel(names=["ill", "well"])}
    )
    own = datasets.Dataset.from_dict({"x": [1.0, 2.0], "label": [0, 1]}, features=kinds)
    assert made({"clients": {"ann": own}, "test": own})[0].classes == ("ill", "well")


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": (None, "returned neither a cadis.data.Dataset nor"),
    "misspelt": ({"clients": [some(2)], "tests": some(2)}, "returned neither"),
    "empty": ({"clients": {}}, "no client that has any samples"),
    "shapes": (([some(2), (torch.zeros(2, 3), torch.zeros(2).long())], some(2)), "1 has inputs of"),
    "stranger": ({"clients": [some(2)], "client_tests": {"eve": some(2)}}, "eve, which is no"),
    "few names": ({"clients": [some(2)], "test": some(2), "classes": ["ill"]}, "label 1, but 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_named(case: str) -> None:
    given, sentence = REFUSED[case]
    with pytest.raises(CadisError, match=sentence):
        made(given)


def test_what_a_function_raises_is_told(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def load():\n    return 1 / 0\nnumber = 3\n")
    with pytest.raises(CadisError, match=r"could not load its data: ZeroDivisionError"):
        load("mine.py:load")
    with pytest.raises(CadisError, match="is no function that returns data"):
        load("mine.py:number")
