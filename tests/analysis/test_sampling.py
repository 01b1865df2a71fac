from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cadis.algorithm.methods import CADIS
from cadis.algorithm.methods.cadis import SimilarityMatrix, transitive
from cadis.analysis import RunData, frames, growing, read_results
from cadis.analysis.similarity import convergence
from cadis.report import summary_text
from cadis.report.page.content import page_data
from cadis.store import replay, sample
from fabricated import read_run, write_run


class Estimated:
    """Counts what is estimated: rows, and pairs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.pairs = 0
        self._estimate = transitive._estimate_rows
        monkeypatch.setattr(transitive, "_estimate_rows", self)

    def __call__(self, rows: Tensor, helping: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        self.rows += len(rows)
        self.pairs += len(rows) * helping.shape[1]
        return self._estimate(rows, helping, gamma)


def test_of_many_clients_every_cluster_has_its_share_and_none_is_lost() -> None:
    cluster_of = {
        client: 0 if client < 1200 else 1 if client < 1998 else 2 for client in range(2000)
    }
    chosen = sample(list(cluster_of), cluster_of)
    assert len(chosen) == 120
    assert chosen == sorted(chosen)
    shares = Counter(cluster_of[client] for client in chosen)
    assert shares[0] == pytest.approx(72, abs=2)
    assert shares[1] == pytest.approx(48, abs=2)
    assert shares[2] >= 1  # of two clients in 2,000


def test_all_of_few_are_chosen_and_of_too_many_clusters_an_even_choice() -> None:
    clients = list(range(300))
    assert sample(clients, dict.fromkeys(clients, 0)) == clients
    alone = {client: client for client in range(1000)}
    chosen = sample(list(alone), alone)
    assert len(chosen) == 120
    assert max(chosen) > 980


def test_if_nothing_is_sampled_everything_is_exact(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS())
    everybody = frozenset(range(12))
    assert run_data.choice == ""
    assert run_data.looked_at == everybody
    rounds = {2, 5, 12}
    plain, chosen = (list(frames(run_data.history, rounds, 0.2, who)) for who in (None, everybody))
    for one, other in zip(plain, chosen, strict=True):
        assert one.clients == other.clients
        assert torch.equal(one.q.nan_to_num(nan=-1), other.q.nan_to_num(nan=-1))
        assert torch.equal(one.found, other.found)
    by_all = convergence(run_data.history, 0.2, rounds)
    assert by_all == convergence(run_data.history, 0.2, rounds, everybody)
    exact = replay(run_data.history)
    assert exact is not None
    assert run_data.matrix is not None
    torch.testing.assert_close(run_data.matrix.mean, exact.mean)
    assert torch.equal(run_data.matrix.known, exact.known)


@pytest.mark.parametrize("replayed", [True, False])
def test_what_is_estimated_of_some_clients_is_what_it_is_with_all_of_them(
    replayed: bool, tmp_path: Path
) -> None:
    history = read_run(tmp_path / "run", CADIS(), clients=40, rounds=15).history
    some = frozenset(range(0, 40, 3))
    if replayed:
        pairs = [(replay(history), replay(history, sorted(some)))]
    else:
        pairs = list(
            zip(growing(history, None, 0.2), growing(history, None, 0.2, some), strict=True)
        )
    for everybody, few in pairs:
        assert everybody is not None
        assert few is not None
        assert set(few.client_ids) == some & set(everybody.client_ids)
        rows = everybody.index_of(few.client_ids)
        assert torch.equal(few.known, everybody.known[rows[:, None], rows])
        assert torch.equal(few.count, everybody.count[rows[:, None], rows])
        torch.testing.assert_close(few.mean, everybody.mean[rows[:, None], rows])
    assert few is not None
    assert few.known.sum() > few.count.count_nonzero()  # some were estimated


def test_a_replay_is_what_the_server_had(tmp_path: Path) -> None:
    run_data = read_run(tmp_path / "run", CADIS(), clients=40, rounds=15)
    server = SimilarityMatrix()
    for record in run_data.history:
        similarity = torch.tensor(record.report["similarity"])
        server = server.observe(record.participants, similarity).estimate_missing(0.2, "mean")
    again = replay(run_data.history)
    assert again is not None
    assert again.client_ids == server.client_ids
    assert torch.equal(again.count, server.count)
    assert torch.equal(again.known, server.known)
    torch.testing.assert_close(again.mean, server.mean)


def test_the_end_of_a_run_of_very_many_clients_looks_at_some_of_them(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", CADIS(), clients=1400, rounds=40, per_round=100)
    summary = RunData.read(run).summary
    assert summary["clusters_among"] == 300
    assert summary["clusters_found"] == 3
    assert summary["cluster_agreement"] == 1
    assert "among 300 of the clients seen" in summary_text(run)
    few = write_run(tmp_path / "few", CADIS(), clients=40, rounds=15)
    assert "clusters_among" not in RunData.read(few).summary
    assert "among all clients seen" in summary_text(few)


def test_only_who_took_part_is_estimated_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_data = read_run(tmp_path / "run", CADIS(), clients=60, rounds=20)
    estimated = Estimated(monkeypatch)
    for _ in frames(run_data.history, set(range(1, 21)), 0.2):
        pass
    assert estimated.rows == 20 * 6


def test_a_page_of_many_clients_costs_no_more_for_more_of_them(
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
        estimated = Estimated(monkeypatch)
        page_data(read_results([run_data.path]))
        counts.append(estimated.pairs)
        assert len(run_data.looked_at) == 120
        monkeypatch.undo()
    assert 0 < counts[1] <= counts[0]
    assert counts[0] <= 3 * 40 * 40 * 120  # the end, the frames, the convergence


def test_a_run_that_goes_on_is_summarised_without_all_its_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimated = Estimated(monkeypatch)
    run_data = read_run(tmp_path, CADIS(), clients=400, finished=False, rounds=4)
    assert estimated.rows == 0
    assert "clusters_found" not in run_data.summary
    assert run_data.summary["round_agreement"] == 1


def test_how_many_clients_are_shown_is_told(tmp_path: Path) -> None:
    run_data = read_run(tmp_path, CADIS(), clients=400, finished=False, rounds=6, per_round=200)
    seen = len({client for record in run_data.history for client in record.participants})
    assert run_data.choice == f"120 of {seen} clients"
    assert len(run_data.ordered_clients) == 120
    shares = run_data.grouped_together()
    row = {client: number for number, client in enumerate(run_data.ordered_clients)}
    one, *_, other = row
    both = [r for r in run_data.history if {one, other} <= set(r.participants)]
    assert both
    assert shares[row[one], row[other]] == 0  # of different clusters
