from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from cadis.algorithm.methods import CADIS
from cadis.algorithm.methods.cadis import SimilarityMatrix, cluster, rescale
from cadis.analysis import RunData, convergence, frames, growing, spread_rounds
from cadis.store import replay
from fabricated import write_run


def test_growing_ends_with_what_a_replay_gives(tmp_path: Path) -> None:
    run_data = RunData.read(write_run(tmp_path / "run", CADIS(transitive="off")))
    last = list(growing(run_data.history))[-1]
    again = replay(run_data.history)
    assert again is not None
    assert torch.equal(last.mean * (last.count > 0), again.mean)


def test_frames_are_what_the_server_saw(tmp_path: Path) -> None:
    run_data = RunData.read(write_run(tmp_path / "run", CADIS()))
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
    history = RunData.read(write_run(tmp_path / "run", CADIS(), rounds=9)).history
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
