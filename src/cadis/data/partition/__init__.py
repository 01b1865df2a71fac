"""Labels -> who owns what."""

from cadis.data.partition.client_test import held_out
from cadis.data.partition.dirichlet import Dirichlet
from cadis.data.partition.given import given_by_data, read_partition, write_partition
from cadis.data.partition.iid import Iid
from cadis.data.partition.multi_cluster import MultiCluster
from cadis.data.partition.power_law import PowerLaw
from cadis.data.partition.protocol import Partition, Partitioner
from cadis.data.partition.single_cluster import BalancedCluster, UnbalancedCluster

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
