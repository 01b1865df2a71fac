"""The partitions for Flower Datasets: ``pip install 'cadis[datasets]'``."""

from functools import cached_property

import numpy as np
import torch

from cadis.data.partition.splitting import Partition, Partitioner
from cadis.errors import CadisError
from cadis.rng import generator_for

try:
    import datasets
    from flwr_datasets.partitioner import Partitioner as _FlowerPartitioner
except ImportError:
    raise CadisError("Install Flower Datasets first: pip install 'cadis[datasets]'.") from None


class FlowerPartitioner(_FlowerPartitioner):  # type: ignore[misc]
    """Any of our partitions as a ``flwr_datasets`` partitioner.

    With the same labels and seed it deals as ``cadis run`` does: client i has partition i.
    """

    def __init__(
        self,
        partitioner: Partitioner,
        num_partitions: int,
        partition_by: str = "label",
        min_samples: int = 2,
        seed: int = 0,
    ) -> None:
        """Nothing is dealt until the first partition is wanted.

        Args:
            partitioner: such as ``MultiCluster(ratio=(3, 1))``.
            num_partitions: number of clients.
            partition_by: the column of the labels.
            min_samples: the fewest samples of a client.
            seed: of the dealing.
        """
        super().__init__()
        self._partitioner, self._num_partitions = partitioner, num_partitions
        self._partition_by, self._min_samples, self._seed = partition_by, min_samples, seed

    @cached_property
    def partition(self) -> Partition:
        """Who has what, and the true clusters."""
        if self._partition_by not in self.dataset.column_names:
            columns = ", ".join(self.dataset.column_names)
            raise CadisError(
                f"The dataset has no column '{self._partition_by}'; partition by one of: {columns}."
            )
        _, labels = np.unique(np.asarray(self.dataset[self._partition_by]), return_inverse=True)
        generator = generator_for(self._seed, "partition")
        return self._partitioner.deal(
            torch.from_numpy(labels), self._num_partitions, self._min_samples, generator
        )

    def load_partition(self, partition_id: int) -> datasets.Dataset:
        """The examples of one client."""
        if not 0 <= partition_id < self.num_partitions:
            raise CadisError(
                f"There is no partition {partition_id}; they are numbered from 0 to "
                f"{self.num_partitions - 1}."
            )
        return self.dataset.select(self.partition.indices[partition_id].tolist())

    @property
    def num_partitions(self) -> int:
        """How many clients there are."""
        return self._num_partitions
