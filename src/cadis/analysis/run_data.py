"""Data of one run, read from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cadis._io import natural_key
from cadis.algorithm import get_part_table
from cadis.algorithm.methods import METHODS, get_method_label
from cadis.algorithm.methods.cadis import SimilarityMatrix
from cadis.algorithm.tasks import TASKS
from cadis.analysis import consistency
from cadis.analysis.similarity import (
    Convergence,
    compute_convergence,
    format_sample_size,
    replay_matrices,
    select_rounds,
)
from cadis.errors import CadisError
from cadis.server import RoundRecord
from cadis.store import (
    RunFolder,
    assign_clusters,
    find_last_tested,
    find_rare_classes,
    get_clusters,
    get_gamma,
    get_similarity,
    get_true_clusters,
    has_profiles,
    list_compared_clients,
    sample_clients,
    summarize,
)
from cadis.types import ClientId

OWN_TEST_DATA = "own test data"
"""Name of clients' held-out data in tables, figures and the report page."""
OWN_TRAINING_DATA = "own training data"
"""Name of the data on which clients are tested if no data are held out."""
_MAX_MATRICES = 100  # points of the convergence curve; each takes as long as a round on the server


@dataclass(frozen=True, eq=False)
class RunData:
    """A run with at least one round, finished or not.

    The method is known by its name only, since the file of a user-defined method may be gone.

    Attributes:
        path: folder of the run.
        options: content of ``config.toml``.
        history: one record per round.
        federation: content of ``federation.json``: classes, clients and their samples.
        summary: content of ``summary.json``; computed from the history if the run is unfinished.
        is_finished: whether all rounds are finished.
    """

    path: Path
    options: dict[str, Any]
    history: list[RoundRecord]
    federation: dict[str, Any]
    summary: dict[str, Any]
    is_finished: bool

    @classmethod
    def read(cls, folder: RunFolder) -> "RunData":
        """Read a run from its folder.

        Raises:
            CadisError: if the run has no finished round, or if a file is damaged.
        """
        config, records, clients, end = (
            folder.path / name
            for name in ("config.toml", "history.jsonl", "federation.json", "summary.json")
        )
        with consistency.convert_read_errors(config):
            options = folder.read_config()
            consistency.check_options(options)
            method = options["method"]  # its file may be gone
            if not isinstance(method, str) or not method:
                raise CadisError(f"method is {method!r}, which is not a name")
        with consistency.convert_read_errors(records):
            history = folder.read_history()
        if not history:
            raise CadisError(f"The run in {folder.path} has no finished round yet.")
        with consistency.convert_read_errors(clients):
            federation = folder.read_json(clients.name)
            consistency.check_federation(federation)
        summary = None
        with consistency.convert_read_errors(end):
            if folder.has_summary():
                summary = folder.read_json(end.name)
                consistency.check_summary(summary, federation)
        class_name = method.rpartition(":")[2] or method  # "file.py:ClassName"
        name = class_name if summary is None else summary["method"]
        with consistency.convert_read_errors(records):
            consistency.check_history(history, name, federation)
        if summary is not None and summary["rounds"] == len(history):
            with consistency.convert_read_errors(end):
                consistency.check_agreement(summary, history)
            return cls(folder.path, options, history, federation, summary, True)
        # The run is not finished, or was resumed after it had finished.
        main_metric = get_main_metric(options)
        summary = summarize(
            name, history, federation, None, with_clusters=False, main_metric=main_metric
        )
        return cls(folder.path, options, history, federation, summary, False)

    @property
    def name(self) -> str:
        """Name of the method, as users type it."""
        return str(self.summary["method"])

    @property
    def label(self) -> str:
        """Name of the method in tables and figures."""
        return get_method_label(self.name)

    @property
    def pools_clients(self) -> bool:
        """Return whether the method trains on the pooled data of all clients."""
        return self.name in METHODS and METHODS[self.name].pools_clients

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.options.get("seed", 0))

    @property
    def metric(self) -> str:
        """Name of the main metric, which selects the best round."""
        return str(self.summary.get("headline", "accuracy"))

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return list(self.federation["classes"])

    @cached_property
    def rare(self) -> list[int]:
        """Indices of the classes that only the smallest clusters have."""
        return find_rare_classes(self.federation)

    @cached_property
    def true_clusters(self) -> dict[ClientId, int | None]:
        """True cluster of each client; None if it is unknown."""
        return get_true_clusters(self.federation)

    @cached_property
    def clients_with_similarity(self) -> list[ClientId]:
        """Clients with known similarities, sorted by true cluster."""
        true_clusters, known = self.true_clusters, set(list_compared_clients(self.history))
        clients = [client for client in true_clusters if client in known]  # the federation's order
        return sorted(clients, key=lambda client: true_clusters[client] or 0)

    @cached_property
    def sampled_clients(self) -> frozenset[ClientId]:
        """Clients in figures about pairs: all with known similarities, or a sample if many."""
        return frozenset(sample_clients(self.clients_with_similarity, self.true_clusters))

    @property
    def sample_text(self) -> str:
        """Text such as "120 of 400 clients"; empty if all clients are shown."""
        return format_sample_size(len(self.sampled_clients), len(self.clients_with_similarity))

    @property
    def has_clusters(self) -> bool:
        """Return whether the method reported clusters in the last round."""
        return get_clusters(self.history[-1]) is not None

    @cached_property
    def has_similarity(self) -> bool:
        """Return whether the method reported similarities of clients."""
        has_pairs = any(get_similarity(record) is not None for record in self.history)
        return has_pairs or has_profiles(self.history)

    @property
    def gamma(self) -> float | None:
        """Largest deviation allowed for transitive estimates; None if there are no estimates."""
        return get_gamma(self.history[-1])

    @cached_property
    def matrix(self) -> SimilarityMatrix | None:
        """Similarity matrix of the sampled clients after the last round; None if unknown.

        For a method that reports clusters only, the similarity of two clients is how often they
        were in the same cluster, as a fraction of the rounds in which both took part.
        """
        if not self.clients_with_similarity:
            return None
        last = {self.history[-1].round}
        return next(replay_matrices(self.history, last, self.gamma, self.sampled_clients))

    @cached_property
    def cluster_estimates(self) -> dict[ClientId, int]:
        """Cluster of each sampled client, estimated after the last round."""
        if self.matrix is None:
            return {}
        labels = assign_clusters(self.matrix, self.history).tolist()
        return dict(zip(self.matrix.client_ids, labels, strict=True))

    @cached_property
    def client_order(self) -> list[ClientId]:
        """Sampled clients, sorted by true cluster (if known), then by estimated cluster."""
        true, estimated = self.true_clusters, self.cluster_estimates
        return sorted(estimated, key=lambda c: (true[c] or 0, estimated[c], natural_key(c)))

    @cached_property
    def convergence(self) -> Convergence | None:
        """Error of the similarity matrix over rounds; None if it is unknown or always 0."""
        if not self.has_similarity or has_profiles(self.history) or len(self.history) < 2:
            return None
        rounds = set(select_rounds(len(self.history), _MAX_MATRICES))
        result = compute_convergence(self.history, self.gamma, rounds, self.sampled_clients)
        return result if max(result.standard) > 0 else None

    @cached_property
    def client_accuracy(self) -> dict[int, dict[ClientId, float]]:
        """Accuracy of each tested client on its own data, by round.

        Rounds without such a test are missing. If there are many clients, only a sample of them is
        tested. :attr:`own_data` says whether these are test or training data.
        """
        by_round = {}
        for record in self.history:
            if record.client_accuracy is not None:
                pairs = zip(self.true_clusters, record.client_accuracy, strict=True)
                by_round[record.round] = {client: v for client, v in pairs if v is not None}
        return {index: tested for index, tested in by_round.items() if tested}

    @property
    def last_client_accuracy(self) -> dict[ClientId, float]:
        """Accuracy of each client in the last test on its own data; empty if there was no test."""
        return next(reversed(self.client_accuracy.values()), {})

    @property
    def test_sample_text(self) -> str:
        """Text such as "100 of 400 clients", for the last test on clients' own data.

        It is empty if all clients were tested, or none.
        """
        tested = len(self.last_client_accuracy)
        return format_sample_size(tested, len(self.true_clusters)) if tested else ""

    @cached_property
    def test_sizes(self) -> list[int]:
        """Number of held-out samples of each client that has any."""
        counts = (client.get("test_samples") for client in self.federation["clients"])
        return [sum(by_class) for by_class in counts if by_class and any(by_class)]

    @property
    def own_data(self) -> str:
        """Name of the data that each client is tested on."""
        return OWN_TEST_DATA if self.test_sizes else OWN_TRAINING_DATA

    @cached_property
    def round_end_times(self) -> list[float]:
        """Simulated time at the end of each round; empty if clients have no speeds."""
        known = [record.clock for record in self.history if record.clock is not None]
        return known if self.options.get("speeds") and len(known) == len(self.history) else []

    @property
    def last_tested(self) -> RoundRecord:
        """Last round whose model was tested; the last round if none was."""
        return find_last_tested(self.history)

    def compute_coassociation(self) -> torch.Tensor:
        """Return how often two clients were in the same cluster.

        Returns:
            Of the rounds in which both clients took part, the fraction in which they were in the
            same cluster; NaN if they never took part together. The order of the clients is
            :attr:`client_order`, (clients, clients).
        """
        row = {client: index for index, client in enumerate(self.client_order)}
        together, common = torch.zeros(len(row), len(row)), torch.zeros(len(row), len(row))
        for record in self.history:
            if (clusters := get_clusters(record)) is None:
                continue
            pairs = zip(record.participants, clusters, strict=True)
            labels_by_row = [(row[client], label) for client, label in pairs if client in row]
            rows, labels = torch.tensor(labels_by_row, dtype=torch.long).reshape(-1, 2).T
            together[rows[:, None], rows] += (labels[:, None] == labels).float()
            common[rows[:, None], rows] += 1
        return together / common


def get_main_metric(options: Mapping[str, Any]) -> str:
    """Return the name of the metric that selects the best round, from the options of a run.

    For user-defined tasks, whose class is unknown here, it is accuracy.
    """
    name = options.get("task")
    if not isinstance(name, str) or name not in TASKS:
        return "accuracy"
    chosen = get_part_table(options, "task", name).get("metric")
    return chosen if isinstance(chosen, str) else TASKS[name]().main_metric
