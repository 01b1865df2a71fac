"""CADIS as it is by default: class profiles, no threshold."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, ServerRound, ServerState, Step
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.algorithm.methods.cadis import not_true_loss
from cadis.algorithm.samplers import Clusters
from cadis.algorithm.server_optimizers import Momentum
from cadis.engine import Engine
from cadis.errors import CadisError
from cadis.experiment import build_experiment, resolve
from cadis.store import agreement
from cadis.types import ClientUpdate
from method_support import server_round as support_round
from support import flat_model, same, state_of, update_of, view

CLASSES, FEATURES = 4, 2
HEAD = (slice(1, 9), slice(9, 13))
"""After one further parameter: four rows of two features, and the bias."""


def server_round(number: int = 1, **known: object) -> ServerRound:
    return support_round(number, HEAD, num_outputs=CLASSES, **known)


def start(first: float = 1.0) -> ServerState:
    return state_of(flat_model(first, *[0.0] * 12))


def update(
    client: int | str, classes: list[int], first: float = 1.0, examples: int = 10
) -> ClientUpdate:
    """A client that has these classes: their rows grow, all others shrink."""
    rows = [1.0 if row in classes else -1.0 for row in range(CLASSES)]
    weight = [row for row in rows for _ in range(FEATURES)]
    return update_of(client, examples, flat_model(first, *weight, *rows))


SEVEN_AND_THREE = [
    *(update(n, [0, 1], first=2.0) for n in range(7)),
    *(update(n, [2, 3], first=5.0) for n in range(7, 10)),
]


def test_a_round_by_hand() -> None:
    """Seven alike and three: either cluster has a half."""
    made = CADIS().aggregate(server_round(), SEVEN_AND_THREE, start())
    assert made.report["clusters"].tolist() == [0] * 7 + [1] * 3
    assert made.weights.tolist() == pytest.approx([1 / 14] * 7 + [1 / 6] * 3)
    assert made.models["model"].parameters[0] == pytest.approx((2.0 + 5.0) / 2)
    assert made.report["confidence"] == pytest.approx((21 + 3) / (21 + 3 + 10 / 2))
    assert made.report["profile"].shape == (10, CLASSES)


def test_those_who_never_met_are_compared() -> None:
    """Who took part at different times is in one cluster all the same."""
    method, state = CADIS(), start()
    for number, some in enumerate((SEVEN_AND_THREE[:5], SEVEN_AND_THREE[4:]), 1):
        made = method.aggregate(server_round(number), some, state)
        state = replace(state, memory=made.memory)
    clusters = method.cluster_labels(server_round(3), state, [*range(10), "stranger"])
    assert clusters.tolist() == [0] * 7 + [1] * 3 + [-1]


def test_where_nobody_was_seen_nobody_is_known() -> None:
    assert CADIS().cluster_labels(server_round(), start(), [1, 2]).tolist() == [-1, -1]
    assert CADIS().finds_clusters


def test_a_few_of_many_clients_tell_the_clusters() -> None:
    """Of more clients than are looked at, each is placed by the nearest centre."""
    kinds = [[0, 1], [2, 3]]
    everybody = [update(n, kinds[n % 10 > 6]) for n in range(600)]
    made = CADIS().aggregate(server_round(), everybody, start())
    truth = [int(n % 10 > 6) for n in range(600)]
    assert agreement(truth, made.report["clusters"].tolist()) == 1
    assert len(made.memory["centres"]) == 2


def test_the_weights_of_fedavg_on_request() -> None:
    made = CADIS(weights="samples").aggregate(server_round(), SEVEN_AND_THREE, start())
    plain = FedAvg().aggregate(server_round(), SEVEN_AND_THREE, start())
    assert same(made.weights, plain.weights)
    assert made.report["clusters"].tolist() == [0] * 7 + [1] * 3


def test_true_clusters_and_none() -> None:
    truth = dict(enumerate([0, 1] * 5))
    told = server_round(true_clusters=truth)
    oracle = CADIS(clusters="true")
    made = oracle.aggregate(told, SEVEN_AND_THREE, start())
    assert made.report["clusters"].tolist() == [0, 1] * 5
    assert oracle.cluster_labels(told, start(), [3, 4]).tolist() == [1, 0]
    alone = CADIS(clusters="none")
    made = alone.aggregate(server_round(), SEVEN_AND_THREE, start())
    assert made.weights.tolist() == pytest.approx([0.1] * 10)
    after = replace(start(), memory=made.memory)
    assert alone.cluster_labels(server_round(2), after, [0, 9, 99]).tolist() == [0, 0, -1]


def test_a_head_of_one_output_tells_two_classes() -> None:
    head = (slice(0, 2), slice(2, 3))
    told = support_round(1, head, num_outputs=1)
    sent = state_of(flat_model(0.0, 0.0, 0.0))
    some = [update_of(n, 5, flat_model(*[(-1.0) ** n] * 3)) for n in range(4)]
    made = CADIS().aggregate(told, some, sent)
    assert made.report["profile"].sign().tolist() == [[-1, 1], [1, -1]] * 2
    assert made.report["clusters"].tolist() == [0] * 4  # so few directions must prove to repeat
    for number in range(2, 6):
        state = replace(sent, memory=made.memory)
        made = CADIS().aggregate(replace(told, number=number), some, state)
    assert made.report["clusters"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("signature", ["profile", "head"])
@pytest.mark.parametrize("threshold", ["auto", 0.7])
def test_signatures_and_cuts_go_together(signature: str, threshold: str | float) -> None:
    method = CADIS(signature=signature, threshold=threshold)  # type: ignore[arg-type]
    made = method.aggregate(server_round(), SEVEN_AND_THREE, start())
    assert made.report["clusters"].tolist() == [0] * 7 + [1] * 3
    assert ("cut" in made.report) is (threshold == "auto")
    assert ("profile" in made.report) is (signature == "profile")


def test_a_scope_of_the_whole_federation_tells_its_clusters_to_samplers() -> None:
    method = CADIS(signature="head", scope="federation", threshold=0.7)
    assert method.finds_clusters
    assert method.cluster_labels(server_round(), start(), [0]).tolist() == [-1]
    made = method.aggregate(server_round(), SEVEN_AND_THREE, start())
    known = replace(start(), memory=made.memory)
    assert method.cluster_labels(server_round(2), known, [9, 0, 1, 77]).tolist() == [1, 0, 0, -1]


def test_absent_clusters_by_hand() -> None:
    """Two rounds with both clusters, then one without the second."""
    method, state = CADIS(absent=0.5), start(first=1.0)
    made = method.aggregate(server_round(1), SEVEN_AND_THREE, state)
    assert made.models["model"].parameters[0] == pytest.approx(3.5)  # (2 + 5) / 2, as without
    state = replace(start(first=3.0), memory=made.memory)
    present = [update(n, [0, 1], first=4.0) for n in range(7)]
    made = method.aggregate(server_round(2), present, state)
    # one voice for a step of 4 - 3 = 1, half a voice for the last step of the others, 5 - 1 = 4
    assert made.models["model"].parameters[0] == pytest.approx(3 + (1 * 1 + 0.5 * 4) / 1.5)
    state = replace(start(first=3.0), memory=made.memory)
    made = method.aggregate(server_round(3), present, state)
    assert made.models["model"].parameters[0] == pytest.approx(3 + (1 * 1 + 0.25 * 4) / 1.25)
    assert made.memory["absent.ages"].tolist() == [0, 2]
    for number in range(4, 12):
        made = method.aggregate(server_round(number), present, replace(state, memory=made.memory))
    assert made.memory["absent.ages"].tolist() == [0]  # a voice below a hundredth is not kept


def test_absent_clusters_need_profiles() -> None:
    for parameters in ({"signature": "head", "threshold": 0.7}, {"clusters": "none"}):
        with pytest.raises(CadisError, match="Absent clusters are known again by the profiles"):
            CADIS(absent=0.5, **parameters)


def test_not_true_distillation_is_added_to_the_loss() -> None:
    labels, logits = torch.tensor([0, 1]), torch.tensor([[1.0, 2.0, 0.5], [0.3, 0.1, 0.9]])
    teacher = torch.tensor([[0.4, 0.2, 1.0], [2.0, 0.0, 0.0]])
    method = CADIS(distil="not-true", distillation=0.6)
    prepared = method.prepare(view(teacher, torch.zeros(2, 1), labels))
    none = torch.zeros(0)
    step = Step(logits, torch.zeros(2, 1), labels, none, none, {}, prepared.per_example, {})
    expected = 0.6 / 2 * not_true_loss(logits, teacher, labels)
    assert method.penalty(step) == pytest.approx(float(expected))


def test_the_demo_finds_its_clusters_and_learns_faster_than_the_paper(tmp_path: Path) -> None:
    def accuracy(algorithm: Algorithm) -> float:
        built = build_experiment(resolve({}, {"rounds": 12, "test_clients": 0, "workers": 1}))
        settings = built.config.settings.for_engine()
        engine = Engine(built.model, built.federation, algorithm, settings, tmp_path)
        truth = built.federation.true_clusters
        assert truth is not None
        accuracies = []
        for result in engine.rounds(engine.start):
            found = result.record.report.get("clusters")
            if found is not None and result.record.round > 3:
                expected = [int(truth[int(client)]) for client in result.record.participants]
                assert agreement(expected, found) == 1  # type: ignore[arg-type]
            accuracies.append(result.record.accuracy or 0)
        return sum(accuracies[-3:]) / 3

    now = Algorithm(CADIS(), sampler=Clusters(), server_optimizer=Momentum())
    assert accuracy(now) > accuracy(Algorithm(FedAvg())) + 0.1
