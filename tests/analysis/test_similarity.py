"""Replay of the similarity matrix, and alignment of cluster labels over rounds."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cadis._io import natural_key
from cadis.algorithm.methods import CADIS
from cadis.algorithm.methods.cadis import SimilarityMatrix, cluster_by_threshold, compute_q_matrix
from cadis.analysis import align_cluster_labels, replay_frames, replay_matrices, select_rounds
from cadis.analysis.similarity import compute_convergence
from cadis.store import rebuild_similarity
from cadis.types import ClientId
from fabricated import read_run


def test_the_last_matrix_equals_a_rebuilt_one(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS(transitive="off"))
    last = list(replay_matrices(run_data.history))[-1]
    again = rebuild_similarity(run_data.history)
    assert again is not None
    assert torch.equal(last.mean * (last.count > 0), again.mean)


def test_frames_equal_the_matrices_of_the_server(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS())
    found = list(replay_frames(run_data.history, {2, 7}, gamma=0.2))
    assert [frame.record.round for frame in found] == [2, 7]
    for frame in found:
        matrix = SimilarityMatrix()
        for record in run_data.history[: frame.record.round]:
            matrix = matrix.observe(record.participants, torch.tensor(record.report["similarity"]))
        matrix = matrix.estimate_missing(0.2, "mean")
        q = compute_q_matrix(matrix.mean, matrix.known)
        assert torch.equal(frame.q.nan_to_num(nan=-1), q.nan_to_num(nan=-1))
        assert torch.equal(frame.clusters, cluster_by_threshold(q, 0.7))


def test_convergence_equals_a_brute_force_computation(tmp_path: Path) -> None:
    history = read_run(tmp_path / "run", CADIS(), rounds=9).history
    sums: dict[tuple[int, int], list[float]] = {}
    after = []
    for record in history:
        rows: Any = record.report["similarity"]
        for i, one in enumerate(record.participants):
            for j, other in enumerate(record.participants):
                sums.setdefault((int(one), int(other)), []).append(rows[i][j])
        after.append({pair: sum(values) / len(values) for pair, values in sums.items()})
    final = after[-1]
    found = compute_convergence(history, 0.2, {1, 4, 9})
    for number, error in zip(found.rounds, found.standard, strict=True):
        known = after[number - 1]
        by_hand = [(known.get((i, j), float(i == j)) - v) ** 2 for (i, j), v in final.items()]
        assert error == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-6)
    assert found.standard[-1] == found.transitive[-1] == 0
    assert found.transitive[1] < found.standard[1]  # estimates reduce the error


def test_selected_rounds_are_evenly_spaced() -> None:
    assert select_rounds(4, 10) == [1, 2, 3, 4]
    chosen = select_rounds(500, 11)
    assert (chosen[0], chosen[-1], len(chosen)) == (1, 500, 11)
    steps = [b - a for a, b in pairwise(chosen)]
    assert max(steps) - min(steps) <= 1


UNKNOWN: dict[ClientId, int | None] = dict.fromkeys("abcdef")
ROUNDS: list[dict[ClientId, int]] = [
    {"a": 0, "b": 0, "c": 0, "d": 1},
    {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1},
    {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1, "f": 2},
]


def test_a_cluster_keeps_its_number_while_it_keeps_its_clients() -> None:
    found = align_cluster_labels(ROUNDS, UNKNOWN)
    first, second, third = found[-1]["a"], found[-1]["c"], found[-1]["f"]
    assert len({first, second, third}) == 3
    assert found[1] == {"a": first, "b": first, "c": second, "d": second, "e": second}
    assert found[0] == {"a": first, "b": first, "c": first, "d": second}


@pytest.mark.parametrize("seed", range(20))
def test_labels_of_a_round_do_not_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    permuted = [
        {client: int(names[label]) for client, label in labels.items()}
        for labels in ROUNDS
        for names in [random.permutation(7)]
    ]
    assert align_cluster_labels(permuted, UNKNOWN) == align_cluster_labels(ROUNDS, UNKNOWN)


def test_clusters_of_the_last_round_have_numbers_of_true_clusters() -> None:
    truth: dict[ClientId, int | None] = {"a": 4, "b": 4, "c": 1, "d": 1, "e": 1, "f": 1}
    found = align_cluster_labels(ROUNDS, truth)
    assert found[-1] == {"a": 4, "b": 4, "c": 1, "d": 1, "e": 1, "f": 5}  # 1 is taken
    assert found[0] == {"a": 4, "b": 4, "c": 4, "d": 1}


def test_alignment_keeps_the_number_of_clusters() -> None:
    truth: dict[ClientId, int | None] = dict.fromkeys("abcdef", 0)
    for before, after in zip(ROUNDS, align_cluster_labels(ROUNDS, truth), strict=True):
        assert before.keys() == after.keys()
        assert len(set(after.values())) == len(set(before.values()))


def test_natural_order_sorts_two_before_ten() -> None:
    assert sorted(["ward-10", "ward-2", "10", "9", "b", "a"], key=natural_key) == [
        "9", "10", "a", "b", "ward-2", "ward-10",
    ]  # fmt: skip
    assert sorted([10, 9, 2], key=natural_key) == [2, 9, 10]
