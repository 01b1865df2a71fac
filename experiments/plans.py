"""Plans of runs: each gives a table of docs/explanation/results.md, or some of its columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cadis.experiment.variants import ALL

_ALL = (
    "fedavg",
    "fedprox",
    "fedfa",
    "feddyn",
    "fedavgm",
    "cadis-paper",
    "cadis",
    "cadis-oracle",
)
_MAIN = ("fedavg", "fedavgm", "cadis-paper", "cadis")

_PARTITIONS: dict[str, dict[str, Any]] = {
    "mc": {"partition": "mc"},
    "bc": {"partition": "bc"},
    "uc": {"partition": "uc"},
    "pa": {"partition": "pa"},
    "iid": {"partition": "iid"},
    "dirichlet 0.1": {"partition": "dirichlet", "concentration": 0.1},
    "dirichlet 0.5": {"partition": "dirichlet", "concentration": 0.5},
}

_CLUSTERED = ("mc", "bc", "uc")


@dataclass(frozen=True)
class Plan:
    """Methods on federations, with several seeds each.

    Attributes:
        title: the title of the plan.
        common: options of all runs.
        federations: further options, by the name of the federation.
        methods: names of methods, as for ``cadis compare``.
        seeds: number of runs of each method.
        target: the target accuracy, for all federations or by federation.
        variants: a method and further options, by name.
        tuned: whether the federations are learning rates: all are run with the first seed, and
            only the best one of each method with further seeds.
        minutes: approximate minutes of one run on two cores, for the estimate of the queue.
        first_seed: the first seed.
    """

    title: str
    common: Mapping[str, Any]
    federations: Mapping[str, Mapping[str, Any]]
    methods: tuple[str, ...]
    seeds: int
    target: Mapping[str, float] | float
    variants: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    tuned: bool = False
    minutes: float = 5.0
    first_seed: int = 0

    def get_target(self, federation: str) -> float:
        """Return the target accuracy of a federation."""
        return self.target if isinstance(self.target, float) else self.target[federation]


def _with_rates(partitions: tuple[str, ...], rates: tuple[float, ...]) -> dict[str, dict[str, Any]]:
    return {
        f"{name}, lr {rate}": {**_PARTITIONS[name], "lr": rate}
        for name in partitions
        for rate in rates
    }


_RATES = (0.03, 0.1, 0.3)
"""Learning rates among which each method gets its best."""

_HUNDRED = {"clients": 100, "per_round": 10, "test_clients": 0}
_DIGITS = {**_HUNDRED, "dataset": "digits", "rounds": 120}
_MNIST = {**_HUNDRED, "dataset": "mnist", "model": "mlp"}
_FASHION = {**_HUNDRED, "dataset": "fashion-mnist", "model": "mlp"}
_SUBSET = {"test_clients": 0, "model": "mlp"}
_HARD = {"mc": 0.85, "bc": 0.8, "uc": 0.8}
_EASY = {"pa": 0.9, "iid": 0.9, "dirichlet 0.1": 0.9, "dirichlet 0.5": 0.9}

TEST_SEED = 10
"""First seed of results with which nothing was chosen. Development uses the seeds 0 to 9."""

_FIFTY = {"clients": 50, "per_round": 10}
_CLEAR = {**_FIFTY, "partition": "mc"}
_OVERLAPPING = {**_FIFTY, "partition": "overlap"}
_TEN = {"clients": 10, "per_round": 3, "partition": "mc", "ratio": "7:1:1:1"}
_FOUR = {"clients": 4, "per_round": 4}
_FEDERATIONS: dict[str, dict[str, Any]] = {
    "clear": _CLEAR,
    "clear, 2 a round": {**_CLEAR, "per_round": 2},
    "clear, 25 a round": {**_CLEAR, "per_round": 25},
    "clear, 20% fuzzy": {**_CLEAR, "fuzzy": 0.2},
    "clear, 40% fuzzy": {**_CLEAR, "fuzzy": 0.4},
    "mild (60% fuzzy)": {**_CLEAR, "fuzzy": 0.6},
    "two clusters, 4:1": {**_CLEAR, "ratio": "4:1"},
    "ten clusters of one class": {
        **_CLEAR,
        "ratio": "16:10:7:5:4:3:2:1:1:1",
        "classes_per_cluster": 1,
    },
    "one of 47, three alone": {**_CLEAR, "ratio": "47:1:1:1"},
    "10 clients, 7:1:1:1": _TEN,
    "4 clients, 2:1:1": {**_FOUR, "partition": "mc", "ratio": "2:1:1"},
    "overlapping": _OVERLAPPING,
    "twenty overlapping": {
        **_OVERLAPPING,
        "ratio": "5:4:4:3:3:3:3:3:3:2:2:2:2:2:2:2:2:1:1:1",
        "classes_per_cluster": 3,
    },
    "soft 0.1": {**_FIFTY, "partition": "soft", "concentration": 0.1},
    "soft 0.3": {**_FIFTY, "partition": "soft", "concentration": 0.3},
    "soft 1": {**_FIFTY, "partition": "soft", "concentration": 1.0},
    "dirichlet 0.1": {**_FIFTY, **_PARTITIONS["dirichlet 0.1"]},
    "dirichlet 0.5": {**_FIFTY, **_PARTITIONS["dirichlet 0.5"]},
    "dirichlet 5": {**_FIFTY, "partition": "dirichlet", "concentration": 5.0},
    "power law": {**_FIFTY, "partition": "pa"},
    "iid": {**_FIFTY, "partition": "iid"},
    "4 clients, iid": {**_FOUR, "partition": "iid"},
}
_RIVALS = ("fedavg", "fedavgm", "fedadam", "fedyogi", "cadis-paper")
_QUICKSTART = {
    "model": "experiments/networks.py:lenet",
    "clients": 10,
    "per_round": 5,
    "test_clients": 0,
    "partition": "mc",
    "ratio": "6:3:1",
    "rounds": 30,
    "epochs": 1,
    "batch_size": 32,
    "momentum": 0.9,
}


def _select(*names: str) -> dict[str, dict[str, Any]]:
    return {name: _FEDERATIONS[name] for name in names}


_PAPER_METHODS = ("fedavg", "fedprox", "fedfa", "feddyn")
_TABLE_1 = {
    "clients": 100,
    "test_clients": 0,
    "dataset": "mnist",
    "model": "cnn",
    "lr": 0.001,
    "rounds": 500,
}


def _paper_variants(passes: int, threshold: float) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return CADIS as in the paper with its threshold, and SingleSet with as many steps.

    Args:
        passes: rounds of SingleSet. One of them trains on the data of all clients, so a tenth of
            the federation's rounds, with a tenth of the clients in each, does the same work.
        threshold: the threshold of the paper's CADIS.
    """
    return {
        "cadis-paper": ("cadis-paper", {"threshold": threshold}),
        "singleset": ("singleset", {"rounds": passes}),
    }


PLANS: dict[str, Plan] = {
    "methods": Plan(
        "All methods on the default digits, a fifth of each client's data held out, 80 rounds",
        {"partition": "mc", "client_test": 0.2},
        {f"lr {rate:g}": {"lr": rate} for rate in _RATES},
        tuple(ALL),
        3,
        0.85,
        tuned=True,
    ),
    "digits": Plan(
        "Digits, 100 clients, 10 a round, 120 rounds",
        _DIGITS,
        {name: options for name, options in _PARTITIONS.items() if name != "mc"},
        _ALL,
        3,
        {**_HARD, **_EASY},
    ),
    "digits-mc": Plan(
        "Digits, clusters of clients at 3:3:2:1:1, 120 rounds",
        _DIGITS,
        {"mc": _PARTITIONS["mc"]},
        _ALL,
        5,
        0.85,
    ),
    "digits-singleset": Plan(
        "Digits, the data of all clients in one place, 20 passes of five epochs",
        {**_DIGITS, "rounds": 20},
        {"mc": _PARTITIONS["mc"]},
        ("singleset",),
        3,
        0.85,
    ),
    "clusters-digits": Plan(
        "Digits, federations with clear, soft, overlapping, few and no clusters, 60 rounds",
        {**_DIGITS, "rounds": 60},
        _FEDERATIONS,
        (*_RIVALS, "cadis", "cadis-oracle"),
        5,
        0.85,
        first_seed=TEST_SEED,
    ),
    "clusters-fashion": Plan(
        "7,500 samples of Fashion-MNIST, MLP, fifteen of these federations, 40 rounds",
        {**_SUBSET, "dataset": "experiments/subsets.py:fashion", "rounds": 40},
        _select(
            "clear",
            "clear, 20% fuzzy",
            "clear, 40% fuzzy",
            "mild (60% fuzzy)",
            "one of 47, three alone",
            "10 clients, 7:1:1:1",
            "4 clients, 2:1:1",
            "overlapping",
            "soft 0.1",
            "soft 0.3",
            "soft 1",
            "dirichlet 0.1",
            "dirichlet 0.5",
            "power law",
            "iid",
        ),
        (*_RIVALS, "cadis", "cadis-oracle"),
        5,
        0.7,
        first_seed=TEST_SEED,
    ),
    "clusters-mnist": Plan(
        "7,500 samples of MNIST, MLP, 40 rounds",
        {**_SUBSET, "dataset": "experiments/subsets.py:mnist", "rounds": 40},
        _select("clear", "soft 0.3", "10 clients, 7:1:1:1", "iid"),
        (*_RIVALS, "cadis", "cadis-oracle"),
        5,
        0.8,
        first_seed=TEST_SEED,
    ),
    "clusters-cifar10": Plan(
        "7,500 samples of CIFAR-10, small CNN, 40 rounds",
        {
            **_SUBSET,
            "dataset": "experiments/subsets.py:cifar10",
            "model": "small-cnn",
            "lr": 0.03,
            "rounds": 40,
        },
        _select("clear", "soft 0.3", "10 clients, 7:1:1:1", "iid"),
        (*_RIVALS, "cadis"),
        5,
        0.3,
        first_seed=TEST_SEED,
    ),
    "clusters-rates": Plan(
        "Fashion-MNIST as above, a third and three times the learning rate, 40 rounds",
        {**_SUBSET, "dataset": "experiments/subsets.py:fashion", "rounds": 40},
        {
            f"{name}, lr {rate}": {**_FEDERATIONS[name], "lr": rate}
            for rate in (0.03, 0.3)
            for name in ("clear", "soft 0.3", "10 clients, 7:1:1:1")
        },
        (*_RIVALS, "cadis"),
        5,
        0.7,
        first_seed=TEST_SEED,
    ),
    "clusters-models": Plan(
        "Digits, other learning rates and models, 60 rounds",
        {**_DIGITS, "rounds": 60},
        {
            "clear, lr 0.03": {**_CLEAR, "lr": 0.03},
            "clear, lr 0.3": {**_CLEAR, "lr": 0.3},
            "no bias": {**_CLEAR, "model": "experiments/networks.py:mlp_without_bias"},
            "two classes, one output": {
                **_CLEAR,
                "dataset": "experiments/subsets.py:even_and_odd",
                "ratio": "4:1",
                "task": "binary",
            },
        },
        (*_RIVALS, "cadis", "cadis-oracle"),
        5,
        0.8,
        first_seed=TEST_SEED,
    ),
    "clusters-thousand": Plan(
        "MNIST, MLP, 1,000 clients, 50 a round, 40 rounds",
        {
            "clients": 1000,
            "per_round": 50,
            "test_clients": 0,
            "dataset": "mnist",
            "model": "mlp",
            "rounds": 40,
        },
        {"clear": {"partition": "mc"}, "soft 0.3": {"partition": "soft", "concentration": 0.3}},
        (*_RIVALS, "cadis"),
        5,
        0.85,
        first_seed=TEST_SEED,
    ),
    "quickstart": Plan(
        "LeNet as in Flower's quickstart, client momentum 0.9, clusters 6:3:1, 30 rounds",
        _QUICKSTART,
        {
            f"{label}, lr {rate}": {"dataset": f"experiments/subsets.py:{name}", "lr": rate}
            for label, name in (("MNIST", "mnist"), ("Fashion-MNIST", "fashion"))
            for rate in (0.1, 0.03, 0.01)
        },
        ("fedavg", "fedavgm", "cadis"),
        5,
        0.7,
        first_seed=TEST_SEED,
    ),
    "hundred": Plan(
        "Digits, clusters at 3:3:2:1:1, 100 clients, 10 a round, 120 rounds",
        _DIGITS,
        {"mc": _PARTITIONS["mc"]},
        (*_RIVALS, "cadis", "cadis-oracle"),
        5,
        0.85,
        {
            "fedavg-damped": ("fedavg", {"server_optimizer": "damped-momentum"}),
            "cadis-newest": ("cadis", {"averaging": 1.0}),
            "singleset": ("singleset", {"rounds": 20}),
        },
        first_seed=TEST_SEED,
    ),
    "samplers": Plan(
        "Fashion-MNIST as above, samplers and averaging, 40 rounds",
        {**_SUBSET, "dataset": "experiments/subsets.py:fashion", "rounds": 40},
        _select("clear", "soft 0.3", "10 clients, 7:1:1:1", "dirichlet 0.1"),
        ("fedavg", "cadis"),
        5,
        0.7,
        {
            "fedavg-damped": ("fedavg", {"server_optimizer": "damped-momentum"}),
            "cadis-newest": ("cadis", {"averaging": 1.0}),
            **{
                f"sampler {name}": ("cadis", {"sampler": name})
                for name in ("coverage", "clusters", "hics", "uniform")
            },
        },
        first_seed=TEST_SEED,
    ),
    "shifted": Plan(
        "Digits in three clusters with other inputs and the same labels, 60 rounds",
        {"clients": 20, "per_round": 10, "rounds": 60},
        {
            name: {"dataset": f"experiments/shifted_digits.py:{name}"}
            for name in ("rotated", "inverted", "noisy")
        },
        ("fedavg", "fedavgm", "cadis", "cadis-clusters", "ifca", "cfl"),
        3,
        0.85,
        first_seed=TEST_SEED,
    ),
    "mnist": Plan(
        "MNIST, MLP, 100 clients, 10 a round, 60 rounds",
        {**_MNIST, "rounds": 60},
        {"mc": _PARTITIONS["mc"]},
        (*_MAIN, "cadis-oracle"),
        5,
        0.85,
    ),
    "mnist-partitions": Plan(
        "MNIST, MLP, 100 clients, 10 a round, 40 rounds",
        {**_MNIST, "rounds": 40},
        {name: options for name, options in _PARTITIONS.items() if name != "mc"},
        _MAIN,
        2,
        {
            "bc": 0.75,
            "uc": 0.75,
            "pa": 0.9,
            "iid": 0.9,
            "dirichlet 0.1": 0.85,
            "dirichlet 0.5": 0.9,
        },
    ),
    "fashion": Plan(
        "Fashion-MNIST, MLP, 100 clients, 10 a round, 40 rounds",
        {**_FASHION, "rounds": 40},
        {name: _PARTITIONS[name] for name in (*_CLUSTERED, "iid")},
        _MAIN,
        2,
        {"mc": 0.7, "bc": 0.65, "uc": 0.65, "iid": 0.8},
    ),
    "parts": Plan(
        "What each part is worth: digits, 100 clients, 10 a round, 120 rounds",
        _DIGITS,
        {name: _PARTITIONS[name] for name in ("mc", "bc")},
        (
            "fedavg",
            "fedavgm",
            "cadis",
            "cadis-plain-weights",
            "cadis-uniform",
            "cadis-absent",
            "cadis-no-momentum",
            "cadis-no-distillation",
            "cadis-no-clustering",
        ),
        5,
        _HARD,
        {
            "momentum 0.3": ("cadis", {"server_momentum": 0.3}),
            "momentum 0.7": ("cadis", {"server_momentum": 0.7}),
            "momentum 0.9": ("cadis", {"server_momentum": 0.9}),
            "distillation 1": ("cadis", {"distillation": 1.0}),
            "not-true distillation 0.3": ("cadis", {"distil": "not-true", "distillation": 0.3}),
            "newcomers: all seats": ("cadis", {"newcomers": 1.0}),
        },
    ),
    "distillation": Plan(
        "Strength of distillation: MLP, 100 clients, 10 a round, 40 rounds",
        {**_HUNDRED, "model": "mlp", "rounds": 40},
        {
            "MNIST, mc": {**_PARTITIONS["mc"], "dataset": "mnist"},
            "Fashion-MNIST, mc": {**_PARTITIONS["mc"], "dataset": "fashion-mnist"},
        },
        ("cadis", "cadis-no-distillation"),
        2,
        0.7,
        {
            "distillation 1": ("cadis", {"distillation": 1.0}),
            "not-true distillation 0.3": ("cadis", {"distil": "not-true", "distillation": 0.3}),
        },
    ),
    "recovery": Plan(
        "Clusters recovered without tuning, at two learning rates",
        {**_DIGITS, "rounds": 60},
        _with_rates((*_CLUSTERED, "iid"), (0.1, 0.03)),
        ("cadis-paper", "cadis"),
        5,
        0.85,
    ),
    "recovery-mnist": Plan(
        "The same on MNIST, 30 rounds",
        {**_MNIST, "rounds": 30},
        _with_rates((*_CLUSTERED, "iid"), (0.1, 0.03)),
        ("cadis",),
        2,
        0.85,
    ),
    "recovery-fashion": Plan(
        "The same on Fashion-MNIST, 30 rounds",
        {**_FASHION, "rounds": 30},
        _with_rates((*_CLUSTERED, "iid"), (0.1, 0.03)),
        ("cadis",),
        2,
        0.7,
    ),
    "table1": Plan(
        "Table I of the paper: MNIST, the CNN, k = 10, lr 0.001, 500 rounds",
        {**_TABLE_1, "per_round": 10},
        {"mc": _PARTITIONS["mc"]},
        _PAPER_METHODS,
        1,
        0.85,
        _paper_variants(passes=50, threshold=0.975),
        minutes=80,
    ),
    "table1-50": Plan(
        "Table I of the paper: MNIST, the CNN, k = 50, lr 0.001, 500 rounds",
        {**_TABLE_1, "per_round": 50},
        {"mc": _PARTITIONS["mc"]},
        _PAPER_METHODS,
        1,
        0.85,
        {"cadis-paper": ("cadis-paper", {"threshold": 0.975})},
        minutes=400,
    ),
    "table3": Plan(
        "Table III of the paper: MNIST, the CNN, k = 10, lr 0.001, 500 rounds",
        {**_TABLE_1, "per_round": 10},
        {name: _PARTITIONS[name] for name in ("pa", "bc", "uc")},
        _PAPER_METHODS,
        1,
        0.85,
        _paper_variants(passes=50, threshold=0.975),
        minutes=80,
    ),
    "cnn": Plan(
        "MNIST and Fashion-MNIST, the CNN, lr 0.01, 100 rounds",
        {**_HUNDRED, "model": "cnn", "lr": 0.01, "rounds": 100},
        {
            f"{label}, {name}": {**_PARTITIONS[name], "dataset": dataset}
            for label, dataset in (("MNIST", "mnist"), ("Fashion-MNIST", "fashion-mnist"))
            for name in ("mc", "bc", "uc", "pa")
        },
        (*_PAPER_METHODS, "fedavgm", "fedadam"),
        3,
        0.8,
        _paper_variants(passes=10, threshold=0.7),
        minutes=16,
    ),
    "cifar10-small": Plan(
        "CIFAR-10, the CNN of two convolutions, lr 0.01, 200 rounds",
        {**_HUNDRED, "dataset": "cifar10", "model": "cnn", "lr": 0.01, "rounds": 200},
        {name: _PARTITIONS[name] for name in ("mc", "dirichlet 0.1")},
        (
            *_PAPER_METHODS,
            "scaffold",
            "fedntd",
            "moon",
            "fedavgm",
            "fedadam",
            "cadis-paper",
        ),
        3,
        0.5,
        minutes=40,
    ),
    "cifar10": Plan(
        "CIFAR-10, ResNet-9, bf16, lr 0.01, 100 rounds (the paper: 500 rounds, lr 0.001)",
        {
            **_HUNDRED,
            "dataset": "cifar10",
            "model": "resnet9",
            "precision": "bf16",
            "lr": 0.01,
            "rounds": 100,
        },
        {"mc": _PARTITIONS["mc"]},
        ("fedavg", "fedprox", "fedfa"),
        1,
        0.3,
        {"cadis-paper": ("cadis-paper", {"threshold": 0.95})},
        minutes=240,
    ),
    "threshold": Plan(
        "Sensitivity to the threshold: digits, 100 clients, 10 a round, 120 rounds",
        _DIGITS,
        {"mc": _PARTITIONS["mc"]},
        ("fedavg",),
        3,
        0.85,
        {
            **{
                f"paper, threshold {epsilon}": ("cadis-paper", {"threshold": epsilon})
                for epsilon in (0.5, 0.7, 0.9, 0.975)
            },
            "paper, threshold auto": ("cadis-paper", {"threshold": "auto"}),
            **{
                f"now, threshold {epsilon}": ("cadis", {"threshold": epsilon})
                for epsilon in (0.5, 0.7, 0.9, 0.975)
            },
            "now": ("cadis", {}),
        },
    ),
}
"""By the word that is typed."""

QUEUE = ("table1", "table1-50", "table3", "cnn", "cifar10-small", "cifar10")
"""Plans that take hours, in the order in which the queue works through them."""
