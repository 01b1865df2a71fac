"""IID: everybody's samples are drawn alike."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cadis.data.partition.protocol import Partition
from cadis.data.partition.splitting import check_enough


@dataclass(frozen=True)
class Iid:
    """All samples, shuffled and dealt out evenly; sizes differ by one at most."""

    name: ClassVar[str] = "iid"

    def deal(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.deal`."""
        check_enough(len(labels), num_clients, minimum)
        order = torch.randperm(len(labels), generator=generator)
        everybody_alike = torch.zeros(num_clients, dtype=torch.int64)
        return Partition(tuple(order.tensor_split(num_clients)), everybody_alike)
