"""What is run: each plan is a table of docs/results.md, or some columns of it."""

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
        title: what it is, for people.
        common: options of all runs.
        federations: further options, by the federation's name.
        methods: names as ``cadis compare`` knows them.
        seeds: how many runs of each.
        target: the accuracy whose first round is told, by federation or for all.
        variants: a method with options of its own, by name.
        tuned: whether a method has all federations with the first seed only, and further seeds
            with the one that it did best in: federations are then learning rates.
    """

    title: str
    common: Mapping[str, Any]
    federations: Mapping[str, Mapping[str, Any]]
    methods: tuple[str, ...]
    seeds: int
    target: Mapping[str, float] | float
    variants: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    tuned: bool = False

    def target_of(self, federation: str) -> float:
        """The accuracy to be reached."""
        return self.target if isinstance(self.target, float) else self.target[federation]


def _with_rates(partitions: tuple[str, ...], rates: tuple[float, ...]) -> dict[str, dict[str, Any]]:
    return {
        f"{name}, lr {rate}": {**_PARTITIONS[name], "lr": rate}
        for name in partitions
        for rate in rates
    }


_RATES = (0.03, 0.1, 0.3)
"""Learning rates of which each method has its best."""

_HUNDRED = {"clients": 100, "per_round": 10, "test_clients": 0}
_DIGITS = {**_HUNDRED, "dataset": "digits", "rounds": 120}
_MNIST = {**_HUNDRED, "dataset": "mnist", "model": "mlp"}
_FASHION = {**_HUNDRED, "dataset": "fashion-mnist", "model": "mlp"}
_HARD = {"mc": 0.85, "bc": 0.8, "uc": 0.8}
_EASY = {"pa": 0.9, "iid": 0.9, "dirichlet 0.1": 0.9, "dirichlet 0.5": 0.9}

PLANS: dict[str, Plan] = {
    "methods": Plan(
        "All methods on the default digits, a fifth of everybody's data held out, 80 rounds",
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
        "Digits, everybody's data in one place, 20 passes of five epochs",
        {**_DIGITS, "rounds": 20},
        {"mc": _PARTITIONS["mc"]},
        ("singleset",),
        3,
        0.85,
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
    "cnn": Plan(
        "MNIST, the CNN of the paper at lr 0.01, 10 rounds",
        {**_HUNDRED, "dataset": "mnist", "model": "cnn", "lr": 0.01, "rounds": 10},
        {"mc": _PARTITIONS["mc"]},
        ("fedavg", "cadis-paper", "cadis"),
        1,
        0.85,
    ),
    "table1": Plan(
        "The paper's row MNIST, k = 10, at its own lr 0.001: the first 8 of 500 rounds",
        {**_HUNDRED, "dataset": "mnist", "model": "cnn", "lr": 0.001, "rounds": 8},
        {"mc": _PARTITIONS["mc"]},
        ("fedavg", "cadis"),
        1,
        0.5,
        {"CADIS (paper), threshold 0.975": ("cadis-paper", {"threshold": 0.975})},
    ),
    "cifar10": Plan(
        "CIFAR-10, ResNet-9 at lr 0.01, one local epoch, 10 rounds: a short run",
        {
            **_HUNDRED,
            "dataset": "cifar10",
            "model": "resnet9",
            "lr": 0.01,
            "epochs": 1,
            "rounds": 10,
        },
        {"mc": _PARTITIONS["mc"]},
        _MAIN,
        1,
        0.3,
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
