"""Labels -> who owns what."""

from cadis.partition.multi_cluster import Partition, multi_cluster

__all__ = ["Partition", "multi_cluster"]
