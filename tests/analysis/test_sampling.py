from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cadis.algorithm.methods import CADIS
from cadis.algorithm.methods.cadis import SimilarityMatrix, transitive
from cadis.analysis import RunData, read_results, replay_frames, replay_matrices
from cadis.analysis.similarity import compute_convergence
from cadis.report import format_summary
from cadis.report.page.content import make_page_data
from cadis.store import rebuild_similarity, sample_clients
from fabricated import read_run, write_run


class EstimateCounter:
    """Counts rows and pairs that are estimated."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.pairs = 0
        self._estimate = transitive._estimate_rows
        monkeypatch.setattr(transitive, "_estimate_rows", self)

    def __call__(self, rows: Tensor, helping: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        self.rows += len(rows)
        self.pairs += len(rows) * helping.shape[1]
        return self._estimate(rows, helping, gamma)


def test_a_sample_of_clients_keeps_the_shares_of_clusters() -> None:
    cluster_of = {
        client: 0 if client < 1200 else 1 if client < 1998 else 2 for client in range(2000)
    }
    chosen = sample_clients(list(cluster_of), cluster_of)
    assert len(chosen) == 120
    assert chosen == sorted(chosen)
    shares = Counter(cluster_of[client] for client in chosen)
    assert shares[0] == pytest.approx(72, abs=2)
    assert shares[1] == pytest.approx(48, abs=2)
    assert shares[2] >= 1  # of two clients in 2,000


def test_few_clients_are_all_in_the_sample_and_many_clusters_are_sampled_evenly() -> None:
    clients = list(range(300))
    assert sample_clients(clients, dict.fromkeys(clients, 0)) == clients
    alone = {client: client for client in range(1000)}
    chosen = sample_clients(list(alone), alone)
    assert len(chosen) == 120
    assert max(chosen) > 980


def test_results_are_exact_if_all_clients_are_in_the_sample(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS())
    everyone = frozenset(range(12))
    assert run_data.sample_text == ""
    assert run_data.sampled_clients == everyone
    rounds = {2, 5, 12}
    plain, chosen = (
        list(replay_frames(run_data.history, rounds, 0.2, who)) for who in (None, everyone)
    )
    for one, other in zip(plain, chosen, strict=True):
        assert one.clients == other.clients
        assert torch.equal(one.q.nan_to_num(nan=-1), other.q.nan_to_num(nan=-1))
        assert torch.equal(one.clusters, other.clusters)
    by_all = compute_convergence(run_data.history, 0.2, rounds)
    assert by_all == compute_convergence(run_data.history, 0.2, rounds, everyone)
    exact = rebuild_similarity(run_data.history)
    assert exact is not None
    assert run_data.matrix is not None
    torch.testing.assert_close(run_data.matrix.mean, exact.mean)
    assert torch.equal(run_data.matrix.known, exact.known)


@pytest.mark.parametrize("replayed", [True, False])
def test_estimates_of_a_sample_equal_those_of_all_clients(replayed: bool, tmp_path: Path) -> None:
    history = read_run(tmp_path / "run", CADIS(), clients=40, rounds=15).history
    some = frozenset(range(0, 40, 3))
    if replayed:
        pairs = [(rebuild_similarity(history), rebuild_similarity(history, sorted(some)))]
    else:
        pairs = list(
            zip(
                replay_matrices(history, None, 0.2),
                replay_matrices(history, None, 0.2, some),
                strict=True,
            )
        )
    for everyone, few in pairs:
        assert everyone is not None
        assert few is not None
        assert set(few.client_ids) == some & set(everyone.client_ids)
        rows = everyone.find_rows(few.client_ids)
        assert torch.equal(few.known, everyone.known[rows[:, None], rows])
        assert torch.equal(few.count, everyone.count[rows[:, None], rows])
        torch.testing.assert_close(few.mean, everyone.mean[rows[:, None], rows])
    assert few is not None
    assert few.known.sum() > few.count.count_nonzero()  # some were estimated


def test_a_rebuilt_matrix_equals_that_of_the_server(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS(), clients=40, rounds=15)
    server = SimilarityMatrix()
    for record in run_data.history:
        similarity = torch.tensor(record.report["similarity"])
        server = server.observe(record.participants, similarity).estimate_missing(0.2, "mean")
    again = rebuild_similarity(run_data.history)
    assert again is not None
    assert again.client_ids == server.client_ids
    assert torch.equal(again.count, server.count)
    assert torch.equal(again.known, server.known)
    torch.testing.assert_close(again.mean, server.mean)


def test_the_summary_of_very_many_clients_uses_a_sample(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", CADIS(), clients=1400, rounds=40, per_round=100)
    summary = RunData.read(run).summary
    assert summary["clusters_among"] == 300
    assert summary["clusters_found"] == 3
    assert summary["cluster_agreement"] == 1
    assert "among a sample of 300 of the clients that took part" in format_summary(run)
    few = write_run(tmp_path / "few", CADIS(), clients=40, rounds=15)
    assert "clusters_among" not in RunData.read(few).summary
    assert "among all clients that took part" in format_summary(few)


def test_only_participants_are_estimated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_data = read_run(tmp_path / "run", CADIS(), clients=60, rounds=20)
    counter = EstimateCounter(monkeypatch)
    for _ in replay_frames(run_data.history, set(range(1, 21)), 0.2):
        pass
    assert counter.rows == 20 * 6


def test_the_cost_of_a_page_does_not_grow_with_the_number_of_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for clients in (400, 1600):
        run_data = read_run(
            tmp_path / f"{clients}",
            CADIS(),
            clients=clients,
            finished=False,
            rounds=40,
            per_round=40,
        )
        counter = EstimateCounter(monkeypatch)
        make_page_data(read_results([run_data.path]))
        counts.append(counter.pairs)
        assert len(run_data.sampled_clients) == 120
        monkeypatch.undo()
    assert 0 < counts[1] <= counts[0]
    assert counts[0] <= 3 * 40 * 40 * 120  # the end, the frames, the convergence


def test_the_summary_of_an_unfinished_run_needs_no_estimates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = EstimateCounter(monkeypatch)
    run_data = read_run(tmp_path, CADIS(), clients=400, finished=False, rounds=4)
    assert counter.rows == 0
    assert "clusters_found" not in run_data.summary
    assert run_data.summary["round_agreement"] == 1


def test_the_size_of_the_sample_is_shown(tmp_path: Path) -> None:
    run_data = read_run(tmp_path, CADIS(), clients=400, finished=False, rounds=6, per_round=200)
    seen = len({client for record in run_data.history for client in record.participants})
    assert run_data.sample_text == f"120 of {seen} clients"
    assert len(run_data.client_order) == 120
    shares = run_data.compute_coassociation()
    row = {client: number for number, client in enumerate(run_data.client_order)}
    one, *_, other = row
    both = [r for r in run_data.history if {one, other} <= set(r.participants)]
    assert both
    assert shares[row[one], row[other]] == 0  # of different clusters
