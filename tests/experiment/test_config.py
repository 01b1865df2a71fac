import tomllib
from pathlib import Path

import pytest

from cadis._io import read_toml, to_toml
from cadis.algorithm import algorithm_of, classes_in
from cadis.algorithm.methods import CADIS, METHODS, FedDyn, FedProx
from cadis.data.partition import BalancedCluster, Dirichlet, MultiCluster, UnbalancedCluster
from cadis.errors import CadisError
from cadis.experiment import Settings, resolve
from support import refused


def test_defaults() -> None:
    config = resolve({}, {})
    assert config.method == CADIS()
    assert config.settings == Settings()


def test_options_win_over_the_file() -> None:
    file = {"method": "cadis", "rounds": 3, "lr": 0.2, "cadis": {"gamma": 0.2, "distillation": 0.5}}
    config = resolve(file, {"rounds": "5", "gamma": "0.3"})
    assert config.settings == Settings(rounds=5, lr=0.2)
    assert config.method == CADIS(gamma=0.3, distillation=0.5)


def test_a_file_may_hold_parameters_of_several_methods() -> None:
    file = {"fedprox": {"mu": 0.5}, "feddyn": {"alpha": 0.1}}
    assert resolve(file, {"method": "fedprox"}).method == FedProx(mu=0.5)
    assert resolve(file, {"method": "feddyn"}).method == FedDyn(alpha=0.1)
    assert resolve(file, {}).method == CADIS()


def test_values_as_typed() -> None:
    given = {"ratio": "2:1", "workers": "2", "device": "cpu"}
    config = resolve({}, given | {"bandwidth": "0.5", "scope": "federation"})
    assert config.partitioner == MultiCluster(ratio=(2, 1))
    assert config.settings.partition == "mc"
    assert config.settings.workers == 2
    assert config.method == CADIS(bandwidth=0.5, scope="federation")
    assert resolve({}, {"method": "CADIS"}) == resolve({}, {})
    assert resolve({}, {"workers": "auto", "bandwidth": "mean"}) == resolve({}, {})


def test_partitions_and_their_parameters() -> None:
    assert resolve({}, {"partition": "bc"}).partitioner == BalancedCluster()
    file = {"partition": "dirichlet", "dirichlet": {"concentration": 0.1}, "uc": {"majority": 0.9}}
    assert resolve(file, {}).partitioner == Dirichlet(0.1)
    assert resolve(file, {"concentration": "0.2"}).partitioner == Dirichlet(0.2)
    assert resolve(file, {"partition": "uc"}).partitioner == UnbalancedCluster(majority=0.9)
    assert resolve({}, {"classes_per_cluster": "2"}).partitioner == MultiCluster((3, 3, 2, 1, 1), 2)


def test_flags() -> None:
    assert resolve({}, {"offline": True}).settings.offline
    assert not resolve({"offline": True}, {"offline": "false"}).settings.offline


@pytest.mark.parametrize("name", METHODS)
def test_a_resolved_config_is_written_and_read_back(name: str) -> None:
    config = resolve({}, {"method": name, "seed": "4", "ratio": "2:1"})
    again = tomllib.loads(to_toml(config.to_dict()))
    assert resolve(again, {}) == config
    assert algorithm_of(classes_in(again), again) == config.algorithm


@pytest.mark.parametrize(
    ("file", "given", "sentence"),
    [
        ({}, {"method": "cadiss"}, "There is no method 'cadiss'; did you mean 'cadis'?"),
        ({}, {"method": "magic"}, "There is no method 'magic'; there are: cadis, fedavg"),
        ({"roundz": 3}, {}, "There is no option 'roundz'; did you mean 'rounds'?"),
        ({"cadis": {"gama": 3}}, {}, "no parameter of cadis 'gama'; did you mean 'gamma'?"),
        ({"nothing": {"x": 3}}, {}, "There is no part 'nothing'"),
        ({}, {"method": "fedavg", "mu": "1"}, "'mu' is a parameter of fedprox, moon and fedat"),
        ({}, {"alpha": "1"}, "'alpha' is a parameter of fedfa, feddyn, fedrs, fedadp and fedfv"),
        (
            {"gamma": 0.1},
            {},
            "'gamma' belongs to cadis and cadis-paper; put it into a table of that name.",
        ),
        ({}, {"gama": "1"}, "There is no option 'gama'; did you mean 'gamma'?"),
        ({}, {"rounds": "0"}, "rounds should be greater than 0, not '0'."),
        ({}, {"rounds": "many"}, "rounds should be a valid integer"),
        ({"lr": "fast"}, {}, "lr should be a valid number"),
        ({}, {"lr": "-1"}, "lr should be greater than 0"),
        ({}, {"device": "tpu"}, "device should be 'auto', 'cpu', 'cuda' or 'mps', not 'tpu'."),
        ({}, {"transitive": "yes"}, "transitive should be 'mean', 'sample' or 'off'"),
        ({}, {"ratio": "3:x"}, "ratio should be a valid integer"),
        ({}, {"dataset": "digit"}, "no dataset 'digit'; did you mean 'digits'?"),
        ({}, {"model": "gpt"}, "There is no model 'gpt'"),
        ({}, {"threshold": "0.99"}, "The threshold 0.99 is above its maximum 0.985"),
        ({}, {"threshold": "1.5"}, "threshold should be less than or equal to 1"),
        ({}, {"distillation": "nan"}, "distillation should be"),
        ({}, {"partition": "mcc"}, "There is no partition 'mcc'; did you mean 'mc'?"),
        ({}, {"partition": "iid", "ratio": "2:1"}, "'ratio' is a parameter of mc, not of iid."),
        ({}, {"concentration": "1"}, "'concentration' is a parameter of dirichlet, not of auto."),
        ({"ratio": [2, 1]}, {}, "'ratio' belongs to mc; put it into a table of that name."),
        ({"mc": {"ration": [2, 1]}}, {}, "no parameter of mc 'ration'; did you mean 'ratio'?"),
        ({}, {"partition": "bc", "majority": "2"}, "majority should be less than or equal to 1"),
        ({}, {"clients": "few"}, "clients should be"),
        ({}, {"image_size": "2"}, "image_size should be greater than or equal to 8"),
        ({}, {"image_size": "9999"}, "image_size should be less than or equal to 1024"),
    ],
)
def test_wrong_options_are_one_sentence(
    file: dict[str, object], given: dict[str, str], sentence: str
) -> None:
    assert sentence in refused(resolve, file, given)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CadisError, match="cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rounds = ")
    with pytest.raises(CadisError, match="not valid TOML"):
        read_toml(tmp_path / "bad.toml")
