"""All that a run has to tell, read from its folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cadis.analysis.checking import (
    check_agreement,
    check_federation,
    check_history,
    check_options,
    check_summary,
    naming,
)
from cadis.analysis.matrices import Convergence, convergence, growing, spread_rounds
from cadis.analysis.sampling import sample, some_of
from cadis.core import CadisError, ClientId, SimilarityMatrix
from cadis.methods import CADIS, Method
from cadis.options import method_from
from cadis.runs import (
    RoundRecord,
    RunFolder,
    clusters_found,
    rare_classes,
    summarise,
)
from cadis.runs.observations import joined

_POINTS = 100
"""Rounds whose matrix is looked at, at most: each costs what a round costs the server."""


@dataclass(frozen=True, eq=False)
class RunData:
    """A run with at least one round, finished or not.

    Attributes:
        path: its folder.
        options: what its ``config.toml`` holds.
        history: a record for each round.
        federation: who has what.
        summary: the run in a few numbers.
        finished: whether it has come to its end.
    """

    path: Path
    options: dict[str, Any]
    history: list[RoundRecord]
    federation: dict[str, Any]
    summary: dict[str, Any]
    finished: bool

    @classmethod
    def read(cls, folder: RunFolder) -> "RunData":
        """Read a run; refuse one without a single round, and one that is damaged."""
        config, records, clients, end = (
            folder.path / name
            for name in ("config.toml", "history.jsonl", "federation.json", "summary.json")
        )
        with naming(config):
            options = folder.read_config()
            check_options(options)
            method = method_from(options)
        with naming(records):
            history = folder.read_history()
        if not history:
            raise CadisError(f"The run in {folder.path} has no finished round yet.")
        with naming(clients):
            federation = folder.read_json(clients.name)
            check_federation(federation)
        with naming(records):
            check_history(history, method, federation)
        summary = None
        with naming(end):
            if folder.has_summary():
                summary = folder.read_json(end.name)
                check_summary(summary, federation)
        if summary is not None and summary["rounds"] == len(history):
            with naming(end):
                check_agreement(summary, history)
            return cls(folder.path, options, history, federation, summary, True)
        # It has not ended, or was resumed since.
        summary = summarise(method, history, federation, None, among_all=False)
        return cls(folder.path, options, history, federation, summary, False)

    @cached_property
    def method(self) -> Method:
        """How it learned."""
        return method_from(self.options)

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        seed: int = self.options.get("seed", 0)
        return seed

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        names: list[str] = self.federation["classes"]
        return names

    def names(self, classes: Iterable[int]) -> list[str]:
        """Names of some classes."""
        return [self.classes[number] for number in classes]

    @cached_property
    def rare(self) -> list[int]:
        """The classes of the smallest clusters."""
        return rare_classes(self.federation)

    @cached_property
    def true_cluster(self) -> dict[ClientId, int | None]:
        """The true cluster of each client, None if it is not known."""
        return {client["id"]: client["cluster"] for client in self.federation["clients"]}

    @cached_property
    def seen(self) -> list[ClientId]:
        """Clients whose similarities were measured, those of a true cluster side by side."""
        truth, found = self.true_cluster, set(joined(self.history))
        known = [client for client in truth if client in found]  # in the federation's order
        return sorted(known, key=lambda client: truth[client] or 0)

    @cached_property
    def looked_at(self) -> frozenset[ClientId]:
        """Clients whose pairs are shown: all seen, or an even choice of very many."""
        return frozenset(sample(self.seen, self.true_cluster))

    @property
    def choice(self) -> str:
        """How many of the clients seen are looked at, in words; nothing if all are."""
        return some_of(len(self.looked_at), len(self.seen))

    @property
    def gamma(self) -> float | None:
        """The largest deviation of a transitive estimate; None if nothing was estimated."""
        method = self.method
        return method.gamma if isinstance(method, CADIS) and method.transitive != "off" else None

    @cached_property
    def matrix(self) -> SimilarityMatrix | None:
        """The similarity matrix of those looked at, at the end, for methods that keep one."""
        if not isinstance(self.method, CADIS):
            return None
        last = {self.history[-1].round}
        (matrix,) = growing(self.history, last, self.gamma, self.looked_at)
        return matrix

    @cached_property
    def found_cluster(self) -> dict[ClientId, int]:
        """The cluster that was found for each client looked at, among these, at the end."""
        threshold = self.history[-1].threshold
        if self.matrix is None or threshold is None:
            return {}
        labels = clusters_found(self.matrix, threshold).tolist()
        return dict(zip(self.matrix.client_ids, labels, strict=True))

    @cached_property
    def ordered_clients(self) -> list[ClientId]:
        """Clients looked at, those of a true (else a found) cluster side by side."""
        truth, found = self.true_cluster, self.found_cluster
        shown = [client for client in truth if client in found]  # in the federation's order
        return sorted(shown, key=lambda client: (truth[client] or 0, found[client]))

    @cached_property
    def convergence(self) -> Convergence | None:
        """How fast the similarity matrix converged; None where there was nothing to learn."""
        method = self.method
        if not isinstance(method, CADIS) or len(self.history) < 2:
            return None
        rounds = set(spread_rounds(len(self.history), _POINTS))
        found = convergence(self.history, method.gamma, rounds, self.looked_at)
        return found if max(found.standard) > 0 else None

    @cached_property
    def client_accuracy(self) -> dict[int, list[float]]:
        """By round, accuracy on every client's own data; only the rounds that have it."""
        return {r.round: r.client_accuracy for r in self.history if r.client_accuracy is not None}

    def grouped_together(self) -> torch.Tensor:
        """Of the rounds that two clients shared, the part in which they were in one cluster.

        In the order of :attr:`ordered_clients`; NaN for two who never met, (n, n).
        """
        row = {client: number for number, client in enumerate(self.ordered_clients)}
        together = torch.zeros(len(row), len(row))
        met = torch.zeros(len(row), len(row))
        for record in self.history:
            if record.clusters is None:
                continue
            labelled = zip(record.participants, record.clusters, strict=True)
            shown = [(row[client], label) for client, label in labelled if client in row]
            rows, labels = torch.tensor(shown, dtype=torch.long).reshape(-1, 2).T
            together[rows[:, None], rows] += (labels[:, None] == labels).float()
            met[rows[:, None], rows] += 1
        return together / met
