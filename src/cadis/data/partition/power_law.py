"""PA: each class is dealt to the clients by a power law."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from cadis.data.partition.protocol import Partition
from cadis.data.partition.splitting import check_enough, deal_by_shares


@dataclass(frozen=True)
class PowerLaw:
    """Pareto partition (the paper's Section V-C): there are no clusters.

    Of every class, the r-th client in an order drawn for that class has r^-exponent times what
    the first has. All samples are dealt out.

    Attributes:
        exponent: how unequal: 0 gives everybody the same.
    """

    exponent: Annotated[float, Ge(0)] = 1.0

    name: ClassVar[str] = "pa"

    def deal(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.deal`."""
        check_enough(len(labels), num_clients, minimum)
        classes = int(labels.max()) + 1
        ranks = torch.rand(classes, num_clients, generator=generator).argsort(dim=1)
        shares = (1 + ranks.double()) ** -self.exponent  # (classes, clients)
        return Partition(deal_by_shares(labels, shares, minimum, generator))
