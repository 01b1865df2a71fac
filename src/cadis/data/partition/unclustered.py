"""Partitions without clusters: IID, Dirichlet, and PA, a power law for each class."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from cadis.data.partition.splitting import Partition, check_enough, deal_by_shares


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
        one_cluster = torch.zeros(num_clients, dtype=torch.int64)
        return Partition(tuple(order.tensor_split(num_clients)), one_cluster)


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
