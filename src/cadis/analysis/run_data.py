"""All that a run has to tell, read from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cadis._io import natural
from cadis.algorithm import table_of
from cadis.algorithm.methods import METHODS, label_of
from cadis.algorithm.methods.cadis import SimilarityMatrix
from cadis.algorithm.tasks import TASKS
from cadis.analysis import consistency
from cadis.analysis.similarity import Convergence, convergence, growing, some_of, spread_rounds
from cadis.errors import CadisError
from cadis.server import RoundRecord
from cadis.store import (
    RunFolder,
    clusters_of,
    gamma_of,
    grouped,
    joined,
    last_tested,
    rare_classes,
    sample,
    similarity_of,
    summarise,
    tells_profiles,
    true_clusters_of,
)
from cadis.types import ClientId

OWN_TEST_DATA = "own test data"
OWN_TRAINING_DATA = "own training data"
"""What clients are tested on, as all that is shown calls it."""
_POINTS = 100  # rounds whose matrix is looked at, at most: each costs what a round costs the server


@dataclass(frozen=True, eq=False)
class RunData:
    """A run with at least one round, finished or not.

    Its method is known by name only: a method of the user's own may be gone since.

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
        with consistency.naming(config):
            options = folder.read_config()
            consistency.check_options(options)
            method = options["method"]  # which need not be there any more
            if not isinstance(method, str) or not method:
                raise CadisError(f"method is {method!r}, which is not a name")
        with consistency.naming(records):
            history = folder.read_history()
        if not history:
            raise CadisError(f"The run in {folder.path} has no finished round yet.")
        with consistency.naming(clients):
            federation = folder.read_json(clients.name)
            consistency.check_federation(federation)
        summary = None
        with consistency.naming(end):
            if folder.has_summary():
                summary = folder.read_json(end.name)
                consistency.check_summary(summary, federation)
        class_name = method.rpartition(":")[2] or method  # it may be in a file of the user's
        name = class_name if summary is None else summary["method"]
        with consistency.naming(records):
            consistency.check_history(history, name, federation)
        if summary is not None and summary["rounds"] == len(history):
            with consistency.naming(end):
                consistency.check_agreement(summary, history)
            return cls(folder.path, options, history, federation, summary, True)
        # It has not ended, or was resumed since.
        headline = headline_of(options)
        summary = summarise(name, history, federation, None, among_all=False, headline=headline)
        return cls(folder.path, options, history, federation, summary, False)

    @property
    def name(self) -> str:
        """The method's name, as users type it."""
        return str(self.summary["method"])

    @property
    def label(self) -> str:
        """The method's name, as people write it."""
        return label_of(self.name)

    @property
    def pools_clients(self) -> bool:
        """Whether it was no federation: all data in one place."""
        return self.name in METHODS and METHODS[self.name].pools_clients

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return int(self.options.get("seed", 0))

    @property
    def metric(self) -> str:
        """The measure by which its best round is told."""
        return str(self.summary.get("headline", "accuracy"))

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return list(self.federation["classes"])

    @cached_property
    def rare(self) -> list[int]:
        """The classes of the smallest clusters."""
        return rare_classes(self.federation)

    @cached_property
    def true_clusters(self) -> dict[ClientId, int | None]:
        """The true cluster of each client, None if it is not known."""
        return true_clusters_of(self.federation)

    @cached_property
    def seen(self) -> list[ClientId]:
        """Clients of whom it was told how alike they are, those of a true cluster side by side."""
        true_clusters, found = self.true_clusters, set(joined(self.history))
        known = [client for client in true_clusters if client in found]  # the federation's order
        return sorted(known, key=lambda client: true_clusters[client] or 0)

    @cached_property
    def looked_at(self) -> frozenset[ClientId]:
        """Clients whose pairs are shown: all seen, or an even choice of very many."""
        return frozenset(sample(self.seen, self.true_clusters))

    @property
    def choice(self) -> str:
        """How many of the clients seen are looked at, in words; nothing if all are."""
        return some_of(len(self.looked_at), len(self.seen))

    @property
    def tells_clusters(self) -> bool:
        """Whether its method told clusters at the end."""
        return clusters_of(self.history[-1]) is not None

    @cached_property
    def tells_similarity(self) -> bool:
        """Whether its method told how alike clients are."""
        by_pairs = any(similarity_of(record) is not None for record in self.history)
        return by_pairs or tells_profiles(self.history)

    @property
    def gamma(self) -> float | None:
        """The largest deviation of a transitive estimate; None if nothing was estimated."""
        return gamma_of(self.history[-1])

    @cached_property
    def matrix(self) -> SimilarityMatrix | None:
        """How alike those looked at are, at the end; None if nobody knows.

        Of a method that tells clusters only: the part of their common rounds that two clients
        were together.
        """
        if not self.seen:
            return None
        last = {self.history[-1].round}
        return next(growing(self.history, last, self.gamma, self.looked_at))

    @cached_property
    def found_clusters(self) -> dict[ClientId, int]:
        """The cluster that was found for each client looked at, among these, at the end."""
        if self.matrix is None:
            return {}
        labels = grouped(self.matrix, self.history).tolist()
        return dict(zip(self.matrix.client_ids, labels, strict=True))

    @cached_property
    def ordered_clients(self) -> list[ClientId]:
        """Clients looked at, those of a true (else a found) cluster side by side."""
        true, found = self.true_clusters, self.found_clusters
        return sorted(found, key=lambda c: (true[c] or 0, found[c], natural(c)))

    @cached_property
    def convergence(self) -> Convergence | None:
        """How fast the similarity matrix converged; None where there was nothing to learn."""
        if not self.tells_similarity or tells_profiles(self.history) or len(self.history) < 2:
            return None
        rounds = set(spread_rounds(len(self.history), _POINTS))
        found = convergence(self.history, self.gamma, rounds, self.looked_at)
        return found if max(found.standard) > 0 else None

    @cached_property
    def client_accuracy(self) -> dict[int, dict[ClientId, float]]:
        """By round, accuracy on the own data of each client tested; only the rounds that have it.

        Of many clients, a sample is tested. The data are :attr:`own_data`.
        """
        by_round = {}
        for record in self.history:
            if record.client_accuracy is not None:
                pairs = zip(self.true_clusters, record.client_accuracy, strict=True)
                by_round[record.round] = {client: v for client, v in pairs if v is not None}
        return {number: tested for number, tested in by_round.items() if tested}

    @property
    def last_client_accuracy(self) -> dict[ClientId, float]:
        """The last test on clients' own data; empty if there was none."""
        return next(reversed(self.client_accuracy.values()), {})

    @property
    def clients_tested(self) -> str:
        """On how many clients' own data the last such test was made; nothing if on all."""
        tested = len(self.last_client_accuracy)
        return some_of(tested, len(self.true_clusters)) if tested else ""

    @cached_property
    def test_sizes(self) -> list[int]:
        """How many samples each client has held out, of those that have; empty if none has."""
        counts = (client.get("test_samples") for client in self.federation["clients"])
        return [sum(own) for own in counts if own and any(own)]

    @property
    def own_data(self) -> str:
        """What each client is tested on, in words."""
        return OWN_TEST_DATA if self.test_sizes else OWN_TRAINING_DATA

    @cached_property
    def clocks(self) -> list[float]:
        """The simulated time at the end of each round; empty where clients have no speeds."""
        known = [record.clock for record in self.history if record.clock is not None]
        return known if self.options.get("speeds") and len(known) == len(self.history) else []

    @property
    def last_tested(self) -> RoundRecord:
        """The last round whose model was tested; if there is none, the last."""
        return last_tested(self.history)

    def grouped_together(self) -> torch.Tensor:
        """Of the rounds that two clients shared, the part in which they were in one cluster.

        In the order of :attr:`ordered_clients`; NaN for two who never met, (n, n).
        """
        row = {client: number for number, client in enumerate(self.ordered_clients)}
        together, met = torch.zeros(len(row), len(row)), torch.zeros(len(row), len(row))
        for record in self.history:
            if (clusters := clusters_of(record)) is None:
                continue
            labelled = zip(record.participants, clusters, strict=True)
            shown = [(row[client], label) for client, label in labelled if client in row]
            rows, labels = torch.tensor(shown, dtype=torch.long).reshape(-1, 2).T
            together[rows[:, None], rows] += (labels[:, None] == labels).float()
            met[rows[:, None], rows] += 1
        return together / met


def headline_of(options: Mapping[str, Any]) -> str:
    """What tells the best round of a run; of a task of the user's own, as long as nobody knows."""
    name = options.get("task")
    if not isinstance(name, str) or name not in TASKS:
        return "accuracy"
    chosen = table_of(options, "task", name).get("metric")
    return chosen if isinstance(chosen, str) else TASKS[name]().headline
