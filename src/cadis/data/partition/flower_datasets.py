"""Partitioners for Flower Datasets: ``pip install 'cadis[datasets]'``."""

from functools import cached_property

import numpy as np
import torch

from cadis.data.partition.splitting import Partition, Partitioner
from cadis.errors import CadisError
from cadis.rng import derive_generator

try:
    import datasets
    from flwr_datasets.partitioner import Partitioner as _FlowerPartitioner
except ImportError:
    raise CadisError("Install Flower Datasets first: pip install 'cadis[datasets]'.") from None


class FlowerPartitioner(_FlowerPartitioner):  # type: ignore[misc]
    """Adapter that makes a cadis partitioner a ``flwr_datasets`` partitioner.

    For the same labels and seed, the partition is the same as in ``cadis run``, and client i has
    the samples of ``load_partition(i)``. The partition is computed when it is first used.

    Args:
        partitioner: partitioner of cadis.
        num_partitions: number of clients.
        partition_by: name of the label column.
        min_samples: smallest number of samples that a client may have.
        seed: seed of the random draws.

    Example:
        >>> import datasets
        >>> from cadis.data.partition import MultiCluster
        >>> from cadis.data.partition.flower_datasets import FlowerPartitioner
        >>> partitioner = FlowerPartitioner(MultiCluster(ratio=(3, 1)), num_partitions=4)
        >>> partitioner.dataset = datasets.Dataset.from_dict({"label": [0, 1, 2, 3] * 100})
        >>> partitioner.partition.true_clusters.tolist()
        [0, 0, 0, 1]
        >>> len(partitioner.load_partition(3)) > 0
        True
    """

    def __init__(
        self,
        partitioner: Partitioner,
        num_partitions: int,
        partition_by: str = "label",
        min_samples: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._partitioner, self._num_partitions = partitioner, num_partitions
        self._partition_by, self._min_samples, self._seed = partition_by, min_samples, seed

    @cached_property
    def partition(self) -> Partition:
        """Indices of the samples of each client, and the true clusters."""
        if self._partition_by not in self.dataset.column_names:
            columns = ", ".join(self.dataset.column_names)
            raise CadisError(
                f"The dataset has no column '{self._partition_by}'; partition by one of: {columns}."
            )
        _, labels = np.unique(np.asarray(self.dataset[self._partition_by]), return_inverse=True)
        generator = derive_generator(self._seed, "partition")
        return self._partitioner.split(
            torch.from_numpy(labels), self._num_partitions, self._min_samples, generator
        )

    def load_partition(self, partition_id: int) -> datasets.Dataset:
        """Return the samples of one client, numbered from 0."""
        if not 0 <= partition_id < self.num_partitions:
            raise CadisError(
                f"There is no partition {partition_id}; they are numbered from 0 to "
                f"{self.num_partitions - 1}."
            )
        return self.dataset.select(self.partition.indices[partition_id].tolist())

    @property
    def num_partitions(self) -> int:
        """Number of clients."""
        return self._num_partitions
