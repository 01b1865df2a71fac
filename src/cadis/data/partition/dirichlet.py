"""Dirichlet: the label skew that everybody compares on."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Gt, Le
from torch import Tensor

from cadis.data.partition.protocol import Partition
from cadis.data.partition.splitting import check_enough, deal_by_shares


@dataclass(frozen=True)
class Dirichlet:
    """Each class is dealt to the clients in shares drawn from a Dirichlet distribution.

    All samples are dealt out. Who would have fewer than the minimum is given some of the
    others' samples, so no draw has to be repeated.

    Attributes:
        concentration: of the distribution: small numbers give each client few classes, large
            ones give everybody the same.
    """

    concentration: Annotated[float, Gt(0), Le(1e9)] = 0.5

    name: ClassVar[str] = "dirichlet"

    def deal(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.deal`."""
        check_enough(len(labels), num_clients, minimum)
        seed = int(torch.randint(2**62, (), generator=generator))
        alpha = np.full(num_clients, self.concentration)
        shares = np.random.default_rng(seed).dirichlet(alpha, size=int(labels.max()) + 1)
        return Partition(deal_by_shares(labels, torch.from_numpy(shares), minimum, generator))
