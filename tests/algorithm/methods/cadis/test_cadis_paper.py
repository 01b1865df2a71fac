from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from cadis.algorithm import Algorithm, ServerRound, Step
from cadis.algorithm.methods import CADISPaper
from cadis.algorithm.methods.cadis import SimilarityMatrix, cluster, instance_similarity, rescale
from cadis.algorithm.methods.cadis.cluster_participants import signatures
from cadis.algorithm.methods.cadis.distillation import distillation_loss
from cadis.engine import Engine
from cadis.errors import CadisError
from cadis.experiment import build_experiment, resolve
from cadis.models import FlatModel
from cadis.rng import generator_for
from cadis.training import LocalSettings
from cadis.types import ClientUpdate, TensorState
from method_support import penalty_of
from method_support import server_round as support_round
from support import (
    blobs,
    flat_model,
    run_rounds,
    small_model,
    state_of,
    train_locally,
    update_of,
    view,
    view_of,
)

SENT = state_of(flat_model(5.0, 1.0, 1.0))


def server_round(number: int = 1) -> ServerRound:
    return support_round(number, (slice(1, 3),))


def update(client: str, parameters: list[float], examples: int = 10) -> ClientUpdate:
    return update_of(client, examples, flat_model(*parameters))


TWO_AND_A_STRANGER = [
    update("a", [0.0, 2.0, 1.0], 10),
    update("b", [0.0, 3.0, 1.1], 30),
    update("c", [0.0, 1.0, 4.0], 20),
]


def test_signature_is_the_update_of_the_head() -> None:
    taken = signatures(server_round(), [update("a", [9.0, 3.0, 0.0])], SENT)
    assert taken.tolist() == [[3.0 - 1.0, 0.0 - 1.0]]


def test_round_by_hand() -> None:
    """Two alike and one stranger: the stranger gets as much say as the two together."""
    result = CADISPaper(threshold=0.7).aggregate(server_round(), TWO_AND_A_STRANGER, SENT)
    assert result.report["clusters"].tolist() == [0, 0, 1]
    alpha = [10 / 2, 30 / 2, 20 / 1]
    assert result.weights.tolist() == pytest.approx([a / sum(alpha) for a in alpha])
    expected = (5 * 2.0 + 15 * 3.0 + 20 * 1.0) / 40
    assert result.models["model"].parameters[1].item() == pytest.approx(expected)


def test_threshold_rises_round_by_round() -> None:
    method = CADISPaper(threshold=0.5, threshold_growth=0.1, threshold_max=0.6)
    made = [method.aggregate(server_round(n), TWO_AND_A_STRANGER, SENT) for n in (1, 2, 3)]
    thresholds = [each.report["threshold"].item() for each in made]
    assert thresholds == pytest.approx([0.5, 0.55, 0.6])


def test_scope_of_the_federation_counts_the_absent() -> None:
    """'a' and 'b' are alike; when 'b' is away, its cluster still has two members."""
    first = [update(name, [0.0, 2.0, 1.0 + n / 99]) for n, name in enumerate("ab")]
    first.append(update("c", [0.0, 1.0, 4.0]))
    second = [update("a", [0.0, 2.0, 1.0]), update("c", [0.0, 1.0, 4.0])]

    def weights(method: CADISPaper) -> list[float]:
        memory = method.aggregate(server_round(1), first, SENT).memory
        again = method.aggregate(server_round(2), second, replace(SENT, memory=memory))
        return again.weights.tolist()

    assert weights(CADISPaper(scope="federation")) == pytest.approx([1 / 3, 2 / 3])
    assert weights(CADISPaper(scope="round")) == pytest.approx([1 / 2, 1 / 2])


def test_penalty_is_the_distillation_loss_per_sample() -> None:
    student, teacher = torch.rand(5, 3), torch.rand(5, 3)
    labels = torch.zeros(5).long()
    prepared = CADISPaper().prepare(view(teacher, teacher, labels))
    unused = torch.zeros(1)
    step = Step(unused, student, labels, unused, unused, {}, prepared.per_example, {})
    penalty = penalty_of(CADISPaper(distillation=0.3), step)
    assert penalty.item() == pytest.approx(0.3 * distillation_loss(student, teacher).item() / 5)


def test_distillation_keeps_the_received_geometry() -> None:
    examples = blobs(40, [0, 1], seed=3)
    model = FlatModel(small_model())
    received = model.state()
    teacher = view_of(model, examples).representation

    def drift(method: CADISPaper) -> float:
        settings = LocalSettings(epochs=5, batch_size=8, lr=0.01)
        train_locally(model, method, examples, received, {}, settings, generator_for(0))
        return float(distillation_loss(view_of(model, examples).representation, teacher))

    assert drift(CADISPaper(distillation=1)) < 0.5 * drift(CADISPaper(distillation=0))


def test_a_threshold_above_its_maximum_is_refused() -> None:
    with pytest.raises(CadisError, match="threshold_max"):
        CADISPaper(threshold=0.99)


@pytest.mark.parametrize("seed", range(5))
def test_recovers_the_clusters_of_the_digits(seed: int, tmp_path: Path) -> None:
    """Multi-cluster digits at the default threshold: perfect from the first round on."""
    built = build_experiment(resolve({}, {"seed": seed, "rounds": 3}))
    settings = built.config.settings.for_engine()
    engine = Engine(built.model, built.federation, Algorithm(CADISPaper()), settings, tmp_path)
    truth = built.federation.true_clusters
    assert truth is not None
    for result in engine.rounds(engine.start):
        present = [int(client) for client in result.record.participants]
        assert adjusted_rand_score(truth[present], result.record.report["clusters"]) == 1.0


def test_without_clustering_the_weights_are_fedavgs() -> None:
    updates = TWO_AND_A_STRANGER[:2]
    alone = CADISPaper(threshold=0.7, clusters="none").aggregate(server_round(), updates, SENT)
    assert alone.weights.tolist() == pytest.approx([0.25, 0.75])
    assert alone.report["clusters"].tolist() == [0, 1]


def test_an_oracle_takes_the_true_clusters_whatever_the_updates_say() -> None:
    updates = TWO_AND_A_STRANGER
    told = replace(server_round(), true_clusters={"a": 5, "b": 2, "c": 5, "absent": 2})
    result = CADISPaper(clusters="true").aggregate(told, updates, SENT)
    assert result.report["clusters"].tolist() == [1, 0, 1]
    alpha = [10 / 2, 30 / 1, 20 / 2]
    assert result.weights.tolist() == pytest.approx([a / sum(alpha) for a in alpha])
    with pytest.raises(CadisError, match="true clusters of this federation are not known"):
        CADISPaper(clusters="true").aggregate(server_round(), updates, SENT)


def test_an_oracle_in_the_engine(tmp_path: Path) -> None:
    for result in run_rounds(CADISPaper(clusters="true", threshold=0.1), tmp_path):
        truth = [(0, 0, 0, 1, 2)[int(client)] for client in result.record.participants]
        assert adjusted_rand_score(truth, result.record.report["clusters"]) == 1


def seen_densely(rounds: list[list[ClientUpdate]], method: CADISPaper) -> list[list[int]]:
    """The clusters of each round from the matrix of all pairs ever seen, all estimates included."""
    matrix, found = SimilarityMatrix(), []
    for number, updates in enumerate(rounds, start=1):
        ids = [update.client_id for update in updates]
        similarity = instance_similarity(signatures(server_round(number), updates, SENT))
        matrix = matrix.observe(ids, similarity).estimate_missing(method.gamma, "mean")
        assert matrix.mean.min() <= 0  # which makes the estimates not matter
        rows = matrix.index_of(ids)
        q = rescale(matrix.mean, matrix.known)[rows[:, None], rows]
        found.append(cluster(q, float(method.threshold)).tolist())
    return found


def some_rounds(seed: int) -> list[list[ClientUpdate]]:
    """Seven rounds of six of twelve clients in two clusters, one of them less clear."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.tensor([[1.0, 0.2], [-0.4, 1.0]])
    rounds = []
    for _ in range(7):
        present = torch.randperm(12, generator=generator)[:6].tolist()
        noise = 0.5 * torch.randn(12, 2, generator=generator)
        heads = {c: (1 + centres[c % 2] + noise[c]).tolist() for c in present}
        rounds.append([update(f"client {c}", [0.0, *heads[c]]) for c in present])
    return rounds


@pytest.mark.parametrize("seed", range(12))
def test_clusters_of_a_round_are_those_of_the_matrix_of_all_pairs(seed: int) -> None:
    method, rounds, found = CADISPaper(threshold=0.9), some_rounds(seed), []
    memory: TensorState = {}
    for number, updates in enumerate(rounds, start=1):
        state = replace(SENT, memory=memory)
        result = method.aggregate(server_round(number), updates, state)
        found.append(result.report["clusters"].tolist())
        memory = result.memory
    assert found == seen_densely(rounds, method)
    assert len({len(set(clusters)) for clusters in found}) > 1


def test_in_a_round_nothing_is_remembered_of_pairs_that_never_met() -> None:
    memory = CADISPaper().aggregate(server_round(1), some_rounds(seed=1)[0], SENT).memory
    assert {name: tensor.dim() for name, tensor in memory.items()} == {
        "client_ids": 1, "pair": 1, "mean": 1, "count": 1,
    }  # fmt: skip
    assert len(memory["pair"]) == 6 * 5 / 2


def test_draws_about_the_absent_do_not_change_a_round() -> None:
    first, second, *_ = some_rounds(seed=2)
    found = []
    for seed in (1, 2):
        method, state = CADISPaper(transitive="sample"), SENT
        for number, updates in enumerate((first, second), start=1):
            drawn = replace(server_round(number), generator=generator_for(seed))
            result = method.aggregate(drawn, updates, state)
            state = replace(SENT, memory=result.memory)
        found.append(result.weights.tolist())
    assert found[0] == found[1]
