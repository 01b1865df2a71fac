"""Partitions without clusters: IID, Dirichlet, and PA (Pareto), a power law for each class."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from cadis.data.partition.splitting import Partition, check_enough_samples, split_by_shares


@dataclass(frozen=True)
class Iid:
    """IID partition: all samples in random order; client sizes differ by at most one sample.

    Example:
        >>> import torch
        >>> from cadis.data.partition import Iid
        >>> labels = torch.arange(10) % 2
        >>> rng = torch.Generator().manual_seed(0)
        >>> partition = Iid().split(labels, 3, 2, rng)
        >>> [len(indices) for indices in partition.indices]
        [4, 3, 3]
    """

    name: ClassVar[str] = "iid"

    def split(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.split`."""
        check_enough_samples(len(labels), num_clients, minimum)
        order = torch.randperm(len(labels), generator=generator)
        one_cluster = torch.zeros(num_clients, dtype=torch.int64)
        return Partition(tuple(order.tensor_split(num_clients)), one_cluster)


@dataclass(frozen=True)
class Dirichlet:
    """Partition in which the clients' shares of each class have a Dirichlet distribution.

    All samples are used. Clients below the minimum receive samples of larger clients; the draw is
    not repeated.

    Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification. 2019. https://arxiv.org/abs/1909.06335

    Attributes:
        concentration: concentration of the Dirichlet distribution: small values give each client
            few classes, large values give all clients the same class proportions.

    Example:
        >>> import torch
        >>> from cadis.data.partition import Dirichlet
        >>> labels = torch.arange(100) % 2
        >>> rng = torch.Generator().manual_seed(0)
        >>> partition = Dirichlet(concentration=0.1).split(labels, 3, 2, rng)
        >>> sum(len(indices) for indices in partition.indices)
        100
    """

    concentration: Annotated[float, Gt(0), Le(1e9)] = 0.5

    name: ClassVar[str] = "dirichlet"

    def split(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.split`."""
        check_enough_samples(len(labels), num_clients, minimum)
        seed = int(torch.randint(2**62, (), generator=generator))
        alpha = np.full(num_clients, self.concentration)
        shares = np.random.default_rng(seed).dirichlet(alpha, size=int(labels.max()) + 1)
        return Partition(split_by_shares(labels, torch.from_numpy(shares), minimum, generator))


@dataclass(frozen=True)
class PowerLaw:
    """Pareto partition (Section V-C of the CADIS paper): a power law for each class.

    For each class, the clients are put into a random order. The r-th client receives r^-exponent
    times as many samples of the class as the first client. All samples are used.

    Nguyen et al. CADIS. CCGrid 2023. https://arxiv.org/abs/2302.10413

    Attributes:
        exponent: exponent of the power law: 0 gives all clients the same number of samples; larger
            values make the numbers more unequal.

    Example:
        >>> import torch
        >>> from cadis.data.partition import PowerLaw
        >>> labels = torch.zeros(110, dtype=torch.int64)
        >>> rng = torch.Generator().manual_seed(0)
        >>> partition = PowerLaw(exponent=1.0).split(labels, 3, 2, rng)
        >>> sorted(len(indices) for indices in partition.indices)  # 1 / 3, 1 / 2 and 1
        [20, 30, 60]
    """

    exponent: Annotated[float, Ge(0)] = 1.0

    name: ClassVar[str] = "pa"

    def split(
        self, labels: Tensor, num_clients: int, minimum: int, generator: torch.Generator
    ) -> Partition:
        """See :meth:`Partitioner.split`."""
        check_enough_samples(len(labels), num_clients, minimum)
        classes = int(labels.max()) + 1
        ranks = torch.rand(classes, num_clients, generator=generator).argsort(dim=1)
        shares = (1 + ranks.double()) ** -self.exponent  # (classes, clients)
        return Partition(split_by_shares(labels, shares, minimum, generator))
