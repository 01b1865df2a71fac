"""The similarity matrix over rounds, and clusters under numbers that they keep."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cadis._io import natural
from cadis.algorithm.methods import CADIS
from cadis.algorithm.methods.cadis import SimilarityMatrix, cluster, rescale
from cadis.analysis import frames, growing, spread_rounds, steady
from cadis.analysis.similarity import convergence
from cadis.store import replay
from cadis.types import ClientId
from fabricated import read_run


def test_growing_ends_with_what_a_replay_gives(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS(transitive="off"))
    last = list(growing(run_data.history))[-1]
    again = replay(run_data.history)
    assert again is not None
    assert torch.equal(last.mean * (last.count > 0), again.mean)


def test_frames_are_what_the_server_saw(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS())
    found = list(frames(run_data.history, {2, 7}, gamma=0.2))
    assert [frame.record.round for frame in found] == [2, 7]
    for frame in found:
        matrix = SimilarityMatrix()
        for record in run_data.history[: frame.record.round]:
            matrix = matrix.observe(record.participants, torch.tensor(record.report["similarity"]))
        matrix = matrix.estimate_missing(0.2, "mean")
        q = rescale(matrix.mean, matrix.known)
        assert torch.equal(frame.q.nan_to_num(nan=-1), q.nan_to_num(nan=-1))
        assert torch.equal(frame.found, cluster(q, 0.7))


def test_convergence_by_brute_force(tmp_path: Path) -> None:
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
    found = convergence(history, 0.2, {1, 4, 9})
    for number, error in zip(found.rounds, found.standard, strict=True):
        known = after[number - 1]
        by_hand = [(known.get((i, j), float(i == j)) - v) ** 2 for (i, j), v in final.items()]
        assert error == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-6)
    assert found.standard[-1] == found.transitive[-1] == 0
    assert found.transitive[1] < found.standard[1]  # estimates are better than nothing


def test_rounds_are_spread_evenly() -> None:
    assert spread_rounds(4, 10) == [1, 2, 3, 4]
    chosen = spread_rounds(500, 11)
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
    found = steady(ROUNDS, UNKNOWN)
    first, second, third = found[-1]["a"], found[-1]["c"], found[-1]["f"]
    assert len({first, second, third}) == 3
    assert found[1] == {"a": first, "b": first, "c": second, "d": second, "e": second}
    assert found[0] == {"a": first, "b": first, "c": first, "d": second}


@pytest.mark.parametrize("seed", range(20))
def test_what_clusters_are_called_in_a_round_does_not_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    permuted = [
        {client: int(names[label]) for client, label in labels.items()}
        for labels in ROUNDS
        for names in [random.permutation(7)]
    ]
    assert steady(permuted, UNKNOWN) == steady(ROUNDS, UNKNOWN)


def test_at_the_end_a_cluster_has_the_number_of_the_true_one_that_it_is() -> None:
    truth: dict[ClientId, int | None] = {"a": 4, "b": 4, "c": 1, "d": 1, "e": 1, "f": 1}
    found = steady(ROUNDS, truth)
    assert found[-1] == {"a": 4, "b": 4, "c": 1, "d": 1, "e": 1, "f": 5}  # there is no second 1
    assert found[0] == {"a": 4, "b": 4, "c": 4, "d": 1}


def test_there_are_as_many_clusters_as_were_found() -> None:
    truth: dict[ClientId, int | None] = dict.fromkeys("abcdef", 0)
    for before, after in zip(ROUNDS, steady(ROUNDS, truth), strict=True):
        assert before.keys() == after.keys()
        assert len(set(after.values())) == len(set(before.values()))


def test_two_comes_before_ten() -> None:
    assert sorted(["ward-10", "ward-2", "10", "9", "b", "a"], key=natural) == [
        "9", "10", "a", "b", "ward-2", "ward-10",
    ]  # fmt: skip
    assert sorted([10, 9, 2], key=natural) == [2, 9, 10]
