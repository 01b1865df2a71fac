import pytest

from cadis.errors import CadisError
from cadis.experiment import grid_variants, method_variants, parse_grid
from cadis.experiment.variants import ABLATIONS, choose_baseline, classes_by_name
from support import refused


def test_parameters_go_to_whom_they_belong() -> None:
    given = {"threshold": "0.8", "mu": "0.5", "rounds": "7", "ratio": "2:1"}
    fedavg, prox, cadis = method_variants(["fedavg", "FedProx", "cadis"], {}, given)
    assert prox.options["fedprox"] == {"mu": 0.5}
    assert cadis.options["cadis"]["threshold"] == 0.8
    assert "threshold" not in str(fedavg.options)
    for variant in (fedavg, prox, cadis):
        assert variant.options["rounds"] == 7
        assert variant.options["mc"]["ratio"] == [2, 1]
        assert "seed" not in variant.options


def test_ablations_change_one_thing_each() -> None:
    whole, *less = method_variants(["ablations"], {}, {"gamma": "0.3"})
    assert [variant.name for variant in less] == list(ABLATIONS)
    for variant in less:
        named = ABLATIONS[variant.name]
        assert variant.options["cadis"] == whole.options["cadis"] | dict(named.parameters)
        for kind in ("sampler", "server_optimizer"):
            assert variant.options[kind] == named.parts.get(kind, whole.options[kind])
        assert variant.options != whole.options


def test_each_method_has_the_parts_that_it_goes_with() -> None:
    names = ["fedavg", "fedavgm", "cadis-paper", "cadis"]
    parts = [
        (v.options["sampler"], v.options["server_optimizer"])
        for v in method_variants(names, {}, {})
    ]
    assert [sampler for sampler, _ in parts] == [*["uniform"] * 3, "clusters"]
    assert [optimizer for _, optimizer in parts] == ["plain", "momentum", "plain", "momentum"]
    chosen = method_variants(names, {}, {"sampler": "uniform", "server_optimizer": "adam"})
    assert [v.options["server_optimizer"] for v in chosen] == ["adam", "momentum", "adam", "adam"]
    assert {v.options["sampler"] for v in chosen} == {"uniform"}


def test_samplers_with_plain_averaging_have_names_of_their_own() -> None:
    names = ["power-of-choice", "fedcluster", "hics"]
    variants = method_variants(names, {}, {})
    assert {v.options["method"] for v in variants} == {"fedavg"}
    assert [v.options["sampler"] for v in variants] == names
    labels = [v.label.removeprefix("FedAvg, ") for v in variants]
    assert labels == ["power of choice", "FedCluster", "HiCS-FL"]


def test_the_papers_method_has_parameters_of_its_own() -> None:
    file = {"cadis-paper": {"threshold": 0.975}}
    paper, now = method_variants(["cadis-paper", "cadis"], file, {})
    assert paper.options["cadis-paper"]["threshold"] == 0.975
    assert now.options["cadis"]["threshold"] == "auto"
    with pytest.raises(CadisError, match="write --cadis-paper-threshold or --cadis-threshold"):
        method_variants(["cadis-paper", "cadis"], {}, {"threshold": "0.8"})
    paper, now = method_variants(["cadis-paper", "cadis"], {}, {"cadis_paper_threshold": "0.8"})
    assert paper.options["cadis-paper"]["threshold"] == 0.8
    assert now.options["cadis"]["threshold"] == "auto"


def test_the_baseline_is_a_federation() -> None:
    assert choose_baseline(classes_by_name(["cadis", "fedavg"])) == "fedavg"
    assert choose_baseline(classes_by_name(["singleset", "cadis-oracle"])) == "cadis-oracle"
    assert choose_baseline(classes_by_name(["singleset"])) == "singleset"


def test_the_same_twice_is_compared_once() -> None:
    names = [variant.name for variant in method_variants(["cadis", "ablations", "cadis"], {}, {})]
    assert names == ["cadis", *ABLATIONS]


def test_a_grid_is_every_combination() -> None:
    grid = parse_grid(["threshold=0.6, 0.8", "batch-size=4,8,4"])
    assert grid == {"threshold": ["0.6", "0.8"], "batch_size": ["4", "8"]}
    variants = grid_variants(grid, {"rounds": 3}, {})
    assert [variant.cell for variant in variants] == [
        ("0.6", "4"), ("0.6", "8"), ("0.8", "4"), ("0.8", "8"),
    ]  # fmt: skip
    last = variants[-1]
    assert last.label == "threshold=0.8, batch_size=8"
    assert (last.options["cadis"]["threshold"], last.options["batch_size"]) == (0.8, 8)
    assert len({variant.name for variant in variants}) == 4


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([], "Say what to vary"),
        (["threshold"], "Write a grid as name=value"),
        (["threshold="], "Write a grid as name=value"),
        (["treshold=1"], "did you mean 'threshold'?"),
        (["lr=1", "lr=2"], "twice"),
        (["seed=1,2"], "--seeds"),
    ],
)
def test_wrong_grids_are_sentences(texts: list[str], sentence: str) -> None:
    assert sentence in refused(parse_grid, texts)
