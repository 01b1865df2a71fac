from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from cadis.algorithm import Algorithm, ServerRound, Step
from cadis.algorithm.methods import CADISPaper
from cadis.algorithm.methods.cadis import (
    SimilarityMatrix,
    cluster_by_threshold,
    compute_q_matrix,
    instance_similarity,
)
from cadis.algorithm.methods.cadis.cluster_participants import compute_signatures
from cadis.algorithm.methods.cadis.distillation import distillation_loss
from cadis.engine import Engine
from cadis.errors import CadisError
from cadis.experiment import make_experiment, resolve
from cadis.models import FlatModel
from cadis.rng import derive_generator
from cadis.training import LocalSettings
from cadis.types import ClientUpdate, TensorState
from method_support import compute_penalty
from method_support import make_server_round as support_round
from support import (
    blobs,
    compute_model_outputs,
    flat_model,
    make_model_outputs,
    make_server_state,
    make_update,
    run_rounds,
    small_model,
    train_locally,
)

SENT = make_server_state(flat_model(5.0, 1.0, 1.0))


def make_server_round(number: int = 1) -> ServerRound:
    return support_round(number, (slice(1, 3),))


def make_client_update(client: str, parameters: list[float], samples: int = 10) -> ClientUpdate:
    return make_update(client, samples, flat_model(*parameters))


TWO_AND_ONE = [
    make_client_update("a", [0.0, 2.0, 1.0], 10),
    make_client_update("b", [0.0, 3.0, 1.1], 30),
    make_client_update("c", [0.0, 1.0, 4.0], 20),
]


def test_signature_is_the_update_of_the_head() -> None:
    signatures = compute_signatures(
        make_server_round(), [make_client_update("a", [9.0, 3.0, 0.0])], SENT
    )
    assert signatures.tolist() == [[3.0 - 1.0, 0.0 - 1.0]]


def test_round_of_the_paper_by_hand() -> None:
    """A cluster of one client has the same weight as a cluster of two."""
    result = CADISPaper(threshold=0.7).aggregate(make_server_round(), TWO_AND_ONE, SENT)
    assert result.report["clusters"].tolist() == [0, 0, 1]
    alpha = [10 / 2, 30 / 2, 20 / 1]
    assert result.weights.tolist() == pytest.approx([a / sum(alpha) for a in alpha])
    expected = (5 * 2.0 + 15 * 3.0 + 20 * 1.0) / 40
    assert result.models["model"].parameters[1].item() == pytest.approx(expected)


def test_threshold_grows_every_round() -> None:
    method = CADISPaper(threshold=0.5, threshold_growth=0.1, threshold_max=0.6)
    results = [method.aggregate(make_server_round(n), TWO_AND_ONE, SENT) for n in (1, 2, 3)]
    thresholds = [result.report["threshold"].item() for result in results]
    assert thresholds == pytest.approx([0.5, 0.55, 0.6])


def test_scope_federation_counts_absent_clients() -> None:
    """'a' and 'b' are similar; without 'b', its cluster still has two members."""
    first = [make_client_update(name, [0.0, 2.0, 1.0 + n / 99]) for n, name in enumerate("ab")]
    first.append(make_client_update("c", [0.0, 1.0, 4.0]))
    second = [make_client_update("a", [0.0, 2.0, 1.0]), make_client_update("c", [0.0, 1.0, 4.0])]

    def compute_weights(method: CADISPaper) -> list[float]:
        tensors = method.aggregate(make_server_round(1), first, SENT).tensors
        again = method.aggregate(make_server_round(2), second, replace(SENT, tensors=tensors))
        return again.weights.tolist()

    assert compute_weights(CADISPaper(scope="federation")) == pytest.approx([1 / 3, 2 / 3])
    assert compute_weights(CADISPaper(scope="round")) == pytest.approx([1 / 2, 1 / 2])


def test_penalty_is_the_distillation_loss_per_sample() -> None:
    student, teacher = torch.rand(5, 3), torch.rand(5, 3)
    labels = torch.zeros(5).long()
    extras = CADISPaper().prepare(make_model_outputs(teacher, teacher, labels))
    unused = torch.zeros(1)
    step = Step(unused, student, labels, unused, unused, {}, extras.per_sample, {})
    penalty = compute_penalty(CADISPaper(distillation=0.3), step)
    assert penalty.item() == pytest.approx(0.3 * distillation_loss(student, teacher).item() / 5)


def test_distillation_preserves_the_geometry_of_the_received_model() -> None:
    samples = blobs(40, [0, 1], seed=3)
    model = FlatModel(small_model())
    received = model.copy_state()
    teacher = compute_model_outputs(model, samples).representation

    def compute_drift(method: CADISPaper) -> float:
        settings = LocalSettings(epochs=5, batch_size=8, lr=0.01)
        train_locally(model, method, samples, received, {}, settings, derive_generator(0))
        return float(
            distillation_loss(compute_model_outputs(model, samples).representation, teacher)
        )

    with_distillation = compute_drift(CADISPaper(distillation=1))
    assert with_distillation < 0.5 * compute_drift(CADISPaper(distillation=0))


def test_a_threshold_above_its_maximum_is_rejected() -> None:
    with pytest.raises(CadisError, match="threshold_max"):
        CADISPaper(threshold=0.99)


@pytest.mark.parametrize("seed", range(5))
def test_recovers_the_clusters_of_the_digits(seed: int, tmp_path: Path) -> None:
    """Multi-cluster digits at the default threshold: perfect from the first round on."""
    experiment = make_experiment(resolve({}, {"seed": seed, "rounds": 3}))
    settings = experiment.config.settings.to_engine_settings()
    engine = Engine(
        experiment.model, experiment.federation, Algorithm(CADISPaper()), settings, tmp_path
    )
    truth = experiment.federation.true_clusters
    assert truth is not None
    for result in engine.rounds(engine.start):
        present = [int(client) for client in result.record.participants]
        assert adjusted_rand_score(truth[present], result.record.report["clusters"]) == 1.0


def test_weights_without_clusters_equal_those_of_fedavg() -> None:
    updates = TWO_AND_ONE[:2]
    result = CADISPaper(threshold=0.7, clusters="none").aggregate(
        make_server_round(), updates, SENT
    )
    assert result.weights.tolist() == pytest.approx([0.25, 0.75])
    assert result.report["clusters"].tolist() == [0, 1]


def test_clusters_true_uses_the_true_clusters() -> None:
    updates = TWO_AND_ONE
    known = replace(make_server_round(), true_clusters={"a": 5, "b": 2, "c": 5, "absent": 2})
    result = CADISPaper(clusters="true").aggregate(known, updates, SENT)
    assert result.report["clusters"].tolist() == [1, 0, 1]
    alpha = [10 / 2, 30 / 1, 20 / 2]
    assert result.weights.tolist() == pytest.approx([a / sum(alpha) for a in alpha])
    with pytest.raises(CadisError, match="true clusters of this federation are not known"):
        CADISPaper(clusters="true").aggregate(make_server_round(), updates, SENT)


def test_clusters_true_in_the_engine(tmp_path: Path) -> None:
    for result in run_rounds(CADISPaper(clusters="true", threshold=0.1), tmp_path):
        truth = [(0, 0, 0, 1, 2)[int(client)] for client in result.record.participants]
        assert adjusted_rand_score(truth, result.record.report["clusters"]) == 1


def cluster_with_all_estimates(
    rounds: list[list[ClientUpdate]], method: CADISPaper
) -> list[list[int]]:
    """Return the clusters of each round from the matrix of all pairs with all estimates."""
    matrix, found = SimilarityMatrix(), []
    for number, updates in enumerate(rounds, start=1):
        ids = [make_client_update.client_id for make_client_update in updates]
        similarity = instance_similarity(
            compute_signatures(make_server_round(number), updates, SENT)
        )
        matrix = matrix.observe(ids, similarity).estimate_missing(method.gamma, "mean")
        assert matrix.mean.min() <= 0  # then estimates do not change the minimum
        rows = matrix.find_rows(ids)
        q = compute_q_matrix(matrix.mean, matrix.known)[rows[:, None], rows]
        found.append(cluster_by_threshold(q, float(method.threshold)).tolist())
    return found


def make_rounds(seed: int) -> list[list[ClientUpdate]]:
    """Return seven rounds with six of twelve clients, which form two clusters with noise."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.tensor([[1.0, 0.2], [-0.4, 1.0]])
    rounds = []
    for _ in range(7):
        present = torch.randperm(12, generator=generator)[:6].tolist()
        noise = 0.5 * torch.randn(12, 2, generator=generator)
        heads = {c: (1 + centres[c % 2] + noise[c]).tolist() for c in present}
        rounds.append([make_client_update(f"client {c}", [0.0, *heads[c]]) for c in present])
    return rounds


@pytest.mark.parametrize("seed", range(12))
def test_clusters_of_a_round_equal_those_of_the_full_matrix(seed: int) -> None:
    method, rounds, found = CADISPaper(threshold=0.9), make_rounds(seed), []
    tensors: TensorState = {}
    for number, updates in enumerate(rounds, start=1):
        state = replace(SENT, tensors=tensors)
        result = method.aggregate(make_server_round(number), updates, state)
        found.append(result.report["clusters"].tolist())
        tensors = result.tensors
    assert found == cluster_with_all_estimates(rounds, method)
    assert len({len(set(clusters)) for clusters in found}) > 1


def test_state_contains_only_observed_pairs() -> None:
    tensors = CADISPaper().aggregate(make_server_round(1), make_rounds(seed=1)[0], SENT).tensors
    assert {name: tensor.dim() for name, tensor in tensors.items()} == {
        "client_ids": 1, "pair": 1, "mean": 1, "count": 1,
    }  # fmt: skip
    assert len(tensors["pair"]) == 6 * 5 / 2


def test_random_estimates_do_not_change_the_weights_of_a_round() -> None:
    first, second, *_ = make_rounds(seed=2)
    found = []
    for seed in (1, 2):
        method, state = CADISPaper(transitive="sample"), SENT
        for number, updates in enumerate((first, second), start=1):
            server_round = replace(make_server_round(number), generator=derive_generator(seed))
            result = method.aggregate(server_round, updates, state)
            state = replace(SENT, tensors=result.tensors)
        found.append(result.weights.tolist())
    assert found[0] == found[1]
