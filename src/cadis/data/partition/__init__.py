"""Partitions: the assignment of training samples to clients."""

from cadis.data.holdout import hold_out
from cadis.data.partition.clustered import BalancedCluster, MultiCluster, UnbalancedCluster
from cadis.data.partition.overlapping import OverlappingClusters, SoftClusters
from cadis.data.partition.partition_file import partition_by_owner, read_partition, write_partition
from cadis.data.partition.splitting import Partition, Partitioner
from cadis.data.partition.unclustered import Dirichlet, Iid, PowerLaw

PARTITIONERS: dict[str, type[Partitioner]] = {
    cls.name: cls
    for cls in (
        MultiCluster,
        BalancedCluster,
        UnbalancedCluster,
        OverlappingClusters,
        SoftClusters,
        PowerLaw,
        Iid,
        Dirichlet,
    )
}
"""Partitioners by their name in the option ``--partition``."""

__all__ = [
    "PARTITIONERS",
    "BalancedCluster",
    "Dirichlet",
    "Iid",
    "MultiCluster",
    "OverlappingClusters",
    "Partition",
    "Partitioner",
    "PowerLaw",
    "SoftClusters",
    "UnbalancedCluster",
    "hold_out",
    "partition_by_owner",
    "read_partition",
    "write_partition",
]
