"""Labels -> who owns what."""

from cadis.data.holding_out import held_out
from cadis.data.partition.clustered import BalancedCluster, MultiCluster, UnbalancedCluster
from cadis.data.partition.given import given_by_data, read_partition, write_partition
from cadis.data.partition.splitting import Partition, Partitioner
from cadis.data.partition.unclustered import Dirichlet, Iid, PowerLaw

PARTITIONERS: dict[str, type[Partitioner]] = {
    kind.name: kind
    for kind in (MultiCluster, BalancedCluster, UnbalancedCluster, PowerLaw, Iid, Dirichlet)
}
"""Ways of dealing out a dataset, by name."""

__all__ = [
    "PARTITIONERS",
    "BalancedCluster",
    "Dirichlet",
    "Iid",
    "MultiCluster",
    "Partition",
    "Partitioner",
    "PowerLaw",
    "UnbalancedCluster",
    "given_by_data",
    "held_out",
    "read_partition",
    "write_partition",
]
