"""CADIS with its default parameters: class profiles and no threshold."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cadis.algorithm import Algorithm, ServerRound, ServerState, Step
from cadis.algorithm.methods import CADIS, FedAvg
from cadis.algorithm.methods.cadis import not_true_loss
from cadis.algorithm.methods.cadis.stable_clusters import compute_required_confidence
from cadis.algorithm.samplers import Clusters
from cadis.algorithm.server_optimizers import Momentum
from cadis.engine import Engine
from cadis.errors import CadisError
from cadis.experiment import make_experiment, resolve
from cadis.store import adjusted_rand_index
from cadis.types import ClientUpdate
from method_support import make_server_round as support_round
from support import flat_model, is_identical, make_model_outputs, make_server_state, make_update

CLASSES, FEATURES = 4, 2
HEAD = (slice(1, 9), slice(9, 13))
"""Four rows of two features, and the bias; parameter 0 is not in the head."""


def make_server_round(number: int = 1, **known: object) -> ServerRound:
    return support_round(number, HEAD, num_outputs=CLASSES, **known)


def make_state(first: float = 101.0) -> ServerState:
    return make_server_state(flat_model(first, *[0.0] * 12))


def make_client_update(
    client: int | str, classes: list[int], first: float = 101.0, samples: int = 10
) -> ClientUpdate:
    """Return the update of a client with these classes: their rows grow, all others shrink."""
    rows = [1.0 if row in classes else -1.0 for row in range(CLASSES)]
    weight = [row for row in rows for _ in range(FEATURES)]
    return make_update(client, samples, flat_model(first, *weight, *rows))


SEVEN_AND_THREE = [
    *(make_client_update(n, [0, 1], first=102.0) for n in range(7)),
    *(make_client_update(n, [2, 3], first=105.0) for n in range(7, 10)),
]


def test_round_by_hand() -> None:
    """Clusters of seven and three clients have a weight of one half each.

    Profiles of different clusters have the cosine -1, so soft weights are those of the clusters.
    """
    result = CADIS().aggregate(make_server_round(), SEVEN_AND_THREE, make_state())
    assert result.report["clusters"].tolist() == [0] * 7 + [1] * 3
    assert result.weights.tolist() == pytest.approx([1 / 14] * 7 + [1 / 6] * 3)
    assert result.models["model"].parameters[0] == pytest.approx((102.0 + 105.0) / 2)
    required = compute_required_confidence(torch.ones(10), CLASSES)
    assert required < result.report["confidence"] < 1  # 1 minus the score of shuffled profiles
    assert result.report["profile"].shape == (10, CLASSES)


def test_clients_of_different_rounds_are_compared() -> None:
    method, state = CADIS(), make_state()
    for number, updates in enumerate([SEVEN_AND_THREE[:5], *[SEVEN_AND_THREE[4:]] * 5], 1):
        result = method.aggregate(make_server_round(number), updates, state)
        state = replace(state, tensors=result.tensors)
    clusters = method.cluster_labels(make_server_round(7), state, [*range(10), "stranger"])
    assert clusters.tolist() == [0] * 7 + [1] * 3 + [-1]


def test_clusters_are_unknown_before_the_first_round() -> None:
    assert CADIS().cluster_labels(make_server_round(), make_state(), [1, 2]).tolist() == [-1, -1]
    assert CADIS().finds_clusters


def test_many_clients_are_assigned_by_the_clusters_of_a_subset() -> None:
    """More clients than are clustered: each is assigned to the nearest centre."""
    kinds = [[0, 1], [2, 3]]
    updates = [make_client_update(n, kinds[n % 10 > 6]) for n in range(600)]
    result = CADIS().aggregate(make_server_round(), updates, make_state())
    truth = [int(n % 10 > 6) for n in range(600)]
    assert adjusted_rand_index(truth, result.report["clusters"].tolist()) == 1
    assert len(result.tensors["centres"]) == 2


def test_weights_by_samples_equal_those_of_fedavg() -> None:
    result = CADIS(weights="samples").aggregate(make_server_round(), SEVEN_AND_THREE, make_state())
    plain = FedAvg().aggregate(make_server_round(), SEVEN_AND_THREE, make_state())
    assert is_identical(result.weights, plain.weights)
    assert result.report["clusters"].tolist() == [0] * 7 + [1] * 3


def test_ablations_with_true_clusters_and_without_clusters() -> None:
    truth = dict(enumerate([0, 1] * 5))
    known = make_server_round(true_clusters=truth)
    oracle = CADIS(clusters="true")
    result = oracle.aggregate(known, SEVEN_AND_THREE, make_state())
    assert result.report["clusters"].tolist() == [0, 1] * 5
    assert oracle.cluster_labels(known, make_state(), [3, 4]).tolist() == [1, 0]
    single = CADIS(clusters="none")
    result = single.aggregate(make_server_round(), SEVEN_AND_THREE, make_state())
    assert result.weights.tolist() == pytest.approx([0.1] * 10)
    after = replace(make_state(), tensors=result.tensors)
    assert single.cluster_labels(make_server_round(2), after, [0, 9, 99]).tolist() == [0, 0, -1]


def test_a_head_with_one_output_has_profiles_of_two_classes() -> None:
    head = (slice(0, 2), slice(2, 3))
    known = support_round(1, head, num_outputs=1)
    sent = make_server_state(flat_model(0.0, 0.0, 0.0))
    updates = [make_update(n, 5, flat_model(*[(-1.0) ** n] * 3)) for n in range(4)]
    result = CADIS().aggregate(known, updates, sent)
    assert result.report["profile"].sign().tolist() == [[-1, 1], [1, -1]] * 2
    assert (
        result.report["clusters"].tolist() == [0] * 4
    )  # profiles of few classes must repeat first
    for number in range(2, 6):
        state = replace(sent, tensors=result.tensors)
        result = CADIS().aggregate(replace(known, number=number), updates, state)
    assert result.report["clusters"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("signature", ["profile", "head"])
@pytest.mark.parametrize("threshold", ["auto", 0.7])
def test_all_signatures_work_with_all_thresholds(signature: str, threshold: str | float) -> None:
    method = CADIS(signature=signature, threshold=threshold)  # type: ignore[arg-type]
    result = method.aggregate(make_server_round(), SEVEN_AND_THREE, make_state())
    assert result.report["clusters"].tolist() == [0] * 7 + [1] * 3
    assert ("cut" in result.report) is (threshold == "auto")
    assert ("profile" in result.report) is (signature == "profile")


def test_scope_federation_provides_clusters_for_samplers() -> None:
    method = CADIS(signature="head", scope="federation", threshold=0.7)
    assert method.finds_clusters
    assert method.cluster_labels(make_server_round(), make_state(), [0]).tolist() == [-1]
    result = method.aggregate(make_server_round(), SEVEN_AND_THREE, make_state())
    known = replace(make_state(), tensors=result.tensors)
    assert method.cluster_labels(make_server_round(2), known, [9, 0, 1, 77]).tolist() == [
        1,
        0,
        0,
        -1,
    ]


def test_absent_clusters_by_hand() -> None:
    """Two rounds with both clusters, then one without the second."""
    method, state = CADIS(absent=0.5), make_state(first=101.0)
    result = method.aggregate(make_server_round(1), SEVEN_AND_THREE, state)
    assert result.models["model"].parameters[0] == pytest.approx(
        103.5
    )  # (102 + 105) / 2, as with absent=0
    state = replace(make_state(first=103.0), tensors=result.tensors)
    present = [make_client_update(n, [0, 1], first=104.0) for n in range(7)]
    result = method.aggregate(make_server_round(2), present, state)
    # weight 1 for the update 104 - 103, weight 0.5 for the last update of the absent, 105 - 101
    assert result.models["model"].parameters[0] == pytest.approx(103 + (1 * 1 + 0.5 * 4) / 1.5)
    state = replace(make_state(first=103.0), tensors=result.tensors)
    result = method.aggregate(make_server_round(3), present, state)
    assert result.models["model"].parameters[0] == pytest.approx(103 + (1 * 1 + 0.25 * 4) / 1.25)
    assert result.tensors["absent.ages"].tolist() == [0, 2]
    for number in range(4, 12):
        result = method.aggregate(
            make_server_round(number), present, replace(state, tensors=result.tensors)
        )
    assert result.tensors["absent.ages"].tolist() == [0]  # a weight below 0.01 is dropped


def test_absent_clusters_need_profiles() -> None:
    for parameters in ({"signature": "head", "threshold": 0.7}, {"clusters": "none"}):
        with pytest.raises(CadisError, match="The parameter absent needs class profiles"):
            CADIS(absent=0.5, **parameters)


def test_not_true_distillation_is_added_to_the_loss() -> None:
    labels, logits = torch.tensor([0, 1]), torch.tensor([[1.0, 2.0, 0.5], [0.3, 0.1, 0.9]])
    teacher = torch.tensor([[0.4, 0.2, 1.0], [2.0, 0.0, 0.0]])
    method = CADIS(distil="not-true", distillation=0.6)
    extras = method.prepare(make_model_outputs(teacher, torch.zeros(2, 1), labels))
    none = torch.zeros(0)
    step = Step(logits, torch.zeros(2, 1), labels, none, none, {}, extras.per_sample, {})
    expected = 0.6 / 2 * not_true_loss(logits, teacher, labels)
    assert method.penalty(step) == pytest.approx(float(expected))


def test_default_run_finds_its_clusters_and_learns_faster_than_fedavg(tmp_path: Path) -> None:
    def compute_accuracy(algorithm: Algorithm) -> float:
        experiment = make_experiment(resolve({}, {"rounds": 12, "test_clients": 0, "workers": 1}))
        settings = experiment.config.settings.to_engine_settings()
        engine = Engine(experiment.model, experiment.federation, algorithm, settings, tmp_path)
        truth = experiment.federation.true_clusters
        assert truth is not None
        accuracies = []
        for result in engine.rounds(engine.start):
            labels = result.record.report.get("clusters")
            if labels is not None and result.record.round > 3:
                expected = [int(truth[int(client)]) for client in result.record.participants]
                assert adjusted_rand_index(expected, labels) == 1  # type: ignore[arg-type]
            accuracies.append(result.record.accuracy or 0)
        return sum(accuracies[-3:]) / 3

    default = Algorithm(CADIS(), sampler=Clusters(), server_optimizer=Momentum())
    assert compute_accuracy(default) > compute_accuracy(Algorithm(FedAvg())) + 0.1
