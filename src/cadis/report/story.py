"""All that a run has to tell, read from its folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from cadis.core import ClientId, SimilarityMatrix
from cadis.methods import Method
from cadis.options import method_from
from cadis.report.style import shown
from cadis.runs import RoundRecord, RunFolder, clusters_found, rare_classes, replay


@dataclass(frozen=True)
class Story:
    """A finished run.

    Attributes:
        method: how it learned.
        history: a record for each round.
        federation: who has what.
        summary: the run in a few numbers.
    """

    method: Method
    history: list[RoundRecord]
    federation: dict[str, Any]
    summary: dict[str, Any]

    @classmethod
    def read(cls, folder: RunFolder) -> "Story":
        """Read a finished run."""
        return cls(
            method_from(folder.read_config()),
            folder.read_history(),
            folder.read_json("federation.json"),
            folder.read_json("summary.json"),
        )

    def names(self, classes: Iterable[int]) -> list[str]:
        """Names of some classes, for figures."""
        return [shown(self.federation["classes"][number]) for number in classes]

    @cached_property
    def rare(self) -> list[int]:
        """The classes of the smallest clusters."""
        return rare_classes(self.federation)

    @cached_property
    def true_cluster(self) -> dict[ClientId, int | None]:
        """The true cluster of each client, None if it is not known."""
        return {client["id"]: client["cluster"] for client in self.federation["clients"]}

    @cached_property
    def matrix(self) -> SimilarityMatrix | None:
        """The similarity matrix at the end, for methods that keep one."""
        return replay(self.history, self.method)

    @cached_property
    def found_cluster(self) -> dict[ClientId, int]:
        """The cluster that was found for each client seen, at the end."""
        threshold = self.history[-1].threshold
        if self.matrix is None or threshold is None:
            return {}
        labels = clusters_found(self.matrix, threshold).tolist()
        return dict(zip(self.matrix.client_ids, labels, strict=True))

    @cached_property
    def ordered_clients(self) -> list[ClientId]:
        """Clients seen, those of a true (else a found) cluster side by side."""
        truth, found = self.true_cluster, self.found_cluster
        seen = [client for client in truth if client in found]  # in the federation's order
        return sorted(seen, key=lambda client: (truth[client] or 0, found[client]))

    def grouped_together(self) -> torch.Tensor:
        """Of the rounds that two clients shared, the part in which they were in one cluster.

        In the order of :attr:`ordered_clients`; NaN for two who never met, (n, n).
        """
        row = {client: number for number, client in enumerate(self.ordered_clients)}
        together = torch.zeros(len(row), len(row))
        met = torch.zeros(len(row), len(row))
        for record in self.history:
            rows = torch.tensor([row[client] for client in record.participants])
            labels = torch.tensor(record.clusters)
            together[rows[:, None], rows] += (labels[:, None] == labels).float()
            met[rows[:, None], rows] += 1
        return together / met
